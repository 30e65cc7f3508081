// SPDX-License-Identifier: Apache-2.0
// Provides Nccl, the transport of a rank with a GPU. It runs collectives on device memory and on host memory.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <map>
#include <memory>
#include <nccl.h>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/stream_capture.cuh"
#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/nccl_link.cuh"
#include "tessera/comm/peer_copies.cuh"
#include "tessera/comm/threads.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

namespace comm {

/// The transport of a rank with its own GPU. The GPU must be current in the calling thread.
///
/// If a stream is set (`on_stream`), buffers are in device memory, and a collective only enqueues work on the
/// stream. It does not wait for the GPU, and allocates no memory once NCCL has connected. A CUDA graph can
/// capture it in thread-local capture mode. The program must destroy such graphs before this transport. To
/// wait for a stream that contains collectives, use `await`: it throws PeerLost if a rank is lost or if no
/// rank makes progress for the timeout.
///
/// Without a stream, buffers are in host memory, and a collective returns when it is complete. Ranks that are
/// threads exchange the data directly. Ranks that are processes exchange it through their GPUs.
///
/// `where` describes a collective of a rank in another process: it looks up the watch word of that rank in
/// the history of this process.
class Nccl final : public Transport {
 public:
  /// Creates the transport of a rank that is a thread. Call `connect` from that thread.
  Nccl(std::shared_ptr<detail::ThreadGroup> const& group, std::shared_ptr<detail::ThreadBoards> const& shared,
       int rank, int device, std::chrono::duration<double> timeout)
      : Transport(rank, group->world(), shared->boards[static_cast<std::size_t>(rank)].word),
        device_(device),
        board_(shared->boards[static_cast<std::size_t>(rank)]),
        threads_(std::in_place, group, rank),
        link_(std::make_shared<detail::NcclLink>(std::make_shared<detail::ThreadRankStates>(group, shared),
                                                 rank, device_, timeout)) {}
  /// Creates the transport of a rank that is a process.
  Nccl(std::shared_ptr<detail::LaunchRankStates> const& states, int rank, int device,
       std::chrono::duration<double> timeout)
      : Transport(rank, states->world(), states->board(rank)->word),
        device_(device),
        board_(*states->board(rank)),
        link_(std::make_shared<detail::NcclLink>(states, rank, device, timeout)) {}
  ~Nccl() override {
    link_->states().leave();
    bool const ended = !watcher_.joinable() || link_->close();
    if (words_) {
      cuda::DeviceScope const scope(device_);
      cudaDeviceSynchronize();  // kernels that are still enqueued may write to the board
      cudaHostUnregister(&board_);
    }
    link_->rest();
    if (!threads_) close_kept_memory();
    if (!watcher_.joinable()) return;
    if (ended)
      watcher_.join();
    else
      watcher_.detach();  // the thread shares the ownership of the link
  }

  /// Makes the GPU of this rank current for the calling thread, and connects to the other ranks. All ranks
  /// must call it together, with the same `id`. `place` follows "waited for all N ranks to join" in error
  /// messages, for example " at HOST:PORT".
  void connect(ncclUniqueId const& id, std::string const& place) {
    Context<Cuda>::select(device_);
    stream_ = cuda::make_stream();
    event_ = cuda::make_event();
    std::size_t const bytes = 512 + sizeof(float) * static_cast<std::size_t>(world());
    small_ = allocate(bytes);
    cuda::require(cudaMemsetAsync(small_.get(), 0, bytes, stream_.get()), "cudaMemsetAsync");
    cuda::require(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    cuda::require(cudaHostRegister(&board_, sizeof board_, cudaHostRegisterPortable | cudaHostRegisterMapped),
                  "cudaHostRegister");
    words_ = &board_;
    void* seen = nullptr;
    cuda::require(cudaHostGetDevicePointer(&seen, words_, 0), "cudaHostGetDevicePointer");
    words_ = seen;
    if (world() == 1) return;
    watcher_ = std::thread([link = link_] { link->watch(); });
    link_->join(id, place);
    reset_traffic();
  }

  std::shared_ptr<void> share(std::shared_ptr<void> owner, std::byte* base, std::int64_t bytes,
                              std::uint64_t layout) override {
    if (stream())
      throw Error(ErrorKind::usage,
                  "memory was shared while a stream was set; call on_stream(nullptr) before", rank());
    if (world() == 1 || ranks_on_host() != world()) return nullptr;
    auto const copies = detail::PeerCopies::open(*this, device_, std::move(owner), base, bytes, layout);
    if (!copies) return nullptr;
    try {
      barrier();  // then all ranks have the buffer to which others copy the pattern
      if (!unanimous(*this, copies->works(), {"compare", "copies between GPUs"})) return nullptr;
    } catch (...) {
      link_->states().kept().add(copies);  // other ranks can still copy the pattern
      throw;
    }
    copies_->push_back(copies);
    link_->access().add(copies->words());
    return std::shared_ptr<void>(copies.get(), [list = copies_, link = link_, copies](void*) {
      std::erase(*list, copies);
      link->access().end(copies);
    });
  }

  std::int64_t copied_calls() const noexcept override { return copied_calls_; }
  std::string_view name() const noexcept override { return "nccl"; }
  int local_rank() const noexcept override { return device_; }
  int ranks_on_host() const noexcept override { return link_->states().ranks_on_host(); }
  void heartbeat() noexcept override {
    board_.beats.fetch_add(1, std::memory_order_relaxed);
    link_->states().mark_alive(rank());
  }
  void await(std::function<bool()> const& done, char const* what) override { link_->await(done, what); }
  void poison(char const* cause) noexcept override {
    try {
      link_->states().lose(rank(), cause && *cause ? cause : "it gave up without a reason");
    } catch (...) {  // no memory for the text
      link_->states().leave();
    }
    link_->wake();
  }
  std::uint64_t word(int rank) const noexcept override {
    detail::Board const* const board = link_->states().board(rank);
    return board ? board->word.load(std::memory_order_acquire) : 0;
  }
  std::string where(int rank) const override { return link_->progress().where(rank); }

 private:
  using Word = unsigned long long;
  using Memory = cuda::Owned<void*, &cudaFree>;

  static Memory allocate(std::size_t bytes) {
    void* memory = nullptr;
    cuda::require(cudaMalloc(&memory, bytes), "cudaMalloc");
    return Memory(memory);
  }

  /// Ends the access to the memory of other processes. Waits up to 0.3 s until they have ended theirs. A lost
  /// process does not do so.
  void close_kept_memory() const noexcept {
    detail::KeptMemory& kept = link_->states().kept();
    kept.close();
    for (int wait = 0; wait < 30 && !kept.empty(); ++wait) {
      kept.free_closed();
      if (!kept.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

  void note(Request const& request) override {
    auto* const stream = static_cast<cudaStream_t>(request.stream);
    int const communicator = request.group.communicator;
    detail::Board::Count& count = board_.counts[communicator];
    if (request.group.count < world() && communicator == 0) return note_uncounted(request);
    if (!stream) {
      // Memory is freed only if all ranks have completed their earlier work, because CUDA can wait for them.
      if (request.group.count == world() && !link_->states().kept().empty()) link_->access().free_kept();
      link_->history().put(request, false);
      count.host.fetch_add(1, std::memory_order_relaxed);
      return Transport::note(request);
    }
    cuda::StreamCapture const capture(stream);
    link_->history().put(request, capture.active());
    auto const at = [&](auto& member) {
      auto const offset = reinterpret_cast<std::byte*>(&member) - reinterpret_cast<std::byte*>(&board_);
      return reinterpret_cast<Word*>(static_cast<std::byte*>(words_) + offset);
    };
    Word* counter = static_cast<Word*>(small_.get()) + communicator;
    Word volatile *reached = at(count.device), *word = at(board_.word);
    Word value = watch_word(request.sequence, request.move, communicator);
    void* arguments[] = {&counter, &reached, &word, &value};
    auto* const kernel = reinterpret_cast<void*>(&cuda::reach_collective<Word>);
    if (capture.active())
      capture.add_branch(kernel, arguments, {&last_of_communicator_[communicator], &last_of_stream_[stream]});
    else
      cuda::require(cudaLaunchKernel(kernel, dim3(1), dim3(1), arguments, 0, stream), "reach_collective");
  }
  /// Records a collective of a group that has no NCCL communicator, and so no count on the board. Either the
  /// group has only this rank, or the ranks are threads that exchange host memory without NCCL.
  void note_uncounted(Request const& request) {
    if (request.stream) return;
    link_->history().put(request, false);
    board_.beats.fetch_add(1, std::memory_order_relaxed);
    Transport::note(request);
  }

  double exchange(Request const& request, void const* send, void* recv) override {
    if (request.stream)
      enqueue(request, send, recv);
    else if (threads_)
      return threads_->exchange(request, send, recv);
    else
      exchange_through_gpu(request, static_cast<std::byte const*>(send), static_cast<std::byte*>(recv));
    return 0;
  }

  void enqueue(Request const& request, void const* send, void* recv) {
    if (request.group.count == 1)
      return copy(recv, send, static_cast<std::size_t>(request.bytes),
                  static_cast<cudaStream_t>(request.stream));
    if (request.group.count < world() && request.group.communicator == 0)
      throw Error(ErrorKind::usage,
                  describe(request) +
                      " involves only some of the ranks, which need a separate communicator; " +
                      "open it first with Transport::over",
                  rank());
    calls_.push_back({request, send, recv});
    if (!grouped()) flush();
  }

  /// Opens an NCCL communicator for a group and returns its number. NCCL connects the ranks in the first
  /// collectives of a communicator, and must not do so while a CUDA graph is captured. So this function also
  /// runs a barrier, an all_gather and a reduce_scatter.
  int open_communicator(ProcessGroup const& group) override {
    Request first;
    first.stream = stream_.get();
    first.group = group;
    first.group.communicator = link_->split(group);
    auto* const memory = static_cast<std::byte*>(small_.get());
    for (Move const move : {Move::barrier, Move::all_gather, Move::reduce_scatter}) {
      first.move = move;
      first.bytes = move == Move::barrier ? 0 : sizeof(float);
      bool const sums = move == Move::reduce_scatter;
      enqueue(first, memory + (sums ? 512 : 256), memory + (sums ? 256 : 512));
    }
    cuda::require(cudaEventRecord(event_.get(), stream_.get()), "cudaEventRecord");
    await([&] { return arrived(); }, "all ranks to open a communicator");
    return first.group.communicator;
  }

  /// Runs all pending collectives: by copies if all of them can run so, otherwise as one NCCL group.
  void flush() override {
    if (calls_.empty()) return;
    for (auto const& copies : *copies_)
      if (copies->take(calls_)) {
        link_->check();
        copies->run(calls_);
        ++copied_calls_;
        return calls_.clear();
      }
    for (detail::PendingCall const& call : calls_) copy_own_piece(call);
    link_->enqueue([&](auto const& communicators) {
      for (detail::PendingCall const& call : calls_) {
        auto const index = static_cast<std::size_t>(call.request.group.communicator);
        ncclResult_t const status = ask(call, communicators[index]);
        if (status != ncclSuccess && status != ncclInProgress) return status;
      }
      return ncclSuccess;
    });
    calls_.clear();
  }

  /// Enqueues the copy of the piece that a rank sends to itself, which NCCL does not copy.
  void copy_own_piece(detail::PendingCall const& call) const {
    Request const& request = call.request;
    int const own = request.group.index_of(rank());
    bool const exchanges = request.move == Move::all_to_all;
    if (!exchanges && !(request.move == Move::gather && own == request.root)) return;
    copy(static_cast<std::byte*>(call.recv) + own * request.bytes,
         static_cast<std::byte const*>(call.send) + (exchanges ? own % request.pieces * request.bytes : 0),
         static_cast<std::size_t>(request.bytes), static_cast<cudaStream_t>(request.stream));
  }

  ncclResult_t ask(detail::PendingCall const& call, ncclComm_t communicator) const {
    Request const& request = call.request;
    auto* const stream = static_cast<cudaStream_t>(request.stream);
    auto const count = static_cast<std::size_t>(request.bytes);
    auto const* const from = static_cast<std::byte const*>(call.send);
    auto* const to = static_cast<std::byte*>(call.recv);
    bool const of_two = request.move == Move::send || request.move == Move::receive;
    Move const move = request.bytes > 0 || of_two ? request.move : Move::barrier;
    switch (move) {
      case Move::all_to_all:
        return with_peers(request.group, [&](int to_peer, int from_peer) {
          ncclResult_t const sent = ncclSend(from + to_peer % request.pieces * request.bytes, count, ncclInt8,
                                             to_peer, communicator, stream);
          if (sent != ncclSuccess) return sent;
          return ncclRecv(to + from_peer * request.bytes, count, ncclInt8, from_peer, communicator, stream);
        });
      case Move::gather:
        if (request.group.index_of(rank()) != request.root)
          return ncclSend(from, count, ncclInt8, request.root, communicator, stream);
        return with_peers(request.group, [&](int, int peer) {
          return ncclRecv(to + peer * request.bytes, count, ncclInt8, peer, communicator, stream);
        });
      case Move::all_gather:
        return ncclAllGather(from, to, count, ncclInt8, communicator, stream);
      case Move::broadcast:
        return ncclBroadcast(from, to, count, ncclInt8, request.root, communicator, stream);
      case Move::all_reduce:
        return ncclAllReduce(from, to, count / size_of(request.dtype), type_of(request.dtype), ncclSum,
                             communicator, stream);
      case Move::reduce_scatter:
        return ncclReduceScatter(from, to, count / size_of(request.dtype), type_of(request.dtype), ncclSum,
                                 communicator, stream);
      case Move::send:
        return ncclSend(from, count, ncclInt8, request.root, communicator, stream);
      case Move::receive:
        return ncclRecv(to, count, ncclInt8, request.root, communicator, stream);
      case Move::none:
      case Move::copy:
        return ncclSuccess;
      case Move::barrier:
        break;
    }
    // A barrier is a sum of one number. Later work of the stream starts when the streams of all ranks have
    // reached this sum.
    void* const sum = static_cast<std::byte*>(small_.get()) + 256;
    return ncclAllReduce(sum, sum, 1, ncclInt32, ncclSum, communicator, stream);
  }

  /// Calls body(to, from) once for each other rank of a group. `to` is the index of the rank to which this
  /// rank sends, and `from` is the index of the rank from which it receives. In each round, every rank sends
  /// to a different rank. Stops at the first error and returns it.
  template <class Body>
  ncclResult_t with_peers(ProcessGroup const& group, Body const& body) const {
    int const own = group.index_of(rank());
    for (int step = 1; step < group.count; ++step) {
      ncclResult_t const status = body((own + step) % group.count, (own + group.count - step) % group.count);
      if (status != ncclSuccess) return status;
    }
    return ncclSuccess;
  }

  static void copy(void* to, void const* from, std::size_t bytes, cudaStream_t stream) {
    if (to == from || bytes == 0) return;
    cuda::require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream), "cudaMemcpyAsync");
  }

  static ncclDataType_t type_of(DType dtype) {
    switch (dtype) {
      case DType::f64:
        return ncclFloat64;
      case DType::f32:
      case DType::tf32:
      case DType::bf16x6:
      case DType::bf16x3:
        return ncclFloat32;
      case DType::f16:
        return ncclFloat16;
      case DType::bf16:
        return ncclBfloat16;
      case DType::u8:
        return ncclUint8;
    }
    throw Error(ErrorKind::usage,
                "NCCL cannot sum values of type " + std::to_string(static_cast<int>(dtype)));
  }

  /// Runs a collective on host memory, in chunks. Copies each chunk to the GPU, runs the collective there,
  /// and copies the result back. The chunks are in `staging_`.
  void exchange_through_gpu(Request const& request, std::byte const* send, std::byte* recv) {
    std::size_t const half = std::max(std::size_t{4} << 20, static_cast<std::size_t>(world()) * 256);
    if (!staging_) staging_ = allocate(2 * half);
    int const count = request.group.count, own = request.group.index_of(rank());
    int up = 1, down = 1;  // pieces to upload and download
    bool in_place = false;
    switch (request.move) {
      case Move::all_to_all:
        up = request.pieces;
        down = count;
        break;
      case Move::reduce_scatter:
        up = count;
        break;
      case Move::all_gather:
        down = count;
        break;
      case Move::gather:
        down = own == request.root ? count : 0;
        break;
      case Move::broadcast:
      case Move::all_reduce:
        in_place = true;
        break;
      case Move::send:
        down = 0;
        break;
      case Move::receive:
        up = 0;
        break;
      case Move::none:
      case Move::copy:
      case Move::barrier:
        break;
    }
    auto* const in = static_cast<std::byte*>(staging_.get());
    auto* const out = in_place ? in : in + half;
    cudaStream_t const stream = stream_.get();
    std::int64_t const chunk = static_cast<std::int64_t>(half) / world() / 256 * 256;
    Request part = request;
    part.stream = stream;
    for (std::int64_t at = 0; at == 0 || at < request.bytes; at += chunk) {
      part.bytes = std::min(chunk, request.bytes - at);
      auto const piece = static_cast<std::size_t>(part.bytes);
      for (int peer = 0; peer < up; ++peer)
        copy(in + peer * part.bytes, send + peer * request.bytes + at, piece, stream);
      enqueue(part, in, out);
      flush();  // also after begin_group, because the download needs the result
      cuda::require(cudaEventRecord(event_.get(), stream), "cudaEventRecord");
      await([&] { return arrived(); }, name_of(request.move).data());
      for (int peer = 0; peer < down; ++peer)
        copy(recv + peer * request.bytes + at, out + peer * part.bytes, piece, stream);
      cuda::require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    }
  }
  bool arrived() const {
    cudaError_t const status = cudaEventQuery(event_.get());
    if (status == cudaErrorNotReady) return false;
    cuda::require(status, "cudaEventQuery");
    return true;
  }

  int device_;
  detail::Board& board_;
  std::optional<Threads> threads_;
  std::shared_ptr<detail::NcclLink> link_;
  std::thread watcher_;
  void* words_ = nullptr;  ///< the address of the board for the GPU
  cuda::Stream stream_;
  cuda::Event event_;
  Memory small_;  ///< counters; from byte 256 an operand of barriers; from byte 512 a float for each rank
  Memory staging_;
  // The last kernels of a captured graph that count collectives. Within a communicator, and within a stream,
  // these kernels run in the order of capture. So the board has the watch word of the last collective.
  std::array<cuda::StreamCapture::Branch, detail::max_communicators> last_of_communicator_;
  std::map<cudaStream_t, cuda::StreamCapture::Branch> last_of_stream_;
  /// One for each memory that is shared.
  std::shared_ptr<std::vector<std::shared_ptr<detail::PeerCopies>>> const copies_ =
      std::make_shared<std::vector<std::shared_ptr<detail::PeerCopies>>>();
  std::int64_t copied_calls_ = 0;
  std::vector<detail::PendingCall> calls_;  ///< collectives that were not enqueued yet; keeps its capacity
};

}  // namespace comm
}  // namespace v0
}  // namespace tessera
