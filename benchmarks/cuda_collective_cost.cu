// SPDX-License-Identifier: Apache-2.0
// Measures how much NCCL collectives between two GPUs slow down matrix products that run at the same time.
// The kernels of a collective take multiprocessors, memory bandwidth and power from the products. NCCL 2.28
// can also run an all-gather and an all-to-all on the copy engines of the GPU, which takes no
// multiprocessors. For this, the communicator has the policy NCCL_CTA_POLICY_ZERO, and the buffers are in
// symmetric windows.
//
// Usage: cuda_collective_cost [MEBIBYTES]. MEBIBYTES is the size of a whole buffer, 120 MiB by default.
//
// Prints one line for each collective, each way to run it, and for calls from the host or from a CUDA graph:
// the time of 60 products of 4096 x 4096 random bfloat16 matrices without and with collectives on another
// stream, and the time of a collective without and with these products. Each time is the shortest of five, on
// the first GPU. "copy engines" means that NCCL was asked to use them.
#include <algorithm>
#include <array>
#include <barrier>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_runtime.h>
#include <exception>
#include <nccl.h>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/cuda.cuh"

#include "captured.cuh"

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 28, 0)

int main() {
  std::fprintf(stderr, "error: cuda_collective_cost needs NCCL 2.28 or newer, and it was built with %d\n",
               NCCL_VERSION_CODE);
  return tessera::exit_code(tessera::ErrorKind::unsupported);
}

#else

namespace {

namespace ts = tessera;
using ts::Move;
using ts::cuda::require;

constexpr int ranks = 2, products = 60, calls = 10, rounds = 5;
constexpr int longer = 3;            ///< the work of the other stream takes about this many times as long
constexpr std::int64_t side = 4096;  ///< of a square matrix

struct Work {
  Move move = Move::all_gather;
  bool copy_engines = false;
  bool graph = false;
  std::size_t bytes = 0;  ///< of the whole buffer
};

void require_nccl(ncclResult_t status, char const* call) {
  if (status == ncclSuccess) return;
  throw ts::Error(ts::ErrorKind::failed, std::string(call) + ": " + ncclGetErrorString(status));
}

/// Memory that NCCL allocates, and its symmetric window if `comm` is not null.
class Buffer {
 public:
  Buffer(std::size_t bytes, ncclComm_t comm) : comm_(comm) {
    require_nccl(ncclMemAlloc(&memory_, bytes), "ncclMemAlloc");
    require(cudaMemset(memory_, 0, bytes), "cudaMemset");
    if (comm_)
      require_nccl(ncclCommWindowRegister(comm_, memory_, bytes, &window_, NCCL_WIN_COLL_SYMMETRIC),
                   "ncclCommWindowRegister");
  }
  Buffer(Buffer const&) = delete;
  Buffer& operator=(Buffer const&) = delete;
  ~Buffer() {
    if (comm_) ncclCommWindowDeregister(comm_, window_);
    ncclMemFree(memory_);
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_); }

 private:
  ncclComm_t comm_;
  void* memory_ = nullptr;
  ncclWindow_t window_ = nullptr;
};

/// The products: C = A B with random bfloat16 matrices, as a training step computes them.
class Products {
 public:
  Products() {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<ts::bfloat16> values(std::size_t{2} * side * side);
    for (ts::bfloat16& value : values) value = ts::bfloat16(normal(random));
    require(cudaMemcpy(matrices_.base(), values.data(), values.size() * sizeof(ts::bfloat16),
                       cudaMemcpyHostToDevice),
            "cudaMemcpy");
  }
  cudaStream_t stream() { return context_.stream(); }
  void enqueue(int count) {
    for (int i = 0; i < count; ++i)
      ts::ops::linear_backward_input<ts::bfloat16, ts::Cuda>(context_, matrix(0), matrix(1), matrix(2));
    context_.raise();
  }

 private:
  static constexpr std::size_t workspace_bytes = ts::Context<ts::Cuda>::workspace_bytes(1, side);

  ts::Tensor<ts::bfloat16, ts::Cuda> matrix(std::int64_t index) {
    return {reinterpret_cast<ts::bfloat16*>(matrices_.base()) + index * side * side, {side, side}};
  }

  ts::DeviceArena<ts::Cuda> workspace_{std::int64_t{workspace_bytes}},
      matrices_{3 * side * side * std::int64_t{sizeof(ts::bfloat16)}};
  ts::Context<ts::Cuda> context_{1, {workspace_.base(), workspace_bytes}};
};

/// Owns a communicator of NCCL. It ends after all graphs that contain its collectives.
struct Communicator {
  ncclComm_t handle = nullptr;
  Communicator(ncclUniqueId const& id, int rank, bool copy_engines) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (copy_engines) config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    require_nccl(ncclCommInitRankConfig(&handle, ranks, id, rank, &config), "ncclCommInitRankConfig");
  }
  Communicator(Communicator const&) = delete;
  Communicator& operator=(Communicator const&) = delete;
  ~Communicator() { ncclCommDestroy(handle); }
};

/// The values that the ranks of a measurement share.
struct Shared {
  std::barrier<> meeting{ranks};
  int batches = 0, repeats = 0;  ///< how often to enqueue the products, and the collectives
};

class Rank {
 public:
  Rank(int rank, ncclUniqueId const& id, Work const& work, Shared& shared)
      : rank_(rank),
        work_(work),
        shared_(shared),
        communicator_(id, rank, work.copy_engines),
        send_(work.bytes, work.copy_engines ? communicator_.handle : nullptr),
        receive_(work.bytes, work.copy_engines ? communicator_.handle : nullptr) {
    call();  // connects the ranks, which must not be captured
    require(cudaStreamSynchronize(collectives_.get()), "cudaStreamSynchronize");
    auto const all = [&] {
      for (int i = 0; i < calls; ++i) call();
    };
    if (work.graph) graph_ = gpu::captured(collectives_.get(), all);
    enqueue_collectives(1);
    products_.enqueue(5);
    require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  void measure() {
    double const computing = shortest(1, 0).first, moving = shortest(0, 1).second;
    // Rank 0 decides how often to enqueue both, because all ranks must enqueue equally many collectives.
    if (rank_ == 0) {
      shared_.repeats = static_cast<int>(longer * computing / moving) + 1;
      shared_.batches = static_cast<int>(longer * moving * shared_.repeats / computing) + 1;
    }
    shared_.meeting.arrive_and_wait();
    int const repeats = shared_.repeats, batches = shared_.batches;
    // The work whose time counts must end first, so that the other work runs all the time.
    double const computing_with = shortest(1, repeats).first,
                 moving_with = shortest(batches, repeats).second / repeats;
    if (rank_ != 0) return;
    std::printf(
        "%-14s %-12s %-5s products %6.2f ms, with collectives %6.2f ms (%+.1f %%); collective %.3f ms, with "
        "products %.3f ms (%+.1f %%)\n",
        std::string(ts::name_of(work_.move)).c_str(), work_.copy_engines ? "copy engines" : "kernels",
        work_.graph ? "graph" : "host", computing, computing_with, 100 * (computing_with / computing - 1),
        moving / calls, moving_with / calls, 100 * (moving_with / moving - 1));
    std::fflush(stdout);
  }

 private:
  void call() {
    std::size_t const part = work_.bytes / ranks;
    std::byte *const send = send_.data(), *const receive = receive_.data();
    auto const own = static_cast<std::size_t>(rank_) * part;
    switch (work_.move) {
      case Move::all_gather:
        return require_nccl(
            ncclAllGather(send + own, receive, part, ncclInt8, communicator_.handle, collectives_.get()),
            "ncclAllGather");
      case Move::all_to_all:
        return require_nccl(
            ncclAlltoAll(send, receive, part, ncclInt8, communicator_.handle, collectives_.get()),
            "ncclAlltoAll");
      case Move::reduce_scatter:
        return require_nccl(ncclReduceScatter(send, receive + own, part / 2, ncclBfloat16, ncclSum,
                                              communicator_.handle, collectives_.get()),
                            "ncclReduceScatter");
      default:
        throw ts::Error(ts::ErrorKind::usage, "no such collective is measured");
    }
  }
  void enqueue_collectives(int repeats) {
    for (int i = 0; i < repeats; ++i)
      if (graph_)
        require(cudaGraphLaunch(graph_.get(), collectives_.get()), "cudaGraphLaunch");
      else
        for (int one = 0; one < calls; ++one) call();
  }
  /// Returns the shortest times in ms of the products and of the collectives. They run at the same time.
  std::pair<double, double> shortest(int batches, int repeats) {
    double computing = 1e9, moving = 1e9;
    for (int round = 0; round < rounds; ++round) {
      shared_.meeting.arrive_and_wait();
      // The host enqueues the collectives first, because their kernels are fewer.
      record(2, collectives_.get());
      enqueue_collectives(repeats);
      record(3, collectives_.get());
      record(0, products_.stream());
      products_.enqueue(batches * products);
      record(1, products_.stream());
      require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      computing = std::min(computing, between(0, 1));
      moving = std::min(moving, between(2, 3));
    }
    return {computing, moving};
  }
  void record(std::size_t event, cudaStream_t stream) {
    require(cudaEventRecord(events_[event].get(), stream), "cudaEventRecord");
  }
  double between(std::size_t begin, std::size_t end) {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, events_[begin].get(), events_[end].get()),
            "cudaEventElapsedTime");
    return milliseconds;
  }

  int rank_;
  Work work_;
  Shared& shared_;
  Communicator communicator_;
  Buffer send_, receive_;
  ts::cuda::Stream collectives_ = ts::cuda::make_stream(-1);
  Products products_;
  std::array<ts::cuda::Event, 4> events_{
      ts::cuda::make_event(cudaEventDefault), ts::cuda::make_event(cudaEventDefault),
      ts::cuda::make_event(cudaEventDefault), ts::cuda::make_event(cudaEventDefault)};
  ts::cuda::Graph graph_;
};

void measure(Work const& work) {
  ncclUniqueId id{};
  require_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  Shared shared;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        ts::Context<ts::Cuda>::select(rank);
        Rank one(rank, id, work, shared);
        one.measure();
        shared.meeting.arrive_and_wait();
      } catch (std::exception const& error) {
        // The other rank would wait without end. The destructors of CUDA and NCCL would wait for its kernels.
        std::fprintf(stderr, "error: %s\n", error.what());
        std::_Exit(ts::exit_code(ts::ErrorKind::failed));
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

int main(int argc, char** argv) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus < ranks) {
    std::fprintf(stderr, "error: cuda_collective_cost needs two GPUs, and this machine has %d\n", gpus);
    return ts::exit_code(ts::ErrorKind::unsupported);
  }
  std::string_view const size = argc > 1 ? argv[1] : "120";
  std::size_t mebibytes = 0;
  auto const [end, status] = std::from_chars(size.data(), size.data() + size.size(), mebibytes);
  if (status != std::errc() || end != size.data() + size.size() || mebibytes < 1 || mebibytes > 16384) {
    std::fprintf(stderr, "error: MEBIBYTES is '%s', which is not a whole number from 1 to 16384\n", argv[1]);
    return ts::exit_code(ts::ErrorKind::usage);
  }
  for (Move const move : {Move::all_gather, Move::all_to_all, Move::reduce_scatter})
    for (bool const copy_engines : {false, true}) {
      if (copy_engines && move == Move::reduce_scatter) continue;  // copy engines cannot add
      for (bool const graph : {false, true}) measure({move, copy_engines, graph, mebibytes << 20});
    }
}

#endif
