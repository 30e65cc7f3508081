// SPDX-License-Identifier: Apache-2.0
// How ranks talk: one abstract transport that engines hold, its traffic counters, and the handle that users
// pass.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera::inline v0 {
namespace comm {

/// What a collective does with bytes.
enum class Collective : std::uint8_t {
  none,
  all_to_all,
  all_gather,
  gather,
  broadcast,
  all_reduce,
  reduce_scatter,
  barrier
};

constexpr std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::none:
      return "none";
    case Collective::all_to_all:
      return "all_to_all";
    case Collective::all_gather:
      return "all_gather";
    case Collective::gather:
      return "gather";
    case Collective::broadcast:
      return "broadcast";
    case Collective::all_reduce:
      return "all_reduce";
    case Collective::reduce_scatter:
      return "reduce_scatter";
    case Collective::barrier:
      return "barrier";
  }
  return "?";
}

/// Who asks: a schedule verb, the unit and the micro-batch, for error texts and for the check that all ranks
/// ask for the same thing. The strings must live until the call returns; the first 31 and 63 characters
/// count.
struct CollectiveId {
  char const* operation = "";
  char const* unit = "";
  std::int64_t micro_batch = -1;  ///< -1: none
};

/// The ranks among which a collective moves values: `count` of them, `stride` apart from `first` on. All
/// ranks of the world call it together, each with the group it is in.
struct Peers {
  int first = 0;
  int stride = 1;
  int count = 0;

  constexpr int rank(int index) const { return first + index * stride; }
  constexpr int index_of(int rank) const { return (rank - first) / stride; }
};

/// One collective as a transport sees it.
struct Request {
  Collective collective = Collective::none;
  CollectiveId id{};
  std::uint64_t sequence = 0;  ///< this rank's count of collectives, from 1
  std::int64_t bytes = 0;      ///< one piece: per peer, per rank, or the whole buffer
  int root = -1;               ///< gather and broadcast
  DType dtype = DType::f32;    ///< reductions
  void* stream = nullptr;      ///< where a device transport enqueues; null for host memory
  Peers peers{};               ///< the others of this rank's group, itself among them
  int pieces = 0;              ///< all_to_all: how many `send` holds; rank p gets piece p modulo that
};

/// "all_gather of 4096 bytes (publish h.3, micro-batch 0)".
inline std::string describe(Request const& request) {
  std::string text(name_of(request.collective));
  bool const sums =
      request.collective == Collective::all_reduce || request.collective == Collective::reduce_scatter;
  if (sums)
    text += " of " + std::to_string(request.bytes / static_cast<std::int64_t>(size_of(request.dtype))) + " " +
            std::string(name_of(request.dtype)) + " values";
  else if (request.collective != Collective::barrier)
    text += " of " + std::to_string(request.bytes) + " bytes";
  if (request.root >= 0)
    text += (request.collective == Collective::gather ? " to rank " : " from rank ") +
            std::to_string(request.root);
  std::string who = request.id.operation ? request.id.operation : "";
  if (request.id.unit && *request.id.unit) who += (who.empty() ? "" : " ") + std::string(request.id.unit);
  if (request.id.micro_batch >= 0)
    who += (who.empty() ? "micro-batch " : ", micro-batch ") + std::to_string(request.id.micro_batch);
  if (!who.empty()) text += " (" + who + ")";
  return text;
}

/// The watchdog's word: the sequence number above, the kind of collective in the lowest byte. A rank stores
/// it before it enters a collective, so the word names the last collective that the rank reached.
constexpr std::uint64_t watch_word(std::uint64_t sequence, Collective collective) {
  return sequence << 8 | static_cast<std::uint64_t>(collective);
}
constexpr std::uint64_t sequence_of(std::uint64_t word) { return word >> 8; }
constexpr Collective collective_of(std::uint64_t word) { return static_cast<Collective>(word & 0xffu); }

/// What one rank's collectives cost since the last reset. `bytes_sent` counts what this rank hands to other
/// ranks:
///   all_to_all      (W-1) * piece         all_gather      (W-1) * shard
///   reduce_scatter  (W-1) * shard         gather          shard, 0 on the root
///   broadcast       (W-1) * n on the root, 0 elsewhere
///   all_reduce      2 * (W-1) * ceil(count / W) elements: a reduce-scatter and an all-gather of padded
///   slices barrier         0
/// whatever the transport really does. Those of a group are one of `calls`. `waiting` is the part of
/// `seconds` spent until the slowest rank arrived; transports that only enqueue report the seconds of the
/// calls.
struct Traffic {
  std::int64_t bytes_sent = 0;
  std::int64_t collectives = 0;
  double seconds = 0;
  double waiting = 0;
  std::int64_t calls = 0;
};

/// One rank's end of a communicator. Collectives are calls of one thread at a time, in the same order on
/// every rank; `heartbeat`, `poison`, `word` and `where` may be called from any thread. A collective neither
/// allocates nor returns before its buffers may be reused (device transports: before later work of the stream
/// may reuse them). Zero sizes are legal and still meet the other ranks. Errors: Error(usage) for wrong
/// arguments, Error(failed) on all ranks when they ask for different things, PeerLost when a rank threw, left
/// or did not arrive; after any of them the communicator is unusable.
class Transport {
 public:
  Transport(Transport const&) = delete;
  Transport& operator=(Transport const&) = delete;
  virtual ~Transport() = default;

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  bool is_root() const noexcept { return rank_ == 0; }
  /// The index of this rank's device on its host.
  virtual int local_rank() const noexcept { return rank_; }
  /// Whether collectives may go among some of the ranks only (Peers of more than one and not all).
  virtual bool has_groups() const noexcept { return true; }
  /// "single", "threads", ... for reports.
  virtual std::string_view name() const noexcept = 0;

  /// All ranks of the world as one group.
  Peers everyone() const noexcept { return {0, 1, world_}; }

  /// recv[p] = rank p's send[rank modulo pieces]. `recv` holds W pieces and `send` so many, W of them unless
  /// told; they must not overlap.
  void all_to_all(void const* send, void* recv, std::int64_t bytes_per_peer, CollectiveId const& id = {},
                  int pieces = 0) {
    Request request = make(Collective::all_to_all, id, bytes_per_peer);
    request.pieces = pieces > 0 ? pieces : world_;
    need_apart(request, send, request.pieces * bytes_per_peer, recv, world_ * bytes_per_peer, false);
    perform(request, send, recv, (world_ - 1) * bytes_per_peer);
  }

  /// recv[p] = peer p's send, on every rank of a group, or of the world. `send` may be this rank's slot of
  /// `recv`.
  void all_gather(void const* send, void* recv, std::int64_t bytes_per_rank, CollectiveId const& id = {},
                  Peers const& peers = {}) {
    Request const request = make(Collective::all_gather, id, bytes_per_rank, -1, DType::f32, peers);
    int const count = request.peers.count;
    need_apart(request, send, bytes_per_rank, recv, count * bytes_per_rank,
               is_slot(request, send, recv, bytes_per_rank));
    perform(request, send, recv, (count - 1) * bytes_per_rank);
  }

  /// The same on the root alone; the other ranks' `recv` is not touched and may be null.
  void gather(int root, void const* send, void* recv, std::int64_t bytes_per_rank,
              CollectiveId const& id = {}) {
    Request const request = make(Collective::gather, id, bytes_per_rank, root);
    if (rank_ == root)
      need_apart(request, send, bytes_per_rank, recv, world_ * bytes_per_rank,
                 is_slot(request, send, recv, bytes_per_rank));
    else
      need_memory(request, send);
    perform(request, send, recv, rank_ == root ? 0 : bytes_per_rank);
  }

  /// Every rank's buffer becomes the root's.
  void broadcast(int root, void* buffer, std::int64_t bytes, CollectiveId const& id = {}) {
    Request const request = make(Collective::broadcast, id, bytes, root);
    need_memory(request, buffer);
    perform(request, buffer, buffer, rank_ == root ? (world_ - 1) * bytes : 0);
  }

  /// Every rank's buffer becomes the sum of all. The order of the sum is the transport's: rank order for
  /// threads, any order elsewhere. 16-bit formats are summed in fp32 and rounded once by threads; a library
  /// may round every partial sum.
  void all_reduce(DType dtype, void* buffer, std::int64_t count, CollectiveId const& id = {},
                  Peers const& peers = {}) {
    auto const size = static_cast<std::int64_t>(size_of(dtype));
    Request const request = make(Collective::all_reduce, id, count * size, -1, dtype, peers);
    need_memory(request, buffer);
    std::int64_t const ranks = request.peers.count;
    perform(request, buffer, buffer, 2 * (ranks - 1) * ((count + ranks - 1) / ranks) * size);
  }

  /// recv = the sum over a group, or the world, of their send[index of this rank]. `send` holds a shard for
  /// each; `recv` may be this rank's slot of it.
  void reduce_scatter(DType dtype, void const* send, void* recv, std::int64_t count_per_rank,
                      CollectiveId const& id = {}, Peers const& peers = {}) {
    std::int64_t const bytes = count_per_rank * static_cast<std::int64_t>(size_of(dtype));
    Request const request = make(Collective::reduce_scatter, id, bytes, -1, dtype, peers);
    need_apart(request, send, request.peers.count * bytes, recv, bytes, is_slot(request, recv, send, bytes));
    perform(request, send, recv, (request.peers.count - 1) * bytes);
  }

  /// Returns when every rank has called it.
  void barrier(CollectiveId const& id = {}) {
    perform(make(Collective::barrier, id, 0), nullptr, nullptr, 0);
  }

  /// Collectives of one stream from here to `end_group` are one call where the transport has such, as NCCL
  /// does; others carry them out one by one. None may touch what another writes, and what they write is there
  /// once `end_group` has returned. Without an open group that does nothing.
  void begin_group() noexcept { grouped_ = true; }
  void end_group() {
    if (!grouped_) return;
    auto const start = Clock::now();
    grouped_ = false;
    flush();
    traffic_.calls += 1;
    traffic_.seconds += seconds_since(start);
  }

  Traffic const& traffic() const noexcept { return traffic_; }
  std::int64_t bytes_sent() const noexcept { return traffic_.bytes_sent; }
  void reset_traffic() noexcept { traffic_ = {}; }

  /// The native stream that later collectives are enqueued on, for device transports; the others ignore it.
  void on_stream(void* stream) noexcept { stream_ = stream; }

  /// Says that this rank is alive although it is far from the next collective: restarts the others' timeout.
  virtual void heartbeat() noexcept {}
  /// Returns once `done()`, which asks a device about work enqueued before; asks every 50 us at the least.
  /// Transports that enqueue on devices throw PeerLost when another rank keeps the work from ending.
  virtual void await(std::function<bool()> const& done, char const* /*what*/) {
    while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  /// Gives the communicator up: every rank that waits in it or enters it throws PeerLost with this rank and
  /// cause.
  virtual void poison(char const* cause) noexcept = 0;
  /// A rank's watchdog word.
  virtual std::uint64_t word(int rank) const noexcept = 0;
  /// Where a rank is or was last seen, for people: "in collective 17, all_gather of 64 bytes (publish h.3)".
  virtual std::string where(int rank) const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  /// `word` must outlive this object; transports whose ranks watch each other share the words.
  Transport(int rank, int world, std::atomic<std::uint64_t>& word)
      : rank_(rank), world_(world), word_(&word) {}

  /// Does the collective and returns the seconds spent waiting for other ranks. In-place forms pass send ==
  /// recv.
  virtual double exchange(Request const& request, void const* send, void* recv) = 0;

  /// Carries out what `exchange` has put off while a group was open.
  virtual void flush() {}
  bool grouped() const noexcept { return grouped_; }

  /// Stores the watch word before a collective; device transports store it in stream order.
  virtual void note(Request const& request) {
    word_->store(watch_word(request.sequence, request.collective), std::memory_order_release);
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  Request make(Collective collective, CollectiveId const& id, std::int64_t bytes, int root = -1,
               DType dtype = DType::f32, Peers const& peers = {}) const {
    Request request{collective, id, sequence_ + 1, bytes, root, dtype, stream_};
    request.peers = peers.count > 0 ? peers : everyone();
    if (bytes < 0) refuse(request, "a size must not be negative");
    if ((collective == Collective::gather || collective == Collective::broadcast) &&
        (root < 0 || root >= world_))
      refuse(request, ("the root must be a rank from 0 to " + std::to_string(world_ - 1)).c_str());
    return request;
  }

  void perform(Request const& request, void const* send, void* recv, std::int64_t sent) {
    sequence_ = request.sequence;
    note(request);
    auto const start = Clock::now();
    double const waited = exchange(request, send, recv);
    traffic_.bytes_sent += sent;
    traffic_.collectives += 1;
    traffic_.calls += grouped_ ? 0 : 1;
    traffic_.seconds += seconds_since(start);
    traffic_.waiting += waited;
  }

  bool is_slot(Request const& request, void const* piece, void const* whole, std::int64_t bytes) const {
    return whole && piece == static_cast<std::byte const*>(whole) + request.peers.index_of(rank_) * bytes;
  }

  void need_memory(Request const& request, void const* memory) const {
    if (request.bytes > 0 && !memory) refuse(request, "a buffer is null");
  }

  void need_apart(Request const& request, void const* send, std::int64_t send_bytes, void const* recv,
                  std::int64_t recv_bytes, bool may_overlap) const {
    need_memory(request, send);
    need_memory(request, recv);
    if (may_overlap || world_ == 1 || request.bytes == 0) return;
    auto const from = reinterpret_cast<std::uintptr_t>(send);
    auto const to = reinterpret_cast<std::uintptr_t>(recv);
    if (from < to + static_cast<std::uintptr_t>(recv_bytes) &&
        to < from + static_cast<std::uintptr_t>(send_bytes))
      refuse(request, "send and receive buffers overlap");
  }

  [[noreturn]] void refuse(Request const& request, char const* why) const {
    throw Error(ErrorKind::usage,
                "rank " + std::to_string(rank_) + " asked for " + describe(request) + ": " + why, rank_,
                request.id.unit ? request.id.unit : "");
  }

  int rank_;
  int world_;
  std::atomic<std::uint64_t>* word_;
  std::uint64_t sequence_ = 0;
  void* stream_ = nullptr;
  bool grouped_ = false;
  Traffic traffic_;
};

/// A world of one rank: collectives copy, or do nothing in place.
class Single final : public Transport {
 public:
  Single() : Transport(0, 1, own_word_) {}

  std::string_view name() const noexcept override { return "single"; }
  void poison(char const*) noexcept override {}
  std::uint64_t word(int) const noexcept override { return own_word_.load(std::memory_order_acquire); }
  std::string where(int) const override {
    auto const seen = own_word_.load(std::memory_order_acquire);
    if (seen == 0) return "before its first collective";
    return "at collective " + std::to_string(sequence_of(seen)) + ", " +
           std::string(name_of(collective_of(seen)));
  }

 private:
  double exchange(Request const& request, void const* send, void* recv) override {
    if (request.bytes > 0 && send != recv) std::memmove(recv, send, static_cast<std::size_t>(request.bytes));
    return 0;
  }

  std::atomic<std::uint64_t> own_word_{0};
};

/// One rank's end of nothing: collectives are reported to a recorder, by their name and the bytes of a piece,
/// and touch no buffer.
class RecordingTransport final : public Transport {
 public:
  RecordingTransport(int rank, int world, Recorder& recorder)
      : Transport(rank, world, own_word_), recorder_(recorder) {}

  std::string_view name() const noexcept override { return "recording"; }
  void poison(char const*) noexcept override {}
  std::uint64_t word(int) const noexcept override { return own_word_.load(std::memory_order_acquire); }
  std::string where(int) const override { return "in a step that is only recorded"; }

 private:
  double exchange(Request const& request, void const*, void*) override {
    recorder_.operation({name_of(request.collective).data(), 0.0, static_cast<double>(request.bytes)});
    return 0;
  }

  Recorder& recorder_;
  std::atomic<std::uint64_t> own_word_{0};
};

/// What a trainer takes: a value that knows its rank and hands out the transport.
template <class C>
concept Communicator = std::movable<C> && requires(C const& communicator) {
  { communicator.rank() } -> std::convertible_to<int>;
  { communicator.world() } -> std::convertible_to<int>;
  { communicator.is_root() } -> std::convertible_to<bool>;
  { communicator.transport() } -> std::convertible_to<Transport&>;
};

/// The public handle: cheap to copy; copies share one transport. Without arguments a world of one.
class Comm {
 public:
  Comm() : transport_(std::make_shared<Single>()) {}
  explicit Comm(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
    if (!transport_) throw Error(ErrorKind::usage, "a Comm needs a transport, and was given none");
  }

  int rank() const noexcept { return transport_->rank(); }
  int world() const noexcept { return transport_->world(); }
  bool is_root() const noexcept { return transport_->is_root(); }
  Transport& transport() const noexcept { return *transport_; }

 private:
  std::shared_ptr<Transport> transport_;
};

static_assert(Communicator<Comm>);

/// Whether every rank says yes; all of them get the same answer, so a stop that ranks see at different times
/// is one before the same step. Collective, between steps: one sum in host memory, which waits for the
/// slowest rank. Threads exchange it without their GPUs; processes do so through them, behind the steps under
/// way, and had better ask every few steps only.
inline bool unanimous(Comm const& comm, bool yes) {
  double votes = yes ? 1.0 : 0.0;
  comm.transport().all_reduce(DType::f64, &votes, 1, {"vote"});
  return votes == comm.world();
}

/// All ranks compare a value, such as the hash of their schedule, and throw Error(config) if it differs
/// anywhere, naming ranks and values. One all-gather of 8 bytes; allocates, so it belongs before step 1.
inline void agree(Transport& transport, std::uint64_t value, char const* what) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&value, values.data(), sizeof value, {"agree", what});
  std::string text;
  std::vector<bool> named(values.size());
  std::size_t groups = 0;
  for (std::size_t first = 0; first < values.size(); ++first) {
    if (named[first]) continue;
    std::string ranks;
    std::size_t members = 0;
    for (std::size_t other = first; other < values.size(); ++other) {
      if (values[other] != values[first]) continue;
      named[other] = true;
      ranks += (members++ ? ", " : " ") + std::to_string(other);
    }
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%016llx", static_cast<unsigned long long>(values[first]));
    text += (groups++ ? "; " : "") + std::string(members > 1 ? "ranks" : "rank") + ranks +
            (members > 1 ? " have " : " has ") + hex;
  }
  if (groups > 1)
    throw Error(ErrorKind::config,
                "ranks disagree on the " + std::string(what) + ": " + text +
                    "; start every rank with the same program, recipe, model and flags",
                transport.rank());
}

}  // namespace comm
}  // namespace tessera::inline v0
