// SPDX-License-Identifier: Apache-2.0
// Provides functions that call code with the C++ type of a number format, and functions that convert values
// in host memory between formats.
#pragma once

#include <cstddef>
#include <span>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

/// Calls f(static_cast<U*>(nullptr)) and returns the result. U is the C++ type in which values of `format`
/// are stored. Throws Error(unsupported) for u8, whose values are encoded.
template <class F>
decltype(auto) with_type(DType format, F&& f) {
  switch (format) {
    case DType::f64:
      return f(static_cast<double*>(nullptr));
    case DType::f32:
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
      return f(static_cast<float*>(nullptr));
    case DType::f16:
      return f(static_cast<half*>(nullptr));
    case DType::bf16:
      return f(static_cast<bfloat16*>(nullptr));
    case DType::u8:
      break;
  }
  throw_error(ErrorKind::unsupported, {"values of format ", name_of(format), " are codes, not numbers"});
}

/// Converts to.size() values of format `format` to fp32 and writes them to `to`. The stored values begin at
/// `from`.
inline void widen(DType format, std::byte const* from, std::span<float> to) {
  with_type(format, [&]<class U>(U*) {
    for (std::size_t at = 0; at < to.size(); ++at)
      to[at] = static_cast<float>(reinterpret_cast<U const*>(from)[at]);
  });
}
/// Converts the fp32 values of `from` to the format `format`, rounded to nearest even, and writes them to
/// `to`.
inline void narrow(std::span<float const> from, DType format, std::byte* to) {
  with_type(format, [&]<class U>(U*) {
    for (std::size_t at = 0; at < from.size(); ++at) reinterpret_cast<U*>(to)[at] = static_cast<U>(from[at]);
  });
}

}  // namespace v0
}  // namespace tessera
