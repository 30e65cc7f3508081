// SPDX-License-Identifier: Apache-2.0
// Emits code from each third-party header with intrinsics: Eigen's packets through the CPU's products, xxHash
// through the hash of weights and the tokenizer's cache. Some faults of such headers show only in a function
// that is compiled to an object.
#include <string>

#include "tessera/backend/cpu/gemm.hpp"
#include "tessera/io/hash.hpp"

#include "text/bpe.cpp"

namespace tessera {
inline namespace v0 {
namespace cpu {
template void product_on_pool<float, float, float>(Context<Cpu>&, Matrix<float>, Matrix<float>, std::int64_t,
                                                   std::int64_t, std::int64_t, Epilogue<float> const&,
                                                   TakeSums<float> const&);
template void product_on_pool<float, bfloat16, bfloat16>(Context<Cpu>&, Matrix<bfloat16>, Matrix<bfloat16>,
                                                         std::int64_t, std::int64_t, std::int64_t,
                                                         Epilogue<float> const&, TakeSums<float> const&);
}  // namespace cpu
}  // namespace v0
}  // namespace tessera

std::string hashes(std::string const& name, std::string const& path) {
  tessera::WeightsHash weights;
  weights.begin(name, tessera::Shape{2, 3});
  return tessera::hash_of(name) + tessera::hash_of_file(path);
}
