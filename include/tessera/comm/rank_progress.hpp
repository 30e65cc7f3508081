// SPDX-License-Identifier: Apache-2.0
// Provides RankProgress, which compares the collectives that the ranks have reached.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Compares the collectives that this rank has reached with those of the other ranks. If ranks wait for each
/// other in vain, ends the communicator, with an error that names the rank that is probably the cause. Only
/// the thread of the rank may use it; other threads may call `name` and `where`.
class RankProgress {
 public:
  /// `timeout` is the time after which the caller calls `blame`; it is part of the error message.
  RankProgress(std::shared_ptr<RankStates> states, int rank, std::chrono::duration<double> timeout)
      : states_(std::move(states)), rank_(rank), timeout_(timeout) {
    groups_.push_back({0, 1, states_->world()});
  }

  /// Adds the group of the next communicator.
  void add(ProcessGroup const& group) { groups_.push_back(group); }
  /// Returns the number of communicators.
  std::size_t communicators() const noexcept { return groups_.size(); }

  /// Returns the name of this rank for error messages.
  std::string name() const { return states_->name(rank_); }

  /// Describes the collective that a rank has reached.
  std::string where(int rank) const {
    Board const* const board = states_->board(rank);
    std::uint64_t const word = board->word.load(std::memory_order_acquire);
    return word == 0 ? "before its first collective"
                     : "at collective " + states_->history(rank).text(word, rank);
  }

  /// Returns a number that changes whenever a rank reaches a collective or calls `heartbeat`.
  std::uint64_t movement() const {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < states_->world(); ++rank)
      if (Board const* const board = states_->board(rank))
        sum += board->reached() + board->beats.load(std::memory_order_relaxed);
    return sum;
  }

  /// Returns whether the rank `rank` has reached a collective of a common group that this rank has not
  /// reached.
  bool is_ahead(int rank) const {
    bool ahead = false;
    each_peer([&](int communicator, int peer) {
      ahead = ahead || (peer == rank && states_->board(rank)->reached(communicator) >
                                            states_->board(rank_)->reached(communicator));
    });
    return ahead;
  }

  /// Ends the communicator if another rank of a group has left and has reached fewer collectives of the group
  /// than this rank. That rank will never reach the collective in which this rank waits.
  void blame_leavers() const {
    each_peer([&](int communicator, int rank) {
      if (!states_->has_left(rank)) return;
      if (states_->board(rank)->reached(communicator) >= states_->board(rank_)->reached(communicator)) return;
      states_->lose(
          rank, "it left " + where(rank) + ", but other ranks continued; every rank must run the same steps");
    });
  }

  /// Ends the communicator if this rank and another rank of a group are in collectives with the same sequence
  /// number but different moves, for example an all_reduce and a broadcast. NCCL does not compare requests,
  /// so both ranks would wait until the timeout. The watch words contain no sizes, so collectives of the same
  /// move with different sizes are not noticed.
  void blame_disagreement() {
    std::uint64_t const own = states_->board(rank_)->word.load(std::memory_order_acquire);
    each_peer([&](int communicator, int rank) {
      std::uint64_t const other = states_->board(rank)->word.load(std::memory_order_acquire);
      if (other == own || own == 0 || sequence_of(other) != sequence_of(own) ||
          communicator_of(other) != communicator || communicator_of(own) != communicator)
        return;
      int const first = std::min(rank_, rank), second = std::max(rank_, rank);
      states_->lose(-1, "ranks request different collectives: rank " + std::to_string(first) + " is " +
                            where(first) + "; rank " + std::to_string(second) + " is " + where(second) +
                            "; every rank must run the same steps on the same model");
    });
  }

  /// Ends the communicator after a timeout. `what` says what this rank waited for. The error names the rank
  /// that is probably the cause. In each group, this function compares how many collectives this rank and
  /// every other rank have reached. If other ranks are behind this rank, it names the one that is furthest
  /// behind. Otherwise, if another rank is ahead, it names this rank. Otherwise it names a rank with another
  /// watch word than this rank, or no rank.
  void blame(char const* what) {
    auto const word = [&](int rank) { return states_->board(rank)->word.load(std::memory_order_acquire); };
    std::uint64_t const own_word = word(rank_);
    int behind = -1;
    int ahead = rank_;
    int elsewhere = -1;
    std::uint64_t most_behind = 0, most_ahead = 0;
    each_peer([&](int communicator, int rank) {
      std::uint64_t const own = states_->board(rank_)->reached(communicator),
                          reached = states_->board(rank)->reached(communicator);
      if (reached < own && own - reached > most_behind) {
        behind = rank;
        most_behind = own - reached;
      }
      if (reached > own && reached - own > most_ahead) {
        ahead = rank;
        most_ahead = reached - own;
      }
      if (communicator_of(word(rank)) == communicator && communicator_of(own_word) == communicator &&
          word(rank) != own_word)
        elsewhere = rank;
    });
    int const lost = behind >= 0 ? behind : ahead != rank_ ? rank_ : elsewhere;
    std::string const waited =
        " for " + seconds_text(timeout_.count()) + " while " + name() + " waited for " + what;
    std::string const text = lost < 0
                                 ? "no rank gave a sign of life" + waited + " " + where(rank_) +
                                       "; no rank that can be seen is behind"
                                 : "it gave no sign of life" + waited + "; it was last seen " + where(lost) +
                                       "; rank " + std::to_string(ahead) + " is " + where(ahead);
    states_->lose(lost, text + "; if the GPUs are still computing, raise the timeout");
  }

 private:
  /// Calls body(communicator, rank) for each group of this rank and each other rank of the group.
  /// `communicator` is the number of the communicator of the group.
  template <class Body>
  void each_peer(Body const& body) const {
    for (std::size_t number = 0; number < groups_.size(); ++number)
      for (int index = 0; index < groups_[number].count; ++index)
        if (int const rank = groups_[number].rank(index); rank != rank_) body(static_cast<int>(number), rank);
  }

  std::shared_ptr<RankStates> states_;
  int const rank_;
  std::chrono::duration<double> const timeout_;
  std::vector<ProcessGroup> groups_;  // indexed by communicator
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
