// SPDX-License-Identifier: Apache-2.0
// Provides communication between ranks: Transport, the abstract interface that engines use, and Comm, the
// handle that users pass to a trainer.
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

/// One rank's endpoint of a communicator. The member functions run collectives between the ranks of a group
/// (ProcessGroup). One thread at a time may call collectives. All ranks of a group must call the collectives
/// of the group in the same order; ranks outside the group do not call them. Any thread may call `heartbeat`,
/// `poison`, `word` and `where`. The first collective of a group allocates memory, and later ones do not. The
/// caller may reuse the buffers when the collective returns. A device transport only enqueues the collective
/// on a stream; then only later work of this stream may reuse the buffers. A collective of 0 bytes is legal,
/// and all ranks of the group must still call it. Errors:
/// - Error(usage): an argument is wrong, or the group does not contain this rank or exceeds the world.
/// - Error(failed), on all ranks: ranks of the group request different collectives.
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

  /// Returns `group` with the number of its communicator filled in (ProcessGroup::communicator). The first
  /// call for a group opens the communicator, and later calls return the open one. A `count` of 0 means all
  /// ranks. All ranks of the world must make the first call together: in the same order, between training
  /// steps, and each with the group to which it belongs. On GPUs the first call waits for the other ranks and
  /// allocates device memory. If the transport has channels, collectives on different channels need not wait
  /// for each other. Throws Error(usage) if the group does not contain this rank or exceeds the world.
  ProcessGroup over(ProcessGroup group) {
    if (group.count <= 0) group.count = world_;
    group.communicator = 0;
    if (std::string const wrong = fault_of(group); !wrong.empty())
      throw_error(ErrorKind::usage, {"rank ", rank_, " opens a communicator: ", wrong}, rank_);
    if (group.count == 1 || (group.count == world_ && group.channel == 0)) return group;
    for (Known const& known : groups_)
      if (known.open && known.group.same(group)) return known.group;
    group.communicator = open_communicator(group);
    Known& known = known_group(group);
    known.group = group;
    known.open = true;
    return group;
  }

  /// Runs the collective `move` between the ranks of `group`. An empty `group` means all ranks. A buffer
  /// consists of pieces of `bytes` bytes each. The functions below call this function, and their comments say
  /// how many pieces each buffer has. `root` is the index in the group of the root, or of the other rank of a
  /// send or receive. `dtype` is the element type of sums. `pieces` is only for all_to_all: the number of
  /// pieces in `send`.
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

  /// Sends one piece of `bytes_per_peer` bytes from every rank of the group to every rank of the group,
  /// itself included. On the rank with index i in the group, recv[p] becomes the piece send[i % pieces] of
  /// the rank with index p. `recv` has one piece for each rank of the group. `send` has `pieces` pieces, or
  /// one for each rank if `pieces` is 0. The two buffers must not overlap. Here and in the functions below,
  /// an empty `group` means all ranks.
  void all_to_all(void const* send, void* recv, std::int64_t bytes_per_peer, CollectiveId const& id = {},
                  int pieces = 0, ProcessGroup const& group = {}) {
    run(Move::all_to_all, bytes_per_peer, send, recv, id, group, -1, DType::f32, pieces);
  }
  /// Copies the buffer `send` of every rank to all ranks of the group: recv[p] becomes the buffer of the rank
  /// with index p in the group. Each buffer `send` has `bytes_per_rank` bytes. `send` may be the part of
  /// `recv` that receives this rank's own buffer.
  void all_gather(void const* send, void* recv, std::int64_t bytes_per_rank, CollectiveId const& id = {},
                  ProcessGroup const& group = {}) {
    run(Move::all_gather, bytes_per_rank, send, recv, id, group);
  }
  /// Does the same as all_gather, but only the root receives the buffers. `root` is the index of the root in
  /// the group. On the other ranks `recv` is not used and may be null.
  void gather(int root, void const* send, void* recv, std::int64_t bytes_per_rank,
              CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::gather, bytes_per_rank, send, recv, id, group, root);
  }
  /// Copies the buffer of the root to every rank of the group. `root` is the index of the root in the group.
  void broadcast(int root, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
                 ProcessGroup const& group = {}) {
    run(Move::broadcast, bytes, buffer, buffer, id, group, root);
  }
  /// Sends a buffer to one rank of the group. That rank must call `receive` with the same number of bytes.
  /// `to` and `from` are indices in the group. No third rank takes part. `send` may wait until the receiver
  /// calls `receive`. So if two ranks send to each other, both must make their calls between `begin_group`
  /// and `end_group`. The buffers that one rank sends to another rank arrive in the order of the calls.
  void send(int to, void const* buffer, std::int64_t bytes, CollectiveId const& id = {},
            ProcessGroup const& group = {}) {
    run(Move::send, bytes, buffer, nullptr, id, group, to);
  }
  void receive(int from, void* buffer, std::int64_t bytes, CollectiveId const& id = {},
               ProcessGroup const& group = {}) {
    run(Move::receive, bytes, nullptr, buffer, id, group, from);
  }
  /// Replaces every rank's buffer of `count` elements by the sum of the buffers of all ranks of the group.
  /// The transports Threads and Processes, and copies between GPUs (`share`), add in rank order; they sum
  /// 16-bit formats in fp32 and round once. NCCL adds in an order of its own, and may round every partial
  /// sum.
  void all_reduce(DType dtype, void* buffer, std::int64_t count, CollectiveId const& id = {},
                  ProcessGroup const& group = {}) {
    run(Move::all_reduce, count * static_cast<std::int64_t>(size_of(dtype)), buffer, buffer, id, group, -1,
        dtype);
  }
  /// Sums shards over the ranks of the group. `send` has one shard of `count_per_rank` elements for each rank
  /// of the group. On the rank with index i in the group, `recv` becomes the sum of the shards i of all
  /// ranks. `recv` may be the shard i of `send`. The order of the sum and its rounding are those of
  /// all_reduce.
  void reduce_scatter(DType dtype, void const* send, void* recv, std::int64_t count_per_rank,
                      CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::reduce_scatter, count_per_rank * static_cast<std::int64_t>(size_of(dtype)), send, recv, id,
        group, -1, dtype);
  }
  /// Returns when every rank of the group has called `barrier`. A device transport returns at once; instead,
  /// later work of its stream waits until the streams of all ranks of the group have reached the barrier.
  void barrier(CollectiveId const& id = {}, ProcessGroup const& group = {}) {
    run(Move::barrier, 0, nullptr, nullptr, id, group);
  }

  /// Starts a batch of collectives: all calls until `end_group`. All calls of the batch must use the same
  /// stream and the same communicator. No call may read or write bytes that another call of the batch writes.
  /// NCCL, or copies between GPUs, run the batch as one operation; the transports for host memory run the
  /// calls one by one. When `end_group` has returned, the results are available; on a device transport they
  /// are available to later work of the stream. `end_group` does nothing if `begin_group` was not called
  /// before.
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

  /// Sets the stream (a cudaStream_t) on which a device transport enqueues the collectives that follow. With
  /// a null stream, collectives work on host memory. Other transports ignore the stream.
  void on_stream(void* stream) noexcept { stream_ = stream; }

  /// Gives the other ranks access to `bytes` bytes of device memory from `base` on, which exist as long as
  /// `owner`. Collectives whose receive buffers are in this memory can then use the copy engines of the GPUs.
  /// All ranks must call it together, each with one allocation of cudaMalloc, while no stream is set.
  /// `layout` is a hash of the buffers in the memory, which must have the same offsets on all ranks.
  /// Collectives of one communicator on this memory must always be on the same stream. The access ends when
  /// the returned object is destroyed. All ranks must destroy it at the same point of their sequence of
  /// collectives, after their collectives on this memory are complete. The destructor waits up to 30 s for
  /// the other ranks, because they must not write to memory that is freed. If a rank fails, or waits in a
  /// collective that this rank does not enter, the memory is freed later, at the latest with the transports
  /// of all ranks of the process. Returns null if the transport cannot do this; its collectives then work as
  /// before. Costs 64 MiB of memory on each GPU, and about ten exchanges in host memory in which the ranks
  /// wait for each other. Throws Error(usage) if a stream is set.
  virtual std::shared_ptr<void> share(std::shared_ptr<void> /*owner*/, std::byte* /*base*/,
                                      std::int64_t /*bytes*/, std::uint64_t /*layout*/) {
    return nullptr;
  }

  /// Returns how many calls of collectives this rank has enqueued as copies between GPUs. A call can be a
  /// group, and a call in a CUDA graph counts once, however often the graph is launched.
  virtual std::int64_t copied_calls() const noexcept { return 0; }

  /// Tells the other ranks that this rank is alive, for example in a long computation without collectives.
  /// Restarts the timeouts with which other ranks wait for this rank.
  virtual void heartbeat() noexcept {}
  /// Calls done() about every 50 us until the result is true, and then returns. `done` queries a device
  /// whether work that was enqueued before is complete. `what` names the work in error messages. A device
  /// transport throws PeerLost if the work cannot end because another rank is lost or makes no progress.
  virtual void await(std::function<bool()> const& done, char const* /*what*/) {
    while (!done()) std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  /// Ends the communicator. Every rank that waits in a collective or enters one throws a PeerLost. The text
  /// of the PeerLost contains this rank and `cause`.
  virtual void poison(char const* cause) noexcept = 0;
  /// Returns a rank's watch word, which names the last collective that the rank has reached (`watch_word`).
  virtual std::uint64_t word(int rank) const noexcept = 0;
  /// Describes the collective in which a rank was last seen, such as "in collective 17, all_gather of 64
  /// bytes (write_back h.3)".
  virtual std::string where(int rank) const = 0;

 protected:
  using Clock = std::chrono::steady_clock;

  /// This object stores the watch word of its rank in `word`. The variable must outlive this object, and
  /// other ranks may read it.
  Transport(int rank, int world, std::atomic<std::uint64_t>& word)
      : rank_(rank), world_(world), word_(&word) {}

  /// Runs the collective `request`. Returns the seconds that this rank waited for other ranks. For a
  /// collective with only one buffer, such as all_reduce, `send` equals `recv`.
  virtual double exchange(Request const& request, void const* send, void* recv) = 0;

  /// Opens a communicator for a group and its channel, and returns the number of the communicator
  /// (ProcessGroup::communicator).
  virtual int open_communicator(ProcessGroup const& /*group*/) { return 0; }

  /// Runs the collectives that `exchange` has deferred since `begin_group`.
  virtual void flush() {}
  bool grouped() const noexcept { return grouped_; }

  /// Stores the watch word of this rank before the collective `request`. A device transport enqueues this on
  /// the stream, so the word changes when the GPU reaches the collective.
  virtual void note(Request const& request) {
    word_->store(watch_word(request.sequence, request.move, request.group.communicator),
                 std::memory_order_release);
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }
  void* stream() const noexcept { return stream_; }

 private:
  /// A group of this transport that has a communicator or had a collective.
  struct Known {
    ProcessGroup group;
    std::uint64_t last;  ///< the number of the last collective, 0 before the first one
    bool open;           ///< `over` has opened the communicator of the group
  };

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
    request.sequence = known_group(request.group).last + !of_two;
    if (bytes < 0) refuse(request, {"a size must not be negative"});
    if (request.dtype == DType::u8) refuse(request, {"values of u8 are codes, which have no sum"});
    if (of_two && (root < 0 || root >= count || root == request.group.index_of(rank_)))
      refuse(request, {"the other rank must be another of the ", count, " ranks of its group"});
    if ((move == Move::gather || move == Move::broadcast) && (root < 0 || root >= count))
      refuse(request, {"the root must be a rank from 0 to ", count - 1});
    return request;
  }

  void perform(Request const& request, void const* send, void* recv, std::int64_t sent) {
    std::uint64_t& last = known_group(request.group).last;
    if (request.sequence != last) note(request);  // a send or receive does not change the number
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

  /// Returns the element of `groups_` for a group. Adds one if there is none. Later calls for other groups
  /// make the reference invalid.
  Known& known_group(ProcessGroup const& group) {
    for (Known& known : groups_)
      if (known.group.same(group)) return known;
    return groups_.emplace_back(Known{group, 0, false});
  }

  void need_memory(Request const& request, void const* memory) const {
    if (request.bytes > 0 && !memory) refuse(request, {"a buffer is null"});
  }
  /// Throws Error(usage) if the two buffers overlap. `send_pieces` and `recv_pieces` are the numbers of
  /// pieces in the buffers. One overlap is allowed, except in all_to_all: a buffer of one piece may be this
  /// rank's piece of the other buffer.
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

  int rank_;
  int world_;
  std::atomic<std::uint64_t>* word_;
  std::vector<Known> groups_;
  void* stream_ = nullptr;
  bool grouped_ = false;
  Traffic traffic_;
};

/// The transport of a world of one rank. A collective copies the send buffer to the receive buffer, or does
/// nothing if there is only one buffer.
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

/// A transport that does not communicate and does not touch the buffers. It reports each collective to a
/// recorder, with its name and Request::bytes: the size in bytes of the whole buffer of an all_reduce or a
/// broadcast, and of one rank's part in the other collectives.
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

/// Returns whether `yes` is true on every rank. All ranks get the same result. So a rank that wants to stop
/// passes false, and all ranks then stop before the same step. All ranks must call this function together,
/// between steps. The cost is one all_reduce of 8 bytes in host memory, which waits for the slowest rank. If
/// ranks are processes with GPUs, the all_reduce runs on the GPUs, after the steps that are already enqueued.
/// In this case it is best to call this function only every few steps. `id` names the vote in error messages.
inline bool unanimous(Transport& transport, bool yes, CollectiveId const& id = {"vote"}) {
  double votes = yes ? 1.0 : 0.0;
  transport.all_reduce(DType::f64, &votes, 1, id);
  return votes == transport.world();
}
inline bool unanimous(Comm const& comm, bool yes) { return unanimous(comm.transport(), yes); }

/// Returns the texts of all ranks, in rank order. All ranks must call this function together. Costs two
/// all-gathers in host memory.
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

inline void refuse_values(int own, std::vector<std::uint64_t> const& values, char const* what,
                          char const* advice) {
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
  throw_error(ErrorKind::config, {"ranks disagree on the ", what, ": ", text, "; ", advice}, own);
}

}  // namespace detail

/// Checks that all ranks pass the same `value`, such as the hash of a schedule. All ranks must call this
/// function together. If the values differ, throws Error(config) with the ranks and their values; `what`
/// names the value. Costs one all-gather of 8 bytes. It allocates memory, so call it before step 1.
inline void agree(Transport& transport, std::uint64_t value, char const* what,
                  char const* advice = "start every rank with the same program, recipe, model and flags") {
  std::vector<std::uint64_t> values(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&value, values.data(), sizeof value, {"agree", what});
  for (std::uint64_t const other : values)
    if (other != value) detail::refuse_values(transport.rank(), values, what, advice);
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
