// SPDX-License-Identifier: Apache-2.0
// Defines how much GPU memory the operations' workspace and the CUDA libraries need. The memory planner needs
// these sizes. It can plan the memory of a GPU on a machine without a GPU and without CUDA, so this file
// needs no CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The bytes of cuBLASLt's part of the workspace. An algorithm that is stored for a matrix product
/// (plan_file.hpp) is valid only for this size, because cuBLASLt may select another algorithm for another
/// size.
inline constexpr std::size_t blas_bytes = std::size_t{64} << 20;

/// The bytes of the workspace's second part. It holds the bfloat16 pieces into which products of fp32
/// matrices split their operands (pieces.hpp). A product whose pieces are larger is cut into blocks. With
/// another value of piece_bytes, the product would be cut into other blocks, and its result would have other
/// bits.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 20;

/// Returns the bytes of workspace for matrix products in the format `product`. The result does not depend on
/// the number of tokens. Operations other than products use cuBLASLt's part.
constexpr std::size_t workspace_bytes(std::int64_t /*tokens*/, DType product = DType::f32) {
  return blas_bytes + (piece_terms(product) > 0 ? piece_bytes : 0);
}

/// The bytes of GPU memory that the arena leaves free for CUDA modules, for graphs, and for the allocations
/// of cuBLASLt, NCCL and collectives.
inline constexpr std::int64_t library_bytes = std::int64_t{1} << 30;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
