// SPDX-License-Identifier: Apache-2.0
// Defines the resources that products and attention of one context share: workspaces, and the plans of
// cuBLASLt and cuDNN. A plan is a chosen algorithm with its descriptors.
#pragma once

#include <array>
#include <cstddef>
#include <cublasLt.h>
#include <memory>
#include <span>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/backend/cuda/products/blas.cuh"
#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The workspaces of a context: scratch device memory, one for each lane that computes. The caller owns the
/// memory.
class Workspaces {
 public:
  struct Workspace {
    std::span<std::byte> whole;
    std::span<std::byte> pieces;  // for bf16 pieces of fp32 operands (pieces.hpp); possibly empty
  };

  /// Sets the workspace `index`: 1 for Lane::gradients, 0 for all other lanes. With `with_pieces`, the bytes
  /// after the first blas_bytes are for pieces.
  void set(std::size_t index, std::span<std::byte> bytes, bool with_pieces) noexcept {
    if (!with_pieces || bytes.size() < blas_bytes)
      all_[index] = {bytes, {}};
    else
      all_[index] = {bytes.first(blas_bytes), bytes.subspan(blas_bytes)};
  }
  Workspace const& at(std::size_t index) const noexcept { return all_[index]; }

 private:
  std::array<Workspace, 2> all_;
};

/// Owns the plans of products and of cuDNN's attention. A plan is made when it is first used.
class ProductState {
 public:
  void open(std::size_t workspace_bytes) {
    cublasLtHandle_t blas = nullptr;
    require(cublasLtCreate(&blas), "cublasLtCreate");
    blas_ = Blas(blas);
    plans_ = BlasPlans(blas, blas_bytes < workspace_bytes ? blas_bytes : workspace_bytes);
  }
  BlasPlans& plans() noexcept { return plans_; }
  /// Returns cuDNN's attention, or null in programs that do not link tessera::cudnn.
  CudnnAttention* cudnn_attention() {
    if (auto const make = CudnnAttention::maker(); make && !cudnn_attention_) cudnn_attention_ = make();
    return cudnn_attention_.get();
  }

 private:
  Blas blas_;
  BlasPlans plans_;
  std::unique_ptr<CudnnAttention> cudnn_attention_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
