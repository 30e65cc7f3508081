// SPDX-License-Identifier: Apache-2.0
// What a plan must know of a GPU, for any compiler: planning for one needs neither a GPU nor CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// What cuBLASLt may use of the workspace; part of every plan, since other budgets choose other algorithms.
inline constexpr std::size_t blas_bytes = std::size_t{64} << 20;

/// What pieces of products may take behind that, where products are by pieces (pieces.hpp); part of a
/// result's bits, since other budgets cut large products into other blocks.
inline constexpr std::size_t piece_bytes = std::size_t{256} << 20;

/// Bytes of workspace for micro-batches of so many tokens: cuBLASLt's share serves other operations too.
constexpr std::size_t workspace_bytes(std::int64_t /*tokens*/, DType product = DType::f32) {
  return blas_bytes + (piece_terms(product) > 0 ? piece_bytes : 0);
}

/// What is left to the libraries beside the arena of a GPU: modules, graphs, cuBLASLt's and NCCL's own.
inline constexpr std::int64_t library_bytes = std::int64_t{1} << 30;

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
