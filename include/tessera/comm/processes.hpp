// SPDX-License-Identifier: Apache-2.0
// Provides Processes, the transport between processes with buffers in host memory. It sums in rank order, so
// its results have the same bits as those of the transport between threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/environment.hpp"
#include "tessera/comm/launch.hpp"
#include "tessera/comm/messages.hpp"
#include "tessera/comm/shared_memory.hpp"
#include "tessera/comm/sum.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/numbers.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// The transport of one process of a launch. At the start of a collective, each process sends its request to
/// the other processes of the group and compares their requests with its own. Then the processes exchange the
/// data.
class Processes final : public Transport {
 public:
  /// All ranks of the launch must call this constructor together. `messages` moves the bytes. If the
  /// processes of the other ranks live but no other rank makes progress for the time `timeout`, a waiting
  /// rank throws PeerLost.
  Processes(std::shared_ptr<Launch> launch, std::unique_ptr<Messages> messages,
            std::chrono::duration<double> timeout = ThreadsOptions{}.timeout)
      : Transport(launch->rank(), launch->world(), own_word_),
        launch_(std::move(launch)),
        messages_(std::move(messages)),
        timeout_(timeout),
        headers_(static_cast<std::size_t>(world())),
        blocks_(static_cast<std::size_t>(world() * block)) {
    launch_->watch(this, [this] { return progress(); });
  }
  ~Processes() override {
    launch_->unwatch(this, std::uncaught_exceptions() > exceptions_ ? Launch::by_exception : nullptr);
  }

  std::string_view name() const noexcept override { return messages_->name(); }
  int local_rank() const noexcept override { return std::max(0, launch_->environment().local_rank); }
  int ranks_on_host() const noexcept override { return launch_->ranks_on_host(); }
  void heartbeat() noexcept override { beats_.fetch_add(1, std::memory_order_relaxed); }
  void poison(char const* cause) noexcept override {
    launch_->give_up(cause && *cause ? cause : "it gave up without a reason");
  }
  std::uint64_t word(int rank) const noexcept override {
    return rank == this->rank() ? own_word_.load(std::memory_order_acquire) : launch_->progress(rank).word;
  }
  std::string where(int rank) const override {
    if (rank == this->rank()) return place();
    std::uint64_t const word = launch_->progress(rank).word;
    if (word == 0) return "before its first collective";
    return sentence({"at collective ", sequence_of(word), ", ", name_of(move_of(word))});
  }

 private:
  static constexpr std::int64_t block = 256 << 10;  ///< bytes of each rank that are summed at a time

  /// A request as processes send it to each other.
  struct Header {
    std::uint64_t sequence;
    std::int64_t bytes;
    std::int64_t micro_batch;
    std::int32_t move, root, dtype, first, stride, count, channel;
    char operation[32];
    char unit[64];
    std::uint32_t whole;  ///< the sender's 1 replaces the receiver's 0 when the whole header has arrived

    static Header of(Request const& request) {
      Header header{};
      header.sequence = request.sequence;
      header.bytes = request.bytes;
      header.micro_batch = request.id.micro_batch;
      header.move = static_cast<std::int32_t>(request.move);
      header.root = request.root;
      header.dtype = static_cast<std::int32_t>(request.dtype);
      header.first = request.group.first;
      header.stride = request.group.stride;
      header.count = request.group.count;
      header.channel = request.group.channel;
      if (request.id.operation)
        std::strncpy(header.operation, request.id.operation, sizeof header.operation - 1);
      if (request.id.unit) std::strncpy(header.unit, request.id.unit, sizeof header.unit - 1);
      header.whole = 1;
      return header;
    }
    /// Returns the request. Its strings are in this header.
    Request request() const {
      Request request{static_cast<Move>(move),  {operation, unit, micro_batch}, sequence, bytes, root,
                      static_cast<DType>(dtype)};
      request.group = {first, stride, count, channel};
      return request;
    }
  };
  static_assert(std::has_unique_object_representations_v<Header>, "headers are compared byte by byte");

  double exchange(Request const& request, void const* send, void* recv) override {
    if (request.move == Move::send || request.move == Move::receive) {
      later_.push_back({request, send, recv});
      if (!grouped()) flush();
      return 0;
    }
    note_place(request);
    double const waited = meet(request);
    auto const* const from = static_cast<std::byte const*>(send);
    auto* const to = static_cast<std::byte*>(recv);
    std::int64_t const bytes = request.bytes;
    ProcessGroup const& group = request.group;
    int const own = group.index_of(rank());
    if (bytes > 0) switch (request.move) {
        case Move::all_to_all:
          each_peer(group, [&](int peer) {
            messages_->send(group.rank(peer), from + peer % request.pieces * bytes, bytes);
            messages_->receive(group.rank(peer), to + peer * bytes, bytes);
          });
          copy(to + own * bytes, from + own % request.pieces * bytes, bytes);
          break;
        case Move::all_gather:
          each_peer(group, [&](int peer) {
            messages_->send(group.rank(peer), from, bytes);
            messages_->receive(group.rank(peer), to + peer * bytes, bytes);
          });
          copy(to + own * bytes, from, bytes);
          break;
        case Move::gather:
          if (own != request.root) {
            messages_->send(group.rank(request.root), from, bytes);
            break;
          }
          each_peer(group, [&](int peer) { messages_->receive(group.rank(peer), to + peer * bytes, bytes); });
          copy(to + own * bytes, from, bytes);
          break;
        case Move::broadcast:
          if (own == request.root)
            each_peer(group, [&](int peer) { messages_->send(group.rank(peer), from, bytes); });
          else
            messages_->receive(group.rank(request.root), to, bytes);
          break;
        case Move::all_reduce:
          all_reduce(request, to);
          break;
        case Move::reduce_scatter:
          sum(
              request, [&](int peer) { return from + peer * bytes; }, [&](int) { return bytes; }, to);
          break;
        case Move::none:
        case Move::copy:
        case Move::barrier:
        case Move::send:
        case Move::receive:
          break;
      }
    complete(request);
    leave_place();
    return waited;
  }

  /// Runs the pending sends and receives, which are in `later_`.
  void flush() override {
    if (later_.empty()) return;
    check_fault(later_.back().request);
    // Only the ranks to which this rank sends are missed if they leave, and those from which it receives.
    for (Header& header : headers_) header.whole = 1;
    pair_headers_.resize(later_.size());
    for (std::size_t i = 0; i < later_.size(); ++i) {
      Request const& request = later_[i].request;
      note_place(request);
      int const other = request.group.rank(request.root);
      if (request.move == Move::send) {
        pair_headers_[i] = Header::of(request);
        header_of(other).whole = 0;
        messages_->send(other, &pair_headers_[i], sizeof(Header));
        messages_->send(other, later_[i].send, request.bytes);
      }
    }
    // Each message starts with a header. For each receive, waits for the header and compares its size with
    // the size of the receive. Only then receives the data.
    for (std::size_t i = 0; i < later_.size(); ++i) {
      Request const& request = later_[i].request;
      if (request.move != Move::receive) continue;
      int const other = request.group.rank(request.root);
      Header& header = header_of(other);
      header.whole = 0;
      messages_->receive(other, &header, sizeof header);
      wait(request, [&] { return header.whole != 0; });
      if (header.move != static_cast<std::int32_t>(Move::send) || header.bytes != request.bytes)
        refuse_mismatch(request, other, header);
      messages_->receive(other, later_[i].recv, request.bytes);
    }
    complete(later_.back().request);
    later_.clear();
    leave_place();
  }

  /// Sends the request to all ranks of the group, receives their requests and compares them. Throws
  /// Error(failed) if they differ. Returns the seconds that this took.
  double meet(Request const& request) {
    auto const start = Clock::now();
    ProcessGroup const& group = request.group;
    check_fault(request);
    own_header_ = Header::of(request);
    each_peer(group, [&](int peer) {
      int const other = group.rank(peer);
      header_of(other).whole = 0;
      messages_->send(other, &own_header_, sizeof own_header_);
      messages_->receive(other, &header_of(other), sizeof(Header));
    });
    auto const compare = [&] {
      each_peer(group, [&](int peer) {
        Header const& header = header_of(group.rank(peer));
        if (header.whole && std::memcmp(&header, &own_header_, sizeof header) != 0)
          refuse_mismatch(request, group.rank(peer), header);
      });
      return false;
    };
    wait(request, compare);  // compares during the wait, as some requests may never arrive
    compare();
    return seconds_since(start);
  }
  Header& header_of(int rank) { return headers_[static_cast<std::size_t>(rank)]; }

  [[noreturn]] void refuse_mismatch(Request const& request, int other, Header const& header) {
    bool const apart = !request.group.same(header.request().group);
    auto const text = [apart](int rank, Request const& of) {
      std::string const number = of.sequence > 0 ? sentence({"number ", of.sequence, ", "}) : "";
      return sentence({"rank ", rank, " requests ", number, describe(of), apart ? ", among " : "",
                       apart ? describe(of.group) : ""});
    };
    bool const first = rank() < other;
    std::string const own = text(rank(), request), others = text(other, header.request());
    launch_->lose(-1,
                  sentence({"ranks request different collectives: ", first ? own : others, "; ",
                            first ? others : own, "; every rank must run the same steps on the same model"}),
                  true);
    check_fault(request);
    throw Error(ErrorKind::failed, own, rank());  // not reached: check_fault throws
  }

  void check_fault(Request const& request) const {
    auto const fault = launch_->fault();
    if (!fault) return;
    messages_->abandon();
    launch_->raise(*fault, "was " + place(), request.id.unit ? request.id.unit : "");
  }

  void complete(Request const& request) {
    wait(request, [] { return false; });
  }
  /// Waits until all messages that were started are complete, or until enough() returns true. Throws PeerLost
  /// if a rank is lost, or if no other rank gives a sign of life for the timeout.
  template <class Enough>
  void wait(Request const& request, Enough const& enough) {
    auto const start = Clock::now();
    auto moved = start, looked = start;
    std::uint64_t seen = 0;
    while (!messages_->progress() && !enough()) {
      auto const now = Clock::now();
      if (now - start < std::chrono::milliseconds(1))
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(
            std::chrono::microseconds(now - start < std::chrono::seconds(1) ? 50 : 500));
      if (now - looked < std::chrono::milliseconds(2)) continue;
      looked = now;
      check_fault(request);
      if (std::uint64_t const current = movement(); current != seen) {
        seen = current;
        moved = now;
      }
      std::chrono::duration<double> const quiet = now - moved;
      if (quiet > std::min(timeout_, std::chrono::duration<double>(1.0))) blame_leavers(request.group);
      if (quiet > timeout_) blame_late(request.group);
    }
  }

  /// Returns a number that changes whenever another rank reaches a collective or calls `heartbeat`.
  std::uint64_t movement() const {
    std::uint64_t sum = 0;
    for (int rank = 0; rank < world(); ++rank) {
      Progress const progress = launch_->progress(rank);
      if (rank != this->rank()) sum += progress.total() + progress.beats;
    }
    return sum;
  }
  /// Returns whether a rank of the group has requested the collective in which this rank waits.
  bool has_arrived(int rank) { return header_of(rank).whole != 0; }
  void blame_leavers(ProcessGroup const& group) {
    each_peer(group, [&](int peer) {
      int const other = group.rank(peer);
      Progress const progress = launch_->progress(other);
      if (progress.left && progress.communicator == launch_->communicator() && !has_arrived(other))
        launch_->lose(other, "it left, but other ranks continued; every rank must run the same steps");
    });
  }
  /// Ends the communicator after a timeout, and names a rank of the group as lost. It prefers ranks that have
  /// not arrived at the collective. Among them it names the rank that has reached the fewest collectives.
  void blame_late(ProcessGroup const& group) {
    int late = -1;
    std::uint64_t least = 0;
    each_peer(group, [&](int peer) {
      int const other = group.rank(peer);
      std::uint64_t const reached = launch_->progress(other).total();
      bool const later = late < 0 || (has_arrived(late) && !has_arrived(other)) ||
                         (has_arrived(late) == has_arrived(other) && reached < least);
      if (!later) return;
      late = other;
      least = reached;
    });
    launch_->lose(late,
                  sentence({"it gave no sign of life for ", detail::seconds_text(timeout_.count()),
                            " while rank ", rank(), " waited; if it is still computing, raise the timeout"}));
  }

  Progress progress() const {
    return {0,
            own_word_.load(std::memory_order_acquire),
            {reached_.load(std::memory_order_relaxed)},
            beats_.load(std::memory_order_relaxed),
            false,
            place()};
  }
  void note_place(Request const& request) {
    std::lock_guard lock(place_mutex_);
    place_ = Header::of(request);
    inside_ = true;
    reached_.fetch_add(1, std::memory_order_relaxed);
  }
  void leave_place() {
    std::lock_guard lock(place_mutex_);
    inside_ = false;
  }
  std::string place() const {
    std::lock_guard lock(place_mutex_);
    if (!place_.whole) return "before its first collective";
    return sentence(
        {inside_ ? "in " : "after ", "collective ", place_.sequence, ", ", describe(place_.request())});
  }

  void all_reduce(Request const& request, std::byte* buffer) {
    ProcessGroup const& group = request.group;
    int const own = group.index_of(rank());
    auto const size = static_cast<std::int64_t>(size_of(request.dtype));
    std::int64_t const slice = (request.bytes / size + group.count - 1) / group.count * size;
    auto const begin = [&](int owner) { return std::min(owner * slice, request.bytes); };
    auto const length = [&](int owner) {
      return std::min((owner + 1) * slice, request.bytes) - begin(owner);
    };
    sum(
        request, [&](int peer) { return buffer + begin(peer); }, length, buffer + begin(own));
    each_peer(group, [&](int peer) {
      messages_->send(group.rank(peer), buffer + begin(own), length(own));
      messages_->receive(group.rank(peer), buffer + begin(peer), length(peer));
    });
  }

  /// Runs a reduce-scatter. The values of each rank consist of one piece for each rank of the group. piece(p)
  /// returns the address of piece p in the memory of this rank, and length(p) its size in bytes. Sends piece
  /// p to the rank with index p, for each p. Stores in `out` the sum over all ranks, in rank order, of the
  /// piece that belongs to this rank. `out` may be the address of this piece.
  template <class Piece, class Length>
  void sum(Request const& request, Piece const& piece, Length const& length, std::byte* out) {
    ProcessGroup const& group = request.group;
    int const own = group.index_of(rank());
    std::int64_t longest = 0;
    for (int peer = 0; peer < group.count; ++peer) longest = std::max(longest, length(peer));
    for (std::int64_t at = 0; at < longest; at += block) {
      auto const left = [&](int peer) { return std::clamp<std::int64_t>(length(peer) - at, 0, block); };
      each_peer(group, [&](int peer) {
        messages_->send(group.rank(peer), piece(peer) + at, left(peer));
        messages_->receive(group.rank(peer), received(peer), left(own));
      });
      complete(request);
      with_type(request.dtype, [&]<class T>(T*) {
        auto const from = [&](int peer) {
          return reinterpret_cast<T const*>(peer == own ? piece(own) + at : received(peer));
        };
        detail::sum_in_rank_order(group.count, from, reinterpret_cast<T*>(out + at),
                                  left(own) / static_cast<std::int64_t>(sizeof(T)));
      });
    }
  }
  std::byte* received(int peer) { return blocks_.data() + peer * block; }

  /// Calls body(peer) for each other rank of a group; `peer` is its index. Each rank begins with the rank
  /// after itself, so that not all ranks send to one rank at once.
  template <class Body>
  void each_peer(ProcessGroup const& group, Body const& body) {
    int const own = group.index_of(rank());
    for (int step = 1; step < group.count; ++step) body((own + step) % group.count);
  }

  static void copy(std::byte* to, std::byte const* from, std::int64_t bytes) {
    if (to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  std::atomic<std::uint64_t> own_word_{0};
  std::atomic<std::uint64_t> reached_{0};
  std::atomic<std::uint64_t> beats_{0};
  std::shared_ptr<Launch> launch_;
  std::unique_ptr<Messages> messages_;
  std::chrono::duration<double> const timeout_;
  int const exceptions_ = std::uncaught_exceptions();
  Header own_header_{};
  std::vector<Header> headers_;       // headers_[r]: the request that rank r sent last
  std::vector<std::byte> blocks_;     // in a sum: space for one block of each rank
  std::vector<detail::Call> later_;   // pending sends and receives; keeps its capacity
  std::vector<Header> pair_headers_;  // the headers of the pending sends
  mutable std::mutex place_mutex_;
  Header place_{};
  bool inside_ = false;
};

/// Returns a communicator between the processes of a launch. The caller must have called launch->begin(). All
/// ranks of the launch must call this function together. Bytes move through shared memory if all ranks share
/// memory, otherwise through the link of tessera::mpi. Throws Error(unsupported) if this link is necessary
/// and the program does not have it.
inline Comm processes(std::shared_ptr<Launch> const& launch) {
  int separate = 0;  // the first rank that does not share memory with rank 0
  while (separate < launch->world() && launch->share_memory(0, separate)) ++separate;
  if (separate == launch->world())
    return Comm(std::make_shared<Processes>(launch, std::make_unique<detail::SharedMemory>(*launch)));
  if (HostLink const* const link = linked_hosts.load(std::memory_order_relaxed))
    return Comm(std::make_shared<Processes>(launch, link->connect(launch)));
  throw Error(
      ErrorKind::unsupported,
      sentence({launch->name(0), " and ", launch->name(separate),
                " run on different hosts, or in different containers, and share no memory, which ranks "
                "on the CPU need; build the program with -DTESSERA_MPI=ON and start the ranks with "
                "mpirun or srun --mpi, or start all of them on one host"}),
      launch->rank());
}

namespace detail {
inline Comm join(GetEnvironment const* get) {
  std::shared_ptr<Launch> const launch = get ? join_launch(*get) : launch_of_process();
  launch->begin();
  return processes(launch);
}
/// Stores `join` in `join_processes` before main starts, so that from_environment can connect processes.
inline bool const joins_processes = (join_processes.store(&join), true);
}  // namespace detail

}  // namespace comm
}  // namespace v0
}  // namespace tessera
