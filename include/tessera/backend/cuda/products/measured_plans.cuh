// SPDX-License-Identifier: Apache-2.0
// Provides MeasuredPlans. It times the algorithms of cuBLASLt for each matrix product on this machine's GPUs,
// and stores the fastest algorithm of each product in files. A product with its fastest algorithm is called a
// plan.
//
// For each product, cuBLASLt returns several candidates, which are algorithms. A candidate qualifies if its
// results equal the first candidate's bit for bit on two sets of operands. In one of the sets, the terms of a
// sum cancel, so its results reveal the order of addition. No operand is infinite, NaN or subnormal. So a
// measured algorithm should give the same bits as the first candidate. A file is valid for one type of GPU,
// one version of cuBLASLt and one version of the driver. The name of the file contains all three.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <exception>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/products/blas.cuh"
#include "tessera/backend/cuda/products/plan_file.hpp"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/core/error.hpp"
#include "tessera/core/philox.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Fills an operand of the type `type` with random values in [-1, 1).
static __global__ void fill_operand(cudaDataType_t type, std::int64_t count, std::uint32_t seed, void* to) {
  std::int64_t const i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= count) return;
  PhiloxCounter const drawn =
      philox4x32({{static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(i >> 32), seed, 0}}, {{1, 2}});
  float const value = static_cast<float>(static_cast<std::int32_t>(drawn.word[0])) * 0x1p-31f;
  if (type == CUDA_R_16BF) static_cast<bfloat16*>(to)[i] = put<bfloat16>(value);
  if (type == CUDA_R_16F) static_cast<half*>(to)[i] = put<half>(value);
  if (type == CUDA_R_32F) static_cast<float*>(to)[i] = value;
  if (type == CUDA_R_64F) static_cast<double*>(to)[i] = value;
}
/// The memory layout of a product's operand. Its lines begin `stride` elements apart, and it has `count`
/// elements in total. The depth runs along the lines if `along`, otherwise across them.
struct OperandLines {
  std::int64_t count, stride, depth;
  bool along;
};
/// Fills an operand so that the results reveal the order of summation. The exponents of the values differ
/// widely. The second half of the depth repeats the first half or, if `negative`, its negative. If one
/// operand is filled with `negative` and the other without, the terms of a sum cancel, and only rounding
/// errors remain.
static __global__ void fill_cancelling(cudaDataType_t type, OperandLines lines, bool negative,
                                       std::uint32_t seed, void* to) {
  std::int64_t const i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= lines.count) return;
  std::int64_t const at = lines.along ? i % lines.stride : i / lines.stride, half = lines.depth / 2;
  bool const again = at >= half && at < 2 * half;
  std::int64_t const source = again ? i - half * (lines.along ? 1 : lines.stride) : i;
  PhiloxCounter const drawn = philox4x32(
      {{static_cast<std::uint32_t>(source), static_cast<std::uint32_t>(source >> 32), seed, 0}}, {{1, 2}});
  float value = static_cast<float>(static_cast<std::int32_t>(drawn.word[0])) * 0x1p-31f;
  value = ldexpf(again && negative ? -value : value, 2 - static_cast<int>(drawn.word[1] % 11));
  if (type == CUDA_R_16BF) static_cast<bfloat16*>(to)[i] = put<bfloat16>(value);
  if (type == CUDA_R_16F) static_cast<tessera::half*>(to)[i] = put<tessera::half>(value);
  if (type == CUDA_R_32F) static_cast<float*>(to)[i] = value;
  if (type == CUDA_R_64F) static_cast<double*>(to)[i] = value;
}
static __global__ void count_differences(std::int64_t words, std::uint32_t const* a, std::uint32_t const* b,
                                         unsigned* found) {
  std::int64_t const i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < words && a[i] != b[i]) atomicAdd(found, 1u);
}

/// A stream whose destructor waits for the stream's work, which includes freeing memory (ScopedMemory).
class ScopedStream {
 public:
  ScopedStream() = default;
  ScopedStream(ScopedStream const&) = delete;
  ScopedStream& operator=(ScopedStream const&) = delete;
  ~ScopedStream() { cudaStreamSynchronize(stream_.get()); }
  cudaStream_t get() const noexcept { return stream_.get(); }

 private:
  Stream stream_ = make_stream();
};

/// Device memory that is freed at the end of its scope. `get` returns null if the allocation failed. With a
/// stream, allocating and freeing do not wait for the device, whose other streams are possibly waiting for
/// another rank.
class ScopedMemory {
 public:
  explicit ScopedMemory(std::size_t bytes) { keep(cudaMalloc(&data_, bytes ? bytes : 1)); }
  ScopedMemory(std::size_t bytes, ScopedStream const& stream) : stream_(stream.get()) {
    keep(cudaMallocAsync(&data_, bytes ? bytes : 1, stream_));
  }
  ScopedMemory(ScopedMemory const&) = delete;
  ScopedMemory& operator=(ScopedMemory const&) = delete;
  ~ScopedMemory() {
    if (stream_ && data_)
      cudaFreeAsync(data_, stream_);
    else
      cudaFree(data_);
  }
  void* get() const { return data_; }

 private:
  void keep(cudaError_t status) {
    if (status == cudaSuccess) return;
    (void)cudaGetLastError();
    data_ = nullptr;
  }

  cudaStream_t stream_ = nullptr;
  void* data_ = nullptr;
};

/// While an object of this class exists, the thread may allocate memory and wait, even if one of its streams
/// is being captured.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureMode(RelaxedCaptureMode const&) = delete;
  RelaxedCaptureMode& operator=(RelaxedCaptureMode const&) = delete;
  ~RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Measures and stores plans, which are the fastest algorithms of products. Several threads may use an
/// object, each with its own current device. Ranks that need the same product at once measure it
/// concurrently, and all use the plan of the first to finish. A rank does not wait for another rank's
/// measurement, because the other rank is possibly waiting for it in a collective.
class MeasuredPlans final : public PlanChoice {
 public:
  /// Reads the files in `folder` for this machine's GPUs. If `measures` is true, creates the folder and the
  /// files. If the file of a GPU lacks a product, the product is then timed when it first runs. A measurement
  /// needs some milliseconds. It also needs device memory that the memory plan of the training does not
  /// include: for the product's operands, added operands, two results, a workspace and twice the L2 cache. If
  /// this memory is not free, the heuristic's first algorithm is used. Throws Error(failed or data) with the
  /// name of the file or folder that cannot be created, read or written.
  MeasuredPlans(std::filesystem::path const& folder, bool measures) : measures_(measures) {
    std::error_code code;
    if (measures_) std::filesystem::create_directories(folder, code);
    if (code)
      throw Error(ErrorKind::failed, folder.string() + ": cannot create the folder (" + code.message() +
                                         "); give a folder that may be written");
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
    (void)cudaGetLastError();
    for (int device = 0; device < count; ++device) {
      std::string const name = kind_of(device);
      of_device_.push_back(
          &files_.try_emplace(name, (folder / (name + ".plans")).string(), measures_).first->second);
    }
  }
  MeasuredPlans(MeasuredPlans const&) = delete;
  MeasuredPlans& operator=(MeasuredPlans const&) = delete;
  ~MeasuredPlans() override { remove(); }

  /// Returns the file of the current device. Throws Error if there is none.
  PlanFile const& file() const { return current(); }
  /// Returns the number of plans in all files together.
  std::size_t size() const {
    std::size_t plans = 0;
    for (auto const& [name, file] : files_) plans += file.size();
    return plans;
  }
  /// Returns the number of products that adopted a measured plan since the last call of take_used.
  std::size_t take_used() {
    std::lock_guard const lock(mutex_);
    return std::exchange(used_, {}).size();
  }
  /// Returns why a plan was not measured or stored, or an empty string if nothing failed.
  std::string failure() const {
    for (auto const& [name, file] : files_)
      if (std::string const failure = file.failure(); !failure.empty()) return failure;
    std::lock_guard const lock(mutex_);
    return failure_;
  }

  /// Makes `plan` use the measured algorithm of the product `key`. Never throws, because it runs in a step.
  /// On failure, `plan` keeps the heuristic's first algorithm, and `failure` returns the reason.
  void choose(cublasLtHandle_t blas, ProductKey const& key, std::size_t workspace_bytes,
              BlasPlan& plan) noexcept override {
    try {
      PlanFile& file = current();
      ProductNumbers const product = numbers_of(key, workspace_bytes);
      std::optional<AlgorithmNumbers> known = file.find(product);
      if (!known && measures_)
        if (auto const best = fastest(blas, key, workspace_bytes, plan))
          known = file.add(product, std::to_array(best->data));
      if (!known) return;
      cublasLtMatmulAlgo_t algorithm;
      std::copy(known->begin(), known->end(), algorithm.data);
      if (!plan.adopt(blas, algorithm, workspace_bytes)) return;
      std::lock_guard const lock(mutex_);
      used_.insert(product);
    } catch (std::exception const& error) {
      (void)cudaGetLastError();  // clears the error; otherwise a later call of this thread would report it
      std::lock_guard const lock(mutex_);
      if (failure_.empty()) failure_ = std::string("a product was not measured: ") + error.what();
    }
  }

 private:
  static constexpr int most = 8;  // the maximum number of candidates of a product

  /// Returns the name of a device's file, without the extension: the GPU, cuBLASLt's version and the CUDA
  /// version that the driver supports.
  static std::string kind_of(int device) {
    int driver = 0;
    cudaDeviceProp properties{};
    require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    std::string name = std::string(properties.name) + "-" + std::to_string(cublasLtGetVersion()) + "-" +
                       std::to_string(driver);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == ' ' || c == '/'; }, '_');
    return name;
  }
  PlanFile& current() const {
    int device = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    return *of_device_.at(static_cast<std::size_t>(device));
  }

  static ProductNumbers numbers_of(ProductKey const& key, std::size_t workspace_bytes) {
    // This line names every member of the key. If a member is added to the key, the code does not compile
    // until the member is added here.
    auto const& [rows, columns, depth, a_stride, b_stride, y_stride, a_transposed, b_transposed, add, fused,
                 in, out, compute, a_alignment, b_alignment, c_alignment, y_alignment, extra_alignment] = key;
    ProductNumbers numbers{};
    std::size_t at = 0;
    auto const write = [&](auto const&... each) {
      static_assert(sizeof...(each) == std::tuple_size_v<ProductNumbers>);
      ((numbers[at++] = static_cast<std::uint64_t>(each)), ...);
    };
    write(rows, columns, depth, a_stride, b_stride, y_stride, a_transposed, b_transposed, add, fused, in, out,
          compute, a_alignment, b_alignment, c_alignment, y_alignment, extra_alignment, workspace_bytes);
    return numbers;
  }

  /// Returns the size of a value in bytes. Throws for a type that fill_operand and fill_cancelling do not
  /// write, because a measurement would then read uninitialized operands.
  static std::size_t size_of_type(cudaDataType_t type) {
    switch (type) {
      case CUDA_R_64F:
        return 8;
      case CUDA_R_32F:
        return 4;
      case CUDA_R_16F:
      case CUDA_R_16BF:
        return 2;
      default:
        throw Error(ErrorKind::unsupported, "fill_operand does not know the cudaDataType " +
                                                std::to_string(type) +
                                                "; add it there and in fill_cancelling");
    }
  }

  /// Returns the fastest candidate whose results have the same bits as the results of the first candidate,
  /// also for sums that cancel and so reveal the order of addition. Returns the first candidate if no other
  /// candidate is more than 2 % faster. Returns nothing if there is too little memory to measure.
  static std::optional<cublasLtMatmulAlgo_t> fastest(cublasLtHandle_t blas, ProductKey const& key,
                                                     std::size_t workspace_bytes, BlasPlan const& first) {
    RelaxedCaptureMode const relaxed;
    ScopedStream const stream;
    BlasPlan plan = first;
    std::array<cublasLtMatmulHeuristicResult_t, most> candidates;
    int const count = plan.candidates(blas, key, workspace_bytes, candidates);
    std::size_t const results = static_cast<std::size_t>(key.y_elements()) * size_of_type(key.out);
    std::size_t const extras = key.fused == Fused::gelu_derivative ? results
                               : key.fused == Fused::bias
                                   ? static_cast<std::size_t>(key.columns) * size_of_type(key.out)
                                   : 0;
    int device = 0, cache = 0;
    require(cudaGetDevice(&device), "cudaGetDevice");
    require(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, device), "cudaDeviceGetAttribute");
    std::int64_t const flushed = 2 * std::max<std::int64_t>(cache, 1 << 20);
    ScopedMemory const a(static_cast<std::size_t>(key.a_elements()) * size_of_type(key.in), stream),
        b(static_cast<std::size_t>(key.b_elements()) * size_of_type(key.in), stream),
        c(key.add ? results : 0, stream), extra(extras, stream), want(results + 4, stream),
        got(results + 4, stream), workspace(workspace_bytes, stream), found(4, stream),
        flush(static_cast<std::size_t>(flushed), stream);
    for (ScopedMemory const* memory : {&a, &b, &c, &extra, &want, &got, &workspace, &found, &flush})
      if (!memory->get()) return std::nullopt;
    auto const fill = [&](cudaDataType_t type, std::int64_t elements, std::uint32_t seed,
                          ScopedMemory const& to) {
      fill_operand<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, stream.get()>>>(type, elements,
                                                                                            seed, to.get());
    };
    auto const fill_twice = [&](OperandLines const& lines, bool negative, std::uint32_t seed,
                                ScopedMemory const& to) {
      fill_cancelling<<<static_cast<unsigned>((lines.count + 255) / 256), 256, 0, stream.get()>>>(
          key.in, lines, negative, seed, to.get());
    };
    if (key.fused == Fused::gelu_derivative) fill(key.out, key.rows * key.columns, 4, extra);
    auto const run = [&](ScopedMemory const& to) {
      return plan.run(blas, {a.get(), b.get(), c.get(), extra.get(), to.get()}, workspace.get(),
                      stream.get()) == CUBLAS_STATUS_SUCCESS;
    };
    Event const begin = make_event(cudaEventDefault), end = make_event(cudaEventDefault);
    auto const time = [&]() -> float {
      std::array<float, 5> times{};
      for (float& each : times) {
        cudaMemsetAsync(flush.get(), 0, static_cast<std::size_t>(flushed), stream.get());
        cudaEventRecord(begin.get(), stream.get());
        run(got);
        cudaEventRecord(end.get(), stream.get());
        require(cudaEventSynchronize(end.get()), "cudaEventSynchronize");
        require(cudaEventElapsedTime(&each, begin.get(), end.get()), "cudaEventElapsedTime");
      }
      std::sort(times.begin(), times.end());
      return times[times.size() / 2];
    };
    cudaMemsetAsync(want.get(), 0, results + 4, stream.get());
    cudaMemsetAsync(got.get(), 0, results + 4, stream.get());
    auto const same = [&] {
      unsigned differ = 0;
      cudaMemsetAsync(found.get(), 0, 4, stream.get());
      std::int64_t const words = static_cast<std::int64_t>(results + 3) / 4;
      count_differences<<<static_cast<unsigned>((words + 255) / 256), 256, 0, stream.get()>>>(
          words, static_cast<std::uint32_t const*>(want.get()), static_cast<std::uint32_t const*>(got.get()),
          static_cast<unsigned*>(found.get()));
      require(cudaMemcpyAsync(&differ, found.get(), 4, cudaMemcpyDeviceToHost, stream.get()),
              "cudaMemcpyAsync");
      require(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
      return differ == 0;
    };
    std::array<bool, most> equal;
    equal.fill(true);
    for (bool const cancels : {true, false}) {
      if (cancels) {
        fill_twice({key.a_elements(),
                    key.a_stride       ? key.a_stride
                    : key.a_transposed ? key.rows
                                       : key.depth,
                    key.depth, !key.a_transposed},
                   true, 1, a);
        fill_twice({key.b_elements(),
                    key.b_stride       ? key.b_stride
                    : key.b_transposed ? key.depth
                                       : key.columns,
                    key.depth, key.b_transposed},
                   false, 2, b);
        if (key.add) cudaMemsetAsync(c.get(), 0, results, stream.get());
      } else {
        fill(key.in, key.a_elements(), 1, a);
        fill(key.in, key.b_elements(), 2, b);
        if (key.add) fill(key.out, key.y_elements(), 3, c);
      }
      if (key.fused == Fused::bias && cancels) cudaMemsetAsync(extra.get(), 0, extras, stream.get());
      if (key.fused == Fused::bias && !cancels) fill(key.out, key.columns, 4, extra);
      plan = first;
      if (!run(want)) return std::nullopt;
      for (int i = 1; i < count; ++i) {
        bool& one = equal[static_cast<std::size_t>(i)];
        if (!one) continue;
        plan.adopt(candidates[static_cast<std::size_t>(i)]);
        one = run(got) && same();
      }
    }
    plan = first;
    std::optional<cublasLtMatmulAlgo_t> best = plan.algorithm();
    float least = time() * 0.98f;
    for (int i = 1; i < count; ++i) {
      if (!equal[static_cast<std::size_t>(i)]) continue;
      plan.adopt(candidates[static_cast<std::size_t>(i)]);
      float const now = time();
      if (now < least) {
        least = now;
        best = plan.algorithm();
      }
    }
    require(cudaGetLastError(), "the measurement of a product");
    return best;
  }

  bool measures_;
  std::map<std::string, PlanFile> files_;  // the key is the file name without its extension
  std::vector<PlanFile*> of_device_;
  mutable std::mutex mutex_;
  std::set<ProductNumbers> used_;
  std::string failure_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
