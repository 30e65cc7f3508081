// SPDX-License-Identifier: Apache-2.0
// How ranks talk: one abstract transport that engines hold, and the handle that users pass.
#pragma once

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/request.hpp"
#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/detail/clock.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

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
  /// "single", "threads", ... for reports.
  virtual std::string_view name() const noexcept = 0;

  /// All ranks of the world as one group.
  Peers everyone() const noexcept { return {0, 1, world_}; }

  /// The way of a group and a channel. Collectives over ways of different channels need not wait for each
  /// other where the transport has channels; the others have one way for all. A new way is opened by all
  /// ranks of the world together, in the same order, each for the group it is in, between steps: on GPUs it
  /// meets the others and takes memory. One that is open is only looked up.
  Peers over(Peers group, int channel = 0) {
    if (group.count <= 0) group = everyone();
    group.channel = channel;
    group.way = 0;
    if (group.count == 1 || (group.count == world_ && channel == 0)) return group;
    for (Peers const& open : ways_)
      if (open.first == group.first && open.stride == group.stride && open.count == group.count &&
          open.channel == channel)
        return open;
    return opened(group);
  }

  /// Runs one move between the ranks of a group, or of the world. `bytes` are one piece: per peer, per rank,
  /// or the whole buffer. `dtype` is for sums. The functions below say how many pieces each buffer holds.
  void run(Move move, std::int64_t bytes, void const* send, void* recv, CollectiveId const& id = {},
           Peers const& peers = {}, int root = -1, DType dtype = DType::f32, int pieces = 0) {
    Request request = make(move, id, bytes, root, dtype, peers);
    int const ranks = request.peers.count;
    bool const here = request.peers.index_of(rank_) == root;
    std::int64_t sent = (ranks - 1) * bytes;
    switch (move) {
      case Move::all_to_all:
        request.pieces = pieces > 0 ? pieces : ranks;
        need_apart(request, send, request.pieces, recv, ranks);
        break;
      case Move::all_gather:
        need_apart(request, send, 1, recv, ranks);
        break;
      case Move::reduce_scatter:
        need_apart(request, send, ranks, recv, 1);
        break;
      case Move::gather:
        if (here)
          need_apart(request, send, 1, recv, ranks);
        else
          need_memory(request, send);
        sent = here ? 0 : bytes;
        break;
      case Move::broadcast:
        need_memory(request, recv);
        if (!here) sent = 0;
        break;
      case Move::all_reduce: {
        auto const size = static_cast<std::int64_t>(size_of(dtype));
        need_memory(request, recv);
        sent = 2 * (ranks - 1) * ((bytes / size + ranks - 1) / ranks) * size;
        break;
      }
      case Move::send:
        need_memory(request, send);
        sent = bytes;
        break;
      case Move::receive:
        need_memory(request, recv);
        sent = 0;
        break;
      case Move::barrier:
        break;
      case Move::none:
      case Move::copy:
        refuse(request, {"a transport carries values between ranks"});
    }
    perform(request, send, recv, sent);
  }

  /// recv[p] = peer p's send[own index modulo pieces], on every rank of a group, or of the world. `recv`
  /// holds one piece for each peer. `send` holds as many, or `pieces`. They must not overlap.
  void all_to_all(void const* send, void* recv, std::int64_t bytes_per_peer, CollectiveId const& id = {},
                  int pieces = 0, Peers const& peers = {}) {
    run(Move::all_to_all, bytes_per_peer, send, recv, id, peers, -1, DType::f32, pieces);
  }
  /// recv[p] = peer p's send, on every rank of a group, or of the world. `send` may be this rank's slot of
  /// `recv`.
  void all_gather(void const* send, void* recv, std::int64_t bytes_per_rank, CollectiveId const& id = {},
                  Peers const& peers = {}) {
    run(Move::all_gather, bytes_per_rank, send, recv, id, peers);
  }
  /// The same on the root alone, which is an index in the group. The `recv` of other ranks is not touched and
  /// may be null.
  void gather(int root, void const* send, void* recv, std::int64_t bytes_per_rank,
              CollectiveId const& id = {}, Peers const& peers = {}) {
    run(Move::gather, bytes_per_rank, send, recv, id, peers, root);
  }
  /// Every rank's buffer becomes the root's, which is an index in the group.
  void broadcast(int root, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
                 Peers const& peers = {}) {
    run(Move::broadcast, bytes, buffer, buffer, id, peers, root);
  }
  /// One rank sends to another, an index in the group, which receives. No other rank takes part. Either may
  /// wait for the other. Ranks that send to each other do so in a group (`begin_group`). Values of one rank
  /// for another arrive in order.
  void send(int to, void const* buffer, std::int64_t bytes, CollectiveId const& id = {},
            Peers const& peers = {}) {
    run(Move::send, bytes, buffer, nullptr, id, peers, to);
  }
  void receive(int from, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
               Peers const& peers = {}) {
    run(Move::receive, bytes, nullptr, buffer, id, peers, from);
  }
  /// Every rank's buffer becomes the sum of all. The order of the sum is the transport's: rank order for
  /// threads, any order elsewhere. 16-bit formats are summed in fp32 and rounded once by threads; a library
  /// may round every partial sum.
  void all_reduce(DType dtype, void* buffer, std::int64_t count, CollectiveId const& id = {},
                  Peers const& peers = {}) {
    run(Move::all_reduce, count * static_cast<std::int64_t>(size_of(dtype)), buffer, buffer, id, peers, -1,
        dtype);
  }
  /// recv = the sum over a group, or the world, of their send[index of this rank]. `send` holds a shard for
  /// each rank. `recv` may be this rank's slot of it.
  void reduce_scatter(DType dtype, void const* send, void* recv, std::int64_t count_per_rank,
                      CollectiveId const& id = {}, Peers const& peers = {}) {
    run(Move::reduce_scatter, count_per_rank * static_cast<std::int64_t>(size_of(dtype)), send, recv, id,
        peers, -1, dtype);
  }
  /// Returns when every rank has called it.
  void barrier(CollectiveId const& id = {}) { run(Move::barrier, 0, nullptr, nullptr, id); }

  /// Collectives of one stream and way from here to `end_group` are one call where the transport has such, as
  /// NCCL does; others carry them out one by one. None may touch what another writes, and what they write is
  /// there once `end_group` has returned. Without an open group that does nothing.
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
  /// Where a rank is or was last seen, for people: "in collective 17, all_gather of 64 bytes (write_back
  /// h.3)".
  virtual std::string where(int rank) const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  /// `word` must outlive this object; transports whose ranks watch each other share the words.
  Transport(int rank, int world, std::atomic<std::uint64_t>& word)
      : rank_(rank), world_(world), word_(&word) {}

  /// Does the collective and returns the seconds spent waiting for other ranks. In-place forms pass send ==
  /// recv.
  virtual double exchange(Request const& request, void const* send, void* recv) = 0;

  /// Opens the way of a group and a channel; returns its number.
  virtual int open_way(Peers const& /*group*/) { return 0; }

  /// Carries out what `exchange` has put off while a group was open.
  virtual void flush() {}
  bool grouped() const noexcept { return grouped_; }

  /// Stores the watch word before a collective; device transports store it in stream order.
  virtual void note(Request const& request) {
    word_->store(watch_word(request.sequence, request.move), std::memory_order_release);
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  Peers opened(Peers group) {
    group.way = open_way(group);
    ways_.push_back(group);
    return group;
  }

  Request make(Move move, CollectiveId const& id, std::int64_t bytes, int root, DType dtype,
               Peers const& peers) const {
    bool const of_two = move == Move::send || move == Move::receive,
               sums = move == Move::all_reduce || move == Move::reduce_scatter;
    Request request{move, id, sequence_ + !of_two, bytes, root, sums ? dtype : DType::f32, stream_};
    request.peers = peers.count > 0 ? peers : everyone();
    int const count = request.peers.count;
    if (bytes < 0) refuse(request, {"a size must not be negative"});
    if (request.dtype == DType::u8) refuse(request, {"values of u8 are codes, which have no sum"});
    if (of_two && (root < 0 || root >= count || root == request.peers.index_of(rank_)))
      refuse(request, {"the other rank must be one of the ", count, " of its group"});
    if ((move == Move::gather || move == Move::broadcast) && (root < 0 || root >= count))
      refuse(request, {"the root must be a rank from 0 to ", count - 1});
    return request;
  }

  void perform(Request const& request, void const* send, void* recv, std::int64_t sent) {
    if (request.sequence != sequence_) note(request);  // what two ranks do, not all ranks count
    sequence_ = request.sequence;
    auto const start = Clock::now();
    double const waited = exchange(request, send, recv);
    traffic_.bytes_sent += sent;
    traffic_.collectives += 1;
    traffic_.calls += grouped_ ? 0 : 1;
    traffic_.seconds += seconds_since(start);
    traffic_.waiting += waited;
  }

  void need_memory(Request const& request, void const* memory) const {
    if (request.bytes > 0 && !memory) refuse(request, {"a buffer is null"});
  }
  /// Refuses buffers of so many pieces that overlap. If one is a single piece, it may be this rank's slot of
  /// the other.
  void need_apart(Request const& request, void const* send, int send_pieces, void const* recv,
                  int recv_pieces) const {
    need_memory(request, send);
    need_memory(request, recv);
    if (world_ == 1 || request.bytes == 0) return;
    auto const from = reinterpret_cast<std::uintptr_t>(send), to = reinterpret_cast<std::uintptr_t>(recv);
    auto const bytes = static_cast<std::uintptr_t>(request.bytes);
    auto const own = static_cast<std::uintptr_t>(request.peers.index_of(rank_)) * bytes;
    bool const is_slot =
        request.move != Move::all_to_all && (send_pieces == 1 ? from == to + own : to == from + own);
    if (!is_slot && from < to + static_cast<std::uintptr_t>(recv_pieces) * bytes &&
        to < from + static_cast<std::uintptr_t>(send_pieces) * bytes)
      refuse(request, {"send and receive buffers overlap"});
  }

  [[noreturn]] void refuse(Request const& request, std::initializer_list<v0::detail::Word> why) const {
    v0::detail::throw_error(
        ErrorKind::usage, {"rank ", rank_, " asked for ", describe(request), ": ", v0::detail::sentence(why)},
        rank_, request.id.unit ? request.id.unit : "");
  }

  int rank_;
  int world_;
  std::atomic<std::uint64_t>* word_;
  std::uint64_t sequence_ = 0;
  void* stream_ = nullptr;
  bool grouped_ = false;
  std::vector<Peers> ways_;
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
    return v0::detail::sentence({"at collective ", sequence_of(seen), ", ", name_of(move_of(seen))});
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
    recorder_.operation({name_of(request.move).data(), 0.0, static_cast<double>(request.bytes)});
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

namespace detail {

inline void refuse_values(int own, std::vector<std::uint64_t> const& values, char const* what) {
  std::string text;
  std::vector<int> named(values.size());
  std::size_t groups = 0;
  for (std::size_t first = 0; first < values.size(); ++first) {
    if (named[first]) continue;
    std::string ranks;
    std::size_t members = 0;
    for (std::size_t other = first; other < values.size(); ++other) {
      if (values[other] != values[first]) continue;
      named[other] = 1;
      ranks += v0::detail::sentence({members++ ? ", " : " ", other});
    }
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%016llx", static_cast<unsigned long long>(values[first]));
    text += v0::detail::sentence(
        {groups++ ? "; " : "", members > 1 ? "ranks" : "rank", ranks, members > 1 ? " have " : " has ", hex});
  }
  v0::detail::throw_error(ErrorKind::config,
                          {"ranks disagree on the ", what, ": ", text,
                           "; start every rank with the same program, recipe, model and flags"},
                          own);
}

}  // namespace detail

/// All ranks compare a value, such as the hash of their schedule, and throw Error(config) if it differs
/// anywhere, naming ranks and values. One all-gather of 8 bytes; allocates, so it belongs before step 1.
inline void agree(Transport& transport, std::uint64_t value, char const* what) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&value, values.data(), sizeof value, {"agree", what});
  for (std::uint64_t const other : values)
    if (other != value) detail::refuse_values(transport.rank(), values, what);
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
