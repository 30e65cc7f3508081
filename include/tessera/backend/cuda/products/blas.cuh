// SPDX-License-Identifier: Apache-2.0
// Defines matrix products that run on cuBLASLt, the plan of each (its chosen algorithm with descriptors), and
// the cache of plans.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cublasLt.h>
#include <map>
#include <span>
#include <type_traits>
#include <utility>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

template <class T>
inline constexpr cudaDataType_t data_type = CUDA_R_32F;
template <>
inline constexpr cudaDataType_t data_type<double> = CUDA_R_64F;
template <>
inline constexpr cudaDataType_t data_type<half> = CUDA_R_16F;
template <>
inline constexpr cudaDataType_t data_type<bfloat16> = CUDA_R_16BF;

/// Returns the alignment of a pointer in bytes: a power of two up to 16. Algorithms do not depend on a larger
/// alignment.
inline int alignment_of(void const* pointer) {
  auto const address = reinterpret_cast<std::uintptr_t>(pointer);
  return address == 0 ? 16 : std::min(16, 1 << std::min(4, std::countr_zero(address)));
}

/// A product with the operations that are fused into it: y = (scale op(a) op(b) + bias + residual) *
/// gelu'(pre), rounded once. Operands that are null are left out. All matrices are row-major, without gaps
/// between rows. op(a) is (rows, depth) and op(b) is (depth, columns). If a_transposed, `a` is stored as
/// (depth, rows); if b_transposed, `b` is stored as (columns, depth).
template <class T, class Y = T>
struct Product {
  std::int64_t rows, columns, depth;
  T const* a;
  bool a_transposed;
  T const* b;
  bool b_transposed;
  Y* y;                         // (rows, columns)
  T const* bias = nullptr;      // (columns)
  Y const* residual = nullptr;  // (rows, columns), may be y
  T const* pre = nullptr;       // (rows, columns)
  double scale = 1.0;
};

/// The operation that is fused into a product.
enum class Fused : std::uint8_t {
  none,
  bias,            // + bias, one value per column
  gelu_derivative  // * gelu'(aux), aux shaped like y
};

/// Describes a product y = op(a) op(b) of row-major matrices: y (rows, columns), op(a) (rows, depth), op(b)
/// (depth, columns). A transposed operand is stored with its extents exchanged. The key holds everything on
/// which the choice of an algorithm depends, so equal keys have equal plans.
struct ProductKey {
  std::int64_t rows = 0, columns = 0, depth = 0;
  std::int64_t a_stride = 0, b_stride = 0, y_stride = 0;  // distance between lines, in elements; 0: no gaps
  bool a_transposed = false, b_transposed = false;
  bool add = false;  // + c, shaped like y
  Fused fused = Fused::none;
  cudaDataType_t in = CUDA_R_32F, out = CUDA_R_32F;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  int a_alignment = 16, b_alignment = 16, c_alignment = 16, y_alignment = 16, extra_alignment = 16;

  auto operator<=>(ProductKey const&) const = default;

  /// Returns the number of elements that an operand spans in memory, gaps included.
  std::int64_t a_elements() const { return elements(rows, depth, a_transposed, a_stride); }
  std::int64_t b_elements() const { return elements(depth, columns, b_transposed, b_stride); }
  std::int64_t y_elements() const { return elements(rows, columns, false, y_stride); }

 private:
  static std::int64_t elements(std::int64_t lines, std::int64_t width, bool transposed, std::int64_t stride) {
    if (transposed) std::swap(lines, width);
    return lines * (stride ? stride : width);
  }
};

/// The device addresses of a product's operands, and its scale. `c` may be y and is read only if
/// ProductKey::add is true. `extra` is the operand of Fused: the bias, or aux of gelu'.
struct ProductOperands {
  void const* a = nullptr;
  void const* b = nullptr;
  void const* c = nullptr;
  void const* extra = nullptr;
  void* y = nullptr;
  double scale = 1.0;  ///< the factor of op(a) op(b)
};

/// One algorithm of cuBLASLt for a product, with its descriptors. cuBLASLt computes the column-major product
/// y^T = op(b)^T op(a)^T, because its epilogues accept a bias only along the contiguous dimension of the
/// result.
class BlasPlan {
 public:
  BlasPlan(cublasLtHandle_t blas, ProductKey const& key, std::size_t workspace_bytes)
      : scales_in_double_(key.compute == CUBLAS_COMPUTE_64F), add_(key.add), fused_(key.fused) {
    describe(key);
    cublasLtMatmulHeuristicResult_t first;
    if (candidates(blas, key, workspace_bytes, std::span(&first, 1)) == 1) adopt(first);
  }

  /// Whether cuBLASLt has an algorithm for the product.
  bool exists() const { return exists_; }

  /// Writes the algorithms of cuBLASLt's heuristic to `to`, best first, and returns their number. Only
  /// algorithms with a fixed order of sums qualify. They do not split the depth, or they store partial sums
  /// in the compute type and a second kernel adds them.
  int candidates(cublasLtHandle_t blas, ProductKey const& key, std::size_t workspace_bytes,
                 std::span<cublasLtMatmulHeuristicResult_t> to) {
    point(reinterpret_cast<void const*>(static_cast<std::uintptr_t>(key.extra_alignment)));
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulPreferenceInit(&preference);
    auto const prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof value);
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{workspace_bytes});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           std::uint32_t{CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.b_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.a_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.c_alignment));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.y_alignment));
    int found = 0;
    cublasStatus_t const status =
        cublasLtMatmulAlgoGetHeuristic(blas, &product_, &left_, &right_, &result_, &result_, &preference,
                                       static_cast<int>(to.size()), to.data(), &found);
    if (status != CUBLAS_STATUS_SUCCESS) return 0;
    auto const end = std::remove_if(to.begin(), to.begin() + found, [](auto const& candidate) {
      return candidate.state != CUBLAS_STATUS_SUCCESS;
    });
    return static_cast<int>(end - to.begin());
  }
  /// Makes this plan use the algorithm `candidate`, which is one of the results of `candidates`.
  void adopt(cublasLtMatmulHeuristicResult_t const& candidate) {
    algorithm_ = candidate.algo;
    workspace_bytes_ = candidate.workspaceSize;
    exists_ = true;
  }
  /// Makes this plan use `algorithm`, which a plan with an equal key had. Returns false if the library
  /// rejects the algorithm or if it needs more than `workspace_bytes` bytes.
  bool adopt(cublasLtHandle_t blas, cublasLtMatmulAlgo_t const& algorithm, std::size_t workspace_bytes) {
    cublasLtMatmulHeuristicResult_t checked;
    if (cublasLtMatmulAlgoCheck(blas, &product_, &left_, &right_, &result_, &result_, &algorithm, &checked) !=
            CUBLAS_STATUS_SUCCESS ||
        checked.workspaceSize > workspace_bytes)
      return false;
    checked.algo = algorithm;
    adopt(checked);
    return true;
  }
  cublasLtMatmulAlgo_t const& algorithm() const { return algorithm_; }

  cublasStatus_t run(cublasLtHandle_t blas, ProductOperands const& at, void* workspace, cudaStream_t stream) {
    point(at.extra);
    float const alpha = static_cast<float>(at.scale), beta = add_ ? 1 : 0;
    double const wide_alpha = at.scale, wide_beta = beta;
    void const* const c = add_ ? at.c : at.y;
    return cublasLtMatmul(blas, &product_, scales_in_double_ ? static_cast<void const*>(&wide_alpha) : &alpha,
                          at.b, &left_, at.a, &right_,
                          scales_in_double_ ? static_cast<void const*>(&wide_beta) : &beta, c, &result_, at.y,
                          &result_, &algorithm_, workspace, workspace_bytes_, stream);
  }

 private:
  template <class V>
  void set(cublasLtMatmulDescAttributes_t attribute, V const& value) {
    cublasLtMatmulDescSetAttribute(&product_, attribute, &value, sizeof value);
  }

  void describe(ProductKey const& key) {
    cublasLtMatmulDescInit(&product_, key.compute, scales_in_double_ ? CUDA_R_64F : CUDA_R_32F);
    set(CUBLASLT_MATMUL_DESC_TRANSA, key.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, key.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    if (key.fused == Fused::bias) set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    if (key.fused == Fused::gelu_derivative) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DGELU);
      set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.columns);
    }
    layout(left_, key.in, key.columns, key.depth, key.b_transposed, key.b_stride);
    layout(right_, key.in, key.depth, key.rows, key.a_transposed, key.a_stride);
    layout(result_, key.out, key.columns, key.rows, false, key.y_stride);
  }

  /// Fills `layout` for a column-major matrix (rows, columns). If `transposed`, its transpose is in memory.
  static void layout(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType_t type, std::int64_t rows,
                     std::int64_t columns, bool transposed, std::int64_t stride) {
    if (transposed) std::swap(rows, columns);
    cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                             static_cast<std::uint64_t>(columns), stride ? stride : rows);
  }

  /// Sets the address of the epilogue's operand, the bias or aux. The heuristic uses only the alignment of
  /// the address and does not read memory, so `candidates` passes a number with the right alignment.
  void point(void const* extra) {
    if (fused_ == Fused::bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, extra);
    if (fused_ == Fused::gelu_derivative) set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, extra);
  }

  cublasLtMatmulDescOpaque_t product_;
  cublasLtMatrixLayoutOpaque_t left_, right_, result_;
  cublasLtMatmulAlgo_t algorithm_;
  std::size_t workspace_bytes_ = 0;
  bool scales_in_double_, add_, exists_ = false;
  Fused fused_;
};

/// Chooses among cuBLASLt's algorithms for a product. The chosen algorithm must give the same bits as the
/// first one of the heuristic. The threads of all ranks call `choose` within their steps.
class PlanChoice {
 public:
  virtual ~PlanChoice() = default;
  virtual void choose(cublasLtHandle_t blas, ProductKey const& key, std::size_t workspace_bytes,
                      BlasPlan& plan) noexcept = 0;

  /// After install(), every context of the process calls `choose` of this object once for each of its
  /// products. A process has at most one installed object: the last one that was installed. Any thread may
  /// call install and remove while no trainer runs a step. The destructor of a derived class must call
  /// `remove`.
  void install() noexcept { slot().store(this); }
  void remove() noexcept {
    PlanChoice* self = this;
    slot().compare_exchange_strong(self, nullptr);
  }
  /// Returns the installed object. If it is null, contexts use the heuristic's first algorithm.
  static PlanChoice* installed() noexcept { return slot().load(); }

 private:
  static std::atomic<PlanChoice*>& slot() noexcept {
    static std::atomic<PlanChoice*> choice{nullptr};
    return choice;
  }
};

/// The product plans of one context. A product plan is the algorithm for one matrix product. It is made when
/// the product first runs. This needs only the host, so it can happen during stream capture. Afterwards a
/// product costs one look-up and one cublasLtMatmul.
class BlasPlans {
 public:
  BlasPlans() = default;
  /// Plans use at most `workspace_bytes` bytes of workspace. A different size can select different plans.
  BlasPlans(cublasLtHandle_t blas, std::size_t workspace_bytes)
      : blas_(blas), workspace_bytes_(workspace_bytes) {}

  /// Returns the plan of a product, or null if cuBLASLt has none. Without an installed PlanChoice, the plan
  /// depends only on the key, the device and the library's version.
  BlasPlan* find(ProductKey const& key) {
    auto const [entry, made] = plans_.try_emplace(key, blas_, key, workspace_bytes_);
    if (made && entry->second.exists())
      if (PlanChoice* const choice = PlanChoice::installed())
        choice->choose(blas_, key, workspace_bytes_, entry->second);
    return entry->second.exists() ? &entry->second : nullptr;
  }

  cublasStatus_t run(BlasPlan& plan, ProductOperands const& at, void* workspace, cudaStream_t stream) {
    return plan.run(blas_, at, workspace, stream);
  }

 private:
  cublasLtHandle_t blas_ = nullptr;
  std::size_t workspace_bytes_ = 0;
  std::map<ProductKey, BlasPlan> plans_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
