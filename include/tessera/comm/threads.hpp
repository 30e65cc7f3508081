// SPDX-License-Identifier: Apache-2.0
// Provides Threads, the transport between threads of one process. In a collective, each thread publishes the
// pointers to its buffers, waits for the other threads of the group, copies their data, and waits until all
// of them have copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/sum.hpp"
#include "tessera/comm/thread_group.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/numbers.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {

/// The transport of one rank in a world of threads. The destructor declares that the rank enters no more
/// collectives, and does not wait. The copies of a handle (Comm) share one transport, which is destroyed with
/// the last copy.
class Threads final : public Transport {
 public:
  Threads(std::shared_ptr<detail::ThreadGroup> group, int rank)
      : Transport(rank, group->world(), group->word(rank)), group_(std::move(group)) {}
  ~Threads() override { group_->leave(rank()); }

  std::string_view name() const noexcept override { return "threads"; }
  void heartbeat() noexcept override { group_->mark_alive(rank()); }
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
  friend class Nccl;  // runs collectives on host memory through this class

  double exchange(Request const& request, void const* send, void* recv) override {
    if (request.move == Move::send || request.move == Move::receive) {
      later_.push_back({request, send, recv});
      return grouped() ? 0.0 : pass();
    }
    double waited = group_->meet(rank(), request, send, recv);
    if (request.bytes == 0) return waited;
    auto const bytes = request.bytes;
    auto* const out = static_cast<std::byte*>(recv);
    ProcessGroup const& group = request.group;
    int const own = group.index_of(rank());
    switch (request.move) {
      case Move::all_to_all:
        for (int step = 0; step < group.count; ++step) {
          int const peer = (own + step) % group.count;
          copy(out + peer * bytes, group_->send_of(group.rank(peer)) + own % request.pieces * bytes, bytes);
        }
        break;
      case Move::gather:
        if (own != request.root) break;
        [[fallthrough]];
      case Move::all_gather:
        for (int step = 0; step < group.count; ++step) {
          int const peer = (own + step) % group.count;
          copy(out + peer * bytes, group_->send_of(group.rank(peer)), bytes);
        }
        break;
      case Move::broadcast:
        copy(out, group_->send_of(group.rank(request.root)), bytes);
        break;
      case Move::all_reduce:
        waited += all_reduce(request, bytes);
        break;
      case Move::reduce_scatter:
        sum(request, own * bytes, out, bytes);
        break;
      case Move::none:
      case Move::copy:
      case Move::barrier:
      case Move::send:
      case Move::receive:
        break;
    }
    return waited + group_->part(rank(), request.group, true);
  }

  void flush() override {
    if (!later_.empty()) pass();
  }
  /// Runs all pending sends and receives. Publishes the buffers that this rank sends, copies the buffers that
  /// other ranks send to this rank, and waits until the other ranks have copied the buffers of this rank.
  /// Returns the seconds spent waiting.
  double pass() {
    for (detail::Call const& call : later_)
      if (call.request.move == Move::send) group_->offer(rank(), call.request, call.send);
    double waited = 0.0;
    for (detail::Call const& call : later_)
      if (call.request.move == Move::receive) waited += group_->receive(rank(), call.request, call.recv);
    later_.clear();
    return waited + group_->await_received(rank());
  }

  /// Runs an all_reduce in place, without temporary memory. The elements are divided into one slice for each
  /// rank. Each rank first sums its slice over all ranks in its own buffer, and then copies the other slices
  /// from the other ranks. Returns the seconds spent waiting.
  double all_reduce(Request const& request, std::int64_t bytes) {
    ProcessGroup const& group = request.group;
    int const index = group.index_of(rank());
    auto const size = static_cast<std::int64_t>(size_of(request.dtype));
    std::int64_t const piece = (bytes / size + group.count - 1) / group.count * size;
    auto const begin = [&](int owner) { return std::min(owner * piece, bytes); };
    auto const length = [&](int owner) { return std::min((owner + 1) * piece, bytes) - begin(owner); };
    std::byte* const own = group_->recv_of(rank());
    sum(request, begin(index), own + begin(index), length(index));
    double const waited = group_->part(rank(), request.group, false);
    for (int step = 1; step < group.count; ++step) {
      int const owner = (index + step) % group.count;
      copy(own + begin(owner), group_->send_of(group.rank(owner)) + begin(owner), length(owner));
    }
    return waited;
  }

  /// Stores in `out` the sum over all ranks of the group of the `bytes` bytes at `offset` in their send
  /// buffers.
  void sum(Request const& request, std::int64_t offset, std::byte* out, std::int64_t bytes) {
    with_type(request.dtype, [&]<class T>(T*) {
      auto const from = [&](int peer) {
        return reinterpret_cast<T const*>(group_->send_of(request.group.rank(peer)) + offset);
      };
      detail::sum_in_rank_order(request.group.count, from, reinterpret_cast<T*>(out),
                                bytes / static_cast<std::int64_t>(sizeof(T)));
    });
  }

  static void copy(std::byte* to, std::byte const* from, std::int64_t bytes) {
    if (to != from && bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  std::shared_ptr<detail::ThreadGroup> group_;
  std::vector<detail::Call> later_;  // sends and receives that did not run yet; keeps its capacity
};

namespace detail {

inline std::shared_ptr<ThreadGroup> make_group(int world, ThreadsOptions const& options) {
  if (world < 1 || world > max_threads)
    throw_error(ErrorKind::usage,
                {"a run in one process can have 1 to ", max_threads, " ranks, but the requested number is ",
                 world, "; choose --ranks in this range"});
  if (!(options.timeout.count() > 0))
    throw_error(ErrorKind::usage, {"the timeout of a communicator must be above 0 s, and was ",
                                   seconds_text(options.timeout.count())});
  return std::make_shared<ThreadGroup>(world, options.timeout);
}

}  // namespace detail

/// Returns the handles of a new world of threads, one handle for each rank. The caller starts the threads and
/// gives each of them its handle; `tessera::run` does this for a function. Throws Error(usage) unless `world`
/// is from 1 to 64 and the timeout is positive.
inline std::vector<Comm> threads(int world, ThreadsOptions const& options = {}) {
  auto const group = detail::make_group(world, options);
  std::vector<Comm> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(world == 1 ? Comm() : Comm(std::make_shared<Threads>(group, rank)));
  return ranks;
}

}  // namespace comm
}  // namespace v0
}  // namespace tessera
