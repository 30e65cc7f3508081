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
#include "tessera/backend/cuda/runtime/capture.cuh"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
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
/// ranks. The summands of a reduce_scatter or all_reduce go to a stage of each rank, which adds them in rank
/// order in fp32, or in double for doubles, and rounds once. A collective takes about 10 us more than its
/// copies. The stage takes 64 MiB of device memory.
class PeerCopies final : public SharedMemory {
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
    if (!PeerWords::on_all_ranks(transport, wanted)) return nullptr;
    auto words = PeerWords::open(transport);
    if (!words) return nullptr;
    auto memory = PeerMemory::open(transport, device, std::move(owner), base, bytes, layout);
    if (!memory) return nullptr;
    void* stage = nullptr;
    if (cudaMalloc(&stage, stage_bytes + pattern_bytes) != cudaSuccess) cudaGetLastError();
    auto stages = PeerMemory::open(transport, device,
                                   std::shared_ptr<void>(stage,
                                                         [](void* memory) {
                                                           if (memory) cudaFree(memory);
                                                         }),
                                   static_cast<std::byte*>(stage), stage_bytes + pattern_bytes, 0);
    if (!stages) return nullptr;
    return std::shared_ptr<PeerCopies>(
        new PeerCopies(transport, std::move(words), std::move(memory), std::move(stages)));
  }

  std::shared_ptr<PeerWords> const& words() const noexcept { return words_; }
  /// Returns the number of batches that `run` has enqueued.
  std::int64_t batches() const noexcept { return batches_; }

  /// Returns whether all collectives of a batch can run here. All ranks come to the same result, because they
  /// make the same calls at the same offsets of their memory. All sums must be on the stream of the first
  /// sum, because they share the stage.
  bool take(std::vector<PendingCall> const& calls) {
    if (!all_fit(calls)) return false;
    if (std::none_of(calls.begin(), calls.end(), &sums)) return true;
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
    stages_->close();
    words_->close(rank_);
  }
  bool closed_by(int rank) const noexcept override { return words_->closed_by(rank); }

  /// Copies a pattern to all other ranks. Returns whether the patterns of all ranks arrive within 10 s. All
  /// ranks must call it together. Then each rank must wait until the others have returned, before it destroys
  /// this object.
  bool works() const {
    cuda::Stream stream;
    Request request;
    request.group = {0, 1, world_};
    bool in_time = true;
    try {
      stream = cuda::make_stream();
      request.stream = stream.get();
      send_pattern(Batch(request, rank_));
    } catch (Error const&) {
      in_time = false;
    }
    auto const start = std::chrono::steady_clock::now();
    while (stream && cudaStreamQuery(stream.get()) == cudaErrorNotReady) {
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
    ++batches_;
    Batch const batch(calls.front().request, rank_);
    Mark const mark{mark_of(batch.stream), batch.stream};
    add_parts(calls, batch);
    bool const sends = std::any_of(calls.begin(), calls.end(), [](PendingCall const& call) {
      return call.request.move != Move::reduce_scatter;
    });
    if (!sends) return;
    // If the batch has sums, all ranks have signalled `ready` before these. The copies of an all_reduce
    // overwrite summands that their owner has already sent to this rank.
    if (std::none_of(calls.begin(), calls.end(), &sums)) meet(batch, PeerWords::ready);
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
    if (cuda::Capture(stream).active()) return nullptr;
    auto last =
        std::find_if(last_.begin(), last_.end(), [&](auto const& each) { return each.first == stream; });
    if (last == last_.end()) last = last_.emplace(last_.end(), stream, cuda::make_event());
    return last->second.get();
  }
  static bool sums(PendingCall const& call) {
    return call.request.move == Move::all_reduce || call.request.move == Move::reduce_scatter;
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

  static constexpr std::int64_t stage_bytes = std::int64_t{64} << 20, pattern_bytes = 256;

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
  /// A range of a sum, which goes through the stage at once: the bytes [begin, begin + bytes) of each rank's
  /// part. It begins at the byte `at` of the slots.
  struct Chunk {
    PendingCall const* call;
    std::int64_t begin, bytes, at;
  };

  PeerCopies(Transport const& transport, std::shared_ptr<PeerWords> words, std::unique_ptr<PeerMemory> memory,
             std::unique_ptr<PeerMemory> stages)
      : rank_(transport.rank()),
        world_(transport.world()),
        words_(std::move(words)),
        memory_(std::move(memory)),
        stages_(std::move(stages)) {}

  /// Enqueues copies of a pattern to all other ranks.
  void send_pattern(Batch const& batch) const {
    cuda::load_rank_sums();
    std::byte* const pattern = stages_->base() + stage_bytes;
    cuda::require(cudaMemsetAsync(pattern, rank_ + 1, pattern_bytes, batch.stream), "cudaMemsetAsync");
    meet(batch, PeerWords::ready);
    for (int rank = 0; rank < world_; ++rank)
      if (rank != rank_)
        copy(stages_->of(rank, slot(batch, rank, rank_)), pattern, pattern_bytes, batch.stream);
    meet(batch, PeerWords::done);
  }
  /// Returns whether the patterns of all ranks have arrived.
  bool has_patterns(Batch const& batch) const {
    for (int rank = 0; rank < world_; ++rank) {
      std::array<unsigned char, pattern_bytes> got{};
      std::byte const* const from = rank == rank_ ? stages_->base() + stage_bytes : slot(batch, rank_, rank);
      if (cudaMemcpy(got.data(), from, got.size(), cudaMemcpyDeviceToHost) != cudaSuccess ||
          std::any_of(got.begin(), got.end(), [&](unsigned char byte) { return byte != rank + 1; }))
        return false;
    }
    return true;
  }

  static std::int64_t slot_bytes(Batch const& batch) {
    return stage_bytes / (batch.group.count - 1) / 256 * 256;
  }
  /// Returns the address of the slot for the summands that rank `sender` sends to rank `receiver`, as if the
  /// stage of the receiver was the own one. Both numbers are indices in the group. No slot is needed for what
  /// a rank sends to itself.
  std::byte* slot(Batch const& batch, int receiver, int sender) const {
    return stages_->base() + (sender < receiver ? sender : sender - 1) * slot_bytes(batch);
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
    std::int64_t const most = slot_bytes(batch);
    std::int64_t used = 0;
    for (PendingCall const& call : calls) {
      if (call.request.move != Move::reduce_scatter && call.request.move != Move::all_reduce) continue;
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
        copy(stages_->of(batch.group.rank(index), slot(batch, index, batch.own) + chunk.at),
             source(chunk, index), bytes_of(chunk, index), batch.stream);
    }
    meet(batch, PeerWords::summands);
    for (Chunk const& chunk : round) {
      Request const& request = chunk.call->request;
      cuda::Summands summands;
      summands.count = batch.group.count;
      for (int index = 0; index < batch.group.count; ++index)
        summands.at[index] =
            index == batch.own ? source(chunk, index) : slot(batch, batch.own, index) + chunk.at;
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
  std::unique_ptr<PeerMemory> stages_;  // of all ranks; a stage has a slot for each other rank of a group
  std::vector<std::pair<cudaStream_t, cuda::Event>> last_;  // after the last collective of each stream
  std::vector<Chunk> round_;                                // keeps its capacity
  void* stream_of_sums_ = nullptr;                          // the stream of the first sum
  std::int64_t batches_ = 0;
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
