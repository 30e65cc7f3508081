// SPDX-License-Identifier: Apache-2.0
// Provides ThreadGroup, the state that ranks of one process share. Ranks use it to wait for each other in
// collectives, to exchange buffers and to detect a rank that is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"
#include "tessera/detail/function_ref.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// The largest number of ranks in one process.
inline constexpr int max_threads = 64;
static_assert(max_threads <= 64, "ThreadGroup has sets of ranks with 64 bits");

struct ThreadsOptions {
  /// Seconds that a rank waits for another rank that gives no sign of life. A sign of life is a collective or
  /// a heartbeat.
  std::chrono::duration<double> timeout{300.0};
};

namespace detail {

using Clock = std::chrono::steady_clock;

inline std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds);
  return text;
}

/// Returns a list of ranks in words, such as "rank 3" or "ranks 1, 2, 7". Lists at most 64 ranks.
inline std::string ranks_text(std::vector<int> const& ranks) {
  std::string text = ranks.size() > 1 ? "ranks " : "rank ";
  for (std::size_t index = 0; index < ranks.size() && index < 64; ++index)
    text += sentence({index ? ", " : "", ranks[index]});
  return ranks.size() > 64 ? sentence({text, " and ", ranks.size() - 64, " more"}) : text;
}

/// Converts seconds to a duration of the clock. The result is at most about three years, so that a deadline
/// never overflows.
inline Clock::duration duration_of(std::chrono::duration<double> seconds) {
  return std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(std::min(seconds.count(), 1e8)));
}

/// A request with its two buffers.
struct Call {
  Request request;
  void const* send;
  void* recv;

  /// Returns the other rank of a send or a receive.
  int other() const { return request.group.rank(request.root); }
};

/// The state that all ranks of one process share. Every collective synchronises the ranks of its group twice.
/// At its start, each rank calls `meet`, which publishes the request and the buffers of the rank, waits for
/// the other ranks of the group and compares the requests. At its end, each rank calls `part`, which waits
/// until all ranks of the group have read the buffers. Between the two calls, a rank only copies and sums, so
/// only `meet` needs a timeout. Groups do not wait for each other.
class ThreadGroup {
 public:
  ThreadGroup(int world, std::chrono::duration<double> timeout)
      : world_(world),
        timeout_text_(seconds_text(timeout.count())),
        timeout_(duration_of(timeout)),
        members_(static_cast<std::size_t>(world)) {
    for (int rank = 0; rank < world; ++rank) mark_alive(rank);
    add_meeting({0, 1, world});
  }

  int world() const noexcept { return world_; }
  std::atomic<std::uint64_t>& word(int rank) noexcept { return member(rank).word; }
  void mark_alive(int rank) noexcept {
    member(rank).last_alive.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  }

  std::byte const* send_of(int rank) const { return static_cast<std::byte const*>(member(rank).send); }
  std::byte* recv_of(int rank) const { return static_cast<std::byte*>(member(rank).recv); }

  /// Publishes the request and the buffers of rank `rank`, and waits until all ranks of the group have
  /// requested a collective. Returns the seconds spent waiting. Throws Error(failed) on all ranks if the
  /// requests differ, or if ranks wait for each other in different groups. Throws PeerLost if a rank is lost
  /// or does not arrive.
  double meet(int rank, Request const& request, void const* send, void* recv) {
    auto const start = Clock::now();
    std::unique_lock lock(mutex_);
    Member& me = member(rank);
    me.post(request, send, recv);
    mark_alive(rank);
    me.inside = true;
    Meeting& meeting = meeting_of(request.group);
    if (!fault_.exists) check_members(rank, meeting);
    if (fault_.exists) fail(rank);
    me.meeting = &meeting;
    if (++meeting.arrived < request.group.count) {
      await_all(lock, rank, meeting, start);
      if (meeting.mismatch) fail(rank);
    } else {
      complete(meeting);
      bool const mismatch = meeting.mismatch;
      lock.unlock();
      meeting.changed.notify_all();
      if (mismatch) fail(rank);
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Waits until all ranks of the group have called `part` at this point of a collective. `last` is true in
  /// the last such call of the collective. Returns the seconds spent waiting.
  double part(int rank, ProcessGroup const& group, bool last) {
    auto const start = Clock::now();
    std::unique_lock lock(mutex_);
    mark_alive(rank);
    if (last) member(rank).inside = false;
    Meeting& meeting = meeting_of(group);
    if (++meeting.arrived_at_part < group.count) {
      auto const current = meeting.parts;
      meeting.changed.wait(lock, [&] { return meeting.parts != current; });
    } else {
      meeting.arrived_at_part = 0;
      ++meeting.parts;
      lock.unlock();
      meeting.changed.notify_all();
    }
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Publishes a buffer for another rank, which copies it when it calls `receive`. Does not wait.
  void offer(int rank, Request const& request, void const* send) {
    {
      std::lock_guard lock(mutex_);
      Member& me = member(rank);
      if (fault_.exists) fail(rank);
      me.post(request, send, nullptr);
      mark_alive(rank);
      me.offers.push_back({request, send, nullptr});
    }
    changed_.notify_all();
  }
  /// Waits until other ranks have copied all buffers that this rank has published with `offer`. Returns the
  /// seconds spent waiting.
  double await_received(int rank) {
    std::unique_lock lock(mutex_);
    auto& offers = member(rank).offers;
    return await_other(
        lock, rank, [&] { return offers.empty(); }, [&] { return offers.front().other(); });
  }
  /// Waits until another rank offers a buffer to this rank, and copies it to `recv`. `request` names the
  /// other rank. Returns the seconds spent waiting. Throws Error(failed) if the sizes differ, and PeerLost if
  /// the other rank is lost.
  double receive(int rank, Request const& request, void* recv) {
    std::unique_lock lock(mutex_);
    int const from = request.group.rank(request.root);
    auto& offers = member(from).offers;
    std::size_t found = 0;
    auto const find = [&] {
      for (found = 0; found < offers.size() && offers[found].other() != rank;) ++found;
      return found < offers.size();
    };
    member(rank).post(request, nullptr, recv);
    double const waited = await_other(lock, rank, find, [&] { return from; });
    Call const offer = offers[found];
    if (offer.request.bytes != request.bytes) {
      set_fault(-1,
                {"rank ", from, " sends ", offer.request.bytes, " bytes, and rank ", rank, " receives ",
                 request.bytes, "; every rank must run the same steps on the same model"},
                true);
      wake();
      fail(rank);
    }
    // Copies while it holds the lock. Without the lock, the sender could be declared lost during the copy,
    // exit and free its memory.
    if (request.bytes > 0) std::memcpy(recv, offer.send, static_cast<std::size_t>(request.bytes));
    offers.erase(offers.begin() + static_cast<std::ptrdiff_t>(found));
    lock.unlock();
    changed_.notify_all();
    return waited;
  }

  /// Returns the failure that ended the communicator, if any: the lost rank and the text. The rank is -1 if
  /// the requests of the ranks differ.
  std::optional<std::pair<int, std::string>> fault() const {
    if (!ended_.load(std::memory_order_acquire)) return std::nullopt;
    std::lock_guard lock(mutex_);
    return std::pair(fault_.rank, fault_.text);
  }
  bool has_left(int rank) const {
    std::lock_guard lock(mutex_);
    return member(rank).left;
  }

  /// Ends the communicator for all ranks, with `rank` as the lost rank and `text` as the reason. Returns
  /// false, and does nothing, if the communicator has already ended.
  bool lose(int rank, std::string const& text) {
    {
      std::lock_guard lock(mutex_);
      if (fault_.exists) return false;
      set_fault(rank, {text}, false);
      wake();
    }
    return true;
  }

  /// Declares that rank `rank` enters no more collectives. The communicator fails only if another rank waits
  /// in a collective of a group that contains this rank, or enters such a collective later.
  void leave(int rank) noexcept {
    std::lock_guard lock(mutex_);
    if (member(rank).left) return;
    member(rank).left = true;
    bool awaited = false;
    for (Meeting const& meeting : meetings_)
      awaited = awaited || (meeting.arrived > 0 && meeting.group.contains(rank));
    if (awaited && !fault_.exists) {
      try {
        blame_leaver(rank);
      } catch (...) {  // no memory for the text
        set_fault(rank, {}, false);
      }
    }
    wake();
  }

  /// Waits until every rank has left, and then returns true. If `grace` is given and the communicator has
  /// failed, it waits for a rank only while the rank gives signs of life at least once in the duration
  /// `grace`. Otherwise it returns false, stores the rank in `stuck_rank`, and stores in `text` a message
  /// that names the rank and its last collective.
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
        auto const limit = std::max(fault_.time, last_alive(rank)) + patience;
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
        bool const other = fault_.rank >= 0 && fault_.rank != late;
        text = sentence({"rank ", late, " did not end within ", seconds_text(grace->count()),
                         " after the run had failed; it was last seen ", place(late),
                         "; the run failed because ", other ? sentence({"of rank ", fault_.rank, ": "}) : "",
                         fault_.text});
        return false;
      }
    }
  }

  std::string where(int rank) const {
    std::lock_guard lock(mutex_);
    return place(rank);
  }

 private:
  /// The state of the current collective of a group: how many ranks wait in `meet` and how many wait in
  /// `part`.
  struct Meeting {
    ProcessGroup group;
    int arrived = 0;
    int arrived_at_part = 0;
    std::uint64_t meets = 0;
    std::uint64_t parts = 0;
    bool mismatch = false;  ///< the requests of the last collective differed
    std::condition_variable changed;
  };

  struct alignas(64) Member {
    std::atomic<std::uint64_t> word{0};
    std::atomic<Clock::rep> last_alive{0};
    void const* send = nullptr;
    void* recv = nullptr;
    /// The last request of this rank. Its strings point to `operation` and `unit` below. These are copies,
    /// because another rank may report the request when the strings of the caller no longer exist.
    Request request;
    Meeting const* meeting = nullptr;  // the meeting in which this rank waits, or null
    bool inside = false;
    bool left = false;
    std::vector<Call> offers;  // sends that were not received yet, oldest first; keeps its capacity
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
    static void copy(char* to, std::size_t capacity, char const* from) {
      std::size_t const length = from ? ::strnlen(from, capacity - 1) : 0;
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

  Member& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  Member const& member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  Clock::time_point last_alive(int rank) const {
    return Clock::time_point(Clock::duration(member(rank).last_alive.load(std::memory_order_relaxed)));
  }

  /// Wakes all waiting threads. The caller must hold the lock.
  void wake() {
    for (Meeting& meeting : meetings_) meeting.changed.notify_all();
    changed_.notify_all();
    watched_.notify_all();
  }

  /// Returns the Meeting of a group. Allocates memory on the first call for a group. The caller must hold the
  /// lock.
  Meeting& meeting_of(ProcessGroup const& group) {
    for (Meeting& meeting : meetings_)
      if (meeting.group.same(group)) return meeting;
    return add_meeting(group);
  }
  Meeting& add_meeting(ProcessGroup const& group) {
    Meeting& meeting = meetings_.emplace_back();
    meeting.group = group;
    return meeting;
  }

  /// Called when rank `rank` enters a collective. Ends the communicator if the ranks of the group can never
  /// meet, because one of them has left, or because ranks would wait for each other in different groups (a
  /// deadlock).
  void check_members(int rank, Meeting const& meeting) {
    ProcessGroup const& group = meeting.group;
    for (int index = 0; index < group.count && !fault_.exists; ++index)
      if (member(group.rank(index)).left) blame_leaver(group.rank(index));
    std::uint64_t seen = 0;
    std::vector<int> chain;
    if (!fault_.exists && waits_for(meeting, rank, seen, chain)) {
      chain.push_back(rank);
      std::sort(chain.begin(), chain.end());
      std::string text;
      for (int const each : chain)
        text += sentence({text.empty() ? "" : "; ", request_text({each}), ", among ",
                          describe(member(each).request.group)});
      blame_mismatch(text);
    }
    if (fault_.exists) wake();
  }
  /// Finds a deadlock. Returns whether a rank of the group of `meeting` waits in another meeting for `rank`,
  /// directly or through a chain of other ranks. Appends the ranks of the chain to `chain`. Bit r of `seen`
  /// says that rank r was already examined.
  bool waits_for(Meeting const& meeting, int rank, std::uint64_t& seen, std::vector<int>& chain) const {
    for (int index = 0; index < meeting.group.count; ++index) {
      int const other = meeting.group.rank(index);
      Meeting const* const elsewhere = member(other).meeting;
      if (!elsewhere || elsewhere == &meeting || seen >> other & 1u) continue;
      seen |= std::uint64_t{1} << other;
      if (elsewhere->group.contains(rank) || waits_for(*elsewhere, rank, seen, chain)) {
        chain.push_back(other);
        return true;
      }
    }
    return false;
  }

  void await_all(std::unique_lock<std::mutex>& lock, int rank, Meeting& meeting, Clock::time_point start) {
    auto const current = meeting.meets;
    while (meeting.meets == current) {
      if (fault_.exists) fail(rank);
      auto const now = Clock::now();
      Clock::time_point deadline = Clock::time_point::max();
      int late = -1;
      auto const each_missing = [&](auto const& body) {
        for (int index = 0; index < meeting.group.count; ++index)
          if (int const other = meeting.group.rank(index); member(other).meeting != &meeting) body(other);
      };
      each_missing([&](int other) {
        // A missing rank that is in a collective of another group is not late, because it waits for a third
        // rank.
        auto const limit = (member(other).inside ? now : std::max(start, last_alive(other))) + timeout_;
        if (limit >= deadline) return;
        deadline = limit;
        late = other;
      });
      if (now < deadline) {
        meeting.changed.wait_until(lock, deadline);
      } else {
        std::vector<int> missing;
        each_missing([&](int other) { missing.push_back(other); });
        blame_late(late, rank, sentence({"; not arrived: ", ranks_text(missing)}));
        wake();
      }
    }
  }

  /// Waits until done() returns true. This depends on an action of one other rank, which other() returns.
  /// Returns the seconds spent waiting. Throws PeerLost if the other rank has left or gives no sign of life
  /// for the timeout.
  double await_other(std::unique_lock<std::mutex>& lock, int rank, v0::detail::FunctionRef<bool()> done,
                     v0::detail::FunctionRef<int()> other) {
    auto const start = Clock::now();
    member(rank).inside = true;
    mark_alive(rank);
    while (!done()) {
      int const late = other();
      if (!fault_.exists && member(late).left) {
        blame_leaver(late);
        wake();
      }
      if (fault_.exists) fail(rank);
      auto const deadline = std::max(start, last_alive(late)) + timeout_;
      if (Clock::now() < deadline) {
        changed_.wait_until(lock, deadline);
      } else {
        blame_late(late, rank, {});
        wake();
      }
    }
    if (fault_.exists) fail(rank);
    member(rank).inside = false;
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  /// Called by the rank that arrives last in a collective. Releases the other ranks of the group. If the
  /// requests differ, ends the communicator.
  void complete(Meeting& meeting) {
    meeting.arrived = 0;
    ++meeting.meets;
    compare(meeting);
    ProcessGroup const& group = meeting.group;
    std::int64_t const bytes = member(group.first).request.bytes;
    for (int index = 0; index < group.count; ++index) {
      Member& each = member(group.rank(index));
      each.meeting = nullptr;
      each.inside = meeting.mismatch || bytes > 0;
    }
  }

  void compare(Meeting& meeting) {
    ProcessGroup const& group = meeting.group;
    Request const& first = member(group.first).request;
    auto const same = [](Request const& a, Request const& b) {
      return a.move == b.move && a.bytes == b.bytes && a.root == b.root && a.dtype == b.dtype &&
             a.sequence == b.sequence && a.id.micro_batch == b.id.micro_batch &&
             std::strcmp(a.id.operation, b.id.operation) == 0 && std::strcmp(a.id.unit, b.id.unit) == 0;
    };
    bool agreed = true;
    for (int index = 1; index < group.count; ++index)
      agreed = agreed && same(first, member(group.rank(index)).request);
    if (agreed) return;
    meeting.mismatch = true;
    std::string text;
    std::vector<int> named(static_cast<std::size_t>(world_));
    for (int index = 0; index < group.count; ++index) {
      int const rank = group.rank(index);
      if (named[static_cast<std::size_t>(rank)]) continue;
      std::vector<int> ranks;
      for (int after = index; after < group.count; ++after)
        if (int const other = group.rank(after); same(member(rank).request, member(other).request)) {
          named[static_cast<std::size_t>(other)] = 1;
          ranks.push_back(other);
        }
      text += sentence({text.empty() ? "" : "; ", request_text(ranks)});
    }
    blame_mismatch(text);
    wake();
  }
  void blame_mismatch(std::string const& requests) {
    set_fault(-1,
              {"ranks request different collectives: ", requests,
               "; every rank must run the same steps on the same model"},
              true);
  }
  /// Describes the request of `ranks`, which is the same for all of them.
  std::string request_text(std::vector<int> const& ranks) const {
    Request const& request = member(ranks.front()).request;
    return sentence({ranks_text(ranks), ranks.size() > 1 ? " request number " : " requests number ",
                     request.sequence, ", ", describe(request)});
  }

  std::string place(int rank) const {
    Member const& at = member(rank);
    if (at.request.sequence == 0) return "before its first collective";
    return sentence({at.inside ? "in collective " : "after collective ", at.request.sequence, ", ",
                     describe(at.request)});
  }

  void set_fault(int rank, std::initializer_list<Word> words, bool mismatch) {
    fault_ = {true, mismatch, rank, sentence(words), Clock::now()};
    ended_.store(true, std::memory_order_release);
  }

  void blame_leaver(int rank) {
    set_fault(rank,
              {"it left ", place(rank), ", but other ranks continued; every rank must run the same steps"},
              false);
  }

  void blame_late(int late, int waiting, std::string const& missing) {
    set_fault(
        late,
        {"it gave no sign of life for ", timeout_text_, " while rank ", waiting, " waited; it was last seen ",
         place(late), missing, "; if it is still computing, raise the timeout"},
        false);
  }

  /// Throws the exception for the failure that ended the communicator. `rank` is the calling rank.
  /// Member::inside stays true, so that messages say "in collective" for this rank.
  [[noreturn]] void fail(int rank) {
    Member const& me = member(rank);
    if (fault_.mismatch) throw Error(ErrorKind::failed, fault_.text, rank, me.unit);
    throw PeerLost(sentence({"rank ", fault_.rank,
                             fault_.rank == rank ? " was declared lost by the other ranks: " : " is lost: ",
                             fault_.text, " [rank ", rank, " was ", place(rank), "]"}),
                   fault_.rank, me.unit);
  }

  int const world_;
  std::string const timeout_text_;
  Clock::duration const timeout_;
  std::vector<Member> members_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable watched_;
  std::list<Meeting> meetings_;  // one for each group that has met
  Fault fault_;
  std::atomic<bool> ended_{false};
};

}  // namespace detail

}  // namespace comm
}  // namespace v0
}  // namespace tessera
