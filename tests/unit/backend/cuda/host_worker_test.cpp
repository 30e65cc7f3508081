// SPDX-License-Identifier: Apache-2.0
// Tests HostWorker, a CPU thread that runs functions of the host when a GPU requests them. In these tests
// another CPU thread plays the part of the GPU. Each host function must run once, in the order of its lane
// (stream), and the worker and the device must see each other's writes. The tests cover several launches in
// flight, host functions that throw, and host functions that the device never requests.
#include "tessera/backend/cuda/runtime/host_worker.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/philox.hpp"

namespace {

using namespace tessera;
using cuda::HostFailure, cuda::HostSignal, cuda::HostTask, cuda::HostWorker;

/// Acts as the device: requests the host function `task` and waits until the worker has run it.
void hand_over(HostSignal& signal, HostTask const& task) {
  signal.done.store(0, std::memory_order_release);
  signal.go.store(reinterpret_cast<std::uintptr_t>(&task), std::memory_order_release);
  while (signal.done.load(std::memory_order_acquire) != 1) std::this_thread::yield();
}

/// Delays the calling thread by a pseudo-random time, which depends on `number` and `side`. The device, the
/// worker and the test's main thread pass different values of `side`, so their delays differ.
void delay(std::uint32_t number, std::uint32_t side) {
  std::uint32_t const random = philox4x32({{number, side, 0u, 0u}}, philox_key(7)).word[0];
  if (random % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random % 199));
  if (random % 16 == 1) std::this_thread::yield();
}

/// The argument of the host function run(), which doubles *value and appends `number` to *order.
struct Work {
  std::uint32_t number = 0;
  std::int64_t* value = nullptr;  // the device and the worker write it in turn
  std::vector<std::uint32_t>* order = nullptr;

  static void run(Context<Cpu>&, void* data) {
    Work const& work = *static_cast<Work const*>(data);
    delay(work.number, 1);
    *work.value *= 2;
    work.order->push_back(work.number);
  }
};

/// Simulates a lane (stream) of a device. The lane has a fixed list of host functions and can launch the list
/// many times, as a GPU launches a CUDA graph.
struct DeviceLane {
  explicit DeviceLane(Context<Cpu>& host, std::uint32_t tasks) {
    for (std::uint32_t number = 0; number < tasks; ++number) {
      works.push_back({number, &value, &order});
      list.push_back({&Work::run, &works.back(), &host, &failure});
    }
  }
  /// Acts as the device: launches the list of host functions `launches` times. Counts wrong results in
  /// `wrong`.
  void go(std::uint32_t launches) {
    for (std::uint32_t launch = 0; launch < launches; ++launch)
      for (std::uint32_t number = 0; number < list.size(); ++number) {
        delay(launch * 64 + number, 0);
        value = launch + number;
        hand_over(signal, list[number]);
        wrong += value != 2 * (std::int64_t{launch} + number);
      }
  }

  HostSignal signal;
  HostFailure failure;
  std::int64_t value = 0, wrong = 0;
  std::vector<std::uint32_t> order;
  std::deque<Work> works;
  std::deque<HostTask> list;
};

double cpu_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

TEST_CASE("host tasks run once, in the order of their lane, and both sides see what the other wrote") {
  constexpr std::uint32_t tasks = 5, launches = 300;
  Context<Cpu> host(1, {});
  // `ahead` is the number of launches that the test announces to the worker `of_one` at once.
  for (std::uint32_t const ahead : {1u, 4u, launches}) {
    INFO("ahead ", ahead);
    DeviceLane one(host, tasks), other(host, tasks);
    {
      HostWorker of_one(one.signal), of_other(other.signal);
      std::atomic<std::uint32_t> allowed{0};
      std::thread device_one([&] {
        for (std::uint32_t launch = 0; launch < launches; ++launch) {
          while (allowed.load() <= launch) std::this_thread::yield();
          one.go(1);
        }
      });
      // The thread of the lane `other` does not wait for announcements, so it is ahead of its worker.
      std::thread device_other([&] { other.go(launches); });
      for (std::uint32_t launch = 0; launch < launches; ++launch) {
        if (launch % ahead == 0) of_one.expect(tasks * std::min(ahead, launches - launch));
        allowed.store(launch + 1);
        of_other.expect(tasks);
        delay(launch, 2);
      }
      device_one.join();
      device_other.join();
    }
    for (DeviceLane* lane : {&one, &other}) {
      CHECK(lane->wrong == 0);
      bool in_order = lane->order.size() == std::size_t{tasks} * launches;
      for (std::size_t at = 0; in_order && at < lane->order.size(); ++at)
        in_order = lane->order[at] == at % tasks;
      CHECK(in_order);
    }
  }
}

TEST_CASE("host tasks of two lanes run at the same time") {
  Context<Cpu> host(1, {});
  std::atomic<int> here{0};
  auto const meet = [](Context<Cpu>&, void* data) {
    auto& met = *static_cast<std::atomic<int>*>(data);
    met.fetch_add(1);
    auto const until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (met.load() < 2) {
      if (std::chrono::steady_clock::now() > until) throw std::runtime_error("alone");
      std::this_thread::yield();
    }
  };
  HostFailure failure;
  HostTask const task{meet, &here, &host, &failure};
  HostSignal one, other;
  {
    HostWorker of_one(one), of_other(other);
    of_one.expect(1);
    of_other.expect(1);
    std::thread device([&] { hand_over(other, task); });
    hand_over(one, task);
    device.join();
  }
  CHECK_FALSE(failure.any());
}

TEST_CASE("what a host task throws is kept, the lane goes on, and later tasks do not run") {
  Context<Cpu> host(1, {});
  HostFailure failure;
  int runs = 0;
  HostTask const counts{[](Context<Cpu>&, void* data) { ++*static_cast<int*>(data); }, &runs, &host,
                        &failure};
  HostTask const throws{[](Context<Cpu>&, void*) { throw std::runtime_error("no more disk"); }, nullptr,
                        &host, &failure};
  HostTask const again{[](Context<Cpu>&, void*) { throw std::runtime_error("second"); }, nullptr, &host,
                       &failure};
  HostSignal signal;
  {
    HostWorker worker(signal);
    worker.expect(4);
    hand_over(signal, counts);
    CHECK_NOTHROW(failure.raise());
    for (HostTask const* task : {&throws, &again, &counts}) hand_over(signal, *task);
  }
  CHECK(runs == 1);
  for (int time = 0; time < 2; ++time)
    CHECK_THROWS_WITH_AS(failure.raise(), "no more disk", std::runtime_error);
}

TEST_CASE("a worker without tasks sleeps, and one whose tasks never come costs little and ends") {
  HostSignal signal;
  double const before = cpu_seconds();
  {
    HostWorker worker(signal);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    CHECK(cpu_seconds() - before < 0.05);
    worker.expect(3);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    CHECK(cpu_seconds() - before < 0.15);
  }
  for (int round = 0; round < 50; ++round) HostWorker worker(signal);
}
