// SPDX-License-Identifier: Apache-2.0
// Implements token and position embeddings on the CPU. ops/embedding.hpp documents the operations.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

struct Embedding {
  template <class T>
  static void forward(Context<Cpu>& context, ConstTensor<std::int32_t> const& tokens,
                      ConstTensor<T> const& wte, ConstTensor<T> const& wpe, Tensor<T> const& y,
                      ops::EmbeddingOptions const& with) {
    using S = compute_t<T>;
    std::int64_t const n = y.shape().columns(), sequence = tokens.shape().columns();
    context.pool().parallel_for(y.shape().rows(), [&](std::int64_t row, int) {
      T const* const token = wte.data() + static_cast<std::int64_t>(tokens.data()[row]) * n;
      T* const to = y.data() + row * n;
      if (!wpe) {
        std::copy_n(token, n, to);
        return;
      }
      T const* const position = wpe.data() + (with.first_position + row % sequence) * n;
      for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
        put(to + i, get<S>(token + i, full, count) + get<S>(position + i, full, count), full, count);
      });
    });
  }

  /// Computes the gradients of the token table (dwte) and of the position table (dwpe). Adds the rows of dy
  /// to the token gradients in the order of the tokens. The sums for dwte are computed in `partial`; if
  /// `fresh` is true, `partial` is set to zero first. Each task sums its own stripe of columns, so tasks do
  /// not write the same values.
  template <class T>
  static void backward(Context<Cpu>& context, ConstTensor<std::int32_t> const& tokens,
                       ConstTensor<T> const& dy, Tensor<compute_t<T>> const& partial, bool fresh,
                       Tensor<T> const& dwte, Tensor<T> const& dwpe, ops::EmbeddingOptions const& with) {
    using S = compute_t<T>;
    constexpr std::int64_t stripe = 64 / static_cast<std::int64_t>(sizeof(S)) * 2;
    std::int64_t const n = dy.shape().columns(), rows = dy.shape().rows(),
                       sequence = tokens.shape().columns();
    if (dwte) {
      if (fresh)
        for_blocks(context.pool(), partial.elements(), [&](std::int64_t begin, std::int64_t end, int) {
          std::fill(partial.data() + begin, partial.data() + end, S(0));
        });
      context.pool().parallel_for((n + stripe - 1) / stripe, [&](std::int64_t task, int) {
        std::int64_t const begin = task * stripe, end = std::min(begin + stripe, n);
        for (std::int64_t row = 0; row < rows; ++row) {
          if (tokens.data()[row] == with.padding_token) continue;
          S* const to = partial.data() + static_cast<std::int64_t>(tokens.data()[row]) * n;
          for_packets<S>(begin, end, [&](std::int64_t i, auto full, std::int64_t count) {
            put(to + i,
                get<S>(static_cast<S const*>(to) + i, full, count) +
                    get<S>(dy.data() + row * n + i, full, count),
                full, count);
          });
        }
      });
      if (static_cast<void const*>(partial.data()) != static_cast<void const*>(dwte.data()))
        transform<S>(
            context.pool(), dwte.elements(), [](Packet<S> from, Packet<S>& to) { to = from; },
            static_cast<S const*>(partial.data()), dwte.data());
    }
    if (!dwpe) return;
    context.pool().parallel_for(dwpe.shape().rows(), [&](std::int64_t to, int) {
      std::int64_t const position = to - with.first_position;
      for_packets<S>(0, n, [&](std::int64_t i, auto full, std::int64_t count) {
        Packet<S> sum(S(0));
        if (position >= 0 && position < sequence)
          for (std::int64_t row = position; row < rows; row += sequence)
            sum = sum + get<S>(dy.data() + row * n + i, full, count);
        put(dwpe.data() + to * n + i, sum, full, count);
      });
    });
  }
};

}  // namespace cpu

template <>
struct backend::Embedding<Cpu> : cpu::Embedding {};
}  // namespace v0
}  // namespace tessera
