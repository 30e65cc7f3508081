// SPDX-License-Identifier: Apache-2.0
// Provides the state that ranks share while their GPUs work: how many collectives each rank has reached, and
// which rank has failed.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/kept_memory.hpp"
#include "tessera/comm/launch.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// The largest number of communicators that a rank can have. The communicator of all ranks is one of them.
inline constexpr int max_communicators = 32;

/// The progress of one rank, in one page of memory. The rank and its GPU write to the board, and other ranks
/// read it. If two ranks are in different processes, each process has a copy of the other rank's board. A
/// rank that waits for its group compares only the counts of the group's communicator, because groups make
/// progress independently.
struct alignas(4096) Board {
  /// The number of collectives of one communicator that the rank has reached.
  struct Count {
    std::atomic<std::uint64_t> device{0};  ///< on device memory; counted by the GPU, also in graph replays
    std::atomic<std::uint64_t> host{0};    ///< on host memory; counted by the CPU
  };
  std::atomic<std::uint64_t> word{0};   ///< the watch word of the last collective that was reached
  std::atomic<std::uint64_t> beats{0};  ///< number of calls of Transport::heartbeat
  std::atomic<std::uint32_t> left{0};   ///< 1: the rank enters no more collectives; otherwise 0
  Count counts[max_communicators];      ///< indexed by ProcessGroup::communicator

  std::uint64_t reached(int communicator) const {
    Count const& count = counts[communicator];
    return count.device.load(std::memory_order_relaxed) + count.host.load(std::memory_order_relaxed);
  }
  std::uint64_t reached() const {
    std::uint64_t sum = 0;
    for (int communicator = 0; communicator < max_communicators; ++communicator) sum += reached(communicator);
    return sum;
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a process and its GPU share these words");
static_assert(sizeof(Board) == 4096);

/// Finds the request that belongs to a watch word, for error messages. When a CUDA graph is replayed, its
/// collectives store the same watch words again. So requests that were captured in a graph are kept forever.
/// Of the other requests, only the most recent 512 are kept.
class History {
 public:
  void put(Request const& request, bool captured) {
    std::lock_guard lock(mutex_);
    if (captured) captured_.emplace_back();
    Entry& entry = captured ? captured_.back() : recent_[count_++ % recent];
    entry.request = request;
    copy(entry.operation, request.id.operation);
    copy(entry.unit, request.id.unit);
    std::memcpy(last_unit_, entry.unit, sizeof last_unit_);
  }

  /// Describes the collective that the watch word `word` of rank `rank` names: its sequence number and its
  /// request, such as "17, all_gather of 64 bytes (write_back h.3)". If this history has no such request of a
  /// group that contains the rank, the result is only the sequence number and the move, such as "17,
  /// all_gather".
  std::string text(std::uint64_t word, int rank = 0) const {
    std::lock_guard lock(mutex_);
    std::string result = std::to_string(sequence_of(word)) + ", ";
    Entry const* const entry = find(word);
    if (!entry || (entry->request.group.count > 0 && !entry->request.group.contains(rank)))
      return result + std::string(name_of(move_of(word)));
    Request request = entry->request;
    request.id.operation = entry->operation;
    request.id.unit = entry->unit;
    return result + describe(request);
  }
  std::string last_unit() const {
    std::lock_guard lock(mutex_);
    return last_unit_;
  }

 private:
  static constexpr std::size_t recent = 512;
  struct Entry {
    Request request;
    char operation[32] = {};
    char unit[64] = {};
  };

  template <std::size_t Capacity>
  static void copy(char (&to)[Capacity], char const* from) {
    std::size_t const length = from ? ::strnlen(from, Capacity - 1) : 0;
    if (length) std::memcpy(to, from, length);
    to[length] = '\0';
  }

  Entry const* find(std::uint64_t word) const {
    if (sequence_of(word) == 0) return nullptr;
    auto const named = [word](Entry const& entry) {
      Request const& request = entry.request;
      return watch_word(request.sequence, request.move, request.group.communicator) == word;
    };
    for (auto const* entries : {&captured_, &recent_})
      if (auto const found = std::find_if(entries->begin(), entries->end(), named); found != entries->end())
        return &*found;
    return nullptr;
  }

  mutable std::mutex mutex_;
  std::vector<Entry> recent_ = std::vector<Entry>(recent);
  std::vector<Entry> captured_;
  std::uint64_t count_ = 0;
  char last_unit_[64] = {};
};

/// Gives access to the boards of all ranks, and to the failure that ended the communicator. Any thread may
/// use it.
class RankStates {
 public:
  RankStates(RankStates const&) = delete;
  RankStates& operator=(RankStates const&) = delete;
  virtual ~RankStates() = default;

  virtual int world() const noexcept = 0;
  /// Returns the number of ranks on this rank's host.
  virtual int ranks_on_host() const noexcept { return world(); }
  /// Returns the board of a rank. If the rank is in another process, this is a copy, about a second old.
  virtual Board* board(int rank) const noexcept = 0;
  /// Returns the history in which to look up the watch words of a rank. If the rank is in another process,
  /// returns the history of this process, which has the requests of the groups to which this process belongs.
  virtual History& history(int rank) const noexcept = 0;
  virtual bool has_left(int rank) const = 0;
  /// Returns the rank that failed (-1 if it is unknown) and the reason. Returns nullopt if the communicator
  /// has not failed.
  virtual std::optional<std::pair<int, std::string>> fault() const = 0;
  /// Declares that rank `lost` has failed (-1 if the rank is unknown), and ends the communicator for all
  /// ranks. `text` is the reason. Does nothing if the communicator has already ended.
  virtual void lose(int lost, std::string const& text) = 0;
  /// Records a sign of life from `rank`.
  virtual void mark_alive(int rank) noexcept = 0;
  virtual void leave() noexcept = 0;
  /// Returns the shared memory that ranks have given up. It exists at least until all ranks of this process
  /// have destroyed their states.
  virtual KeptMemory& kept() noexcept = 0;
  /// Returns the name of a rank for error messages, such as "rank 2".
  virtual std::string name(int rank) const { return "rank " + std::to_string(rank); }

 protected:
  RankStates() = default;
};

/// The boards and the histories of ranks that are threads of one process. All of these ranks share one
/// object.
struct ThreadBoards {
  explicit ThreadBoards(int world)
      : boards(std::make_unique<Board[]>(static_cast<std::size_t>(world))),
        histories(std::make_unique<History[]>(static_cast<std::size_t>(world))),
        kept(world) {}
  std::unique_ptr<Board[]> boards;
  std::unique_ptr<History[]> histories;
  KeptMemory kept;
};

/// The states of ranks that are threads of one process.
class ThreadRankStates final : public RankStates {
 public:
  ThreadRankStates(std::shared_ptr<ThreadGroup> group, std::shared_ptr<ThreadBoards> shared)
      : group_(std::move(group)), shared_(std::move(shared)) {}

  int world() const noexcept override { return group_->world(); }
  Board* board(int rank) const noexcept override { return &shared_->boards[static_cast<std::size_t>(rank)]; }
  History& history(int rank) const noexcept override {
    return shared_->histories[static_cast<std::size_t>(rank)];
  }
  bool has_left(int rank) const override { return group_->has_left(rank); }
  std::optional<std::pair<int, std::string>> fault() const override { return group_->fault(); }
  void lose(int lost, std::string const& text) override { group_->lose(lost, text); }
  void mark_alive(int rank) noexcept override { group_->mark_alive(rank); }
  void leave() noexcept override {}  // nothing to do: the member `threads_` of Nccl leaves the group
  KeptMemory& kept() noexcept override { return shared_->kept; }

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadBoards> shared_;
};

/// The states of ranks that are processes of a launch. Each process writes only to the board of its own rank.
/// The boards of the other ranks are copies. The server of the launch sends new values for the copies about
/// twice a second.
class LaunchRankStates final : public RankStates {
 public:
  explicit LaunchRankStates(std::shared_ptr<Launch> launch)
      : launch_(std::move(launch)),
        boards_(std::make_unique<Board[]>(static_cast<std::size_t>(launch_->world()))) {
    launch_->watch(this, [this] { return progress(); });
  }
  ~LaunchRankStates() override { leave(); }

  Launch& launch() const noexcept { return *launch_; }
  int world() const noexcept override { return launch_->world(); }
  int ranks_on_host() const noexcept override { return launch_->ranks_on_host(); }
  Board* board(int rank) const noexcept override {
    Board& board = boards_[static_cast<std::size_t>(rank)];
    if (rank == launch_->rank()) return &board;
    Progress const progress = launch_->progress(rank);
    if (progress.communicator == launch_->communicator()) {
      board.word.store(progress.word, std::memory_order_release);
      std::size_t const opened = std::min(progress.reached.size(), std::size_t{max_communicators});
      for (std::size_t number = 0; number < opened; ++number)
        board.counts[number].host.store(progress.reached[number], std::memory_order_relaxed);
      board.beats.store(progress.beats, std::memory_order_relaxed);
      board.left.store(progress.left, std::memory_order_relaxed);
    }
    return &board;
  }
  /// Returns the history of this process, whatever the rank. All ranks of a group have the same requests, so
  /// the history also describes the collectives of other ranks in the groups of this rank.
  History& history(int) const noexcept override { return history_; }
  bool has_left(int rank) const override { return board(rank)->left.load(std::memory_order_relaxed) != 0; }
  std::optional<std::pair<int, std::string>> fault() const override {
    auto const fault = launch_->fault();
    return fault ? std::optional(std::pair(fault->rank, fault->text)) : std::nullopt;
  }
  void lose(int lost, std::string const& text) override { launch_->lose(lost, text); }
  void mark_alive(int) noexcept override {}
  /// Called when this rank ends. If an exception ends the rank, tells the other ranks at once. Otherwise they
  /// would notice only later that this rank has left.
  void leave() noexcept override {
    launch_->unwatch(this, std::uncaught_exceptions() > exceptions_ ? Launch::by_exception : nullptr);
  }
  KeptMemory& kept() noexcept override { return kept_; }
  std::string name(int rank) const override { return launch_->name(rank); }

 private:
  Progress progress() const {
    Board const& own = boards_[static_cast<std::size_t>(launch_->rank())];
    std::uint64_t const word = own.word.load(std::memory_order_acquire);
    std::vector<std::uint64_t> reached;
    for (int number = 0; number < max_communicators; ++number) reached.push_back(own.reached(number));
    while (reached.size() > 1 && reached.back() == 0) reached.pop_back();
    return {0,
            word,
            std::move(reached),
            own.beats.load(std::memory_order_relaxed),
            false,
            word == 0 ? std::string("before its first collective")
                      : "at collective " + history_.text(word, launch_->rank())};
  }

  std::shared_ptr<Launch> launch_;
  int const exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<Board[]> boards_;
  mutable History history_;
  KeptMemory kept_{launch_->world()};
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
