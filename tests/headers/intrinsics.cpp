// SPDX-License-Identifier: Apache-2.0
// Compiles functions of each third-party header with SIMD intrinsics to an object file, since some faults of
// such headers appear only in object code. The matrix product of the CPU uses the headers of Eigen and of the
// compiler. The functions at the end call every function of xxHash that the library calls. This file includes
// nothing else, because it is compiled for many instruction sets.
#include <string_view>

#include "tessera/backend/cpu/tiles.hpp"
#include "tessera/io/xxhash.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

template void multiply_micro<1, float, float>(std::int64_t, float const*, std::int64_t, std::int64_t,
                                              float const*, float*, std::int64_t, bool);

using Packed = packed_for<float, bfloat16, bfloat16>;
template void pack_right<Packed, bfloat16>(Matrix<bfloat16>, std::int64_t, std::int64_t, Packed*);
#if defined(TESSERA_AMX_BF16)
void multiply_by_tiles(std::int64_t depth, PackedLeft<Packed> const& left, Packed const* right, float* to) {
  KernelScope<Packed> const scope;
  multiply_panel(1, depth, left.data, left, right, to, 16, true);
}
#elif defined(TESSERA_AVX512_BF16)
template void multiply_micro<1, float, Packed>(std::int64_t, Packed const*, std::int64_t, std::int64_t,
                                               Packed const*, float*, std::int64_t, bool);
#endif

void exponentials(float const* from, bfloat16* to) { store(to, exp(load<float>(from))); }

}  // namespace cpu
}  // namespace v0
}  // namespace tessera

XXH64_hash_t hash_of_a_word(std::string_view word) { return XXH3_64bits(word.data(), word.size()); }

XXH128_canonical_t hash_of_a_stream(std::string_view first, std::string_view second) {
  XXH3_state_t state;
  XXH3_128bits_reset(&state);
  XXH3_128bits_update(&state, first.data(), first.size());
  XXH128_hash_t hash = XXH3_128bits_digest(&state);
  hash.low64 ^= XXH3_128bits(second.data(), second.size()).low64;
  XXH128_canonical_t bytes;
  XXH128_canonicalFromHash(&bytes, hash);
  return bytes;
}
