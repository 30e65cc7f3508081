// SPDX-License-Identifier: Apache-2.0
// Provides token and position embeddings.
#pragma once

#include <cstdint>

#include "tessera/backend/cpu/embedding.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

namespace detail {

/// Whether a position table of this shape fits: it has `channels` columns, and a row for each position of a
/// sample of `sequence` tokens. If `table` is false, there is no table and the result is true.
inline bool has_positions(bool table, Shape const& shape, std::int64_t channels, std::int64_t sequence,
                          EmbeddingOptions const& with) {
  return !table || (shape.columns() == channels && with.first_position >= 0 &&
                    shape.rows() >= with.first_position + sequence);
}

}  // namespace detail

/// Computes y[b,t] = wte[tokens[b,t]] + wpe[first + t], with first = with.first_position. tokens is (B,T).
/// Each token must be in [0, V); this operation does not check it. wte is (V,C). wpe is (P,C) with P >= first
/// + T, or empty. y is (B,T,C).
template <class T, class P>
void embedding_forward(Context<P>& context, In<std::int32_t, P> tokens, In<T, P> wte, In<T, P> wpe,
                       Tensor<T, P> y, EmbeddingOptions const& with = {}) {
  std::int64_t const channels = y.shape().columns();
  detail::expect(tokens.shape().elements() == y.shape().rows() && wte.shape().columns() == channels &&
                     detail::has_positions(bool(wpe), wpe.shape(), channels, tokens.shape().columns(), with),
                 "embedding_forward",
                 "tokens (B,T), wte (V,C), wpe (P,C) with P >= first + T or none, y (B,T,C)", tokens.shape(),
                 wte.shape(), wpe.shape(), y.shape());
  Operation const operation{"embedding_forward", static_cast<double>(y.shape().elements()),
                            detail::bytes_of(tokens, y, y) + (wpe ? detail::bytes_of(y) : 0.0)};
  context.enqueue(operation, [&] { backend::Embedding<P>::forward(context, tokens, wte, wpe, y, with); });
}

/// Computes the gradients of both tables from dy (B,T,C). dwte (V,C) = `partial` + the rows of dy, each added
/// at the row of its token, in the order of the tokens. The operation sums in the buffer `partial` (V,C), in
/// compute_t<T>, and rounds to T once. Before the operation, `partial` has the gradient of another use of the
/// table, such as a tied head. If `fresh` is true, there is no such gradient: the sum starts from zero.
/// `partial` may be dwte if the types are the same. Rows of dy whose token is with.padding_token are not
/// added.
///
/// dwpe (P,C) is overwritten with the sum of dy over samples, in order. Its rows before `first` =
/// with.first_position and from first + T on become zero. An empty dwte or dwpe is not computed. Without
/// dwte, `partial` is not needed.
template <class T, class P>
void embedding_backward(Context<P>& context, In<std::int32_t, P> tokens, In<T, P> dy,
                        Out<compute_t<T>, P> partial, bool fresh, Tensor<T, P> dwte, Out<T, P> dwpe,
                        EmbeddingOptions const& with = {}) {
  if (!dwte && !dwpe) return;
  std::int64_t const channels = dy.shape().columns();
  detail::expect(
      tokens.shape().elements() == dy.shape().rows() &&
          (!dwte ||
           (dwte.shape().columns() == channels && partial.shape().elements() == dwte.shape().elements())) &&
          detail::has_positions(bool(dwpe), dwpe.shape(), channels, tokens.shape().columns(), with),
      "embedding_backward",
      "tokens (B,T), dy (B,T,C), partial (V,C), dwte (V,C), dwpe (P,C) with P >= first + T or none",
      tokens.shape(), dy.shape(), partial.shape(), dwte.shape(), dwpe.shape());
  Operation const operation{
      "embedding_backward", 2.0 * static_cast<double>(dy.shape().elements()),
      detail::bytes_of(tokens, dy, dwte, dwpe) + (dwte ? detail::bytes_of(partial) : 0.0)};
  context.enqueue(operation, [&] {
    backend::Embedding<P>::backward(context, tokens, dy, partial, fresh, dwte, dwpe, with);
  });
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
