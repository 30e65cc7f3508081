// SPDX-License-Identifier: Apache-2.0
// Provides what ranks know of one another while their GPUs work: their progress, and which rank is lost.
#pragma once

#include <algorithm>
#include <atomic>
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
#include "tessera/comm/launch.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Progress and state of one rank, in one page of memory. Only that rank and its GPU write to it.
struct alignas(4096) Board {
  std::atomic<std::uint64_t> word{0};            ///< the last collective that was reached (`watch_word`)
  std::atomic<std::uint64_t> reached_device{0};  ///< collectives reached by its GPU, graph replays included
  std::atomic<std::uint64_t> reached_host{0};    ///< collectives on host memory that were reached
  std::atomic<std::uint64_t> beats{0};           ///< number of calls of Transport::heartbeat
  std::atomic<std::uint32_t> left{0};            ///< 1: the rank will enter no more collectives

  std::uint64_t reached() const {
    return reached_device.load(std::memory_order_relaxed) + reached_host.load(std::memory_order_relaxed);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "a process and its GPU share these words");
static_assert(sizeof(Board) == 4096);

/// Maps collective numbers to requests, for error texts. Replays of captured graphs reuse their numbers, so
/// captured requests are kept forever. Of the others, only the most recent 512 are kept.
class History {
 public:
  void put(Request const& request, bool captured) {
    std::lock_guard lock(mutex_);
    if (captured) captured_.emplace_back();
    Entry& entry = captured ? captured_.back() : recent_[request.sequence % recent];
    entry.request = request;
    copy(entry.operation, request.id.operation);
    copy(entry.unit, request.id.unit);
    last_ = request.sequence;
  }

  /// Returns the collective that a watch word names, such as "17, all_gather of 64 bytes (write_back h.3)".
  std::string text(std::uint64_t word) const {
    std::lock_guard lock(mutex_);
    std::uint64_t const sequence = sequence_of(word);
    std::string result = std::to_string(sequence) + ", ";
    Entry const* const entry = find(sequence);
    if (!entry || entry->request.move != move_of(word)) return result + std::string(name_of(move_of(word)));
    Request request = entry->request;
    request.id.operation = entry->operation;
    request.id.unit = entry->unit;
    return result + describe(request);
  }
  std::string last_unit() const {
    std::lock_guard lock(mutex_);
    Entry const* const entry = find(last_);
    return entry ? entry->unit : "";
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

  Entry const* find(std::uint64_t sequence) const {
    auto const position = std::lower_bound(
        captured_.begin(), captured_.end(), sequence,
        [](Entry const& entry, std::uint64_t number) { return entry.request.sequence < number; });
    if (position != captured_.end() && position->request.sequence == sequence) return &*position;
    Entry const& entry = recent_[sequence % recent];
    return sequence > 0 && entry.request.sequence == sequence ? &entry : nullptr;
  }

  mutable std::mutex mutex_;
  std::vector<Entry> recent_ = std::vector<Entry>(recent);
  std::vector<Entry> captured_;
  std::uint64_t last_ = 0;
};

/// Access to the boards of all ranks, and the failure that ended the communicator. Any thread may use it.
class Peers {
 public:
  Peers(Peers const&) = delete;
  Peers& operator=(Peers const&) = delete;
  virtual ~Peers() = default;

  virtual int world() const noexcept = 0;
  /// Returns a rank's board.
  virtual Board* board(int rank) const noexcept = 0;
  /// Returns the requests of a rank's collectives by number, as far as this rank knows them.
  virtual History& history(int rank) const noexcept = 0;
  virtual bool has_left(int rank) const = 0;
  /// Returns the rank that failed (-1 if it is unknown) and the reason. Returns nullopt if there was no
  /// failure.
  virtual std::optional<std::pair<int, std::string>> fault() const = 0;
  /// Declares rank `lost` failed. Ends the communicator for all ranks that can read this rank's board, unless
  /// it has already ended.
  virtual void lose(int lost, std::string const& text) = 0;
  /// Records a sign of life from `rank`.
  virtual void mark_alive(int rank) noexcept = 0;
  virtual void leave() noexcept = 0;
  /// Returns the rank in words, such as "rank 2".
  virtual std::string name(int rank) const { return "rank " + std::to_string(rank); }

 protected:
  Peers() = default;
};

/// The state that threads of one process share.
struct ThreadBoards {
  explicit ThreadBoards(int world)
      : boards(std::make_unique<Board[]>(static_cast<std::size_t>(world))),
        histories(std::make_unique<History[]>(static_cast<std::size_t>(world))) {}
  std::unique_ptr<Board[]> boards;
  std::unique_ptr<History[]> histories;
};

/// Ranks that are threads of one process.
class ThreadPeers final : public Peers {
 public:
  ThreadPeers(std::shared_ptr<ThreadGroup> group, std::shared_ptr<ThreadBoards> shared)
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
  void leave() noexcept override {}  // the group's handle leaves instead

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadBoards> shared_;
};

/// Ranks that are processes of a launch. Each has its own board. Of the others it has copies, which the
/// launch sends about twice a second.
class LaunchPeers final : public Peers {
 public:
  explicit LaunchPeers(std::shared_ptr<Launch> launch)
      : launch_(std::move(launch)),
        boards_(std::make_unique<Board[]>(static_cast<std::size_t>(launch_->world()))) {
    launch_->watch([this] { return progress(); });
  }
  ~LaunchPeers() override { leave(); }

  Launch& launch() const noexcept { return *launch_; }
  int world() const noexcept override { return launch_->world(); }
  Board* board(int rank) const noexcept override {
    Board& board = boards_[static_cast<std::size_t>(rank)];
    if (rank == launch_->rank()) return &board;
    Progress const progress = launch_->progress(rank);
    if (progress.communicator == launch_->communicator()) {
      board.word.store(progress.word, std::memory_order_release);
      board.reached_host.store(progress.reached, std::memory_order_relaxed);
      board.beats.store(progress.beats, std::memory_order_relaxed);
      board.left.store(progress.left, std::memory_order_relaxed);
    }
    return &board;
  }
  /// Returns this process's own history for every rank, because all processes of a launch run the same
  /// program.
  History& history(int) const noexcept override { return history_; }
  bool has_left(int rank) const override { return board(rank)->left.load(std::memory_order_relaxed) != 0; }
  std::optional<std::pair<int, std::string>> fault() const override {
    auto const fault = launch_->fault();
    return fault ? std::optional(std::pair(fault->rank, fault->text)) : std::nullopt;
  }
  void lose(int lost, std::string const& text) override { launch_->lose(lost, text); }
  void mark_alive(int) noexcept override {}
  void leave() noexcept override { launch_->watch({}); }
  std::string name(int rank) const override { return launch_->name(rank); }

 private:
  Progress progress() const {
    Board const& own = boards_[static_cast<std::size_t>(launch_->rank())];
    std::uint64_t const word = own.word.load(std::memory_order_acquire);
    return {0,
            word,
            own.reached(),
            own.beats.load(std::memory_order_relaxed),
            false,
            word == 0 ? std::string("before its first collective") : "at collective " + history_.text(word)};
  }

  std::shared_ptr<Launch> launch_;
  std::unique_ptr<Board[]> boards_;
  mutable History history_;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
