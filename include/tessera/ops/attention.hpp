// SPDX-License-Identifier: Apache-2.0
// Provides causal multi-head attention. Queries, keys and values may be columns of one tensor or of several.
// The policy Attention selects the implementation (backend/math.hpp). `reference` uses plain arithmetic in
// compute_t<T>. `fused` uses tensor cores if there are any. On the CPU, `reference` and `fused` are the same
// kernel. `cudnn` calls cuDNN and needs a GPU.
#pragma once

#include "tessera/backend/cpu/attention.hpp"
#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/ops/operand.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

namespace detail {

/// Throws an error if no implementation supports the sizes: Error(unsupported) for heads that are too wide,
/// Error(usage) for key heads that do not fit the query heads.
inline void expect_heads(char const* name, AttentionSizes const& sizes, std::int64_t key_channels) {
  if (sizes.head > 32768)
    throw_error(ErrorKind::unsupported, {name, ": a head has ", sizes.head,
                                         " channels, but at most 32768 are supported; use more heads"});
  if (sizes.group < 1 || sizes.heads % sizes.group != 0 || sizes.key_heads() * sizes.head != key_channels)
    throw_error(ErrorKind::usage, {name, ": keys have ", key_channels, " channels, but queries have ",
                                   sizes.heads, " heads of ", sizes.head,
                                   " channels; key heads must have the same width, and their number must "
                                   "divide the number of query heads"});
}

/// Returns the sizes of an attention. `x` has its queries, keys and values. `out` and `logsumexp` are the
/// shapes of its results. Throws Error(usage) if the shapes do not fit together.
template <class T, class P>
AttentionSizes expect_attention(char const* name, HeadColumns<T, P> const& x, int heads, Shape const& out,
                                Shape const& logsumexp, std::int64_t first_query) {
  bool const valid = out.dims() == 3 && heads > 0 && out[0] > 0 && out[2] % heads == 0 && out[2] > 0;
  AttentionSizes sizes;
  if (valid) {
    std::int64_t const head = out[2] / heads, key_heads = x.k.columns / head;
    sizes = {out[0], out[1], x.k.rows / out[0], first_query, heads, key_heads > 0 ? heads / key_heads : 0,
             head};
  }
  expect(valid && x.q.rows == out[0] * out[1] && x.q.columns == out[2] && x.v.rows == x.k.rows &&
             x.k.rows == sizes.samples * sizes.keys && first_query >= 0 &&
             first_query + sizes.queries <= sizes.keys && x.k.columns == x.v.columns &&
             x.k.stride == x.v.stride && logsumexp.elements() == out[0] * heads * out[1],
         name,
         "q (B,T,C), k and v of the same layout with one row for each position up to the last query's, or "
         "qkv (B,T,3C), out (B,T,C) with C a multiple of heads, logsumexp (B,heads,T)",
         x.q.shape(), x.k.shape(), x.v.shape(), out, logsumexp);
  expect_heads(name, sizes, x.k.columns);
  return sizes;
}

/// Returns the attention implementation that device P runs if the policy requests `requested`. Throws
/// Error(unsupported) for cudnn without a GPU or without cuDNN.
template <class P>
AttentionKind attention_to_run(AttentionKind requested) {
  switch (requested) {
    case AttentionKind::automatic:
      return AttentionKind::fused;
    case AttentionKind::reference:
    case AttentionKind::fused:
      return requested;
    case AttentionKind::cudnn:
      if (std::is_same_v<P, Cuda> && cuda::has_cudnn_attention()) return requested;
      throw Error(ErrorKind::unsupported,
                  "attention cudnn needs a GPU and a program that links tessera::cudnn; use auto, fused or "
                  "reference");
  }
  throw_error(ErrorKind::usage, {"attention ", static_cast<int>(requested), " does not exist"});
}

/// Returns the FLOPs of `products` matrix products over queries and keys. Counts only the keys that the
/// causal mask leaves visible. For a whole sequence, the result is about half of the FLOPs without the mask.
inline double attention_flops(AttentionSizes const& sizes, int products) {
  return static_cast<double>(products) * static_cast<double>(sizes.samples * sizes.queries) *
         static_cast<double>(2 * sizes.first + sizes.queries + 1) *
         static_cast<double>(sizes.heads * sizes.head);
}

}  // namespace detail

/// Computes out = softmax(q k^T / sqrt(D), causal) v for each head, where D is the number of channels per
/// head. In x, q has C = heads*D columns. k and v have key_heads*D columns, and heads / key_heads
/// neighbouring query heads share a key head. out is (B,T,C). Also writes logsumexp (B,heads,T) in
/// compute_t<T>, for the backward pass. The operation has no (T,T) buffer. The queries of a sample are at
/// positions first_query + t. The keys of a sample start at position 0, and there are at least first_query +
/// T of them.
template <class T, class P>
void attention_forward(Context<P>& context, std::type_identity_t<HeadColumns<T const, P>> const& x, int heads,
                       Tensor<T, P> out, Out<compute_t<T>, P> logsumexp, std::int64_t first_query = 0) {
  AttentionSizes const sizes =
      detail::expect_attention("attention_forward", x, heads, out.shape(), logsumexp.shape(), first_query);
  Operation const operation{"attention_forward", detail::attention_flops(sizes, 2),
                            detail::bytes_of(x.q, x.k, x.v, out, logsumexp)};
  AttentionKind const kind = detail::attention_to_run<P>(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::forward(context, kind, x, sizes, out, logsumexp);
    context.ran(kind);
  });
}

/// Same as attention_forward above, for one tensor qkv (B,T,3C) with the columns of q, k and v one after
/// another.
template <class T, class P>
void attention_forward(Context<P>& context, In<T, P> qkv, int heads, Tensor<T, P> out,
                       Out<compute_t<T>, P> logsumexp) {
  attention_forward(context, HeadColumns<T const, P>(qkv), heads, out, logsumexp);
}

/// Computes dx = the gradients of q, k and v, from dout (B,T,C) and the inputs and results of the forward
/// pass. The gradient of a key head is the sum over the query heads that share it, in order. Probabilities
/// are recomputed. If `partials` (attention_partial_rows(B,T),3C) is not empty, dx must be one tensor
/// (B,T,3C). `partials` then receives the sums of dx over blocks of rows, for the bias gradient of the qkv
/// layer. A device that computes this bias gradient together with the weight gradient of the layer leaves
/// `partials` unchanged.
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout,
                        std::type_identity_t<HeadColumns<T const, P>> const& x, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, HeadColumns<T, P> const& dx,
                        std::int64_t first_query = 0, Out<compute_t<T>, P> partials = {}) {
  AttentionSizes const sizes =
      detail::expect_attention("attention_backward", x, heads, out.shape(), logsumexp.shape(), first_query);
  detail::expect_attention("attention_backward", HeadColumns<T const, P>(dx), heads, out.shape(),
                           logsumexp.shape(), first_query);
  std::int64_t const channels = out.shape().columns();
  auto const one_tensor = [&] {
    return dx.q.stride == 3 * channels && dx.k.stride == dx.q.stride && dx.k.data == dx.q.data + channels &&
           dx.v.data == dx.k.data + channels;
  };
  detail::expect(dout.shape().rows() == out.shape().rows() && dout.shape().columns() == channels &&
                     dx.k.shape() == x.k.shape() &&
                     (!partials || (one_tensor() && sizes.group == 1 && sizes.keys == sizes.queries &&
                                    partials.shape().elements() ==
                                        attention_partial_rows(sizes.samples, sizes.queries) * 3 * channels)),
                 "attention_backward",
                 "dout like out (B,T,C), dk like k, partials (attention_partial_rows(B,T),3C) of dx in one "
                 "tensor (B,T,3C)",
                 dout.shape(), out.shape(), x.k.shape(), dx.k.shape(), partials.shape());
  Operation const operation{"attention_backward", detail::attention_flops(sizes, 5),
                            detail::bytes_of(dout, x.q, x.k, x.v, out, logsumexp, dx.q, dx.k, dx.v)};
  AttentionKind const kind = detail::attention_to_run<P>(context.math().attention);
  context.enqueue(operation, [&] {
    backend::Attention<P>::backward(context, kind, dout, x, out, logsumexp, sizes, dx, partials);
  });
}

/// Same as attention_backward above, for one tensor qkv and one tensor dqkv (B,T,3C).
template <class T, class P>
void attention_backward(Context<P>& context, In<T, P> dout, In<T, P> qkv, In<T, P> out,
                        In<compute_t<T>, P> logsumexp, int heads, Tensor<T, P> dqkv,
                        Out<compute_t<T>, P> partials = {}) {
  attention_backward(context, dout, HeadColumns<T const, P>(qkv), out, logsumexp, heads,
                     HeadColumns<T, P>(dqkv), 0, partials);
}

}  // namespace ops
}  // namespace v0
}  // namespace tessera
