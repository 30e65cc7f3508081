// SPDX-License-Identifier: Apache-2.0
// Provides causal attention on a GPU, after FlashAttention (arXiv 2205.14135). Contract: ops/attention.hpp.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/backend/cuda/attention/attention_fp32.cuh"
#include "tessera/backend/cuda/attention/attention_mma.cuh"
#include "tessera/backend/cuda/attention/attention_short.cuh"
#include "tessera/backend/cuda/attention/attention_short_warpgroups.cuh"
#include "tessera/backend/cuda/attention/attention_tiles.cuh"
#include "tessera/backend/cuda/attention/attention_warpgroups.cuh"
#include "tessera/backend/cuda/kernels/kernel.cuh"
#include "tessera/backend/cuda/kernels/sums.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/cuda/runtime/device.cuh"
#include "tessera/backend/operations.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The kinds of kernels that compute attention: without tensor cores (`tiles`), on tensor cores with each
/// warp by itself (`warps`), or on Hopper's tensor cores with four warps together (`warpgroups`).
enum class AttentionForm { tiles, warps, warpgroups };

template <class T>
bool has_whole_packs(Heads<T> const& x) {
  constexpr int n = pack_width<T>;
  return takes_packs<n>(x.q, x.k, x.v) && x.q_stride % n == 0 && x.kv_stride % n == 0;
}

/// Returns which kernels compute the attention. The choice depends on the type, shape and alignment of the
/// heads and on the GPU. Kernels on tensor cores need rows that consist of whole aligned 16-byte packs
/// (`whole_packs`), and run unless AttentionKind::reference is requested. Heads of 16-bit values use
/// warpgroups on Hopper (up to 128 channels, except 32), and warps on other GPUs (32, 64 and 128 channels).
/// Heads of fp32 values use warps (up to 128 channels). All other heads use tiles.
template <class T>
AttentionForm attention_form(AttentionKind kind, HeadLayout const& at, bool whole_packs) {
  if (sizeof(T) > 4 || kind == AttentionKind::reference || !whole_packs || at.head % pack_width<T> != 0 ||
      at.head > 128)
    return AttentionForm::tiles;
  if (sizeof(T) == 4) return AttentionForm::warps;
  if (at.head != 32 && has_warpgroups()) return AttentionForm::warpgroups;
  return at.head == 32 || at.head == 64 || at.head == 128 ? AttentionForm::warps : AttentionForm::tiles;
}

/// Passes the smallest of `Widths` that is at least `head` to `function`, as a std::integral_constant.
/// Returns the result of `function`, or cudaErrorInvalidValue if all widths are less than `head`.
template <int... Widths, class F>
cudaError_t with_width(std::int64_t head, F const& function) {
  cudaError_t status = cudaErrorInvalidValue;
  (void)((head <= Widths && (status = function(std::integral_constant<int, Widths>()), true)) || ...);
  return status;
}

/// Like with_width, but also passes the format of fp32 products as a type, before the width. If the format is
/// plain fp32, passes bf16x6: six products of bf16 pieces (pieces.hpp), whose errors are smaller than the
/// rounding errors of fp32 sums.
template <class F>
cudaError_t with_product(DType product, std::int64_t head, F const& function) {
  auto const with = [&]<DType Product>(std::integral_constant<DType, Product> as) {
    return with_width<32, 64, 128>(head, [&](auto width) { return function(as, width); });
  };
  switch (product) {
    case DType::tf32:
      return with(std::integral_constant<DType, DType::tf32>());
    case DType::bf16x3:
      return with(std::integral_constant<DType, DType::bf16x3>());
    case DType::bf16x6:
    case DType::f32:
    case DType::f64:
    case DType::f16:
    case DType::bf16:
    case DType::u8:
      break;
  }
  return with(std::integral_constant<DType, DType::bf16x6>());
}

template <class T>
cudaError_t run_attention_forward(cudaStream_t stream, AttentionKind kind, DType product,
                                  HeadLayout const& at, std::int64_t pairs, Heads<T const> const& x, T* out,
                                  compute_t<T>* logsumexp) {
  auto const scale = compute_t<T>(1) / std::sqrt(compute_t<T>(at.head));
  if constexpr (sizeof(T) <= 4) {
    AttentionForm const form =
        attention_form<T>(kind, at, has_whole_packs(x) && takes_packs<pack_width<T>>(out));
    if constexpr (std::is_same_v<T, float>) {
      if (form == AttentionForm::warps)
        return with_product(product, at.head, [&](auto as, auto width) {
          return run_attention_forward_fp32<as(), width()>(stream, at, pairs, scale, x, out, logsumexp);
        });
    } else {
      if (form == AttentionForm::warpgroups)
        return with_width<64, 80, 96, 128>(at.head, [&](auto width) {
          return run_attention_forward_warpgroups<width()>(stream, at, pairs, scale, x, out, logsumexp);
        });
      if (form == AttentionForm::warps)
        return with_width<32, 64, 128>(at.head, [&](auto width) {
          return run_attention_forward_mma<width()>(stream, at, pairs, scale, x, out, logsumexp);
        });
    }
  }
  return at.head <= 32 ? run_attention_forward_tiles<32>(stream, at, pairs, scale, x, out, logsumexp)
                       : run_attention_forward_tiles<64>(stream, at, pairs, scale, x, out, logsumexp);
}

/// Enqueues the kernels that compute the gradients of `pairs` pairs. A pair is a sample and a head. The
/// kernels use g.dots as scratch memory. If g.partials is not null, the warpgroup kernels also write it.
template <class T>
cudaError_t run_attention_gradient(cudaStream_t stream, AttentionForm form, DType product,
                                   AttentionGradient<T> const& g, std::int64_t pairs) {
  if constexpr (sizeof(T) <= 4) {
    if constexpr (std::is_same_v<T, float>) {
      if (form == AttentionForm::warps)
        return with_product(product, g.at.head, [&](auto as, auto width) {
          using Short = ShortGradientCut<as(), width()>;
          if constexpr (Short::exists)
            if (g.at.keys <= Short::keys)
              return run_attention_short_gradient<as(), width()>(stream, g, pairs);
          return run_attention_gradient_fp32<as(), width()>(stream, g, pairs);
        });
    } else {
      if (form == AttentionForm::warpgroups && is_short<T>(g.at))
        return run_attention_short_warpgroups(stream, g, pairs);
      if (form == AttentionForm::warpgroups)
        return with_width<64, 80, 96, 128>(g.at.head, [&](auto width) {
          return run_attention_gradient_warpgroups<width()>(stream, g, pairs);
        });
      if (form == AttentionForm::warps)
        return with_width<32, 64, 128>(
            g.at.head, [&](auto width) { return run_attention_gradient_mma<width()>(stream, g, pairs); });
    }
  }
  return g.at.head <= 32 ? run_attention_gradient_tiles<32>(stream, g, pairs)
                         : run_attention_gradient_tiles<64>(stream, g, pairs);
}

/// Runs cuDNN's forward pass, or its backward pass if `dout` is given. Casts const away, because cuDNN
/// expects pointers without const.
template <class T>
CudnnOutcome run_cudnn_attention(Context<Cuda>& context, ops::AttentionSizes const& sizes,
                                 ops::HeadColumns<T const, Cuda> const& x, T const* out,
                                 compute_t<T> const* logsumexp, T const* dout = nullptr,
                                 ops::HeadColumns<T, Cuda> const* dx = nullptr) {
  if constexpr (sizeof(T) == 2) {
    CudnnAttention* const cudnn = context.cudnn_attention();
    if (!cudnn) return {"this program does not link tessera::cudnn; use attention auto or fused"};
    if (sizes.first != 0 || sizes.keys != sizes.queries)
      return {
          "cuDNN's attention supports only whole sequences, but these queries are a part of the positions; "
          "use attention auto or fused"};
    CudnnShape const shape{dtype_of<T>,           sizes.samples,        sizes.queries, sizes.heads,
                           sizes.group,           sizes.head,           x.q.stride,    x.k.stride,
                           dx ? dx->q.stride : 0, dx ? dx->k.stride : 0};
    auto const address = [](auto const* data) { return static_cast<void*>(const_cast<T*>(data)); };
    CudnnOperands at{address(x.q.data), address(x.k.data), address(x.v.data), address(out),
                     const_cast<compute_t<T>*>(logsumexp)};
    if (!dx) return {cudnn->forward(shape, at, context.stream(), context.workspace())};
    at.dout = address(dout);
    at.dq = dx->q.data;
    at.dk = dx->k.data;
    at.dv = dx->v.data;
    return {cudnn->backward(shape, at, context.stream(), context.workspace())};
  } else {
    return {"cuDNN's attention supports only 16-bit values; use attention auto or fused"};
  }
}

struct Attention {
  template <class T>
  static void forward(Context<Cuda>& context, AttentionKind kind, ops::HeadColumns<T const, Cuda> const& x,
                      ops::AttentionSizes const& sizes, Tensor<T, Cuda> out,
                      Tensor<compute_t<T>, Cuda> logsumexp) {
    if (out.elements() == 0) return;
    if (kind == AttentionKind::cudnn)
      return context.check(run_cudnn_attention<T>(context, sizes, x, out.data(), logsumexp.data()),
                           "attention_forward");
    HeadLayout const at(sizes);
    context.check(
        run_attention_forward(context.stream(), kind, context.math().product, at, sizes.samples * sizes.heads,
                              Heads<T const>(x), out.data(), logsumexp.data()),
        "attention_forward");
  }

  /// `partials`, if given, receives the sums of dx over blocks of rows. The warpgroup kernels compute the
  /// sums while they store dx. Otherwise a separate pass over dx computes them.
  template <class T>
  static void backward(Context<Cuda>& context, AttentionKind kind, Tensor<T const, Cuda> dout,
                       ops::HeadColumns<T const, Cuda> const& x, Tensor<T const, Cuda> out,
                       Tensor<compute_t<T> const, Cuda> logsumexp, ops::AttentionSizes const& sizes,
                       ops::HeadColumns<T, Cuda> const& dx, Tensor<compute_t<T>, Cuda> partials = {}) {
    if (out.elements() == 0) return;
    AttentionForm const form =
        attention_form<T>(kind, HeadLayout(sizes),
                          has_whole_packs(Heads<T const>(x)) && has_whole_packs(Heads<T>(dx)) &&
                              takes_packs<pack_width<T>>(out.data(), dout.data()));
    bool const sums = partials && form == AttentionForm::warpgroups && kind != AttentionKind::cudnn &&
                      sizes.queries >= ops::attention_block_rows && takes_packs<2>(partials.data());
    run_backward(context, kind, form, dout, x, out, logsumexp, sizes, dx, sums ? partials.data() : nullptr);
    if (!partials || sums) return;
    std::int64_t const rows = sizes.samples * sizes.queries, columns = dx.q.stride;
    std::int64_t const count = ops::attention_partial_rows(sizes.samples, sizes.queries);
    run_row_block_sums(context.stream(), dx.q.data, rows, columns, (rows + count - 1) / count, count, 0,
                       columns, partials.data());
  }

 private:
  /// Computes the gradients with this library's kernels or with cuDNN. The kernels store one number per row
  /// of a head (AttentionGradient::dots) in the workspace. If the workspace is too small for all pairs of a
  /// sample and a head, groups of pairs run one after another. Pairs that share keys stay in one group, so
  /// the groups do not change a sum.
  template <class T>
  static void run_backward(Context<Cuda>& context, AttentionKind kind, AttentionForm form,
                           Tensor<T const, Cuda> dout, ops::HeadColumns<T const, Cuda> const& x,
                           Tensor<T const, Cuda> out, Tensor<compute_t<T> const, Cuda> logsumexp,
                           ops::AttentionSizes const& sizes, ops::HeadColumns<T, Cuda> const& dx,
                           compute_t<T>* partials) {
    using S = compute_t<T>;
    if (kind == AttentionKind::cudnn)
      return context.check(
          run_cudnn_attention<T>(context, sizes, x, out.data(), logsumexp.data(), dout.data(), &dx),
          "attention_backward");
    HeadLayout const at(sizes);
    std::int64_t const sequence = sizes.queries, pairs = sizes.samples * sizes.heads;
    S* const dots = reinterpret_cast<S*>(context.workspace().data());
    std::int64_t const fit = static_cast<std::int64_t>(context.workspace().size() / sizeof(S)) / sequence;
    std::int64_t const piece = fit / sizes.group * sizes.group;
    if (piece == 0)
      return context.check(cudaErrorInvalidConfiguration,
                           "attention_backward (the workspace is too small for the heads that share keys; "
                           "shorten the sequence)");
    for (std::int64_t first = 0; first < pairs; first += piece) {
      AttentionGradient<T> const gradient{at,
                                          first,
                                          S(1) / std::sqrt(S(at.head)),
                                          dout.data(),
                                          Heads<T const>(x),
                                          out.data(),
                                          logsumexp.data(),
                                          dots,
                                          Heads<T>(dx),
                                          partials};
      context.check(run_attention_gradient(context.stream(), form, context.math().product, gradient,
                                           std::min(piece, pairs - first)),
                    "attention_backward");
    }
  }
};

}  // namespace cuda

template <>
struct backend::Attention<Cuda> : cuda::Attention {};

}  // namespace v0
}  // namespace tessera
