// SPDX-License-Identifier: Apache-2.0
// Defines how much GPU memory the operations' workspace and the CUDA libraries need. The planner needs these
// sizes, and a plan for a GPU can be made without a GPU and without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The bytes of cuBLASLt's part of the workspace. The stored choice of cuBLASLt's algorithm for a product is
/// valid only for this size, because cuBLASLt may select another algorithm for another size.
inline constexpr std::size_t blas_bytes = std::size_t{64} << 20;

/// The bytes of the workspace's second part. It holds the bfloat16 pieces into which products of fp32
/// matrices split their operands (pieces.hpp). A product whose pieces are larger is cut into blocks. Another
/// size cuts it into other blocks and so changes the bits of the result.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 20;

/// Returns the bytes of workspace for matrix products in the format `product`. They do not depend on the
/// number of tokens. Operations other than products use cuBLASLt's part.
constexpr std::size_t workspace_bytes(std::int64_t /*tokens*/, DType product = DType::f32) {
  return blas_bytes + (piece_terms(product) > 0 ? piece_bytes : 0);
}

/// The bytes of GPU memory that the arena leaves free for CUDA modules, for graphs, and for the allocations
/// of cuBLASLt and NCCL.
inline constexpr std::int64_t library_bytes = std::int64_t{1} << 30;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
