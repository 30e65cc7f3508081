// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads of one process: they publish pointers, meet, copy from each other, and part.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/sum.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera::inline v0 {
namespace comm {

/// The most ranks that one process runs.
inline constexpr int most_threads = 64;

struct ThreadsOptions {
  /// Seconds that a rank waits for another one without a sign of life from it (a collective or a heartbeat).
  std::chrono::duration<double> timeout{300.0};
};

namespace detail {

using Clock = std::chrono::steady_clock;

inline std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

/// At most three years, so that a deadline never overflows.
inline Clock::duration duration_of(std::chrono::duration<double> seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds.count(), 1e8)));
}

/// What W ranks share. Every collective has two meetings. `meet` publishes the request, waits for all ranks
/// and compares; it is the only place where a rank can be waited for in vain. `part` holds everybody until
/// all have read; between the two a rank does nothing but copy, so `part` needs no timeout and buffers stay
/// valid.
class ThreadGroup {
 public:
  ThreadGroup(int world, std::chrono::duration<double> timeout)
      : world_(world),
        timeout_text_(seconds_text(timeout.count())),
        timeout_(duration_of(timeout)),
        members_(std::make_unique<Member[]>(static_cast<std::size_t>(world))) {
    for (int rank = 0; rank < world; ++rank) hear(rank);
  }

  int world() const noexcept { return world_; }
  std::atomic<std::uint64_t>& word(int rank) noexcept { return member(rank).word; }
  void hear(int rank) noexcept {
    member(rank).heard.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }

  std::byte const* send_of(int rank) const { return static_cast<std::byte const*>(member(rank).send); }
  std::byte* recv_of(int rank) const { return static_cast<std::byte*>(member(rank).recv); }

  /// Waits until all ranks ask for the same; returns the seconds it took.
  double meet(int rank, Request const& request, void const* send, void* recv) {
    auto const start = Clock::now();
    std::unique_lock lock(mutex_);
    Member& me = member(rank);
    me.post(request, send, recv);
    hear(rank);
    me.inside = true;
    if (!fault_.exists)
      for (int other = 0; other < world_ && !fault_.exists; ++other)
        if (member(other).left) blame_leaver(other);
    if (fault_.exists) fail(rank);
    me.arrived = true;
    if (++arrived_ < world_) {
      await_all(lock, rank, start);
      if (fault_.mismatch) fail(rank);
    } else {
      complete();
      bool const mismatch = fault_.mismatch;
      lock.unlock();
      changed_.notify_all();
      if (mismatch) fail(rank);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Waits until all ranks have come this far in a collective; returns the seconds it took.
  double part(int rank, bool last) {
    auto const start = Clock::now();
    std::unique_lock lock(mutex_);
    hear(rank);
    if (last) member(rank).inside = false;
    if (++parted_ < world_) {
      auto const mine = partings_;
      changed_.wait(lock, [&] { return partings_ != mine; });
    } else {
      parted_ = 0;
      ++partings_;
      lock.unlock();
      changed_.notify_all();
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// What ended the communicator, if anything did: the lost rank, -1 if ranks disagreed, and the text.
  std::optional<std::pair<int, std::string>> fault() const {
    if (!ended_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard lock(mutex_);
    return std::pair(fault_.rank, fault_.text);
  }
  bool has_left(int rank) const {
    std::lock_guard lock(mutex_);
    return member(rank).left;
  }

  /// Ends the communicator for all; true if nothing had ended it before.
  bool lose(int rank, std::string text) {
    {
      std::lock_guard lock(mutex_);
      if (fault_.exists) return false;
      set_fault(rank, std::move(text), false);
    }
    wake();
    return true;
  }

  /// This rank will enter no collective any more, which is a fault only if another one does or waits in one.
  void leave(int rank) noexcept {
    {
      std::lock_guard lock(mutex_);
      if (member(rank).left) return;
      member(rank).left = true;
      if (arrived_ > 0 && !fault_.exists) {
        try {
          blame_leaver(rank);
        } catch (...) {  // no memory for the text
          set_fault(rank, {}, false);
        }
      }
    }
    wake();
  }

  /// Waits until every rank has left. With a grace: returns false once a fault exists and some rank has given
  /// no sign of life for that long; `text` then says which and where.
  bool await_leavers(std::optional<std::chrono::duration<double>> grace, std::string& text, int& stuck_rank) {
    auto const patience = grace ? duration_of(*grace) : Clock::duration{};
    std::unique_lock lock(mutex_);
    for (;;) {
      int late = -1;
      Clock::time_point deadline = Clock::time_point::max();
      bool all = true;
      for (int rank = 0; rank < world_; ++rank) {
        if (member(rank).left) continue;
        all = false;
        auto const limit = std::max(fault_.time, heard(rank)) + patience;
        if (limit >= deadline) continue;
        deadline = limit;
        late = rank;
      }
      if (all) return true;
      if (!grace || !fault_.exists) {
        watched_.wait(lock);
      } else if (Clock::now() < deadline) {
        watched_.wait_until(lock, deadline);
      } else {
        stuck_rank = late;
        text =
            "rank " + std::to_string(late) + " did not end within " + seconds_text(grace->count()) +
            " after the run had failed; it was last seen " + place(late) + "; the run failed because " +
            (fault_.rank >= 0 && fault_.rank != late ? "of rank " + std::to_string(fault_.rank) + ": " : "") +
            fault_.text;
        return false;
      }
    }
  }

  std::string where(int rank) const {
    std::lock_guard lock(mutex_);
    return place(rank);
  }

 private:
  struct alignas(64) Member {
    std::atomic<std::uint64_t> word{0};
    std::atomic<Clock::rep> heard{0};
    void const* send = nullptr;
    void* recv = nullptr;
    /// Its strings point at the copies below: the rank's own may be gone when others report.
    Request request;
    bool arrived = false;
    bool inside = false;
    bool left = false;
    char operation[32] = {};
    char unit[64] = {};

    void post(Request const& from, void const* send_from, void* recv_to) {
      request = from;
      copy(operation, sizeof operation, from.id.operation);
      copy(unit, sizeof unit, from.id.unit);
      request.id.operation = operation;
      request.id.unit = unit;
      send = send_from;
      recv = recv_to;
    }
    static void copy(char* to, std::size_t room, char const* from) {
      std::size_t const length = from ? ::strnlen(from, room - 1) : 0;
      if (length) std::memcpy(to, from, length);
      to[length] = '\0';
    }
  };

  struct Fault {
    bool exists = false;
    bool mismatch = false;
    int rank = -1;
    std::string text;
    Clock::time_point time;
  };

  Member& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  Clock::time_point heard(int rank) const {
    return Clock::time_point(Clock::duration(member(rank).heard.load(std::memory_order_relaxed)));
  }

  void wake() {
    changed_.notify_all();
    watched_.notify_all();
  }

  void await_all(std::unique_lock<std::mutex>& lock, int rank, Clock::time_point start) {
    auto const mine = meetings_;
    while (meetings_ == mine) {
      if (fault_.exists) fail(rank);
      Clock::time_point deadline = Clock::time_point::max();
      int late = -1;
      for (int other = 0; other < world_; ++other) {
        if (member(other).arrived) continue;
        auto const limit = std::max(start, heard(other)) + timeout_;
        if (limit >= deadline) continue;
        deadline = limit;
        late = other;
      }
      if (Clock::now() < deadline) {
        changed_.wait_until(lock, deadline);
      } else {
        blame_late(late, rank);
        wake();
      }
    }
  }

  /// All ranks have posted: lets them go on, or ends the communicator if they disagree.
  void complete() {
    arrived_ = 0;
    ++meetings_;
    compare();
    Request const& request = member(0).request;
    for (int rank = 0; rank < world_; ++rank) {
      member(rank).arrived = false;
      member(rank).inside = fault_.mismatch || request.bytes > 0;
    }
  }

  void compare() {
    Request const& first = member(0).request;
    auto const same = [](Request const& a, Request const& b) {
      return a.collective == b.collective && a.bytes == b.bytes && a.root == b.root && a.dtype == b.dtype &&
             a.sequence == b.sequence && a.id.micro_batch == b.id.micro_batch &&
             std::strcmp(a.id.operation, b.id.operation) == 0 && std::strcmp(a.id.unit, b.id.unit) == 0;
    };
    bool agreed = true;
    for (int rank = 1; rank < world_; ++rank) agreed = agreed && same(first, member(rank).request);
    if (agreed) return;
    std::string text = "ranks ask for different collectives: ";
    std::vector<bool> named(static_cast<std::size_t>(world_));
    for (int rank = 0; rank < world_; ++rank) {
      if (named[static_cast<std::size_t>(rank)]) continue;
      std::vector<int> group;
      for (int other = rank; other < world_; ++other)
        if (same(member(rank).request, member(other).request)) {
          named[static_cast<std::size_t>(other)] = true;
          group.push_back(other);
        }
      text += (rank ? "; " : "") + ranks_text(group) +
              (group.size() > 1 ? " ask for number " : " asks for number ") +
              std::to_string(member(rank).request.sequence) + ", " + describe(member(rank).request);
    }
    set_fault(-1, text + "; every rank must run the same steps on the same model", true);
    watched_.notify_all();
  }

  static std::string ranks_text(std::vector<int> const& ranks) {
    std::string text = ranks.size() > 1 ? "ranks " : "rank ";
    for (std::size_t index = 0; index < ranks.size(); ++index)
      text += (index ? ", " : "") + std::to_string(ranks[index]);
    return text;
  }

  std::string place(int rank) const {
    Member const& at = member(rank);
    if (at.request.sequence == 0) return "before its first collective";
    return (at.inside ? "in collective " : "after collective ") + std::to_string(at.request.sequence) + ", " +
           describe(at.request);
  }

  void set_fault(int rank, std::string text, bool mismatch) {
    fault_ = {true, mismatch, rank, std::move(text), Clock::now()};
    ended_.store(true, std::memory_order_release);
  }

  void blame_leaver(int rank) {
    set_fault(rank, "it left " + place(rank) + ", while others went on; every rank must run the same steps",
              false);
  }

  void blame_late(int late, int waiting) {
    std::vector<int> missing;
    for (int rank = 0; rank < world_; ++rank)
      if (!member(rank).arrived) missing.push_back(rank);
    set_fault(late,
              "it gave no sign of life for " + timeout_text_ + " while rank " + std::to_string(waiting) +
                  " waited; it was last seen " + place(late) + "; not arrived: " + ranks_text(missing) +
                  "; if it only computes for longer, raise the timeout",
              false);
  }

  /// Throws what a rank finds in a communicator that has ended. `inside` stays true: that is where it was.
  [[noreturn]] void fail(int rank) {
    Member const& me = member(rank);
    std::string const own = "rank " + std::to_string(rank);
    if (fault_.mismatch) throw Error(ErrorKind::failed, fault_.text, rank, me.unit);
    std::string text = fault_.rank == rank ? own + " was given up by the others: "
                                           : "rank " + std::to_string(fault_.rank) + " is lost: ";
    text += fault_.text + " [" + own + " was " + place(rank) + "]";
    throw PeerLost(text, fault_.rank, me.unit);
  }

  int const world_;
  std::string const timeout_text_;
  Clock::duration const timeout_;
  std::unique_ptr<Member[]> members_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable watched_;
  int arrived_ = 0;
  int parted_ = 0;
  std::uint64_t meetings_ = 0;
  std::uint64_t partings_ = 0;
  Fault fault_;
  std::atomic<bool> ended_{false};
};

}  // namespace detail

/// One rank of a world of threads. Its destructor waits for nobody; the last copy of a rank's handle to go
/// counts as that rank leaving.
class Threads final : public Transport {
 public:
  Threads(std::shared_ptr<detail::ThreadGroup> group, int rank)
      : Transport(rank, group->world(), group->word(rank)), group_(std::move(group)) {}
  ~Threads() override { group_->leave(rank()); }

  std::string_view name() const noexcept override { return "threads"; }
  void heartbeat() noexcept override { group_->hear(rank()); }
  void poison(char const* cause) noexcept override {
    try {
      group_->lose(rank(), cause && *cause ? cause : "it gave up without a reason");
    } catch (...) {  // no memory for the text
      group_->leave(rank());
    }
  }
  std::uint64_t word(int rank) const noexcept override {
    return group_->word(rank).load(std::memory_order_acquire);
  }
  std::string where(int rank) const override { return group_->where(rank); }

 private:
  friend class Nccl;  // exchanges host memory like this

  double exchange(Request const& request, void const* send, void* recv) override {
    double waited = group_->meet(rank(), request, send, recv);
    if (request.bytes == 0) return waited;
    auto const bytes = request.bytes;
    auto* const out = static_cast<std::byte*>(recv);
    Peers const& peers = request.peers;
    int const own = peers.index_of(rank());
    switch (request.collective) {
      case Collective::all_to_all:
        for (int step = 0; step < world(); ++step) {
          int const peer = (rank() + step) % world();
          copy(out + peer * bytes, group_->send_of(peer) + rank() % request.pieces * bytes, bytes);
        }
        break;
      case Collective::gather:
        if (rank() != request.root) break;
        [[fallthrough]];
      case Collective::all_gather:
        for (int step = 0; step < peers.count; ++step) {
          int const peer = (own + step) % peers.count;
          copy(out + peer * bytes, group_->send_of(peers.rank(peer)), bytes);
        }
        break;
      case Collective::broadcast:
        copy(out, group_->send_of(request.root), bytes);
        break;
      case Collective::all_reduce:
        waited += all_reduce(request, bytes);
        break;
      case Collective::reduce_scatter:
        sum(request, own * bytes, out, bytes);
        break;
      case Collective::none:
      case Collective::barrier:
        break;
    }
    return waited + group_->part(rank(), true);
  }

  /// In place, without scratch: each rank sums its slice into its own buffer, then all copy the others'
  /// slices.
  double all_reduce(Request const& request, std::int64_t bytes) {
    Peers const& peers = request.peers;
    int const index = peers.index_of(rank());
    auto const size = static_cast<std::int64_t>(size_of(request.dtype));
    std::int64_t const piece = (bytes / size + peers.count - 1) / peers.count * size;
    auto const begin = [&](int owner) { return std::min(owner * piece, bytes); };
    auto const length = [&](int owner) { return std::min((owner + 1) * piece, bytes) - begin(owner); };
    std::byte* const own = group_->recv_of(rank());
    sum(request, begin(index), own + begin(index), length(index));
    double const waited = group_->part(rank(), false);
    for (int step = 1; step < peers.count; ++step) {
      int const owner = (index + step) % peers.count;
      copy(own + begin(owner), group_->send_of(peers.rank(owner)) + begin(owner), length(owner));
    }
    return waited;
  }

  /// out = the sum over the group of `bytes` bytes at `offset` of what they send.
  void sum(Request const& request, std::int64_t offset, std::byte* out, std::int64_t bytes) {
    switch (request.dtype) {
      case DType::f64:
        return sum_as<double>(request.peers, offset, out, bytes);
      case DType::f32:
      case DType::tf32:
        return sum_as<float>(request.peers, offset, out, bytes);
      case DType::f16:
        return sum_as<half>(request.peers, offset, out, bytes);
      case DType::bf16:
        return sum_as<bfloat16>(request.peers, offset, out, bytes);
    }
  }
  template <class T>
  void sum_as(Peers const& peers, std::int64_t offset, std::byte* out, std::int64_t bytes) {
    auto const from = [&](int peer) {
      return reinterpret_cast<T const*>(group_->send_of(peers.rank(peer)) + offset);
    };
    detail::sum_in_rank_order(peers.count, from, reinterpret_cast<T*>(out),
                              bytes / static_cast<std::int64_t>(sizeof(T)));
  }

  static void copy(std::byte* to, std::byte const* from, std::int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  std::shared_ptr<detail::ThreadGroup> group_;
};

namespace detail {

inline std::shared_ptr<ThreadGroup> make_group(int world, ThreadsOptions const& options) {
  if (world < 1 || world > most_threads)
    throw Error(ErrorKind::usage, "a run in one process has 1 to " + std::to_string(most_threads) +
                                      " ranks, and was asked for " + std::to_string(world) +
                                      "; choose --ranks in "
                                      "that range");
  if (!(options.timeout.count() > 0))
    throw Error(ErrorKind::usage, "the timeout of a communicator must be above 0 s, and was " +
                                      seconds_text(options.timeout.count()));
  return std::make_shared<ThreadGroup>(world, options.timeout);
}

}  // namespace detail

/// The handles of a world of threads, one for each thread to take; `tessera::run` does this and the threads.
/// Throws Error(usage) unless world is 1 to 64 and the timeout positive.
inline std::vector<Comm> threads(int world, ThreadsOptions const& options = {}) {
  auto const group = detail::make_group(world, options);
  std::vector<Comm> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(world == 1 ? Comm() : Comm(std::make_shared<Threads>(group, rank)));
  return ranks;
}

}  // namespace comm
}  // namespace tessera::inline v0
