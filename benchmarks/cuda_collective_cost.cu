// SPDX-License-Identifier: Apache-2.0
// Measures how much collectives between two GPUs slow down matrix products that run at the same time. NCCL's
// kernels take multiprocessors, memory bandwidth and power from the products. Copy engines take no
// multiprocessors.
//
// Usage: cuda_collective_cost [MEBIBYTES]. MEBIBYTES is the size of a whole buffer, 120 MiB by default.
//
// Prints one line for each collective, each way to run it, and for calls from the host or from a CUDA graph:
// the time of 60 products of 4096 x 4096 random bfloat16 matrices without and with collectives on another
// stream, and the time of a collective without and with these products. Each time is the shortest of five, on
// the first GPU. The ways are NCCL's kernels on a stream with the priority of the products, the same on a
// stream with the highest priority, and copies by copy engines.
#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/nccl.cuh"
#include "tessera/core/error.hpp"
#include "tessera/cuda.cuh"

#include "captured.cuh"

namespace {

namespace ts = tessera;
using ts::Move;
using ts::cuda::require;

constexpr int ranks = 2, products = 60, calls = 10, rounds = 5;
constexpr int longer = 3;            ///< the work of the other stream takes about this many times as long
constexpr std::int64_t side = 4096;  ///< of a square matrix

enum class Way { kernels, priority, copies };
constexpr char const* name_of(Way way) {
  return way == Way::kernels ? "kernels" : way == Way::priority ? "priority" : "copies";
}

struct Work {
  Move move = Move::all_gather;
  Way way = Way::kernels;
  bool graph = false;
  std::int64_t bytes = 0;  ///< of the whole buffer
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

class Rank {
 public:
  Rank(ts::comm::Transport& transport, Work const& work)
      : transport_(transport),
        work_(work),
        memory_(std::make_shared<ts::DeviceArena<ts::Cuda>>(2 * work.bytes)),
        access_(work.way == Way::copies ? transport.share(memory_, memory_->base(), memory_->bytes(), 1)
                                        : nullptr),
        collectives_(ts::cuda::make_stream(work.way == Way::priority ? highest_priority() : -1)) {
    if (work.way == Way::copies && !access_)
      throw ts::Error(ts::ErrorKind::unsupported,
                      "copies between the GPUs are not available: they need NVLink, and TESSERA_COPY_ENGINES "
                      "must not be 0");
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
    std::array<int, 2> times{};
    times[0] = static_cast<int>(longer * computing / moving) + 1;
    times[1] = static_cast<int>(longer * moving * times[0] / computing) + 1;
    transport_.broadcast(0, times.data(), sizeof times);
    int const repeats = times[0], batches = times[1];
    // The work whose time counts must end first, so that the other work runs all the time.
    double const computing_with = shortest(1, repeats).first,
                 moving_with = shortest(batches, repeats).second / repeats;
    if (transport_.rank() != 0) return;
    std::printf(
        "%-14s %-8s %-5s products %6.2f ms, with collectives %6.2f ms (%+.1f %%); collective %.3f ms, with "
        "products %.3f ms (%+.1f %%)\n",
        std::string(ts::name_of(work_.move)).c_str(), name_of(work_.way), work_.graph ? "graph" : "host",
        computing, computing_with, 100 * (computing_with / computing - 1), moving / calls,
        moving_with / calls, 100 * (moving_with / moving - 1));
    std::fflush(stdout);
  }

 private:
  static int highest_priority() {
    int lowest = 0, highest = 0;
    require(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    return highest;
  }
  void call() {
    std::int64_t const part = work_.bytes / ranks, own = transport_.rank() * part;
    std::byte *const send = memory_->base(), *const receive = send + work_.bytes;
    transport_.on_stream(collectives_.get());
    switch (work_.move) {
      case Move::all_gather:
        transport_.all_gather(send + own, receive, part);
        break;
      case Move::all_to_all:
        transport_.all_to_all(send, receive, part);
        break;
      case Move::reduce_scatter:
        transport_.reduce_scatter(ts::DType::bf16, send, receive + own, part / 2);
        break;
      default:
        throw ts::Error(ts::ErrorKind::usage, "no such collective is measured");
    }
    transport_.on_stream(nullptr);
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
      transport_.barrier();
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

  ts::comm::Transport& transport_;
  Work work_;
  std::shared_ptr<ts::DeviceArena<ts::Cuda>> memory_;
  std::shared_ptr<void> access_;
  ts::cuda::Stream collectives_;
  Products products_;
  std::array<ts::cuda::Event, 4> events_{
      ts::cuda::make_event(cudaEventDefault), ts::cuda::make_event(cudaEventDefault),
      ts::cuda::make_event(cudaEventDefault), ts::cuda::make_event(cudaEventDefault)};
  ts::cuda::Graph graph_;
};

}  // namespace

int main(int argc, char** argv) try {
  std::string_view const size = argc > 1 ? argv[1] : "120";
  std::int64_t mebibytes = 0;
  auto const [end, status] = std::from_chars(size.data(), size.data() + size.size(), mebibytes);
  if (status != std::errc() || end != size.data() + size.size() || mebibytes < 1 || mebibytes > 16384)
    throw ts::Error(ts::ErrorKind::usage,
                    "MEBIBYTES is '" + std::string(size) + "', which is not a whole number from 1 to 16384");
  for (Move const move : {Move::all_gather, Move::all_to_all, Move::reduce_scatter})
    for (Way const way : {Way::kernels, Way::priority, Way::copies}) {
      for (bool const graph : {false, true})
        ts::run_gpus(ranks, [&](ts::comm::Comm& comm) {
          Rank one(comm.transport(), {move, way, graph, mebibytes << 20});
          one.measure();
          comm.transport().barrier();
        });
    }
} catch (ts::Error const& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return ts::exit_code(error.kind());
}
