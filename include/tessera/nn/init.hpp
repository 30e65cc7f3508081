// SPDX-License-Identifier: Apache-2.0
// Computes initial weights. The value of a weight depends only on the seed, the parameter and the position of
// the element. So the value does not depend on the number of ranks, ZeRO stage, precision, number of threads
// or device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "tessera/config.hpp"
#include "tessera/core/philox.hpp"
#include "tessera/fwd.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns ln(x) for a positive normal float, within 1e-6 of the true value. The function reduces x to
/// [sqrt(1/2), sqrt(2)) and uses the series of atanh. Every multiply-add is an explicit fma, so the result
/// has the same bits with every compiler and on a GPU.
TESSERA_HOST_DEVICE inline float log_formula(float x) {
  std::uint32_t const bits = __builtin_bit_cast(std::uint32_t, x);
  std::int32_t const exponent = static_cast<std::int32_t>(bits - 0x3f3504f3u) >> 23;
  float const m = __builtin_bit_cast(float, bits - (static_cast<std::uint32_t>(exponent) << 23));
  float const s = (m - 1.0f) / (m + 1.0f);
  float const s2 = s * s;
  float series = ::fmaf(s2, 0.22222222f, 0.28571429f);
  series = ::fmaf(series, s2, 0.4f);
  series = ::fmaf(series, s2, 0.66666667f);
  series = ::fmaf(series, s2, 2.0f);
  return ::fmaf(static_cast<float>(exponent), 0.69314718f, series * s);
}

/// The next three functions compute the arguments of quantile_near and quantile_far from a random word k. The
/// word selects the probability u = (k + 0.5) / 2^32. quantile_x returns x = 2u - 1, and quantile_w returns w
/// = -ln(1 - x^2). quantile_tail returns 1 - |x|, computed from the integer without cancellation.
TESSERA_HOST_DEVICE inline float quantile_tail(std::uint32_t k) {
  std::uint32_t const magnitude = k ^ static_cast<std::uint32_t>(static_cast<std::int32_t>(k) >> 31);
  return ::fmaf(static_cast<float>(static_cast<std::int32_t>(magnitude)), 0x1p-31f, 0x1p-32f);
}
TESSERA_HOST_DEVICE inline float quantile_x(std::uint32_t k) {
  float const size = 1.0f - quantile_tail(k);
  return static_cast<std::int32_t>(k) < 0 ? size : -size;
}
TESSERA_HOST_DEVICE inline float quantile_w(std::uint32_t k) {
  float const tail = quantile_tail(k);
  return -log_formula(tail * (2.0f - tail));
}

/// Returns the normal quantile sqrt(2) erfinv(x) for w < 5. The polynomial is the single-precision form in M.
/// Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011).
TESSERA_HOST_DEVICE inline float quantile_near(float x, float w) {
  float const a = w - 2.5f;
  float p = 2.81022636e-08f;
  p = ::fmaf(p, a, 3.43273939e-07f);
  p = ::fmaf(p, a, -3.5233877e-06f);
  p = ::fmaf(p, a, -4.39150654e-06f);
  p = ::fmaf(p, a, 0.00021858087f);
  p = ::fmaf(p, a, -0.00125372503f);
  p = ::fmaf(p, a, -0.00417768164f);
  p = ::fmaf(p, a, 0.246640727f);
  p = ::fmaf(p, a, 1.50140941f);
  return p * x * 1.41421356f;
}

/// Returns the normal quantile sqrt(2) erfinv(x) for w >= 5, with Giles's polynomial for these w. About one
/// value in 300 needs it.
TESSERA_HOST_DEVICE inline float quantile_far(float x, float w) {
  float const b = ::sqrtf(w) - 3.0f;
  float q = -0.000200214257f;
  q = ::fmaf(q, b, 0.000100950558f);
  q = ::fmaf(q, b, 0.00134934322f);
  q = ::fmaf(q, b, -0.00367342844f);
  q = ::fmaf(q, b, 0.00573950773f);
  q = ::fmaf(q, b, -0.0076224613f);
  q = ::fmaf(q, b, 0.00943887047f);
  q = ::fmaf(q, b, 1.00167406f);
  q = ::fmaf(q, b, 2.83297682f);
  return q * x * 1.41421356f;
}

/// Draws a parameter's random initial values with the Philox generator. The key of the generator is the seed.
/// The counter for an element is (element / 4, unit, parameter, 1), where `unit` and `parameter` are indices
/// in the model. The last word is the purpose of the random numbers: 1 means initial values.
struct InitialDraw {
  PhiloxKey key;
  std::uint32_t unit, parameter;
  bool uniform;
  float deviation;

  InitialDraw(std::uint64_t seed, int of_unit, int of_parameter, Init const& init)
      : key(philox_key(seed)),
        unit(static_cast<std::uint32_t>(of_unit)),
        parameter(static_cast<std::uint32_t>(of_parameter)),
        uniform(init.kind == Init::Kind::uniform),
        deviation(static_cast<float>(init.deviation)) {}

  /// Returns the random words of the elements from 4 * group to 4 * group + 3.
  TESSERA_HOST_DEVICE PhiloxCounter words(std::uint64_t group) const {
    constexpr std::uint32_t purpose = 1;
    return philox4x32({{static_cast<std::uint32_t>(group), unit,
                        parameter | static_cast<std::uint32_t>(group >> 32) << 16, purpose}},
                      key);
  }
  /// Returns the initial value for a random word.
  TESSERA_HOST_DEVICE float value(std::uint32_t word) const {
    float const x = quantile_x(word);
    if (uniform) return x * deviation;
    float const w = quantile_w(word);
    return (w >= 5.0f ? quantile_far(x, w) : quantile_near(x, w)) * deviation;
  }
};

}  // namespace detail

namespace backend {

/// Computes initial values in a device's own memory. A backend whose memory the host cannot access
/// specialises this template.
template <class Place>
struct InitialValues {
  /// Writes the initial values of elements [first, first + count) of a parameter, without its padding, to
  /// `to`. Waits until they are written and returns true. This default writes nothing and returns false, so
  /// the host computes the values.
  template <class U>
  static bool fill(Context<Place>& /*context*/, detail::InitialDraw const& /*draw*/, Init::Kind /*kind*/,
                   std::int64_t /*first*/, U* /*to*/, std::int64_t /*count*/) {
    return false;
  }
};

}  // namespace backend

/// Writes to `out` the initial values of elements [offset, offset + out.size()) of a parameter, without its
/// padding. `unit` and `parameter` are the indices of the parameter in the model.
inline void initial_values(std::uint64_t seed, int unit, int parameter, Init const& init, std::int64_t offset,
                           std::span<float> out) {
  bool const uniform = init.kind == Init::Kind::uniform;
  switch (init.kind) {
    case Init::Kind::zeros:
      std::fill(out.begin(), out.end(), 0.0f);
      return;
    case Init::Kind::ones:
      std::fill(out.begin(), out.end(), 1.0f);
      return;
    case Init::Kind::normal:
    case Init::Kind::uniform:
      break;
  }
  detail::InitialDraw const draw(seed, unit, parameter, init);
  float const deviation = draw.deviation;
  std::int64_t const end = offset + static_cast<std::int64_t>(out.size());
  constexpr std::int64_t chunk = 64;  // values at once; compilers vectorise inner loops of fixed length
  std::uint32_t words[chunk];
  float x[chunk], w[chunk], values[chunk];
  for (std::int64_t begin = offset / 4 * 4; begin < end; begin += chunk) {
    for (std::int64_t group = 0; group < chunk / 4; ++group) {
      PhiloxCounter const drawn = draw.words(static_cast<std::uint64_t>(begin / 4 + group));
      for (int word = 0; word < 4; ++word) words[4 * group + word] = drawn.word[word];
    }
    for (std::int64_t i = 0; i < chunk; ++i) x[i] = detail::quantile_x(words[i]);
    if (uniform) {
      for (std::int64_t i = 0; i < chunk; ++i) values[i] = x[i] * deviation;
    } else {
      for (std::int64_t i = 0; i < chunk; ++i) w[i] = detail::quantile_w(words[i]);
      for (std::int64_t i = 0; i < chunk; ++i) values[i] = detail::quantile_near(x[i], w[i]) * deviation;
      for (std::int64_t i = 0; i < chunk; ++i)
        if (w[i] >= 5.0f) values[i] = detail::quantile_far(x[i], w[i]) * deviation;
    }
    std::int64_t const first = begin < offset ? offset : begin;
    std::int64_t const last = begin + chunk < end ? begin + chunk : end;
    for (std::int64_t index = first; index < last; ++index)
      out[static_cast<std::size_t>(index - offset)] = values[index - begin];
  }
}

}  // namespace v0
}  // namespace tessera
