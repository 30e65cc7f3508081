// SPDX-License-Identifier: Apache-2.0
// Provides PeerCopies: collectives between the GPUs of one host that run on the copy engines of the GPUs. A
// copy engine needs no multiprocessors, so products that run at the same time lose less time than with NCCL's
// kernels.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cuda_runtime.h>
#include <memory>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/backend/cuda/kernels/rank_sums.cuh"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/backend/cuda/runtime/stream_capture.cuh"
#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/peer_memory.cuh"
#include "tessera/comm/peer_words.cuh"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// A collective that was not yet enqueued.
struct PendingCall {
  Request request;
  void const* send;
  void* recv;
};

/// Runs collectives of one rank by copies between GPUs. Each rank writes its pieces to the memory of the
/// other ranks. The receive buffer must be in memory that all ranks have shared, at the same offset on all
/// ranks. The summands of a reduce_scatter or all_reduce go to a buffer of each rank, which adds them in rank
/// order in fp32, or in double for doubles, and rounds once. A collective takes about 10 us more than its
/// copies. The buffer takes 64 MiB of device memory.
class PeerCopies final : public SharedDeviceMemory {
 public:
  static_assert(PeerWords::max_ranks == cuda::Summands::max_count);
  /// Shares the memory [base, base + bytes), which exists as long as `owner`. All ranks of the world must
  /// call it together, on one host. Returns null on every rank if the memory of one of them cannot be shared,
  /// if the ranks have different values of `bytes` or `layout`, or if the environment of a rank has
  /// TESSERA_COPY_ENGINES=0 or NCCL_P2P_DISABLE=1.
  static std::shared_ptr<PeerCopies> open(Transport& transport, int device, std::shared_ptr<void> owner,
                                          std::byte* base, std::int64_t bytes, std::uint64_t layout) {
    char const* const engines = std::getenv("TESSERA_COPY_ENGINES");
    char const* const disabled = std::getenv("NCCL_P2P_DISABLE");
    bool const wanted =
        (!engines || std::string_view(engines) != "0") && (!disabled || std::string_view(disabled) == "0");
    if (!unanimous(transport, wanted, {"compare", "copies between GPUs"})) return nullptr;
    auto words = PeerWords::open(transport);
    if (!words) return nullptr;
    auto memory = PeerMemory::open(transport, device, std::move(owner), base, bytes, layout);
    if (!memory) return nullptr;
    // All CUDA functions that can wait for another GPU are called before the ranks copy to each other.
    std::shared_ptr<std::byte> buffer;
    cuda::Stream stream;
    try {
      buffer = summand_buffer(transport.rank());
      cuda::load_rank_sums();
      stream = cuda::make_stream();
    } catch (Error const&) {
      buffer = nullptr;
      cudaGetLastError();
    }
    auto* const at = buffer.get();
    auto buffers =
        PeerMemory::open(transport, device, std::move(buffer), at, buffer_bytes + pattern_bytes, 0);
    if (!buffers) return nullptr;
    return std::shared_ptr<PeerCopies>(new PeerCopies(transport, std::move(words), std::move(memory),
                                                      std::move(buffers), std::move(stream)));
  }

  std::shared_ptr<PeerWords> const& words() const noexcept { return words_; }

  /// Accepts a batch if all its collectives can run here. All ranks come to the same result, because they
  /// make the same calls at the same offsets of their memory. The first accepted sum fixes the stream of all
  /// sums, because they share the buffers for summands.
  bool take(std::vector<PendingCall> const& calls) {
    if (!all_fit(calls)) return false;
    if (!has_sums(calls)) return true;
    if (!stream_of_sums_) stream_of_sums_ = calls.front().request.stream;
    return stream_of_sums_ == calls.front().request.stream;
  }

  bool is_idle() const noexcept override {
    return std::none_of(last_.begin(), last_.end(), [](auto const& last) {
      return cudaEventQuery(last.second.get()) == cudaErrorNotReady;
    });
  }
  void close() noexcept override {
    memory_->close();
    buffers_->close();
    words_->close(rank_);
  }
  bool closed_by(int rank) const noexcept override { return words_->closed_by(rank); }

  /// Copies a pattern to all other ranks. Returns whether the patterns of all ranks arrive within 10 s. All
  /// ranks must call it together. Then each rank must wait until the others have returned, before it destroys
  /// this object.
  bool works() const {
    Request request;
    request.group = {0, 1, world_};
    request.stream = pattern_stream_.get();
    bool in_time = true;
    try {
      send_pattern(Batch(request, rank_));
    } catch (Error const&) {
      in_time = false;
    }
    auto const start = std::chrono::steady_clock::now();
    while (cudaStreamQuery(pattern_stream_.get()) == cudaErrorNotReady) {
      in_time = in_time && std::chrono::steady_clock::now() - start < std::chrono::seconds(10);
      if (!in_time) words_->release();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    bool const arrived = in_time && has_patterns(Batch(request, rank_));
    cudaGetLastError();
    return arrived;
  }

  /// Enqueues a batch of collectives that `take` has accepted.
  void run(std::vector<PendingCall> const& calls) {
    Batch const batch(calls.front().request, rank_);
    Mark const mark{mark_of(batch.stream), batch.stream};
    add_parts(calls, batch);
    bool const sends = std::any_of(calls.begin(), calls.end(), [](PendingCall const& call) {
      return call.request.move != Move::reduce_scatter;
    });
    if (!sends) return;
    // If the batch has sums, all ranks have signalled `ready` before these. The copies of an all_reduce
    // overwrite summands that their owner has already sent to this rank.
    if (!has_sums(calls)) meet(batch, PeerWords::ready);
    for (PendingCall const& call : calls)
      if (call.request.move != Move::reduce_scatter) send(call, batch);
    meet(batch, PeerWords::done);
  }

 private:
  /// The destructor records an event in a stream, also if a part of a batch could not be enqueued. Without an
  /// event, it does nothing.
  struct Mark {
    cudaEvent_t event;
    cudaStream_t stream;
    ~Mark() {
      if (event) cudaEventRecord(event, stream);
    }
  };
  /// Returns the event that follows the last collective of a stream; null if a CUDA graph captures the
  /// stream.
  cudaEvent_t mark_of(cudaStream_t stream) {
    if (cuda::StreamCapture(stream).active()) return nullptr;
    auto last =
        std::find_if(last_.begin(), last_.end(), [&](auto const& each) { return each.first == stream; });
    if (last == last_.end()) last = last_.emplace(last_.end(), stream, cuda::make_event());
    return last->second.get();
  }
  static bool is_sum(PendingCall const& call) {
    return call.request.move == Move::all_reduce || call.request.move == Move::reduce_scatter;
  }
  static bool has_sums(std::vector<PendingCall> const& calls) {
    return std::any_of(calls.begin(), calls.end(), &is_sum);
  }
  bool all_fit(std::vector<PendingCall> const& calls) const {
    return std::all_of(calls.begin(), calls.end(), [&](PendingCall const& call) {
      Request const& request = call.request;
      if (request.bytes == 0) return false;
      switch (request.move) {
        case Move::all_gather:
        case Move::all_to_all:
          return memory_->contains(call.recv, request.group.count * request.bytes);
        case Move::all_reduce:
        case Move::reduce_scatter:
          return cuda::has_rank_sum(request.dtype) && memory_->contains(call.recv, request.bytes);
        default:
          return false;
      }
    });
  }

  static constexpr std::int64_t buffer_bytes = std::int64_t{64} << 20, pattern_bytes = 256;

  /// The group and the stream of a batch, and this rank's index in the group.
  struct Batch {
    Batch(Request const& request, int rank)
        : group(request.group),
          own(group.index_of(rank)),
          stream(static_cast<cudaStream_t>(request.stream)) {}
    ProcessGroup group;
    int own;
    cudaStream_t stream;
  };
  /// A range of a sum, which goes through the buffers at once: the bytes [begin, begin + bytes) of each
  /// rank's part. It begins at the byte `at` of the sections.
  struct Chunk {
    PendingCall const* call;
    std::int64_t begin, bytes, at;
  };

  PeerCopies(Transport const& transport, std::shared_ptr<PeerWords> words, std::unique_ptr<PeerMemory> memory,
             std::unique_ptr<PeerMemory> buffers, cuda::Stream pattern_stream)
      : rank_(transport.rank()),
        world_(transport.world()),
        words_(std::move(words)),
        memory_(std::move(memory)),
        buffers_(std::move(buffers)),
        pattern_stream_(std::move(pattern_stream)) {}

  /// Returns device memory for summands, with the pattern of this rank at its end.
  static std::shared_ptr<std::byte> summand_buffer(int rank) {
    void* memory = nullptr;
    cuda::require(cudaMalloc(&memory, buffer_bytes + pattern_bytes), "cudaMalloc");
    std::shared_ptr<std::byte> buffer(static_cast<std::byte*>(memory), [](std::byte* at) { cudaFree(at); });
    cuda::require(cudaMemset(buffer.get() + buffer_bytes, rank + 1, pattern_bytes), "cudaMemset");
    cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return buffer;
  }

  /// Enqueues copies of a pattern to all other ranks.
  void send_pattern(Batch const& batch) const {
    std::byte const* const pattern = buffers_->base() + buffer_bytes;
    meet(batch, PeerWords::ready);
    for (int rank = 0; rank < world_; ++rank)
      if (rank != rank_)
        copy(buffers_->of(rank, section(batch, rank, rank_)), pattern, pattern_bytes, batch.stream);
    meet(batch, PeerWords::done);
  }
  /// Returns whether the patterns of all ranks have arrived.
  bool has_patterns(Batch const& batch) const {
    for (int rank = 0; rank < world_; ++rank) {
      std::array<unsigned char, pattern_bytes> got{};
      std::byte const* const from =
          rank == rank_ ? buffers_->base() + buffer_bytes : section(batch, rank_, rank);
      if (cudaMemcpy(got.data(), from, got.size(), cudaMemcpyDeviceToHost) != cudaSuccess ||
          std::any_of(got.begin(), got.end(), [&](unsigned char byte) { return byte != rank + 1; }))
        return false;
    }
    return true;
  }

  static std::int64_t section_bytes(Batch const& batch) {
    return buffer_bytes / (batch.group.count - 1) / 256 * 256;
  }
  /// Returns the address of the section for the summands that rank `sender` sends to rank `receiver`, as if
  /// the buffer of the receiver was the own one. Both numbers are indices in the group. A rank needs no
  /// section for its own summands.
  std::byte* section(Batch const& batch, int receiver, int sender) const {
    return buffers_->base() + (sender < receiver ? sender : sender - 1) * section_bytes(batch);
  }
  void meet(Batch const& batch, PeerWords::Signal signal) const {
    cuda::require(words_->meet(batch.group, rank_, signal, batch.stream), "cuStreamBatchMemOp");
  }
  static void copy(std::byte* to, std::byte const* from, std::int64_t bytes, cudaStream_t stream) {
    if (to == from || bytes <= 0) return;
    cuda::require(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDefault, stream),
                  "cudaMemcpyAsync");
  }

  /// Returns the bytes of the largest part of a sum, and of the part with index `index` in the group.
  static std::int64_t part_bytes(Request const& request) {
    if (request.move == Move::reduce_scatter) return request.bytes;
    std::int64_t const part = (request.bytes + request.group.count - 1) / request.group.count;
    return (part + 255) / 256 * 256;
  }
  static std::int64_t part_bytes(Request const& request, int index) {
    std::int64_t const part = part_bytes(request);
    return request.move == Move::reduce_scatter
               ? part
               : std::clamp<std::int64_t>(request.bytes - index * part, 0, part);
  }

  /// Enqueues the sums of a batch: of each reduce_scatter, and the first half of each all_reduce, after which
  /// each rank has the sum of its part.
  void add_parts(std::vector<PendingCall> const& calls, Batch const& batch) {
    round_.clear();
    std::int64_t const most = section_bytes(batch);
    std::int64_t used = 0;
    for (PendingCall const& call : calls) {
      if (!is_sum(call)) continue;
      std::int64_t const all = part_bytes(call.request);
      for (std::int64_t begin = 0; begin < all;) {
        if (used == most) {
          add_round(round_, batch);
          round_.clear();
          used = 0;
        }
        std::int64_t const bytes = std::min(all - begin, most - used);
        round_.push_back({&call, begin, bytes, used});
        begin += bytes;
        used = std::min((used + bytes + 255) / 256 * 256, most);
      }
    }
    if (!round_.empty()) add_round(round_, batch);
  }
  void add_round(std::vector<Chunk> const& round, Batch const& batch) const {
    auto const bytes_of = [](Chunk const& chunk, int index) {
      return std::clamp<std::int64_t>(part_bytes(chunk.call->request, index) - chunk.begin, 0, chunk.bytes);
    };
    auto const source = [](Chunk const& chunk, int index) {
      return static_cast<std::byte const*>(chunk.call->send) + index * part_bytes(chunk.call->request) +
             chunk.begin;
    };
    meet(batch, PeerWords::ready);
    for (int step = 1; step < batch.group.count; ++step) {
      int const index = (batch.own + step) % batch.group.count;
      for (Chunk const& chunk : round)
        copy(buffers_->of(batch.group.rank(index), section(batch, index, batch.own) + chunk.at),
             source(chunk, index), bytes_of(chunk, index), batch.stream);
    }
    meet(batch, PeerWords::summands);
    for (Chunk const& chunk : round) {
      Request const& request = chunk.call->request;
      cuda::Summands summands;
      summands.count = batch.group.count;
      for (int index = 0; index < batch.group.count; ++index)
        summands.at[index] =
            index == batch.own ? source(chunk, index) : section(batch, batch.own, index) + chunk.at;
      std::int64_t const own = request.move == Move::all_reduce ? batch.own * part_bytes(request) : 0;
      cuda::run_rank_sum(batch.stream, request.dtype, bytes_of(chunk, batch.own), summands,
                         static_cast<std::byte*>(chunk.call->recv) + own + chunk.begin);
    }
  }

  /// Enqueues the copies of a collective to the other ranks. An all_reduce copies this rank's part of the
  /// sum.
  void send(PendingCall const& call, Batch const& batch) const {
    Request const& request = call.request;
    auto const* const from = static_cast<std::byte const*>(call.send);
    auto* const to = static_cast<std::byte*>(call.recv);
    bool const sums = request.move == Move::all_reduce;
    std::int64_t const at = batch.own * (sums ? part_bytes(request) : request.bytes),
                       bytes = sums ? part_bytes(request, batch.own) : request.bytes;
    for (int step = 0; step < batch.group.count; ++step) {  // every rank writes to a different rank
      int const index = (batch.own + step) % batch.group.count;
      std::byte const* const piece = sums ? to + at
                                     : request.move == Move::all_gather
                                         ? from
                                         : from + index % request.pieces * bytes;
      copy(memory_->of(batch.group.rank(index), to + at), piece, bytes, batch.stream);
    }
  }

  int const rank_;
  int const world_;
  std::shared_ptr<PeerWords> words_;
  std::unique_ptr<PeerMemory> memory_;  // the shared memory
  std::unique_ptr<PeerMemory>
      buffers_;  // for summands; a buffer has a section for each other rank of a group
  cuda::Stream pattern_stream_;
  std::vector<std::pair<cudaStream_t, cuda::Event>> last_;  // after the last collective of each stream
  std::vector<Chunk> round_;                                // keeps its capacity
  void* stream_of_sums_ = nullptr;                          // the stream of the first sum
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
