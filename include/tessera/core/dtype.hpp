// SPDX-License-Identifier: Apache-2.0
// Defines the number formats: two 16-bit storage types, the names of all formats, and the types in which
// values of each format are summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns the object of type To that has the bits of `from`. Same as std::bit_cast, which device code cannot
/// call.
template <class To, class From>
TESSERA_HOST_DEVICE constexpr To bit_cast(From from) {
  return __builtin_bit_cast(To, from);
}

/// Returns the binary16 bits of an IEEE binary32 value, rounded to nearest even. Overflow gives infinity, and
/// NaN stays NaN.
TESSERA_HOST_DEVICE constexpr std::uint16_t float_to_half_bits(float value) {
  std::uint32_t const bits = bit_cast<std::uint32_t>(value);
  std::uint32_t const sign = (bits >> 16) & 0x8000u;
  std::uint32_t const magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u)  // infinity or NaN
    return static_cast<std::uint16_t>(
        sign | 0x7c00u | (magnitude > 0x7f800000u ? 0x0200u | ((magnitude >> 13) & 0x3ffu) : 0u));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);  // rounds beyond 65504
  if (magnitude < 0x38800000u) {                                                    // subnormal half or zero
    if (magnitude < 0x33000000u) return static_cast<std::uint16_t>(sign);
    std::uint32_t const shift = 126u - (magnitude >> 23);  // 14 to 24
    std::uint32_t const mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    std::uint32_t const truncated = mantissa >> shift;
    std::uint32_t const rest = mantissa & ((1u << shift) - 1u);
    std::uint32_t const middle = 1u << (shift - 1u);
    return static_cast<std::uint16_t>(sign |
                                      (truncated + (rest > middle || (rest == middle && (truncated & 1u)))));
  }
  std::uint32_t const rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}

TESSERA_HOST_DEVICE constexpr float half_bits_to_float(std::uint16_t half_bits) {
  std::uint32_t const sign = static_cast<std::uint32_t>(half_bits & 0x8000u) << 16;
  std::uint32_t const exponent = (half_bits >> 10) & 0x1fu;
  std::uint32_t mantissa = half_bits & 0x3ffu;
  if (exponent == 0x1fu) return bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return bit_cast<float>(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  if (mantissa == 0) return bit_cast<float>(sign);
  std::uint32_t shift = 0;
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    ++shift;
  }
  return bit_cast<float>(sign | ((113u - shift) << 23) | ((mantissa & 0x3ffu) << 13));
}

/// Returns the bfloat16 bits of an IEEE binary32 value, rounded to nearest even. NaN stays a (quiet) NaN.
TESSERA_HOST_DEVICE constexpr std::uint16_t float_to_bfloat16_bits(float value) {
  std::uint32_t const bits = bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace detail

/// IEEE binary16. The type only stores values: code converts them to float, computes, and converts the result
/// back.
struct half {
  std::uint16_t bits;

  half() = default;
  TESSERA_HOST_DEVICE constexpr explicit half(float value) : bits(detail::float_to_half_bits(value)) {}
  TESSERA_HOST_DEVICE constexpr explicit half(double value) : half(static_cast<float>(value)) {}
  TESSERA_HOST_DEVICE constexpr operator float() const { return detail::half_bits_to_float(bits); }
};

/// bfloat16: the upper 16 bits of a float. The type only stores values: code converts them to float,
/// computes, and converts the result back.
struct bfloat16 {
  std::uint16_t bits;

  bfloat16() = default;
  TESSERA_HOST_DEVICE constexpr explicit bfloat16(float value)
      : bits(detail::float_to_bfloat16_bits(value)) {}
  TESSERA_HOST_DEVICE constexpr explicit bfloat16(double value) : bfloat16(static_cast<float>(value)) {}
  TESSERA_HOST_DEVICE constexpr operator float() const {
    return detail::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

static_assert(sizeof(half) == 2 && std::is_trivially_copyable_v<half>);
static_assert(sizeof(bfloat16) == 2 && std::is_trivially_copyable_v<bfloat16>);

/// Tags for formats whose values are stored as float and multiplied on tensor cores (CUDA only). tf32 rounds
/// each factor to a mantissa of 10 bits. bf16x6 and bf16x3 write each fp32 value as a sum of three bfloat16
/// values, called pieces. A product of two fp32 values is then a sum of nine products of pieces. bf16x6
/// computes the six largest of these products, bf16x3 the three largest.
struct tf32;
struct bf16x6;
struct bf16x3;

/// The number formats as an enum, for tables, files and reports. u8 holds encoded values, such as a quantized
/// optimizer state. Only the functions that encode such values can decode them, so other functions cannot
/// compute with them. tf32, bf16x6 and bf16x3 are ways to multiply values that are stored as f32.
enum class DType : std::uint8_t { f64, f32, tf32, f16, bf16, u8, bf16x6, bf16x3 };

constexpr std::string_view name_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return "fp64";
    case DType::f32:
      return "fp32";
    case DType::tf32:
      return "tf32";
    case DType::f16:
      return "fp16";
    case DType::bf16:
      return "bf16";
    case DType::u8:
      return "u8";
    case DType::bf16x6:
      return "bf16x6";
    case DType::bf16x3:
      return "bf16x3";
  }
  return "?";
}

/// Returns the size of one stored element, in bytes.
constexpr std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f64:
      return 8;
    case DType::f32:
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
      return 4;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::u8:
      return 1;
  }
  return 0;
}

template <class T>
inline constexpr DType dtype_of = DType::f32;
template <>
inline constexpr DType dtype_of<double> = DType::f64;
template <>
inline constexpr DType dtype_of<tf32> = DType::tf32;
template <>
inline constexpr DType dtype_of<bf16x6> = DType::bf16x6;
template <>
inline constexpr DType dtype_of<bf16x3> = DType::bf16x3;
template <>
inline constexpr DType dtype_of<half> = DType::f16;
template <>
inline constexpr DType dtype_of<bfloat16> = DType::bf16;

/// The C++ type of the elements of a tensor with the format T. Values of tf32, bf16x6 and bf16x3 are stored
/// as float.
template <class T>
using storage_t =
    std::conditional_t<std::is_same_v<T, tf32> || std::is_same_v<T, bf16x6> || std::is_same_v<T, bf16x3>,
                       float, T>;

/// Returns the number of bfloat16 products that replace one product of floats in the format `product` (see
/// bf16x6). Returns 0 for formats that do not split floats.
constexpr int piece_terms(DType product) {
  switch (product) {
    case DType::bf16x6:
      return 6;
    case DType::bf16x3:
      return 3;
    case DType::f64:
    case DType::f32:
    case DType::tf32:
    case DType::f16:
    case DType::bf16:
    case DType::u8:
      break;
  }
  return 0;
}

/// Whether matrix products of fp32 tensors that compute in the format `product` need tensor cores. Only GPUs
/// have tensor cores.
constexpr bool needs_tensor_cores(DType product) {
  return product == DType::tf32 || piece_terms(product) > 0;
}

/// The type in which code computes sums, statistics and optimizer updates from values of type T: double for
/// double, otherwise float.
template <class T>
using compute_t = std::conditional_t<std::is_same_v<T, double>, double, float>;

}  // namespace v0
}  // namespace tessera
