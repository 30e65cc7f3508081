// SPDX-License-Identifier: Apache-2.0
// Algorithms of products that were timed on this GPU, and the file that keeps them.
//
// Of the candidates for a product those count whose results equal the first's to the bit, so that a plan
// changes no bit whether it was measured or not, on one rank or all. A file holds for one GPU, library and
// driver; its name says which.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "tessera/backend/cuda/blas.cuh"
#include "tessera/backend/cuda/error.cuh"
#include "tessera/backend/cuda/handles.cuh"
#include "tessera/backend/cuda/kernel.cuh"
#include "tessera/core/philox.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Values in [-1, 1) of one of the operands' types, as bits.
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
static __global__ void count_differences(std::int64_t words, std::uint32_t const* a, std::uint32_t const* b,
                                         unsigned* found) {
  std::int64_t const i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i < words && a[i] != b[i]) atomicAdd(found, 1u);
}

/// Device memory that ends with its scope; null where there is none.
class Spare {
 public:
  explicit Spare(std::size_t bytes) {
    if (cudaMalloc(&data_, bytes ? bytes : 1) != cudaSuccess) {
      (void)cudaGetLastError();
      data_ = nullptr;
    }
  }
  Spare(Spare const&) = delete;
  Spare& operator=(Spare const&) = delete;
  ~Spare() { cudaFree(data_); }
  void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

class MeasuredPlans final : public PlanChoice {
 public:
  /// Reads what `folder` has for the current device, library and driver; makes the folder. `measures`: what
  /// the file lacks is timed when it is first wanted, which takes device memory for the product's operands
  /// and two results outside every plan, and some milliseconds; without that memory the first stays.
  MeasuredPlans(std::filesystem::path const& folder, bool measures)
      : path_(folder / (machine() + ".plans")), measures_(measures) {
    std::error_code code;
    std::filesystem::create_directories(folder, code);
    std::ifstream file(path_);
    std::string line;
    while (std::getline(file, line)) read(line);
  }

  std::filesystem::path const& path() const { return path_; }
  /// How many products have a measured plan.
  std::size_t size() const {
    std::lock_guard const lock(mutex_);
    return known_.size();
  }

  void choose(cublasLtHandle_t blas, ProductKey const& key, std::size_t workspace_bytes,
              BlasPlan& plan) override {
    std::lock_guard const lock(mutex_);
    auto found = known_.find(key);
    if (found == known_.end()) {
      if (!measures_) return;
      std::optional<cublasLtMatmulAlgo_t> const best = measured(blas, key, workspace_bytes, plan);
      if (!best) return;
      found = known_.emplace(key, *best).first;
      std::ofstream(path_, std::ios::app) << line_of(key, *best);
    }
    (void)plan.adopt(blas, found->second, workspace_bytes);
  }

 private:
  static constexpr int most = 8;  // the heuristic gives no more

  static std::string machine() {
    int device = 0, driver = 0;
    cudaDeviceProp properties{};
    require(cudaGetDevice(&device), "cudaGetDevice");
    require(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    std::string name = std::string(properties.name) + "-" + std::to_string(cublasLtGetVersion()) + "-" +
                       std::to_string(driver);
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == ' ' || c == '/'; }, '_');
    return name;
  }

  // A line has the numbers of the key, then the algorithm's 64 bytes as numbers.
  template <class Key, class F>
  static void for_numbers(Key& key, F const& f) {
    f(key.rows), f(key.columns), f(key.depth), f(key.a_transposed), f(key.b_transposed), f(key.add);
    f(key.fused), f(key.in), f(key.out), f(key.compute);
    f(key.a_alignment), f(key.b_alignment), f(key.c_alignment), f(key.y_alignment), f(key.extra_alignment);
  }
  static std::string line_of(ProductKey const& key, cublasLtMatmulAlgo_t const& algorithm) {
    std::ostringstream line;
    for_numbers(key, [&](auto const& number) { line << static_cast<std::int64_t>(number) << ' '; });
    for (std::uint64_t const word : algorithm.data) line << word << ' ';
    line << ".\n";
    return line.str();
  }
  void read(std::string const& text) {
    std::istringstream line(text);
    ProductKey key;
    cublasLtMatmulAlgo_t algorithm{};
    for_numbers(key, [&](auto& number) {
      std::int64_t value = 0;
      line >> value;
      number = static_cast<std::remove_reference_t<decltype(number)>>(value);
    });
    for (std::uint64_t& word : algorithm.data) line >> word;
    std::string end;
    if (line >> end && end == ".") known_.insert_or_assign(key, algorithm);  // a torn line is none
  }

  static std::size_t size_of_type(cudaDataType_t type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
  }

  /// The fastest by more than 2 % whose bits are the first's; none where there is no memory to try.
  std::optional<cublasLtMatmulAlgo_t> measured(cublasLtHandle_t blas, ProductKey const& key,
                                               std::size_t workspace_bytes, BlasPlan const& first) {
    // Another thread's stream may be recorded meanwhile, and so may this one's.
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    require(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    std::optional<cublasLtMatmulAlgo_t> const best = fastest(blas, key, workspace_bytes, first);
    require(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode");
    return best;
  }
  std::optional<cublasLtMatmulAlgo_t> fastest(cublasLtHandle_t blas, ProductKey const& key,
                                              std::size_t workspace_bytes, BlasPlan const& first) {
    BlasPlan plan = first;
    std::array<cublasLtMatmulHeuristicResult_t, most> candidates;
    int const count = plan.candidates(blas, key, workspace_bytes, candidates);
    std::size_t const results = static_cast<std::size_t>(key.rows * key.columns) * size_of_type(key.out);
    std::int64_t const flushed = 96 << 20;  // more than the L2 of any GPU so far holds
    Spare const a(static_cast<std::size_t>(key.rows * key.depth) * size_of_type(key.in)),
        b(static_cast<std::size_t>(key.depth * key.columns) * size_of_type(key.in)), c(results),
        extra(key.fused == Fused::none ? 0 : results), want(results + 4), got(results + 4),
        workspace(workspace_bytes), found(4), flush(static_cast<std::size_t>(flushed));
    for (Spare const* spare : {&a, &b, &c, &extra, &want, &got, &workspace, &found, &flush})
      if (!spare->get()) return std::nullopt;
    Stream const stream = make_stream();
    auto const fill = [&](cudaDataType_t type, std::int64_t elements, std::uint32_t seed, Spare const& to) {
      fill_operand<<<static_cast<unsigned>((elements + 255) / 256), 256, 0, stream.get()>>>(type, elements,
                                                                                            seed, to.get());
    };
    fill(key.in, key.rows * key.depth, 1, a);
    fill(key.in, key.depth * key.columns, 2, b);
    fill(key.out, key.rows * key.columns, 3, c);
    if (key.fused != Fused::none)
      fill(key.in, key.fused == Fused::bias ? key.columns : key.rows * key.columns, 4, extra);
    auto const run = [&](Spare const& to) {
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
    if (!run(want)) return std::nullopt;
    std::optional<cublasLtMatmulAlgo_t> best = plan.algorithm();
    float least = time() * 0.98f;
    for (int i = 1; i < count; ++i) {
      plan.adopt(candidates[static_cast<std::size_t>(i)]);
      unsigned differ = 0;
      cudaMemsetAsync(found.get(), 0, 4, stream.get());
      if (!run(got)) continue;
      std::int64_t const words = static_cast<std::int64_t>(results + 3) / 4;
      count_differences<<<static_cast<unsigned>((words + 255) / 256), 256, 0, stream.get()>>>(
          words, static_cast<std::uint32_t const*>(want.get()), static_cast<std::uint32_t const*>(got.get()),
          static_cast<unsigned*>(found.get()));
      require(cudaMemcpyAsync(&differ, found.get(), 4, cudaMemcpyDeviceToHost, stream.get()),
              "cudaMemcpyAsync");
      require(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
      if (differ) continue;
      float const now = time();
      if (now < least) {
        least = now;
        best = plan.algorithm();
      }
    }
    return best;
  }

  std::filesystem::path path_;
  bool measures_;
  mutable std::mutex mutex_;
  std::map<ProductKey, cublasLtMatmulAlgo_t> known_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
