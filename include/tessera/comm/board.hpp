// SPDX-License-Identifier: Apache-2.0
// Provides the state that the ranks of one host share while their GPUs work: their progress, and which rank
// is lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Progress and state of one rank, in one page of memory that all ranks of a host can read. Only that rank
/// and its GPU write to it.
struct alignas(4096) Board {
  std::atomic<std::uint64_t> word{0};            ///< the last collective that was reached (`watch_word`)
  std::atomic<std::uint64_t> reached_device{0};  ///< collectives reached by its GPU, graph replays included
  std::atomic<std::uint64_t> reached_host{0};    ///< collectives on host memory that were reached
  std::atomic<std::uint64_t> beats{0};           ///< number of calls of Transport::heartbeat
  std::atomic<std::uint32_t> failed{0};          ///< 1: `lost` and `text` describe a failure
  std::atomic<std::uint32_t> left{0};            ///< 1: the rank will enter no more collectives
  std::int32_t lost = -1;
  char text[2048] = {};

  std::uint64_t reached() const {
    return reached_device.load(std::memory_order_relaxed) + reached_host.load(std::memory_order_relaxed);
  }
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free, "processes and a GPU share these words");
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
  /// Returns a rank's board, or null if its memory cannot be opened, as on another host.
  virtual Board* board(int rank) const noexcept = 0;
  /// Returns the requests of a rank's collectives by number, as far as this rank knows them.
  virtual History& history(int rank) const noexcept = 0;
  virtual bool has_left(int rank) const = 0;
  /// Returns whether the rank's process ended before it called `leave`.
  virtual bool died(int rank) const = 0;
  /// Returns the rank that failed (-1 if it is unknown) and the reason. Returns nullopt if there was no
  /// failure.
  virtual std::optional<std::pair<int, std::string>> fault() const = 0;
  /// Declares rank `lost` failed. Ends the communicator for all ranks that can read this rank's board, unless
  /// it has already ended.
  virtual void lose(int lost, std::string const& text) = 0;
  /// Records a sign of life from `rank`.
  virtual void mark_alive(int rank) noexcept = 0;
  virtual void leave() noexcept = 0;

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
  bool died(int) const override { return false; }
  std::optional<std::pair<int, std::string>> fault() const override { return group_->fault(); }
  void lose(int lost, std::string const& text) override { group_->lose(lost, text); }
  void mark_alive(int rank) noexcept override { group_->mark_alive(rank); }
  void leave() noexcept override {}  // the group's handle leaves instead

 private:
  std::shared_ptr<ThreadGroup> group_;
  std::shared_ptr<ThreadBoards> shared_;
};

/// Ranks that are processes. Each process creates one page of shared memory under a random name. The others
/// open the page by that name (`see`). Then the name is unlinked (`hide`), so that killed processes leave
/// nothing behind. Each process holds a lock on its page. The system releases the lock when the process ends,
/// which `died` detects.
class ProcessPeers final : public Peers {
 public:
  using Name = char[48];

  ProcessPeers(int rank, int world) : rank_(rank), pages_(static_cast<std::size_t>(world)) {
    std::uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != static_cast<ssize_t>(sizeof random)) refuse("name");
    std::snprintf(name_, sizeof name_, "/tessera-%ld-%016llx", static_cast<long>(::getpid()),
                  static_cast<unsigned long long>(random));
    Page& own = pages_[static_cast<std::size_t>(rank)];
    own.file = ::shm_open(name_, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (own.file < 0) refuse("create");
    if (::flock(own.file, LOCK_EX | LOCK_NB) != 0 || ::ftruncate(own.file, sizeof(Board)) != 0 ||
        !own.map(PROT_READ | PROT_WRITE)) {
      int const code = errno;
      hide();
      errno = code;
      refuse("set up");
    }
    new (own.board.load()) Board;
  }
  ~ProcessPeers() override { hide(); }

  Name const& name() const noexcept { return name_; }
  /// Opens another rank's page by its name. Has no effect if that rank runs on another host.
  void see(int rank, char const* name) {
    Page& page = pages_[static_cast<std::size_t>(rank)];
    if (rank == rank_) return;
    page.file = ::shm_open(name, O_RDONLY | O_CLOEXEC, 0);
    if (page.file >= 0) page.map(PROT_READ);
  }
  void hide() noexcept {
    if (!hidden_) ::shm_unlink(name_);
    hidden_ = true;
  }

  int world() const noexcept override { return static_cast<int>(pages_.size()); }
  Board* board(int rank) const noexcept override {
    return pages_[static_cast<std::size_t>(rank)].board.load(std::memory_order_acquire);
  }
  /// Returns this process's own history for every rank, because all processes of a launch run the same
  /// program.
  History& history(int) const noexcept override { return history_; }
  bool has_left(int rank) const override {
    Board const* const at = board(rank);
    return at && at->left.load(std::memory_order_acquire);
  }
  bool died(int rank) const override {
    Page const& page = pages_[static_cast<std::size_t>(rank)];
    if (rank == rank_ || !board(rank) || has_left(rank)) return false;
    if (::flock(page.file, LOCK_SH | LOCK_NB) != 0) return false;
    ::flock(page.file, LOCK_UN);
    return !has_left(rank);
  }
  std::optional<std::pair<int, std::string>> fault() const override {
    Board const* found = nullptr;
    for (int rank = 0; rank < world(); ++rank) {
      Board const* const at = board(rank);
      if (!at || !at->failed.load(std::memory_order_acquire)) continue;
      if (!found || at->lost == rank) found = at;  // a rank's report about itself takes precedence
    }
    if (!found) return std::nullopt;
    return std::pair(static_cast<int>(found->lost), std::string(found->text));
  }
  void lose(int lost, std::string const& text) override {
    std::lock_guard lock(mutex_);
    if (fault()) return;
    Board& own = *board(rank_);
    own.lost = lost;
    std::size_t const length = std::min(text.size(), sizeof own.text - 1);
    std::memcpy(own.text, text.data(), length);
    own.text[length] = '\0';
    own.failed.store(1, std::memory_order_release);
  }
  void mark_alive(int) noexcept override {}
  void leave() noexcept override { board(rank_)->left.store(1, std::memory_order_release); }

 private:
  struct Page {
    Page() = default;
    Page(Page const&) = delete;
    Page& operator=(Page const&) = delete;
    ~Page() {
      if (board.load()) ::munmap(board.load(), sizeof(Board));
      if (file >= 0) ::close(file);
    }
    /// Maps the file. `file` must be set before: other threads use it once `board` is not null.
    bool map(int access) {
      void* const at = ::mmap(nullptr, sizeof(Board), access, MAP_SHARED, file, 0);
      if (at == MAP_FAILED) return false;
      board.store(static_cast<Board*>(at), std::memory_order_release);
      return true;
    }
    int file = -1;
    std::atomic<Board*> board{nullptr};
  };

  [[noreturn]] void refuse(char const* what) const {
    throw Error(ErrorKind::failed,
                std::string("cannot ") + what + " a page of shared memory for rank " + std::to_string(rank_) +
                    " in /dev/shm: " + std::strerror(errno) + "; free or mount it",
                rank_);
  }

  int rank_;
  Name name_;
  bool hidden_ = false;
  std::vector<Page> pages_;
  mutable History history_;
  std::mutex mutex_;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
