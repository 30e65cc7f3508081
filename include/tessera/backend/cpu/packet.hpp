// SPDX-License-Identifier: Apache-2.0
// Provides Eigen's SIMD packets (registers of several values) as a value type. The last values of an array
// are loaded as a padded packet, so one expression handles full and partial packets.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tessera/backend/cpu/eigen_packets.hpp"
#include "tessera/backend/cpu/pool.hpp"
#include "tessera/core/dtype.hpp"

// GCC 12's AVX-512 intrinsics have an undefined operand, which causes warnings when they are inlined here.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
// Some functions below return in a branch of if constexpr, and have a loop for the other types. nvcc warns
// that this loop is not reachable.
#ifdef __CUDACC__
#pragma nv_diag_push
#pragma nv_diag_suppress 128
#endif

namespace tessera {
inline namespace v0 {
namespace cpu {

/// A register of values of type S (float or double). Arithmetic is per lane. The compiler may contract a*b +
/// c to an fma. A formula that must give the same bits with every compiler writes each such term as fma(a, b,
/// c).
template <class S>
struct Packet {
  using scalar = S;
  using raw_type = typename Eigen::internal::packet_traits<S>::type;
  static constexpr int size = static_cast<int>(Eigen::internal::unpacket_traits<raw_type>::size);

  raw_type raw;

  Packet() = default;
  EIGEN_STRONG_INLINE Packet(S value) : raw(Eigen::internal::pset1<raw_type>(value)) {}
  EIGEN_STRONG_INLINE explicit Packet(raw_type const& value, int) : raw(value) {}

  friend EIGEN_STRONG_INLINE Packet operator+(Packet a, Packet b) {
    return Packet(Eigen::internal::padd(a.raw, b.raw), 0);
  }
  friend EIGEN_STRONG_INLINE Packet operator-(Packet a, Packet b) {
    return Packet(Eigen::internal::psub(a.raw, b.raw), 0);
  }
  friend EIGEN_STRONG_INLINE Packet operator*(Packet a, Packet b) {
    return Packet(Eigen::internal::pmul(a.raw, b.raw), 0);
  }
  friend EIGEN_STRONG_INLINE Packet operator/(Packet a, Packet b) {
    return Packet(Eigen::internal::pdiv(a.raw, b.raw), 0);
  }
  friend EIGEN_STRONG_INLINE Packet operator-(Packet a) { return Packet(Eigen::internal::pnegate(a.raw), 0); }
};

namespace detail {

/// Applies a scalar function lane by lane, for functions without an instruction.
template <class S, class F, class... Packets>
EIGEN_STRONG_INLINE Packet<S> each_lane(F&& function, Packets const&... operands) {
  alignas(64) S result[Packet<S>::size];
  for (int lane = 0; lane < Packet<S>::size; ++lane) {
    auto const value = [lane](Packet<S> const& packet) {
      alignas(64) S values[Packet<S>::size];
      Eigen::internal::pstore(values, packet.raw);
      return values[lane];
    };
    result[lane] = function(value(operands)...);
  }
  return Packet<S>(Eigen::internal::pload<typename Packet<S>::raw_type>(result), 0);
}

}  // namespace detail

/// Returns a*b + c with a single rounding, on every instruction set.
template <class S>
EIGEN_STRONG_INLINE Packet<S> fma(Packet<S> a, Packet<S> b, Packet<S> c) {
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA)
  if constexpr (Packet<S>::size > 1) return Packet<S>(Eigen::internal::pmadd(a.raw, b.raw, c.raw), 0);
#endif
  return detail::each_lane<S>([](S x, S y, S z) { return std::fma(x, y, z); }, a, b, c);
}

/// Returns a*b + c, computed in the fastest way on this instruction set, with one or two roundings.
template <class S>
EIGEN_STRONG_INLINE Packet<S> multiply_add(Packet<S> a, Packet<S> b, Packet<S> c) {
  return Packet<S>(Eigen::internal::pmadd(a.raw, b.raw, c.raw), 0);
}

/// Returns the correctly rounded square root. Eigen's own function can be approximate.
template <class S>
EIGEN_STRONG_INLINE Packet<S> sqrt(Packet<S> x) {
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float>)
    return Packet<S>(_mm512_sqrt_ps(x.raw), 0);
  else
    return Packet<S>(_mm512_sqrt_pd(x.raw), 0);
#elif defined(EIGEN_VECTORIZE_AVX)
  if constexpr (std::is_same_v<S, float>)
    return Packet<S>(_mm256_sqrt_ps(x.raw), 0);
  else
    return Packet<S>(_mm256_sqrt_pd(x.raw), 0);
#elif defined(EIGEN_VECTORIZE_SSE)
  if constexpr (std::is_same_v<S, float>)
    return Packet<S>(_mm_sqrt_ps(x.raw), 0);
  else
    return Packet<S>(_mm_sqrt_pd(x.raw), 0);
#else
  return detail::each_lane<S>([](S value) { return std::sqrt(value); }, x);
#endif
}

template <class S>
EIGEN_STRONG_INLINE Packet<S> abs(Packet<S> x) {
  return Packet<S>(Eigen::internal::pabs(x.raw), 0);
}

/// max returns the larger and min the smaller value in each lane. The results for NaN operands are
/// unspecified.
template <class S>
EIGEN_STRONG_INLINE Packet<S> max(Packet<S> a, Packet<S> b) {
  return Packet<S>(Eigen::internal::pmax(a.raw, b.raw), 0);
}
template <class S>
EIGEN_STRONG_INLINE Packet<S> min(Packet<S> a, Packet<S> b) {
  return Packet<S>(Eigen::internal::pmin(a.raw, b.raw), 0);
}

/// Returns 0 in lanes with |x| < bound, and x in the other lanes. NaN stays NaN.
template <class S>
EIGEN_STRONG_INLINE Packet<S> zero_below(Packet<S> x, Packet<S> bound) {
  using namespace Eigen::internal;
  return Packet<S>(pandnot(x.raw, pcmp_lt(pabs(x.raw), bound.raw)), 0);
}

/// Returns e^x within two units in the last place. NaN stays NaN. If e^x is below the smallest normal number,
/// the result is between 0 and about the smallest normal number.
template <class S>
EIGEN_STRONG_INLINE Packet<S> exp(Packet<S> x) {
#if defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float>) {
    // e^x = 2^n e^t with n = round(x / ln 2) and |t| <= ln 2 / 2. The polynomial for e^t is from the library
    // Cephes. x is clamped to [-105, 90]; at these limits the result is 0 or infinity.
    __m512 const in_range =
        _mm512_min_ps(_mm512_set1_ps(90.0f), _mm512_max_ps(_mm512_set1_ps(-105.0f), x.raw));
    __m512 const n = _mm512_roundscale_ps(_mm512_mul_ps(in_range, _mm512_set1_ps(1.44269504088896341f)), 0);
    __m512 t = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), in_range);
    t = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), t);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, t, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(t, t), t);
    return Packet<S>(_mm512_scalef_ps(_mm512_add_ps(p, _mm512_set1_ps(1.0f)), n), 0);
  }
  return detail::each_lane<S>([](S value) { return std::exp(value); }, x);
#else
  if constexpr (Packet<S>::size > 1 && Eigen::internal::packet_traits<S>::HasExp)
    return Packet<S>(Eigen::internal::pexp(x.raw), 0);
  else
    return detail::each_lane<S>([](S value) { return std::exp(value); }, x);
#endif
}

/// lane_sum returns the sum of the lanes, and lane_max their maximum. The order of the additions depends on
/// the instruction set.
template <class S>
EIGEN_STRONG_INLINE S lane_sum(Packet<S> x) {
  return Eigen::internal::predux(x.raw);
}
template <class S>
EIGEN_STRONG_INLINE S lane_max(Packet<S> x) {
  return Eigen::internal::predux_max(x.raw);
}

#if defined(EIGEN_VECTORIZE_AVX512)
namespace detail {

/// `widen` converts 16 stored 16-bit values to floats. `narrow` converts 16 floats to stored values, rounded
/// to nearest even. The type of the pointer selects the 16-bit format; its value is not used.
EIGEN_STRONG_INLINE __m512 widen(__m256i bits, half const*) { return _mm512_cvtph_ps(bits); }
EIGEN_STRONG_INLINE __m512 widen(__m256i bits, bfloat16 const*) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
EIGEN_STRONG_INLINE __m256i narrow(__m512 value, half const*) {
  return _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
}
EIGEN_STRONG_INLINE __m256i narrow(__m512 value, bfloat16 const*) {
  __m512i const bits = _mm512_castps_si512(value);
  __m512i const last = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i const even = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), last);
  __mmask16 const nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  __m512i const chosen = _mm512_mask_or_epi32(even, nan, bits, _mm512_set1_epi32(0x400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16));
}

}  // namespace detail
#endif

/// Returns one packet of values from memory of any storage type, converted to S. Needs no alignment.
template <class S, class T>
EIGEN_STRONG_INLINE Packet<S> load(T const* from) {
  using Raw = typename Packet<S>::raw_type;
  if constexpr (std::is_same_v<S, T>) {
    return Packet<S>(Eigen::internal::ploadu<Raw>(from), 0);
  } else {
    if constexpr (std::is_same_v<S, float> && std::is_same_v<T, half>) {
#if defined(EIGEN_VECTORIZE_AVX512)
      return Packet<S>(detail::widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)), from), 0);
#elif defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
      return Packet<S>(_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from))), 0);
#endif
    } else if constexpr (std::is_same_v<S, float> && std::is_same_v<T, bfloat16>) {
#if defined(EIGEN_VECTORIZE_AVX512)
      return Packet<S>(detail::widen(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)), from), 0);
#elif defined(EIGEN_VECTORIZE_AVX2)
      __m128i const bits = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
      return Packet<S>(_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16)), 0);
#elif defined(EIGEN_VECTORIZE_SSE) && !defined(EIGEN_VECTORIZE_AVX)
      __m128i const bits = _mm_loadl_epi64(reinterpret_cast<__m128i const*>(from));
      return Packet<S>(_mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), bits)), 0);
#endif
    }
    alignas(64) S values[Packet<S>::size];
    for (int lane = 0; lane < Packet<S>::size; ++lane) values[lane] = static_cast<S>(from[lane]);
    return Packet<S>(Eigen::internal::pload<Raw>(values), 0);
  }
}

/// Stores one packet to memory of any storage type, rounded to nearest even. NaN stays NaN. Needs no
/// alignment.
template <class T, class S>
EIGEN_STRONG_INLINE void store(T* to, Packet<S> value) {
  if constexpr (std::is_same_v<S, T>) {
    Eigen::internal::pstoreu(to, value.raw);
  } else {
    if constexpr (std::is_same_v<S, float> && std::is_same_v<T, half>) {
#if defined(EIGEN_VECTORIZE_AVX512)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), detail::narrow(value.raw, to));
      return;
#elif defined(EIGEN_VECTORIZE_AVX) && defined(__F16C__)
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(value.raw, _MM_FROUND_TO_NEAREST_INT));
      return;
#endif
    } else if constexpr (std::is_same_v<S, float> && std::is_same_v<T, bfloat16>) {
#if defined(EIGEN_VECTORIZE_AVX512)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), detail::narrow(value.raw, to));
      return;
#elif defined(EIGEN_VECTORIZE_AVX2)
      __m256i const bits = _mm256_castps_si256(value.raw);
      __m256i const last = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
      __m256i const even = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), last);
      __m256i const nan = _mm256_castps_si256(_mm256_cmp_ps(value.raw, value.raw, _CMP_UNORD_Q));
      __m256i const quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
      __m256i const wide = _mm256_srli_epi32(_mm256_blendv_epi8(even, quiet, nan), 16);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                       _mm_packus_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1)));
      return;
#elif defined(EIGEN_VECTORIZE_SSE) && !defined(EIGEN_VECTORIZE_AVX)
      __m128i const bits = _mm_castps_si128(value.raw);
      __m128i const last = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
      __m128i const even = _mm_add_epi32(_mm_add_epi32(bits, _mm_set1_epi32(0x7fff)), last);
      __m128i const nan = _mm_castps_si128(_mm_cmpunord_ps(value.raw, value.raw));
      __m128i const quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
      __m128i const chosen = _mm_or_si128(_mm_and_si128(nan, quiet), _mm_andnot_si128(nan, even));
      // The arithmetic shift keeps each half in the range of a signed 16-bit value, so that packing is exact.
      _mm_storel_epi64(reinterpret_cast<__m128i*>(to),
                       _mm_packs_epi32(_mm_srai_epi32(chosen, 16), _mm_setzero_si128()));
      return;
#endif
    }
    alignas(64) S values[Packet<S>::size];
    Eigen::internal::pstore(values, value.raw);
    for (int lane = 0; lane < Packet<S>::size; ++lane) to[lane] = static_cast<T>(values[lane]);
  }
}

/// Returns a packet with `count` values from memory, fewer than a full packet. The other lanes are `rest`.
/// Reads only `count` values.
template <class S, class T>
EIGEN_STRONG_INLINE Packet<S> load_partial(T const* from, std::int64_t count, S rest = S(0)) {
#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512BW__) && defined(__AVX512VL__)
  __mmask16 const mask = static_cast<__mmask16>((1u << count) - 1u);
  if constexpr (std::is_same_v<S, float> && std::is_same_v<T, float>) {
    return Packet<S>(_mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask, from), 0);
  } else if constexpr (std::is_same_v<S, float> && sizeof(T) == 2) {
    __m256i const bits = _mm256_maskz_loadu_epi16(mask, from);
    return Packet<S>(_mm512_mask_blend_ps(mask, _mm512_set1_ps(rest), detail::widen(bits, from)), 0);
  } else if constexpr (std::is_same_v<S, double> && std::is_same_v<T, double>) {
    return Packet<S>(_mm512_mask_loadu_pd(_mm512_set1_pd(rest), static_cast<__mmask8>(mask), from), 0);
  }
#elif defined(EIGEN_VECTORIZE_AVX2) && !defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float> && std::is_same_v<T, float>) {
    __m256i const lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i const mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lanes);
    return Packet<S>(
        _mm256_blendv_ps(_mm256_set1_ps(rest), _mm256_maskload_ps(from, mask), _mm256_castsi256_ps(mask)), 0);
  }
#endif
  alignas(64) S values[Packet<S>::size];
  for (int lane = 0; lane < Packet<S>::size; ++lane)
    values[lane] = lane < count ? static_cast<S>(from[lane]) : rest;
  return Packet<S>(Eigen::internal::pload<typename Packet<S>::raw_type>(values), 0);
}

/// Stores only the first `count` lanes of a packet, like `store`.
template <class T, class S>
EIGEN_STRONG_INLINE void store_partial(T* to, Packet<S> value, std::int64_t count) {
#if defined(EIGEN_VECTORIZE_AVX512) && defined(__AVX512BW__) && defined(__AVX512VL__)
  __mmask16 const mask = static_cast<__mmask16>((1u << count) - 1u);
  if constexpr (std::is_same_v<S, float> && std::is_same_v<T, float>) {
    _mm512_mask_storeu_ps(to, mask, value.raw);
    return;
  } else if constexpr (std::is_same_v<S, float> && sizeof(T) == 2) {
    _mm256_mask_storeu_epi16(to, mask, detail::narrow(value.raw, to));
    return;
  } else if constexpr (std::is_same_v<S, double> && std::is_same_v<T, double>) {
    _mm512_mask_storeu_pd(to, static_cast<__mmask8>(mask), value.raw);
    return;
  }
#elif defined(EIGEN_VECTORIZE_AVX2) && !defined(EIGEN_VECTORIZE_AVX512)
  if constexpr (std::is_same_v<S, float> && std::is_same_v<T, float>) {
    if (count == Packet<S>::size) return store(to, value);
    // Masked stores are slow on AMD processors.
    __m128 lanes = _mm256_castps256_ps128(value.raw);
    if (count & 4) {
      _mm_storeu_ps(to, lanes);
      lanes = _mm256_extractf128_ps(value.raw, 1);
      to += 4;
    }
    if (count & 2) {
      _mm_storel_pi(reinterpret_cast<__m64*>(to), lanes);
      lanes = _mm_movehl_ps(lanes, lanes);
      to += 2;
    }
    if (count & 1) _mm_store_ss(to, lanes);
    return;
  }
#endif
  alignas(64) T values[Packet<S>::size];
  store(values, value);
  std::memcpy(static_cast<void*>(to), values, static_cast<std::size_t>(count) * sizeof(T));
}

/// Calls body(i, full, count) for each packet of [begin, end). `i` is the index of the packet's first value,
/// and `count` the number of its values. `full` is std::true_type. For a last packet with fewer values than a
/// register, it is std::false_type. With `get` and `put` below, one expression handles full and partial
/// packets.
template <class S, class F>
EIGEN_STRONG_INLINE void for_packets(std::int64_t begin, std::int64_t end, F&& body) {
  constexpr std::int64_t width = Packet<S>::size;
  std::int64_t i = begin;
  for (; i + width <= end; i += width) body(i, std::true_type{}, width);
  if (i < end) body(i, std::false_type{}, end - i);
}

template <class S, bool Full, class T>
EIGEN_STRONG_INLINE Packet<S> get(T const* from, std::bool_constant<Full>, std::int64_t count,
                                  S rest = S(0)) {
  if constexpr (Full)
    return load<S>(from);
  else
    return load_partial<S>(from, count, rest);
}

template <bool Full, class T, class S>
EIGEN_STRONG_INLINE void put(T* to, Packet<S> value, std::bool_constant<Full>, std::int64_t count) {
  if constexpr (Full)
    store(to, value);
  else
    store_partial(to, value, count);
}

/// The number of elements in a block of elementwise work. It does not depend on the number of threads.
inline constexpr std::int64_t block_elements = 4096;

constexpr std::int64_t blocks_of(std::int64_t elements) {
  return (elements + block_elements - 1) / block_elements;
}

/// Divides [0, elements) into blocks of 4096 elements, and calls body(begin, end, worker) for each block, in
/// parallel.
template <class F>
void for_blocks(ThreadPool& pool, std::int64_t elements, F&& body) {
  pool.parallel_for(blocks_of(elements), [&](std::int64_t block, int worker) {
    std::int64_t const begin = block * block_elements;
    body(begin, std::min(begin + block_elements, elements), worker);
  });
}

/// Applies `functor` to the elements of arrays of any storage types, in parallel. `functor(Packet<S>&...)`
/// receives one packet of each array. `transform` then converts the packets of non-const arrays back and
/// stores them. Lanes beyond the end hold 0 and are not stored. The result does not depend on the number of
/// threads.
template <class S, class F, class... T>
void transform(ThreadPool& pool, std::int64_t elements, F const& functor, T*... arrays) {
  for_blocks(pool, elements, [&](std::int64_t begin, std::int64_t end, int) {
    for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t count) {
      auto const apply = [&](auto... packets) {
        functor(packets...);
        auto const keep = [&](auto* to, Packet<S> value) {
          if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(to)>>) put(to, value, full, count);
        };
        (keep(arrays + i, packets), ...);
      };
      apply(get<S>(static_cast<T const*>(arrays) + i, full, count)...);
    });
  });
}

}  // namespace cpu
}  // namespace v0
}  // namespace tessera

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#ifdef __CUDACC__
#pragma nv_diag_pop
#endif
