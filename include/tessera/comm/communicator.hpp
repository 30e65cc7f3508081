// SPDX-License-Identifier: Apache-2.0
// Provides communication between ranks: Transport, the abstract interface that engines use, and Comm, the
// handle that users pass.
#pragma once

#include <algorithm>
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

/// One rank's endpoint of a communicator. One thread at a time may call collectives, and the ranks of a group
/// must call its collectives in the same order. Ranks outside the group do not take part. Any thread may call
/// `heartbeat`, `poison`, `word` and `where`. A collective allocates nothing, except the first one of a
/// group. Its buffers may be reused when it returns; on device transports, later work of the stream may reuse
/// them. A collective of 0 bytes is legal, and all ranks of the group must still call it. Errors:
/// - Error(usage): the arguments are wrong, or the group has ranks outside the world or not this rank.
/// - Error(failed), on all ranks: ranks request different collectives.
/// - PeerLost: another rank threw, left or did not arrive.
/// After any of these errors the communicator cannot be used again.
class Transport {
 public:
  Transport(Transport const&) = delete;
  Transport& operator=(Transport const&) = delete;
  virtual ~Transport() = default;

  int rank() const noexcept { return rank_; }
  int world() const noexcept { return world_; }
  bool is_root() const noexcept { return rank_ == 0; }
  /// Returns the index of this rank's device on its host.
  virtual int local_rank() const noexcept { return rank_; }
  /// Returns the number of ranks on this rank's host.
  virtual int ranks_on_host() const noexcept { return world_; }
  /// Returns the name of the transport for reports: "single", "threads", ...
  virtual std::string_view name() const noexcept = 0;

  /// Returns all ranks of the world as one group.
  ProcessGroup everyone() const noexcept { return {0, 1, world_}; }

  /// Returns `group` with the number of its communicator filled in, and opens the communicator on the first
  /// call. A `count` of 0 means all ranks. If the transport has channels, collectives on different channels
  /// need not wait for each other. To open a communicator, all ranks of the world call this function
  /// together, in the same order and between steps, each with the group to which it belongs. Only opening is
  /// a call of the whole world: a collective is a call of its group. On GPUs, opening waits for the other
  /// ranks and allocates device memory. Later calls return the open communicator.
  ProcessGroup over(ProcessGroup group) {
    if (group.count <= 0) group.count = world_;
    group.communicator = 0;
    if (std::string const wrong = fault_of(group); !wrong.empty())
      throw_error(ErrorKind::usage, {"rank ", rank_, " opens a communicator: ", wrong}, rank_);
    if (group.count == 1 || (group.count == world_ && group.channel == 0)) return group;
    for (ProcessGroup const& open : communicators_)
      if (open.same(group)) return open;
    return opened(group);
  }

  /// Runs one collective, given as a `move`, between the ranks of a group. Without `group`, these are all
  /// ranks. A buffer consists of pieces of `bytes` bytes: one per peer, one per rank, or the whole buffer.
  /// The functions below say how many pieces each buffer holds. `dtype` is the element type of sums.
  void run(Move move, std::int64_t bytes, void const* send, void* recv, CollectiveId const& id = {},
           ProcessGroup const& group = {}, int root = -1, DType dtype = DType::f32, int pieces = 0) {
    Request request = make(move, id, bytes, root, dtype, group);
    int const ranks = request.group.count;
    bool const here = request.group.index_of(rank_) == root;
    std::int64_t sent = (ranks - 1) * bytes;
    switch (move) {
      case Move::all_to_all:
        request.pieces = pieces > 0 ? pieces : ranks;
        refuse_overlap(request, send, request.pieces, recv, ranks);
        break;
      case Move::all_gather:
        refuse_overlap(request, send, 1, recv, ranks);
        break;
      case Move::reduce_scatter:
        refuse_overlap(request, send, ranks, recv, 1);
        break;
      case Move::gather:
        if (here)
          refuse_overlap(request, send, 1, recv, ranks);
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
        refuse(request, {"a transport only runs moves between ranks"});
    }
    perform(request, send, recv, sent);
  }

  /// recv[p] = peer p's send[own index modulo pieces], on every rank of a group, or of the world. `recv`
  /// holds one piece for each peer. `send` holds `pieces` pieces, or one for each peer if `pieces` is 0. The
  /// buffers must not overlap.
  void all_to_all(void const* send, void* recv, std::int64_t bytes_per_peer, CollectiveId const& id = {},
                  int pieces = 0, ProcessGroup const& group = {}) {
    run(Move::all_to_all, bytes_per_peer, send, recv, id, group, -1, DType::f32, pieces);
  }
  /// recv[p] = peer p's send, on every rank of a group, or of the world. `send` may be this rank's slot of
  /// `recv`.
  void all_gather(void const* send, void* recv, std::int64_t bytes_per_rank, CollectiveId const& id = {},
                  ProcessGroup const& group = {}) {
    run(Move::all_gather, bytes_per_rank, send, recv, id, group);
  }
  /// The same as all_gather, but only the root receives. `root` is an index in the group. On other ranks
  /// `recv` is not touched and may be null.
  void gather(int root, void const* send, void* recv, std::int64_t bytes_per_rank,
              CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::gather, bytes_per_rank, send, recv, id, group, root);
  }
  /// Copies the root's buffer to every rank. `root` is an index in the group.
  void broadcast(int root, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
                 ProcessGroup const& group = {}) {
    run(Move::broadcast, bytes, buffer, buffer, id, group, root);
  }
  /// Sends a buffer to one rank of the group, which must call `receive`. `to` and `from` are indices in the
  /// group. No other rank takes part. Either call may wait for the other. Ranks that send to each other must
  /// do so between `begin_group` and `end_group`. Buffers from one rank to another arrive in the order of the
  /// calls.
  void send(int to, void const* buffer, std::int64_t bytes, CollectiveId const& id = {},
            ProcessGroup const& group = {}) {
    run(Move::send, bytes, buffer, nullptr, id, group, to);
  }
  void receive(int from, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
               ProcessGroup const& group = {}) {
    run(Move::receive, bytes, nullptr, buffer, id, group, from);
  }
  /// Replaces every rank's buffer of `count` elements by the sum of all ranks' buffers. The transport between
  /// threads sums in rank order. It sums 16-bit formats in fp32 and rounds once. Other transports sum in any
  /// order and may round every partial sum.
  void all_reduce(DType dtype, void* buffer, std::int64_t count, CollectiveId const& id = {},
                  ProcessGroup const& group = {}) {
    run(Move::all_reduce, count * static_cast<std::int64_t>(size_of(dtype)), buffer, buffer, id, group, -1,
        dtype);
  }
  /// recv = the sum of all ranks' send[index of this rank], over a group, or the world. `send` holds a shard
  /// for each rank. `recv` may be this rank's shard of `send`.
  void reduce_scatter(DType dtype, void const* send, void* recv, std::int64_t count_per_rank,
                      CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::reduce_scatter, count_per_rank * static_cast<std::int64_t>(size_of(dtype)), send, recv, id,
        group, -1, dtype);
  }
  /// Returns when every rank of the group, or of the world, has called it.
  void barrier(CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::barrier, 0, nullptr, nullptr, id, group);
  }

  /// Starts a group of collectives, which `end_group` ends. All of them must use the same stream and
  /// communicator, and none may touch bytes that another one writes. A transport that supports groups, such
  /// as NCCL, runs them as one call; other transports run them one by one. Results are available when
  /// `end_group` has returned; on device transports, to later work of the stream. `end_group` does nothing if
  /// no group is open.
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

  /// Sets the native stream on which device transports enqueue later collectives. Other transports ignore it.
  void on_stream(void* stream) noexcept { stream_ = stream; }

  /// Tells the other ranks that this rank is alive although its next collective is far away. Restarts their
  /// timeouts.
  virtual void heartbeat() noexcept {}
  /// Returns when `done()` returns true. `done` queries a device about work that was enqueued before; it is
  /// called at least every 50 us. Transports that enqueue work on devices throw PeerLost if another rank
  /// prevents the work from ending.
  virtual void await(std::function<bool()> const& done, char const* /*what*/) {
    while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  /// Makes the communicator unusable: every rank that waits in it or enters it throws PeerLost with this rank
  /// and cause.
  virtual void poison(char const* cause) noexcept = 0;
  /// Returns a rank's watch word, which names the last collective that the rank has reached (`watch_word`).
  virtual std::uint64_t word(int rank) const noexcept = 0;
  /// Returns a description of the collective in which a rank is or was last seen: "in collective 17,
  /// all_gather of 64 bytes (write_back h.3)".
  virtual std::string where(int rank) const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  /// `word` receives this rank's watch word and must outlive this object. Other ranks may read it.
  Transport(int rank, int world, std::atomic<std::uint64_t>& word)
      : rank_(rank), world_(world), word_(&word) {}

  /// Runs the collective. Returns the seconds spent waiting for other ranks. If the collective works in
  /// place, send == recv.
  virtual double exchange(Request const& request, void const* send, void* recv) = 0;

  /// Opens the communicator of a group and a channel. Returns its number (ProcessGroup::communicator).
  virtual int open_communicator(ProcessGroup const& /*group*/) { return 0; }

  /// Runs the collectives that `exchange` has deferred because a group was open.
  virtual void flush() {}
  bool grouped() const noexcept { return grouped_; }

  /// Stores this rank's watch word before a collective. Device transports store it in stream order.
  virtual void note(Request const& request) {
    word_->store(watch_word(request.sequence, request.move, request.group.communicator),
                 std::memory_order_release);
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

 private:
  ProcessGroup opened(ProcessGroup group) {
    group.communicator = open_communicator(group);
    communicators_.push_back(group);
    return group;
  }

  Request make(Move move, CollectiveId const& id, std::int64_t bytes, int root, DType dtype,
               ProcessGroup const& group) {
    bool const of_two = move == Move::send || move == Move::receive,
               sums = move == Move::all_reduce || move == Move::reduce_scatter;
    Request request{move, id, 0, bytes, root, sums ? dtype : DType::f32, stream_};
    request.group = group.count > 0 ? group : everyone();
    int const count = request.group.count;
    if (std::string const wrong = fault_of(request.group); !wrong.empty())
      throw_error(ErrorKind::usage, {"rank ", rank_, " requested ", name_of(move), ": ", wrong}, rank_,
                  id.unit ? id.unit : "");
    request.sequence = last_sequence(request.group) + !of_two;
    if (bytes < 0) refuse(request, {"a size must not be negative"});
    if (request.dtype == DType::u8) refuse(request, {"values of u8 are codes, which have no sum"});
    if (of_two && (root < 0 || root >= count || root == request.group.index_of(rank_)))
      refuse(request, {"the other rank must be another of the ", count, " ranks of its group"});
    if ((move == Move::gather || move == Move::broadcast) && (root < 0 || root >= count))
      refuse(request, {"the root must be a rank from 0 to ", count - 1});
    return request;
  }

  void perform(Request const& request, void const* send, void* recv, std::int64_t sent) {
    std::uint64_t& last = last_sequence(request.group);
    if (request.sequence != last) note(request);  // send and receive have no number
    last = request.sequence;
    auto const start = Clock::now();
    double const waited = exchange(request, send, recv);
    traffic_.bytes_sent += sent;
    traffic_.collectives += 1;
    traffic_.calls += grouped_ ? 0 : 1;
    traffic_.seconds += seconds_since(start);
    traffic_.waiting += waited;
  }

  /// Returns why this rank cannot use a group, or an empty text.
  std::string fault_of(ProcessGroup const& group) const {
    if (group.first < 0 || group.stride < 1 ||
        group.first + std::int64_t{group.stride} * (group.count - 1) >= world_)
      return sentence({"the group of ", group.count, " ranks from ", group.first, " on, with a stride of ",
                       group.stride, ", reaches beyond the world of ", world_, " ranks"});
    if (!group.contains(rank_))
      return sentence({"the group of ", describe(group), " does not contain this rank"});
    return {};
  }

  /// Returns the number of the last collective of a group.
  std::uint64_t& last_sequence(ProcessGroup const& group) {
    for (Counter& counter : counters_)
      if (counter.group.same(group)) return counter.last;
    return counters_.emplace_back(Counter{group, 0}).last;
  }

  void need_memory(Request const& request, void const* memory) const {
    if (request.bytes > 0 && !memory) refuse(request, {"a buffer is null"});
  }
  /// Throws Error(usage) if the buffers, of these numbers of pieces, overlap. Except in all_to_all, a buffer
  /// of one piece may be this rank's slot of the other buffer.
  void refuse_overlap(Request const& request, void const* send, int send_pieces, void const* recv,
                      int recv_pieces) const {
    need_memory(request, send);
    need_memory(request, recv);
    if (world_ == 1 || request.bytes == 0) return;
    auto const from = reinterpret_cast<std::uintptr_t>(send), to = reinterpret_cast<std::uintptr_t>(recv);
    auto const bytes = static_cast<std::uintptr_t>(request.bytes);
    auto const own = static_cast<std::uintptr_t>(request.group.index_of(rank_)) * bytes;
    bool const is_slot =
        request.move != Move::all_to_all && (send_pieces == 1 ? from == to + own : to == from + own);
    if (!is_slot && from < to + static_cast<std::uintptr_t>(recv_pieces) * bytes &&
        to < from + static_cast<std::uintptr_t>(send_pieces) * bytes)
      refuse(request, {"send and receive buffers overlap"});
  }

  [[noreturn]] void refuse(Request const& request, std::initializer_list<Word> why) const {
    throw_error(ErrorKind::usage, {"rank ", rank_, " requested ", describe(request), ": ", sentence(why)},
                rank_, request.id.unit ? request.id.unit : "");
  }

  struct Counter {
    ProcessGroup group;
    std::uint64_t last;  ///< the number of the last collective
  };

  int rank_;
  int world_;
  std::atomic<std::uint64_t>* word_;
  std::vector<Counter> counters_;
  void* stream_ = nullptr;
  bool grouped_ = false;
  std::vector<ProcessGroup> communicators_;
  Traffic traffic_;
};

/// The transport of a world of one rank: collectives copy, and do nothing in place.
class Single final : public Transport {
 public:
  Single() : Transport(0, 1, own_word_) {}

  std::string_view name() const noexcept override { return "single"; }
  void poison(char const*) noexcept override {}
  std::uint64_t word(int) const noexcept override { return own_word_.load(std::memory_order_acquire); }
  std::string where(int) const override {
    auto const seen = own_word_.load(std::memory_order_acquire);
    if (seen == 0) return "before its first collective";
    return sentence({"at collective ", sequence_of(seen), ", ", name_of(move_of(seen))});
  }

 private:
  double exchange(Request const& request, void const* send, void* recv) override {
    if (request.bytes > 0 && send != recv) std::memmove(recv, send, static_cast<std::size_t>(request.bytes));
    return 0;
  }

  std::atomic<std::uint64_t> own_word_{0};
};

/// A transport that communicates with no other rank. It reports the name of each collective and the bytes of
/// one piece to a recorder, and touches no buffer.
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

/// The communicator type that a trainer accepts: a value that knows its rank and provides a transport.
template <class C>
concept Communicator = std::movable<C> && requires(C const& communicator) {
  { communicator.rank() } -> std::convertible_to<int>;
  { communicator.world() } -> std::convertible_to<int>;
  { communicator.is_root() } -> std::convertible_to<bool>;
  { communicator.transport() } -> std::convertible_to<Transport&>;
};

/// The public handle of a transport. It is cheap to copy, and copies share one transport. A
/// default-constructed handle is a world of one rank.
class Comm {
 public:
  Comm() : transport_(std::make_shared<Single>()) {}
  explicit Comm(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {
    if (!transport_) throw Error(ErrorKind::usage, "a Comm needs a transport, but got a null pointer");
  }

  int rank() const noexcept { return transport_->rank(); }
  int world() const noexcept { return transport_->world(); }
  bool is_root() const noexcept { return transport_->is_root(); }
  Transport& transport() const noexcept { return *transport_; }

 private:
  std::shared_ptr<Transport> transport_;
};

static_assert(Communicator<Comm>);

/// Returns whether every rank passed true. All ranks get the same result, so ranks that notice a reason to
/// stop at different times can stop before the same step. Collective, between steps. Costs one sum in host
/// memory, which waits for the slowest rank. Threads sum without their GPUs. Processes sum through their
/// GPUs, after the steps that are enqueued, so they should call this only every few steps.
inline bool unanimous(Comm const& comm, bool yes) {
  double votes = yes ? 1.0 : 0.0;
  comm.transport().all_reduce(DType::f64, &votes, 1, {"vote"});
  return votes == comm.world();
}

/// Returns the texts that all ranks pass, by rank. Costs two all-gathers in host memory.
inline std::vector<std::string> all_gather_text(Transport& transport, std::string_view text,
                                                CollectiveId const& id = {}) {
  auto const ranks = static_cast<std::size_t>(transport.world());
  std::uint64_t const size = text.size();
  std::vector<std::uint64_t> sizes(ranks);
  transport.all_gather(&size, sizes.data(), sizeof size, id);
  std::uint64_t const longest = *std::max_element(sizes.begin(), sizes.end());
  std::string own(text), all(ranks * longest, '\0');
  own.resize(longest);
  transport.all_gather(own.data(), all.data(), static_cast<std::int64_t>(longest), id);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; rank < ranks; ++rank) texts.push_back(all.substr(rank * longest, sizes[rank]));
  return texts;
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
      ranks += sentence({members++ ? ", " : " ", other});
    }
    char hex[24];
    std::snprintf(hex, sizeof hex, "0x%016llx", static_cast<unsigned long long>(values[first]));
    text += sentence(
        {groups++ ? "; " : "", members > 1 ? "ranks" : "rank", ranks, members > 1 ? " have " : " has ", hex});
  }
  throw_error(ErrorKind::config,
              {"ranks disagree on the ", what, ": ", text,
               "; start every rank with the same program, recipe, model and flags"},
              own);
}

}  // namespace detail

/// Checks that all ranks pass the same value, such as the hash of a schedule. Throws Error(config) with the
/// ranks and their values if they differ. Costs one all-gather of 8 bytes. It allocates, so call it before
/// step 1.
inline void agree(Transport& transport, std::uint64_t value, char const* what) {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&value, values.data(), sizeof value, {"agree", what});
  for (std::uint64_t const other : values)
    if (other != value) detail::refuse_values(transport.rank(), values, what);
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
