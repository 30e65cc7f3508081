// SPDX-License-Identifier: Apache-2.0
// Provides NcclLink: the NCCL communicators of one rank, and the thread that ends them when a rank is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nccl.h>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/rank_progress.hpp"
#include "tessera/comm/shared_access.cuh"
#include "tessera/comm/threads.hpp"
#include "tessera/core/error.hpp"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 19, 0)
#error "tessera needs NCCL 2.19 or newer"
#endif

namespace tessera {
inline namespace v0 {

namespace cuda {

/// A kernel that records on the rank's board that its stream has reached a collective. Stores the watch word
/// `value` in `word`. Increments `counter`, which is in device memory, and copies the count to `reached`. The
/// count is necessary because each replay of a CUDA graph stores the same watch word. If several streams run
/// this kernel at once, the loop makes sure that the largest count remains in `reached`. Uses one thread. It
/// is a template, so that a program in which several source files include it has only one kernel.
template <class Word>
__global__ void reach_collective(Word* counter, Word volatile* reached, Word volatile* word, Word value) {
  *word = value;
  Word seen = atomicAdd(counter, Word{1}) + 1, written = 0;
  while (written != seen) {
    *reached = written = seen;
    __threadfence_system();
    seen = atomicAdd(counter, Word{0});
  }
}

}  // namespace cuda

namespace comm {

struct NcclOptions {
  /// Seconds that a rank waits for enqueued work while no rank reaches a collective or calls `heartbeat`.
  /// Then the rank throws PeerLost.
  std::chrono::duration<double> timeout{300.0};
};

namespace detail {

inline std::string text_of(ncclResult_t status, ncclComm_t communicator) {
  char const* const last = ncclGetLastError(communicator);
  return std::string(ncclGetErrorString(status)) + (last && *last ? std::string(": ") + last : "");
}

/// The NCCL communicators of one rank. The first communicator contains all ranks, and `split` adds
/// communicators of groups. They are non-blocking, so they can be aborted at any time, even while they
/// connect. The transport starts a watcher thread, which runs `watch`. Only this thread ends the
/// communicators, when a rank is lost or when the transport is destroyed. If it aborts them, NCCL kernels
/// that wait for the lost rank end too.
class NcclLink {
 public:
  NcclLink(std::shared_ptr<RankStates> states, int rank, int device, std::chrono::duration<double> timeout)
      : states_(std::move(states)),
        rank_(rank),
        device_(device),
        timeout_(timeout),
        progress_(states_, rank, timeout),
        access_(states_, progress_, rank) {}

  RankStates& states() const noexcept { return *states_; }
  History& history() const noexcept { return states_->history(rank_); }
  RankProgress const& progress() const noexcept { return progress_; }
  SharedAccess& access() noexcept { return access_; }

  /// Opens the communicator of all ranks, and waits for the other ranks. The watcher thread must already run
  /// `watch`. `place` follows "waited for all N ranks to join" in error messages.
  void join(ncclUniqueId const& id, std::string const& place) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclResult_t status;
    {
      std::lock_guard lock(calls_);
      communicators_.push_back(nullptr);
      is_open_ = true;
      status = ncclCommInitRankConfig(&communicators_.back(), states_->world(), id, rank_, &config);
    }
    await_completion(status, ("all " + std::to_string(states_->world()) + " ranks to join" + place).c_str());
    joined_.store(true, std::memory_order_release);
  }

  /// Opens a communicator for the ranks of `group`. Returns its number, which is its index in
  /// `communicators_` and the same on all ranks. All ranks of the world must call it together, each with the
  /// group to which it belongs, while no NCCL work runs. Throws Error(unsupported) if there are already
  /// max_communicators communicators.
  int split(ProcessGroup const& group) {
    check();
    if (progress_.communicators() == static_cast<std::size_t>(max_communicators))
      throw Error(ErrorKind::unsupported,
                  progress_.name() + " has opened " + std::to_string(max_communicators) +
                      " communicators, and no more are possible; use fewer groups and channels",
                  rank_);
    ncclResult_t status = ncclSuccess;
    int number = 0;
    {
      std::lock_guard lock(calls_);
      if (is_open_) {
        number = static_cast<int>(communicators_.size());
        communicators_.push_back(nullptr);  // NCCL writes to it later; a deque does not move its elements
        status = ncclCommSplit(communicators_.front(), group.first, group.index_of(rank_),
                               &communicators_.back(), nullptr);
        // NCCL stores the new communicator when it is ready. Until then the first communicator can report
        // another state than ncclInProgress, so this code sets the status itself.
        if (status == ncclSuccess) status = ncclInProgress;
      }
    }
    await_completion(status, "all ranks to open a communicator");
    check();
    progress_.add(group);
    return number;
  }

  /// Enqueues NCCL operations as one NCCL group, and waits until NCCL has enqueued them. calls(communicators)
  /// calls the NCCL functions of the operations, such as ncclAllGather, and returns their status.
  template <class Calls>
  void enqueue(Calls const& calls) {
    check();
    ncclResult_t status = ncclSuccess;
    {
      std::lock_guard lock(calls_);
      if (is_open_) status = ncclGroupStart();
      if (is_open_ && status == ncclSuccess) {
        ncclResult_t const result = calls(communicators_);
        status = ncclGroupEnd();
        if (result != ncclSuccess && result != ncclInProgress) status = result;
      }
    }
    await_completion(status, "NCCL to enqueue");
    check();
  }

  /// Throws PeerLost if the communicator has ended.
  void check() const {
    if (access_.are_released()) {
      for (int wait = 0; wait < 100 && !states_->fault(); ++wait) {  // a fault names the lost rank
        progress_.blame_leavers();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      states_->lose(
          -1,
          "another rank has stopped waiting for this rank, so the results of this step can be wrong; "
          "see the first error of the other ranks");
    }
    if (auto const fault = states_->fault()) raise(fault->first, fault->second);
  }

  void await(std::function<bool()> const& done, char const* what) {
    Patience patience(*this);
    while (!done()) {
      auto const now = Clock::now();
      if (now - patience.start < std::chrono::microseconds(50)) {
        std::this_thread::yield();
        continue;
      }
      check();
      patience.look(now, what);
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    check();  // an abort also ends the work, so `done` returns true after it
  }

  /// Runs the watcher thread. Waits until a rank is lost or `close` is called, then ends the communicators.
  /// After the loss of a rank, ends the waits of streams for other ranks. Returns after `rest`.
  void watch() {
    cudaSetDevice(device_);
    std::unique_lock lock(watcher_);
    while (!closing_ && !lost()) wake_.wait_for(lock, std::chrono::milliseconds(50));
    lock.unlock();
    last_place();
    // NCCL waits for the GPU when it ends a communicator, so another thread ends the waits of streams
    // meanwhile.
    std::thread releasing;
    try {
      releasing = std::thread([this] { release_streams(); });
    } catch (std::exception const&) {  // streams that wait for words will not end
    }
    end();
    lock.lock();
    ended_ = true;
    wake_.notify_all();
    wake_.wait(lock, [&] { return resting_.load(); });
    lock.unlock();
    if (releasing.joinable()) releasing.join();
  }
  /// Lets `watch` return. No stream of this rank may wait for another rank any longer.
  void rest() {
    std::lock_guard lock(watcher_);
    resting_ = true;
    wake_.notify_all();
  }
  void wake() noexcept { wake_.notify_all(); }
  /// Makes the watcher thread end the communicators, and waits until it has done so. Returns false if that
  /// takes longer than 5 s, for example because a CUDA graph or another process still uses a communicator.
  bool close() {
    std::unique_lock lock(watcher_);
    closing_ = true;
    wake_.notify_all();
    return wake_.wait_for(lock, std::chrono::seconds(5), [&] { return ended_; });
  }

 private:
  /// Measures for how long no rank has made progress while this rank waits. `look` ends the communicator when
  /// this takes too long.
  struct Patience {
    explicit Patience(NcclLink& of)
        : link(of), start(Clock::now()), moved(start), seen(of.progress_.movement()) {}

    void look(Clock::time_point now, char const* what) {
      link.states_->mark_alive(link.rank_);  // a rank that waits here must not seem lost
      if (auto const current = link.progress_.movement(); current != seen) {
        seen = current;
        moved = now;
        return;
      }
      std::chrono::duration<double> const quiet = now - moved;
      if (quiet > std::min(link.timeout_, std::chrono::duration<double>(1.0))) {
        link.progress_.blame_leavers();
        link.progress_.blame_disagreement();
      }
      if (quiet > link.timeout_) link.progress_.blame(what);
    }

    NcclLink& link;
    Clock::time_point start;
    Clock::time_point moved;
    std::uint64_t seen;
  };

  /// Describes the collective that this rank had reached when the communicator ended. The first call stores
  /// the description. Later the board can change: kernels that were enqueued after an aborted one still run.
  std::string last_place() const {
    std::lock_guard lock(place_);
    if (last_place_.empty()) last_place_ = progress_.where(rank_);
    return last_place_;
  }

  [[noreturn]] void raise(int lost, std::string const& text) const {
    std::string const who = lost < 0        ? "the communicator has ended: "
                            : lost == rank_ ? progress_.name() + " was declared lost: "
                                            : states_->name(lost) + " is lost: ";
    throw PeerLost(who + text + " [" + progress_.name() + " was " + last_place() + "]", lost,
                   history().last_unit());
  }

  /// Waits until NCCL has completed a call. `status` is the result of the call, and `what` says in error
  /// messages what this rank waited for. Throws PeerLost or Error(failed) if the call failed.
  void await_completion(ncclResult_t status, char const* what) {
    if (status == ncclInProgress)
      await(
          [&] {
            std::lock_guard lock(calls_);
            if (!is_open_) return true;
            status = state();
            return status != ncclInProgress;
          },
          what);
    if (status == ncclSuccess || status == ncclInProgress) return;
    // If the process of another rank ended, NCCL reports a connection error, often before the launch names
    // the process. So this loop waits up to 0.5 s for the launch.
    for (int wait = 0; wait < 50 && !states_->fault(); ++wait)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    check();
    std::string const text = failure(status);
    if (status == ncclRemoteError) states_->lose(-1, text);
    check();
    throw Error(ErrorKind::failed,
                "NCCL failed while " + progress_.name() + " waited for " + what + ": " + text + " [" +
                    progress_.name() + " was " + progress_.where(rank_) + "]",
                rank_, history().last_unit());
  }

  std::string failure(ncclResult_t status) {
    std::lock_guard lock(calls_);
    return text_of(status, is_open_ ? communicators_.front() : nullptr);
  }

  /// Returns one status for all communicators: the first failure, or ncclInProgress if a communicator is in
  /// progress, or ncclSuccess. A communicator that NCCL has not stored yet counts as in progress. The caller
  /// must hold the lock `calls_`.
  ncclResult_t state() {
    ncclResult_t all = ncclSuccess;
    for (ncclComm_t& each : communicators_) {
      if (!is_open_) continue;
      ncclComm_t const communicator = std::atomic_ref(each).load(std::memory_order_acquire);
      ncclResult_t status = ncclInProgress;
      if (communicator) {
        ncclResult_t const result = ncclCommGetAsyncError(communicator, &status);
        if (result != ncclSuccess) status = result;
      }
      if (status != ncclSuccess && (all == ncclSuccess || all == ncclInProgress)) all = status;
    }
    return all;
  }

  /// Returns whether the communicator has failed. The watcher thread calls this function about every 50 ms.
  bool lost() {
    if (states_->fault()) return true;
    ncclResult_t status = ncclSuccess;
    {
      std::lock_guard lock(calls_);
      status = state();
    }
    failures_ = status == ncclSuccess || status == ncclInProgress ? 0 : failures_ + 1;
    // Reports an error of NCCL only when ten calls in a row, about 0.5 s, have seen it. By then the launch
    // has reported a process that ended, and its message is better because it names the process.
    if (failures_ >= 10 && joined_.load(std::memory_order_acquire))
      states_->lose(-1, "NCCL reports an error on " + progress_.name() + ": " + failure(status));
    return states_->fault().has_value();
  }

  /// Runs until `rest` is called. Ends the waits of this rank's streams for other ranks, beginning 0.5 s
  /// after the loss of a rank, when all ranks know of it, or 5 s after the call of `close`.
  void release_streams() {
    cudaSetDevice(device_);
    auto const start = Clock::now();
    std::optional<Clock::time_point> lost;
    while (!resting_) {
      auto const now = Clock::now();
      if (!lost && states_->fault()) lost = now;
      bool const due =
          (lost && now - *lost > std::chrono::milliseconds(500)) || now - start > std::chrono::seconds(5);
      if (due) access_.release();
      std::this_thread::sleep_for(std::chrono::microseconds(due ? 50 : 1000));
    }
  }

  void end() {
    std::vector<ncclComm_t> last_first;
    {
      std::lock_guard lock(calls_);
      if (std::exchange(is_open_, false)) last_first.assign(communicators_.rbegin(), communicators_.rend());
    }
    for (ncclComm_t const communicator : last_first) {
      if (!communicator) continue;
      if (joined_.load(std::memory_order_acquire) && finalize(communicator))
        ncclCommDestroy(communicator);
      else
        ncclCommAbort(communicator);
    }
  }

  /// Completes the pending communication of a communicator. Waits for this for at most 3 s. Returns whether
  /// it succeeded in this time.
  bool finalize(ncclComm_t communicator) const {
    if (states_->fault()) return false;
    auto const start = Clock::now();
    ncclResult_t status = ncclCommFinalize(communicator);
    while (status == ncclInProgress && !states_->fault() && Clock::now() - start < std::chrono::seconds(3)) {
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      ncclResult_t const result = ncclCommGetAsyncError(communicator, &status);
      if (result != ncclSuccess) status = result;
    }
    return status == ncclSuccess;
  }

  std::shared_ptr<RankStates> states_;
  int const rank_;
  int const device_;
  std::chrono::duration<double> const timeout_;
  RankProgress progress_;
  SharedAccess access_;
  std::mutex calls_;                      ///< held during calls of NCCL functions, not while waiting
  std::deque<ncclComm_t> communicators_;  ///< NCCL writes to the elements, even after an abort
  bool is_open_ = false;
  std::atomic<bool> joined_{false};
  std::mutex watcher_;
  std::condition_variable wake_;
  bool closing_ = false;
  bool ended_ = false;
  std::atomic<bool> resting_{false};
  int failures_ = 0;
  mutable std::mutex place_;
  mutable std::string last_place_;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
