// SPDX-License-Identifier: Apache-2.0
// Provides the shared parts of the GPU benchmarks: timing with CUDA events, data larger than the L2 cache,
// and reference rates of this GPU, which are measured without the library. On a machine without a usable GPU,
// the main function `run` prints the reason and returns.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/products/blas.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/cuda/runtime/memory.cuh"
#include "tessera/tensor/tensor.hpp"

#include "context.hpp"

namespace gpu {

namespace ts = tessera;
using Context = ts::Context<ts::Cuda>;
using ts::cuda::require;

/// The work of one call: its floating-point operations, and the minimum number of bytes that it reads and
/// writes.
struct Work {
  double flops = 0, bytes = 0;
};

inline int attribute_of_gpu(cudaDeviceAttr attribute) {
  int value = 0;
  require(cudaDeviceGetAttribute(&value, attribute, 0), "cudaDeviceGetAttribute");
  return value;
}

/// A context on GPU 0 with its workspace, and two events for timing.
class Machine {
 public:
  Machine()
      : workspace_(std::int64_t{workspace_bytes}),
        context(1, {workspace_.base(), workspace_bytes}),
        begin_(ts::cuda::make_event(cudaEventDefault)),
        end_(ts::cuda::make_event(cudaEventDefault)) {}

  /// Returns the time in seconds between two CUDA events: one before and one after all work that `work`
  /// enqueues on the context's stream.
  template <class F>
  double seconds(F const& work) {
    require(cudaEventRecord(begin_.get(), context.stream()), "cudaEventRecord");
    work();
    require(cudaEventRecord(end_.get(), context.stream()), "cudaEventRecord");
    require(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    context.raise();
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
  }

  static constexpr std::size_t workspace_bytes = Context::workspace_bytes(1, 1 << 16);

 private:
  ts::DeviceArena<ts::Cuda> workspace_;

 public:
  Context context;

 private:
  ts::cuda::Event begin_, end_;
};

/// Returns the one Machine of this program. The first call creates it. It is never destroyed, because the
/// CUDA runtime possibly shuts down before static objects are destroyed.
inline Machine& machine() {
  static Machine& only = *new Machine;
  return only;
}

// ---- data ----------------------------------------------------------------------------------------------

/// Fills an array with numbers in [-1, 1). With constant values, matrix products would draw less power than
/// in training.
template <class T>
__global__ void fill_evenly(T* to, std::int64_t count, std::uint32_t seed) {
  std::int64_t const step = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761u + seed;
    x = (x ^ x >> 16) * 0x45d9f3bu;
    x ^= x >> 16;
    to[i] = ts::cuda::put<T>(static_cast<ts::compute_t<T>>(static_cast<float>(x >> 8) / 8388608.0f - 1.0f));
  }
}

/// The device memory of one benchmark.
class Pool {
 public:
  /// Returns an array of random numbers.
  template <class T>
  ts::Tensor<T, ts::Cuda> array(ts::Shape const& shape) {
    T* const to = allocate<T>(shape.elements());
    fill_evenly<<<1024, 256>>>(to, shape.elements(), static_cast<std::uint32_t>(arenas_.size()));
    require(cudaGetLastError(), "fill_evenly");
    synchronize();
    return {to, shape};
  }
  /// Returns an array of zeros.
  template <class T>
  ts::Tensor<T, ts::Cuda> zeros(ts::Shape const& shape) {
    return {allocate<T>(shape.elements()), shape};
  }
  /// Returns an array of the given values.
  template <class T>
  ts::Tensor<T, ts::Cuda> copy_of(std::vector<T> const& values, ts::Shape const& shape) {
    T* const to = allocate<T>(shape.elements());
    require(cudaMemcpy(to, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
    synchronize();
    return {to, shape};
  }
  std::int64_t bytes() const { return bytes_; }

 private:
  template <class T>
  T* allocate(std::int64_t count) {
    std::int64_t const bytes = count * std::int64_t{sizeof(T)};
    bytes_ += bytes;
    return reinterpret_cast<T*>(arenas_.emplace_back(std::max<std::int64_t>(bytes, 1)).base());
  }

  /// Waits for the device. This is needed because the library's streams do not wait for the default stream.
  static void synchronize() { require(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

  std::vector<ts::DeviceArena<ts::Cuda>> arenas_;
  std::int64_t bytes_ = 0;
};

// ---- what this GPU does without the library ------------------------------------------------------------

/// Runs `work` once as a warm-up and then 8 times. Returns the time in seconds of the fastest of these 8
/// runs.
template <class F>
double best_seconds(F const& work) {
  double best = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 9; ++round) {
    double const seconds = machine().seconds(work);
    if (round > 0) best = std::min(best, seconds);
  }
  return best;
}

static __global__ void copy_packs(uint4* to, uint4 const* from, std::int64_t count) {
  std::int64_t const i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i];
}

/// Returns the bytes per second that a device copy of 1 GiB reads and writes. The copy is cudaMemcpyAsync or
/// a plain kernel, whichever is faster.
inline double copy_rate() {
  static double const rate = [] {
    constexpr std::int64_t bytes = std::int64_t{1} << 30, packs = bytes / 16;
    Pool pool;
    auto const from = pool.array<float>({bytes / 4}), to = pool.zeros<float>({bytes / 4});
    cudaStream_t const stream = machine().context.stream();
    double const by_driver = best_seconds([&] {
      require(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, stream),
              "cudaMemcpyAsync");
    });
    double const by_kernel = best_seconds([&] {
      copy_packs<<<packs / 512, 512, 0, stream>>>(reinterpret_cast<uint4*>(to.data()),
                                                  reinterpret_cast<uint4 const*>(from.data()), packs);
    });
    return 2.0 * bytes / std::min(by_driver, by_kernel);
  }();
  return rate;
}

/// Returns the flop/s of cuBLASLt's product of two square matrices of T. Measures four matrix layouts with 4
/// products each, and returns the rate of the fastest layout.
template <class T>
double product_rate() {
  static double const rate = [] {
    constexpr std::int64_t n = sizeof(T) == 8 ? 4096 : 8192, products = 4;
    Pool pool;
    auto const a = pool.array<T>({n, n}), b = pool.array<T>({n, n}), y = pool.zeros<T>({n, n});
    Pool scratch;
    auto const workspace = scratch.zeros<std::uint8_t>({std::int64_t{Context::blas_bytes}});
    cublasLtHandle_t handle = nullptr;
    require(cublasLtCreate(&handle), "cublasLtCreate");
    ts::cuda::Blas const owner(handle);
    double best = std::numeric_limits<double>::infinity();
    for (int layout = 0; layout < 4; ++layout) {
      ts::cuda::ProductKey key;
      key.rows = key.columns = key.depth = n;
      key.a_transposed = layout % 2 == 1;
      key.b_transposed = layout / 2 == 1;
      key.in = key.out = ts::cuda::data_type<T>;
      key.compute = std::is_same_v<T, double> ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F;
      ts::cuda::BlasPlan plan(handle, key, Context::blas_bytes);
      if (!plan.exists()) continue;
      ts::cuda::ProductOperands at;
      at.a = a.data();
      at.b = b.data();
      at.y = y.data();
      best = std::min(best, best_seconds([&] {
                        for (int i = 0; i < products; ++i)
                          require(plan.run(handle, at, workspace.data(), machine().context.stream()),
                                  "cublasLtMatmul");
                      }));
    }
    return 2.0 * n * n * n * products / best;
  }();
  return rate;
}

// ---- measuring -----------------------------------------------------------------------------------------

/// Runs the body of a benchmark. If the body throws a ts::Error, the text of the exception becomes the error
/// of the benchmark.
template <class F>
void guarded(benchmark::State& state, F const& body) {
  try {
    body();
  } catch (ts::Error const& error) {
    state.SkipWithError(error.what());
  }
}

/// Times calls of one operation. `make(pool)` allocates arrays in `pool` and returns a callable that runs the
/// operation once on these arrays. This function makes up to 64 callables, until their arrays together are
/// four times as large as the L2 cache. The callables run in turn, so the input of a callable is no longer in
/// the cache when it runs.
///
/// A timed window between two events has `count` calls, at most 2000. If `count` is 0, this function sets it
/// so that a window lasts 5 ms, which is 10000 times the resolution of CUDA events. All repetitions of a
/// benchmark use the same `count`: Google Benchmark requires equal numbers of iterations, and its debug build
/// aborts if they differ.
template <class T, class Make>
void measure(benchmark::State& state, Work const& work, Make const& make, std::int64_t& count) {
  guarded(state, [&] {
    Machine& on = machine();
    double const copies = copy_rate(), products = product_rate<T>();
    std::int64_t const cache = attribute_of_gpu(cudaDevAttrL2CacheSize);
    Pool pool;
    std::vector<decltype(make(pool))> calls;
    do calls.push_back(make(pool));
    while (pool.bytes() < 4 * cache && calls.size() < 64);
    std::size_t next = 0;
    auto const window = [&](std::int64_t calls_of_window) {
      return on.seconds([&] {
        for (std::int64_t i = 0; i < calls_of_window; ++i) {
          calls[next](on.context);
          next = (next + 1) % calls.size();
        }
      });
    };
    auto const all = static_cast<std::int64_t>(calls.size());
    window(all);  // the first calls create plans and load code, so they are not timed
    double const one = window(all) / static_cast<double>(all);
    if (count == 0) count = std::clamp<std::int64_t>(std::llround(5e-3 / one), 1, 2000);
    while (state.KeepRunningBatch(count)) state.SetIterationTime(window(count));
    using benchmark::Counter;
    auto const done = static_cast<double>(state.iterations());
    state.counters["flop/s"] = Counter(work.flops * done, Counter::kIsRate);
    state.counters["bytes/s"] = Counter(work.bytes * done, Counter::kIsRate, Counter::OneK::kIs1024);
    state.counters["of_product"] = Counter(work.flops * done / products, Counter::kIsRate);
    state.counters["of_copy"] = Counter(work.bytes * done / copies, Counter::kIsRate);
  });
}

/// Registers a benchmark of an operation under the name name/format/detail. `format` is the number format of
/// T.
template <class T, class Make>
void add(std::string const& name, std::string const& detail, Work const& work, Make const& make) {
  std::string const format(ts::name_of(ts::dtype_of<T>));
  benchmark::RegisterBenchmark((name + "/" + format + "/" + detail).c_str(),
                               [work, make, count = std::make_shared<std::int64_t>(0)](
                                   benchmark::State& state) { measure<T>(state, work, make, *count); })
      ->UseManualTime()
      ->Unit(benchmark::kMicrosecond);
}

/// Adds the benchmark machine/rates. It reports the measured rates of a matrix product and of a copy. The
/// counters of_product and of_copy of the other benchmarks are fractions of these rates.
template <class... T>
void add_rates() {
  benchmark::RegisterBenchmark(
      "machine/rates",
      [](benchmark::State& state) {
        guarded(state, [&] {
          for (auto _ : state) state.SetIterationTime(machine().seconds([] {}));
          using benchmark::Counter;
          state.counters["bytes/s"] = {copy_rate(), Counter::kDefaults, Counter::kIs1024};
          ((state.counters["flop/s_" + std::string(ts::name_of(ts::dtype_of<T>))] = product_rate<T>()), ...);
        });
      })
      ->Iterations(1)
      ->Repetitions(1)
      ->UseManualTime();
}

// ---- the program ---------------------------------------------------------------------------------------

inline void add_gpu_context() {
  cudaDeviceProp about{};
  require(cudaGetDeviceProperties(&about, 0), "cudaGetDeviceProperties");
  int driver = 0, runtime = 0;
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  auto const text = [](auto number) { return std::to_string(number); };
  benchmark::AddCustomContext("gpu", about.name);
  benchmark::AddCustomContext("gpu_capability", text(about.major) + "." + text(about.minor));
  benchmark::AddCustomContext("gpu_multiprocessors", text(about.multiProcessorCount));
  benchmark::AddCustomContext("gpu_memory_bytes", text(about.totalGlobalMem));
  benchmark::AddCustomContext("gpu_cache_bytes", text(about.l2CacheSize));
  benchmark::AddCustomContext("cuda_driver", ts::cuda::detail::version_text(driver));
  benchmark::AddCustomContext("cuda_runtime", ts::cuda::detail::version_text(runtime));
  benchmark::AddCustomContext("cublaslt", text(cublasLtGetVersion()));
  benchmark::AddCustomContext("warpgroups", ts::cuda::has_warpgroups() ? "yes" : "no");
}

/// Runs the benchmarks on GPU 0. If this GPU cannot be used, prints the reason and returns 0 without a
/// report.
inline int run(int argc, char** argv) {
  bool const lists = std::any_of(argv, argv + argc, [](std::string_view argument) {
    return argument == "--benchmark_list_tests" || argument == "--benchmark_list_tests=true";
  });
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  if (!lists) {
    if (std::optional<std::string> const reason = ts::cuda::why_unusable(ts::cuda::query_device(0))) {
      std::printf("skipped: %s\n", reason->c_str());
      return 0;
    }
    add_gpu_context();
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace gpu
