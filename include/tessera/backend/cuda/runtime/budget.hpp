// SPDX-License-Identifier: Apache-2.0
// Defines the GPU memory budgets that planning needs. Planning for a GPU needs neither a GPU nor CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The part of the workspace that cuBLASLt may use. It is part of every plan, because other budgets select
/// other algorithms.
inline constexpr std::size_t blas_bytes = std::size_t{64} << 20;

/// The workspace after cuBLASLt's part, for products by pieces (pieces.hpp). It affects the bits of a result,
/// because other budgets cut large products into other blocks.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 20;

/// Bytes of workspace for micro-batches of so many tokens. Other operations share cuBLASLt's part.
constexpr std::size_t workspace_bytes(std::int64_t /*tokens*/, DType product = DType::f32) {
  return blas_bytes + (piece_terms(product) > 0 ? piece_bytes : 0);
}

/// GPU memory left free outside the arena for modules, graphs, and the own allocations of cuBLASLt and NCCL.
inline constexpr std::int64_t library_bytes = std::int64_t{1} << 30;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
