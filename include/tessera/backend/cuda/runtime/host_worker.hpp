// SPDX-License-Identifier: Apache-2.0
// Runs host code in a lane (a stream) of a device: the lane hands a task to an existing thread and waits for
// it. Plain C++ without CUDA: in the tests a thread plays the part of the device.
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

/// Keeps the first exception of a context's host tasks. After it no further task runs, since its input may be
/// wrong.
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

/// Host code and the context whose threads it uses. It must not move while a lane may refer to it.
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

/// The memory that a lane and its worker share. For each task, the lane does in this order:
///   write 0 to `done`; write the task's address to `go`; wait until `done` is 1.
/// The worker, when `go` is not 0: takes the address, writes 0 to `go`, runs the task, writes 1 to `done`.
/// Each write becomes visible after everything its writer did before. So the task sees the results of the
/// lane's earlier work, and the lane's later work sees the results of the task. There are no counters, so a
/// graph with the three operations can be launched any number of times, and any number of launches ahead. A
/// lane continues only after its wait, so at most one of its tasks runs at a time. The worker clears `go`
/// before it sets `done`, so it never overwrites a later address. The lane clears `done` before it sets `go`,
/// so it never overwrites that task's 1, and its wait never sees an older 1.
struct HostSignal {
  alignas(128) std::atomic<std::uint64_t> go{0};
  alignas(128) std::atomic<std::uint64_t> done{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

/// Runs the tasks of one lane on its own thread, which is also the first thread of the tasks' context. The
/// thread sleeps unless tasks are expected. While it expects one, it polls `go` continuously for 5 ms and
/// then ten times per millisecond, so a step that waits for a lost rank, or never reaches its tasks, costs
/// almost nothing. It never calls CUDA. All enqueued tasks must have ended before the worker is destroyed.
class HostWorker {
 public:
  /// Throws Error(failed) if the system cannot start another thread.
  explicit HostWorker(HostSignal& signal) : signal_(signal) {
    try {
      thread_ = std::thread([this] { serve(); });
    } catch (std::system_error const& error) {
      throw Error(ErrorKind::failed, "cannot start a thread for host work (" + error.code().message() +
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

  /// Announces tasks before the calls that enqueue them, since these may wait for them
  /// (CUDA_LAUNCH_BLOCKING). The tasks may come at any time, or never if such a call fails.
  void expect(std::uint32_t tasks) noexcept {
    expected_.fetch_add(tasks, std::memory_order_release);
    expected_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds eager{5};
  static constexpr std::chrono::microseconds idle_sleep{100};

  void serve() noexcept {
    for (std::uint32_t served = 0;; ++served) {
      expected_.wait(served, std::memory_order_acquire);
      HostTask const* const task = next();
      if (!task) return;
      task->run();
      signal_.done.store(1, std::memory_order_release);
    }
  }

  /// Waits for the lane's next task. Returns null when the worker is stopped.
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
        std::this_thread::sleep_for(idle_sleep);
    }
    return nullptr;
  }

  HostSignal& signal_;
  std::atomic<std::uint32_t> expected_{0};  // total number of tasks, plus one at the end
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
