// SPDX-License-Identifier: Apache-2.0
// Measures the start-up time of every GPU program before its first matrix product. It is a lower bound of the
// time from the start of a process to its first training step. A process can measure its start-up only once,
// so this program does not use Google Benchmark. Run it several times.
//
// Usage: cuda_start_floor [GIBIBYTES]. GIBIBYTES is the memory to allocate and to fill with zeros, 8 GiB by
// default.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "tessera/cuda.cuh"

namespace {

using Clock = std::chrono::steady_clock;

class Phases {
 public:
  /// Ends a phase: prints the milliseconds since the previous phase ended and since main began.
  void end(char const* name) {
    Clock::time_point const now = Clock::now();
    auto const milliseconds = [](Clock::duration time) {
      return std::chrono::duration<double, std::milli>(time).count();
    };
    std::printf("%-44s %8.1f ms, %8.1f ms since main\n", name, milliseconds(now - last_),
                milliseconds(now - start_));
    last_ = now;
  }

 private:
  Clock::time_point start_ = Clock::now(), last_ = start_;
};

}  // namespace

int main(int argc, char** argv) {
  namespace ts = tessera;
  Phases phases;
  try {
    double const gibibytes = argc > 1 ? std::atof(argv[1]) : 8.0;
    ts::cuda::require(cudaFree(nullptr), "cudaFree");
    phases.end("driver and context");
    ts::DeviceArena<ts::Cuda> arena(static_cast<std::int64_t>(gibibytes * 0x1p30));
    phases.end("memory, zeroed");
    std::size_t const workspace = ts::Context<ts::Cuda>::workspace_bytes(1, 1024);
    ts::DeviceArena<ts::Cuda> scratch(static_cast<std::int64_t>(workspace));
    ts::Context<ts::Cuda> context(1, {scratch.base(), workspace});
    phases.end("streams, events, cuBLASLt");
    constexpr std::int64_t n = 1024;
    ts::DeviceArena<ts::Cuda> matrices(3 * n * n * std::int64_t{sizeof(ts::bfloat16)});
    auto const matrix = [&](std::int64_t index) {
      return ts::Tensor<ts::bfloat16, ts::Cuda>(
          reinterpret_cast<ts::bfloat16*>(matrices.base()) + index * n * n, {n, n});
    };
    auto const product = [&] {
      ts::ops::linear_backward_input<ts::bfloat16, ts::Cuda>(context, matrix(0), matrix(1), matrix(2));
      context.synchronize();
      context.raise();
    };
    product();
    phases.end("the first product: its plan and its kernel");
    product();
    phases.end("the second product");
  } catch (ts::Error const& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
