// SPDX-License-Identifier: Apache-2.0
// Defines the GPU memory budgets that planning needs. Planning for a GPU needs neither a GPU nor CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The part of the workspace that cuBLASLt may use. Plans of products are valid only for this size, because
/// cuBLASLt may select another algorithm for another size.
inline constexpr std::size_t blas_bytes = std::size_t{64} << 20;

/// The workspace after cuBLASLt's part, for products by pieces (pieces.hpp). It affects the bits of a result,
/// because other budgets cut large products into other blocks.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 20;

/// Returns the bytes of workspace, for any number of tokens. Operations other than products share cuBLASLt's
/// part.
constexpr std::size_t workspace_bytes(std::int64_t /*tokens*/, DType product = DType::f32) {
  return blas_bytes + (piece_terms(product) > 0 ? piece_bytes : 0);
}

/// GPU memory left free for CUDA modules, graphs, and the allocations that cuBLASLt and NCCL make themselves.
inline constexpr std::int64_t library_bytes = std::int64_t{1} << 30;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
