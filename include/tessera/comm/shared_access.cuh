// SPDX-License-Identifier: Apache-2.0
// Provides SharedAccess, which ends the access of ranks to each other's device memory.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/board.hpp"
#include "tessera/comm/kept_memory.hpp"
#include "tessera/comm/peer_words.cuh"
#include "tessera/comm/rank_progress.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Ends the access of one rank to the device memory of the others, and the waits of its streams for the
/// others.
class SharedAccess {
 public:
  /// `progress` must exist as long as this object.
  SharedAccess(std::shared_ptr<RankStates> states, RankProgress const& progress, int rank)
      : states_(std::move(states)), progress_(progress), rank_(rank) {}

  /// Ends the access to shared memory. Waits until all ranks have ended theirs, and then frees the memory of
  /// this rank. Otherwise adds it to the kept memory: after 30 s, after a failure, or if another rank waits
  /// for this one in a collective. While an exception is handled, waits only 1 s.
  void end(std::shared_ptr<SharedDeviceMemory> memory) const {
    auto const limit = Clock::now() + std::chrono::seconds(std::uncaught_exceptions() > 0 ? 1 : 30);
    bool const idle = await_idle(*memory, limit);
    if (idle) memory->close();
    if (!idle || !await_closed(*memory, limit)) states_->kept().add(std::move(memory));
    free_kept();
  }

  /// Frees the kept memory to which no rank has access. Without a failure, first ends the access of ranks
  /// whose collectives have become complete.
  void free_kept() const {
    KeptMemory& kept = states_->kept();
    if (!states_->fault()) kept.close_idle();
    kept.free_closed();
  }

  /// Adds words on which streams wait for other ranks.
  void add(std::shared_ptr<PeerWords> const& words) {
    std::lock_guard lock(waits_);
    std::erase_if(words_, [](auto const& each) { return each.expired(); });
    words_.push_back(words);
  }

  /// Returns whether a rank has ended the waits of its streams, so that results can be wrong.
  bool are_released() const {
    auto const all = words();
    return std::any_of(all.begin(), all.end(), [](auto const& each) { return each->are_released(); });
  }

  /// Ends the waits of this rank's streams that are running now (PeerWords::release). Any thread may call it.
  void release() const {
    for (auto const& each : words()) each->release();
  }

 private:
  /// Returns the words that exist.
  std::vector<std::shared_ptr<PeerWords>> words() const {
    std::vector<std::shared_ptr<PeerWords>> all;
    std::lock_guard lock(waits_);
    for (auto const& each : words_)
      if (auto one = each.lock()) all.push_back(std::move(one));
    return all;
  }

  /// Waits until the collectives of this rank are complete. Returns false after a failure, because streams
  /// can then still wait for other ranks, or at the time `end`.
  bool await_idle(SharedDeviceMemory const& memory, Clock::time_point end) const {
    while (!states_->fault() && Clock::now() < end) {
      if (memory.is_idle()) return !states_->fault();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return false;
  }

  /// Waits until all ranks have closed `memory`. Returns false after a failure, at the time `end`, or if a
  /// rank that has not closed it was ahead of this rank for 1 s.
  bool await_closed(SharedDeviceMemory const& memory, Clock::time_point end) const {
    auto in_step = Clock::now();  // the last time at which no such rank was ahead
    std::uint64_t reached = states_->board(rank_)->reached();
    for (;;) {
      bool closed = true, ahead = false;
      for (int rank = 0; rank < states_->world(); ++rank)
        if (!memory.closed_by(rank)) {
          closed = false;
          ahead = ahead || progress_.is_ahead(rank);
        }
      if (closed) return true;
      auto const now = Clock::now();
      std::uint64_t const current = states_->board(rank_)->reached();
      if (!ahead || current != reached) in_step = now;
      reached = current;
      if (states_->fault() || now > end || now - in_step > std::chrono::seconds(1)) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  std::shared_ptr<RankStates> states_;
  RankProgress const& progress_;
  int const rank_;
  mutable std::mutex waits_;
  std::vector<std::weak_ptr<PeerWords>> words_;  // on which streams wait for other ranks
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
