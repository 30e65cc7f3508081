// SPDX-License-Identifier: Apache-2.0
// Measures NCCL collectives between all GPUs of this machine, as trainers call them: a rank is a thread with
// its own GPU. Benchmark names: collective/<collective>/<eager or graph>/gpus:<n>/bytes:<n>. With `eager`,
// the host enqueues each collective. With `graph`, one CUDA graph has all collectives of an iteration. The
// time is the time of one collective on the first GPU, measured with CUDA events. algorithm_bytes_per_second
// is the number of bytes in the benchmark's name divided by this time. bus_bytes_per_second is this rate
// times a factor (collectives::bus_factor).
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "tessera/comm/nccl.cuh"

#include "captured.cuh"
#include "collectives.hpp"
#include "cuda_benchmark.cuh"
#include "left_out.hpp"

namespace {

namespace ts = tessera;
using gpu::require;
using ts::Move;
using ts::comm::Transport;

/// The collectives of one iteration of a benchmark: `calls` times the collective `move` on a buffer of
/// `bytes` bytes. If `graph` is true, they are in one CUDA graph.
struct Work {
  Move move = Move::none;  ///< none: the program ends
  std::int64_t bytes = 0, calls = 0;
  bool graph = false;
};

/// One rank during one benchmark: its buffers, its stream, and the graph of all collectives of an iteration.
class Rank {
 public:
  Rank(Transport& transport, Work const& work)
      : transport_(transport), work_(work), send_(work.bytes), recv_(work.bytes) {
    require(cudaMemsetAsync(send_.base(), 0, static_cast<std::size_t>(work.bytes), stream_.get()),
            "cudaMemsetAsync");
    enqueue(1);  // NCCL connects the ranks in the first collective, which must not be captured
    wait();
    if (work.graph) graph_ = gpu::captured(stream_.get(), [&] { enqueue(work.calls); });
    (void)seconds();  // the first launch of a graph uploads it
  }

  /// Runs the collectives of an iteration. Returns the time in seconds between two events around them.
  double seconds() {
    transport_.barrier();
    require(cudaEventRecord(begin_.get(), stream_.get()), "cudaEventRecord");
    if (graph_)
      require(cudaGraphLaunch(graph_.get(), stream_.get()), "cudaGraphLaunch");
    else
      enqueue(work_.calls);
    wait();
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

 private:
  /// Enqueues `count` collectives. The transport uses the stream only during this function. Outside of this
  /// function, the barriers of the transport must wait on the host.
  void enqueue(std::int64_t count) {
    transport_.on_stream(stream_.get());
    for (std::int64_t i = 0; i < count; ++i)
      collectives::call(transport_, work_.move, send_.base(), recv_.base(), work_.bytes);
    transport_.on_stream(nullptr);
  }
  /// Waits for the stream. Throws if another rank is lost.
  void wait() {
    require(cudaEventRecord(end_.get(), stream_.get()), "cudaEventRecord");
    transport_.await(
        [&] {
          cudaError_t const status = cudaEventQuery(end_.get());
          if (status != cudaErrorNotReady) require(status, "cudaEventQuery");
          return status == cudaSuccess;
        },
        "the benchmark");
  }

  Transport& transport_;
  Work work_;
  ts::DeviceArena<ts::Cuda> send_, recv_;
  ts::cuda::Stream stream_ = ts::cuda::make_stream();
  ts::cuda::Event begin_ = ts::cuda::make_event(cudaEventDefault),
                  end_ = ts::cuda::make_event(cudaEventDefault);
  ts::cuda::Graph graph_;
};

/// All ranks of the program. They connect once, because NCCL needs about a second to connect GPUs. Rank 0
/// runs Google Benchmark and sends each command to the other ranks.
class Ranks {
 public:
  /// Measures one benchmark. Only rank 0 calls this function, while the other ranks are in follow().
  void measure(benchmark::State& state, Work const& work) {
    tell(work, true);
    Rank rank(*root_, work);
    while (state.KeepRunningBatch(work.calls)) {
      tell(work, true);
      state.SetIterationTime(rank.seconds());
    }
    tell(work, false);
    collectives::count_bytes(state, work.move, work.bytes, root_->world());
  }

  /// Runs the program on all GPUs. Returns its exit code.
  int run(int gpus, int argc, char** argv) {
    int code = 0;
    ts::run_gpus(gpus, [&](ts::comm::Comm& comm) {
      if (!comm.is_root()) return follow(comm.transport());
      root_ = &comm.transport();
      code = gpu::run(argc, argv);
      tell({}, false);
    });
    return code;
  }

 private:
  /// Rank 0 sends the next command to the other ranks: begin a benchmark, run another iteration of the
  /// benchmark (`again`), end the benchmark, or end the program. The ranks read the members between the two
  /// barriers.
  void tell(Work const& work, bool again) {
    work_ = work;
    again_ = again;
    root_->barrier();
    root_->barrier();
  }
  void follow(Transport& transport) {
    auto const told = [&] {
      transport.barrier();
      std::pair<Work, bool> const next(work_, again_);
      transport.barrier();
      return next;
    };
    for (auto next = told(); next.first.move != Move::none; next = told()) {
      Rank rank(transport, next.first);
      while (told().second) (void)rank.seconds();
    }
  }

  Transport* root_ = nullptr;
  Work work_;
  bool again_ = false;
};

/// Returns the number of GPUs. Sets `free` to the free bytes of the GPU that has the fewest. Without a GPU,
/// both numbers are 0.
int count_gpus(std::int64_t& free) {
  int gpus = 0;
  free = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess) return 0;
  if (gpus < 2) return gpus;
  for (int gpu = gpus; gpu-- > 0;) {  // GPU 0 is current at the end
    ts::Context<ts::Cuda>::select(gpu);
    std::int64_t const here = ts::DeviceArena<ts::Cuda>::available();
    free = gpu == gpus - 1 ? here : std::min(free, here);
  }
  return gpus;
}

/// Registers the benchmarks. Prints the ones that cannot run here, with their reasons, to the standard error
/// stream. Returns the number of registered benchmarks.
std::size_t register_all(Ranks& ranks, int gpus, std::int64_t free) {
  left_out::List list;
  std::size_t registered = 0;
  for (Move const move : collectives::moves)
    for (bool const graph : {false, true})
      for (std::int64_t const bytes : collectives::sizes()) {
        left_out::Parts const name = {
            "collective/" + std::string(ts::name_of(move)), graph ? "/graph" : "/eager",
            "/gpus:" + std::to_string(std::max(gpus, 2)), "/bytes:" + std::to_string(bytes)};
        if (gpus < 2) {
          list.add(name, "a collective needs 2 GPUs, and this machine has " + std::to_string(gpus) +
                             (gpus == 1 ? " GPU" : " GPUs"));
          continue;
        }
        if (2 * bytes > free) {
          list.add(name, "its buffers need more than the free memory of a GPU");
          continue;
        }
        ++registered;
        // An iteration has at least 4 collectives and moves about 1 GiB, but at most 200 collectives.
        Work const work{move, bytes, std::clamp<std::int64_t>((std::int64_t{1} << 30) / bytes, 4, 200),
                        graph};
        benchmark::RegisterBenchmark(left_out::name_of(name).c_str(),
                                     [&ranks, work](benchmark::State& state) { ranks.measure(state, work); })
            ->UseManualTime()
            ->Unit(benchmark::kMicrosecond);
      }
  list.print("cuda_comm_benchmark", registered);
  return registered;
}

}  // namespace

int main(int argc, char** argv) try {
  Ranks ranks;
  std::int64_t free = 0;
  int const gpus = count_gpus(free);
  if (register_all(ranks, gpus, free) > 0) return ranks.run(gpus, argc, argv);
  std::printf("skipped: no collective can run on this machine\n");
  return 0;
} catch (ts::Error const& error) {
  std::fprintf(stderr, "error: %s\n", error.what());
  return ts::exit_code(error.kind());
}
