// SPDX-License-Identifier: Apache-2.0
// Provides rotary position embeddings (arXiv 2104.09864) with Hugging Face's order of channels: channels i
// and i + D/2 of a head with D channels are a pair.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

#include "tessera/backend/cpu/rotary.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// Llama 3's scaling of rotary frequencies (rope_scaling in Hugging Face). Wavelengths are in positions.
/// Wavelengths above original_positions / low_frequency become `factor` times as long. Wavelengths below
/// original_positions / high_frequency do not change. Between these limits, the frequency is interpolated.
struct Llama3Scaling {
  double factor = 8.0;
  double low_frequency = 1.0;
  double high_frequency = 4.0;
  double original_positions = 8192.0;
};

namespace detail {

[[noreturn]] inline void no_rotary_head(std::int64_t head) {
  throw Error(ErrorKind::unsupported, "rotary positions rotate pairs of channels: a head has " +
                                          std::to_string(head) +
                                          " channels, but needs an even number from 2 to " +
                                          std::to_string(2 * RotaryFrequencies::most));
}

}  // namespace detail

/// Returns the frequency theta^(-2i/D) of each pair i of channels, for a head of D = `head` channels. The
/// roundings to fp32 are the same as in the transformers library. Throws Error(unsupported) if D is odd,
/// below 2 or above 2 * RotaryFrequencies::most.
inline RotaryFrequencies rotary_frequencies(std::int64_t head, double theta = 10000.0) {
  if (head < 2 || head % 2 != 0 || head > 2 * RotaryFrequencies::most) detail::no_rotary_head(head);
  RotaryFrequencies result;
  result.pairs = static_cast<int>(head / 2);
  for (int i = 0; i < result.pairs; ++i) {
    float const exponent = static_cast<float>(2 * i) / static_cast<float>(head);
    result.inverse[i] = 1.0f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
  }
  return result;
}

/// Returns the frequencies with Llama 3's scaling `by`, which supports more positions than the model was
/// first trained with.
inline RotaryFrequencies scaled(RotaryFrequencies frequencies, Llama3Scaling const& by) {
  float const factor = static_cast<float>(by.factor), low = static_cast<float>(by.low_frequency),
              high = static_cast<float>(by.high_frequency),
              positions = static_cast<float>(by.original_positions);
  for (int i = 0; i < frequencies.pairs; ++i) {
    float& inverse = frequencies.inverse[i];
    float const wavelength = static_cast<float>(6.283185307179586) / inverse;
    if (wavelength < positions / high) continue;
    if (wavelength > positions / low) {
      inverse /= factor;
    } else {
      float const smooth = (positions / wavelength - low) / (high - low);
      inverse = (1.0f - smooth) * inverse / factor + smooth * inverse;
    }
  }
  return frequencies;
}

/// Rotates each pair (a, b) of channels by the angle w = position * frequency, and writes (a cos w - b sin w,
/// b cos w + a sin w) to `to`. If with.transposed is true, rotates by -w instead, which is the backward pass.
/// `from` and `to` have B*T rows, where T = `sequence`. A row has heads of 2 * frequencies.pairs channels,
/// one after another. `from` and `to` may be the same memory. Row t of a sample is at position with.first +
/// t. Angles, cosines and sines are in compute_t<T>.
template <class T, class P>
void rotary(Context<P>& context, std::type_identity_t<Columns<T const, P>> const& from, Columns<T, P> to,
            std::int64_t sequence, RotaryFrequencies const& frequencies, RotaryOptions const& with = {}) {
  std::int64_t const head = 2 * frequencies.pairs;
  if (head == 0) detail::no_rotary_head(head);
  detail::expect(from.rows == to.rows && from.columns == to.columns && to.columns % head == 0 &&
                     with.first >= 0 && sequence > 0 && to.rows % sequence == 0,
                 "rotary", "from and to (B,T,C) with C a multiple of a head's channels", from.shape(),
                 to.shape(), Shape{sequence, head});
  Operation const operation{"rotary", 3.0 * static_cast<double>(to.rows * to.columns),
                            detail::bytes_of(from, to)};
  context.enqueue(operation,
                  [&] { backend::Rotary<P>::rotate(context, from, to, sequence, frequencies, with); });
}

/// Same as `rotary` above, for whole tensors (B,T,C).
template <class T, class P>
void rotary(Context<P>& context, In<T, P> from, Tensor<T, P> to, RotaryFrequencies const& frequencies,
            RotaryOptions const& with = {}) {
  detail::expect(to.shape().dims() == 3 && from.shape() == to.shape(), "rotary", "from and to (B,T,C)",
                 from.shape(), to.shape());
  rotary(context, Columns<T const, P>(from), Columns<T, P>(to), to.shape()[1], frequencies, with);
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
