// SPDX-License-Identifier: Apache-2.0
// Runs host functions in the order of a lane (a stream of a GPU). The lane passes a task to a waiting thread
// and waits until the thread has run it. This file needs no CUDA; in its tests, a thread takes the place of
// the GPU.
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

/// Keeps the first exception of a context's host tasks. After an exception no further task runs, since its
/// input is possibly wrong.
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

/// A host task: the call work(*host, data). `failure` keeps the exception if the call throws one. The
/// HostTask must not move while a lane refers to it.
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

/// The words in memory through which a lane passes tasks to its worker thread. For each task, the lane does
/// in this order:
///  write 0 to `done`; write the task's address to `go`; wait until `done` is 1.
/// When the worker sees a value other than 0 in `go`, it reads the address, writes 0 to `go`, runs the task
/// and writes 1 to `done`. Each write becomes visible after everything that its writer did before. So the
/// task sees the results of the lane's earlier work, and the lane's later work sees the results of the task.
/// The protocol needs no counters. So a graph that contains the lane's three operations can be launched any
/// number of times, also before earlier launches have ended. The lane continues only after its wait, so at
/// most one of its tasks runs at a time. The worker writes 0 to `go` before it writes 1 to `done`, so its 0
/// never overwrites the address of a later task. The lane writes 0 to `done` before it writes the address to
/// `go`, so its 0 never overwrites the 1 of this task, and its wait never sees the 1 of an earlier task.
struct HostSignal {
  alignas(128) std::atomic<std::uint64_t> go{0};
  alignas(128) std::atomic<std::uint64_t> done{0};
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free &&
              sizeof(std::atomic<std::uint64_t>) == sizeof(std::uint64_t));

/// Runs the tasks of one lane on its own thread. This thread is also worker 0 of the context that the tasks
/// receive. It sleeps unless tasks are expected. While it expects a task, it polls `go` continuously for 5 ms
/// and then ten times per millisecond. So the thread costs almost nothing if a step waits for a lost rank or
/// never reaches its tasks. The thread never calls CUDA. All enqueued tasks must have ended before the worker
/// is destroyed.
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

  /// Tells the worker to expect `tasks` more tasks. Call it before the CUDA calls that enqueue them, because
  /// with CUDA_LAUNCH_BLOCKING such a call waits until its task has run. The tasks may come at any time, or
  /// never if the CUDA call fails.
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

  /// Waits for the lane's next task and returns it. Returns null when the worker is stopped.
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
  // the number of tasks announced so far, plus one when the worker is stopped
  std::atomic<std::uint32_t> expected_{0};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
