// SPDX-License-Identifier: Apache-2.0
// Host code in a lane of a device: the lane hands a task to a thread that is already there and waits for it.
// Plain C++: whoever keeps to the protocol can stand for the device, as a thread does in the tests.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/pool.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The first exception of a context's host tasks. Once there is one the others do not run: what they would
/// work on is not what it should be.
class HostFailure {
 public:
  void keep(std::exception_ptr thrown) noexcept {
    std::lock_guard const lock(mutex_);
    if (!first_) first_ = std::move(thrown);
    any_.store(true, std::memory_order_release);
  }
  bool any() const noexcept { return any_.load(std::memory_order_acquire); }
  void raise() const {
    if (!any()) return;
    std::lock_guard const lock(mutex_);
    std::rethrow_exception(first_);
  }

 private:
  mutable std::mutex mutex_;
  std::exception_ptr first_;
  std::atomic<bool> any_{false};
};

/// Host code, and the threads it works with. Stays where it is as long as a lane may name it.
struct HostTask {
  void (*work)(Context<Cpu>& host, void* data) = nullptr;
  void* data = nullptr;
  Context<Cpu>* host = nullptr;
  HostFailure* failure = nullptr;

  void run() const noexcept {
    if (failure->any()) return;
    try {
      work(*host, data);
    } catch (...) {
      failure->keep(std::current_exception());
    }
  }
};

/// What a lane and its worker share, in memory that both reach. For each task the lane, in this order:
///   writes 0 to `done`; writes the task's address to `go`; waits until `done` is 1.
/// The worker, when `go` is not 0: takes the address, writes 0 to `go`, runs the task, writes 1 to `done`.
/// Each write is seen after all that its writer did before, so the task sees what the lane's earlier work
/// left, and the lane's later work what the task left.
/// Nothing counts, so a graph that holds the three operations can be launched however often, and as many
/// launches ahead as one likes: a lane goes on only after its wait, so one task of it is under way at a time.
/// The worker's 0 in `go` comes before its 1 in `done`, so never over a later address; the lane's 0 in `done`
/// comes before its address in `go`, so never over that task's 1, and its wait never sees an older 1.
struct HostSignal {
  alignas(128) std::atomic<std::uint64_t> go{0};
  alignas(128) std::atomic<std::uint64_t> done{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

/// Runs the tasks of one lane on a thread of its own, which is the first of the threads that they work with.
/// It sleeps unless tasks are expected. While some are, it looks at `go` without a pause for 5 ms after each
/// task, then ten times a millisecond: a step that waits for a lost rank, or will never come to its tasks,
/// costs next to nothing. It calls nothing of CUDA. What was enqueued must have ended before it goes.
class HostWorker {
 public:
  /// Throws Error(failed) where the system starts no more threads.
  explicit HostWorker(HostSignal& signal) : signal_(signal) {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (std::system_error const& error) {
      throw Error(ErrorKind::failed, "the system started no thread for host work (" + error.code().message() +
                                         "); lower --threads, or raise ulimit -u");
    }
  }
  HostWorker(HostWorker const&) = delete;
  HostWorker& operator=(HostWorker const&) = delete;
  ~HostWorker() {
    stop_.store(true, std::memory_order_release);
    expect(1);
    thread_.join();
  }

  /// So many more tasks are about to be enqueued, by calls that may wait for them (CUDA_LAUNCH_BLOCKING).
  /// They come at any time, or, where that failed, never.
  void expect(std::uint32_t tasks) noexcept {
    expected_.fetch_add(tasks, std::memory_order_release);
    expected_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds eager{5};
  static constexpr std::chrono::microseconds nap{100};

  void serve() noexcept {
    for (std::uint32_t served = 0;; ++served) {
      expected_.wait(served, std::memory_order_acquire);
      HostTask const* const task = next();
      if (!task) return;
      task->run();
      signal_.done.store(1, std::memory_order_release);
    }
  }

  /// The task that the lane hands over; null when the worker ends.
  HostTask const* next() noexcept {
    auto const since = Clock::now();
    for (unsigned look = 1; !stop_.load(std::memory_order_acquire); ++look) {
      if (std::uint64_t const address = signal_.go.load(std::memory_order_acquire)) {
        signal_.go.store(0, std::memory_order_relaxed);
        return reinterpret_cast<HostTask const*>(address);
      }
      if (look % 64 != 0)
        cpu::pause();
      else if (Clock::now() - since < eager)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(nap);
    }
    return nullptr;
  }

  HostSignal& signal_;
  std::atomic<std::uint32_t> expected_{0};  // tasks, ever; one more at the end
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
