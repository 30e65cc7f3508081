// SPDX-License-Identifier: Apache-2.0
// Implements rotary positions on the CPU. ops/rotary.hpp documents the operations.
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

struct Rotary {
  /// Runs one task for each position of a sample. The task computes the sines and cosines of the position
  /// once, and rotates the rows of the position in all samples.
  template <class T>
  static void rotate(Context<Cpu>& context, ops::Columns<T const, Cpu> from, ops::Columns<T, Cpu> to,
                     std::int64_t sequence, ops::RotaryFrequencies const& frequencies,
                     ops::RotaryOptions const& with) {
    using S = compute_t<T>;
    std::int64_t const pairs = frequencies.pairs;
    context.pool().parallel_for(sequence, [&](std::int64_t position, int) {
      S cosines[ops::RotaryFrequencies::most], sines[ops::RotaryFrequencies::most];
      for (std::int64_t i = 0; i < pairs; ++i) {
        S const angle = static_cast<S>(with.first + position) * static_cast<S>(frequencies.inverse[i]);
        cosines[i] = std::cos(angle);
        sines[i] = with.transposed ? -std::sin(angle) : std::sin(angle);
      }
      for (std::int64_t row = position; row < to.rows; row += sequence)
        for (std::int64_t head = 0; head < to.columns; head += 2 * pairs) {
          T const* const low = from.data + row * from.stride + head;
          T* const low_to = to.data + row * to.stride + head;
          for_packets<S>(0, pairs, [&](std::int64_t i, auto full, std::int64_t count) {
            Packet<S> const a = get<S>(low + i, full, count), b = get<S>(low + pairs + i, full, count),
                            c = get<S>(static_cast<S const*>(cosines) + i, full, count),
                            s = get<S>(static_cast<S const*>(sines) + i, full, count);
            put(low_to + i, fma(a, c, -(b * s)), full, count);
            put(low_to + pairs + i, fma(b, c, a * s), full, count);
          });
        }
    });
  }
};

}  // namespace cpu

template <>
struct backend::Rotary<Cpu> : cpu::Rotary {};
}  // namespace v0
}  // namespace tessera
