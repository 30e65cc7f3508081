// SPDX-License-Identifier: Apache-2.0
// Makes an AnyModel from a model of a C++ type. Include this header in the source file that compiles the
// model's functions. The operations that these functions call, such as `linear`, are already compiled in
// tessera::recipes. So a model compiles in seconds, and its functions for GPUs need no nvcc.
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "tessera/fwd.hpp"
#include "tessera/nn/decoder_layers.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/row_sums.hpp"
#include "tessera/train/any_model.hpp"

namespace tessera {
inline namespace v0 {

// Instantiates the operations that models call, for device P and number format T. `prefix` is `extern` in
// source files that compile models, and empty in the library, which contains the operations. An operation
// that is not listed here is compiled with the model that uses it.
#define TESSERA_OPERATIONS(prefix, P, T)                                                                     \
  namespace ops {                                                                                            \
  prefix template void begin_row_sums<T, P>(Context<P>&);                                                    \
  prefix template void end_row_sums<T, P>(Context<P>&);                                                      \
  prefix template decltype(linear<T, P>) linear<T, P>;                                                       \
  prefix template decltype(linear_backward_input<T, P>) linear_backward_input<T, P>;                         \
  prefix template decltype(linear_backward_weight<T const, compute_t<T>, P>)                                 \
      linear_backward_weight<T const, compute_t<T>, P>;                                                      \
  prefix template decltype(linear_backward_weight<T, compute_t<T>, P>)                                       \
      linear_backward_weight<T, compute_t<T>, P>;                                                            \
  prefix template void attention_forward(Context<P>&, HeadColumns<T const, P> const&, int, Tensor<T, P>,     \
                                         Tensor<compute_t<T>, P>, std::int64_t);                             \
  prefix template void attention_backward(Context<P>&, Tensor<T const, P>, HeadColumns<T const, P> const&,   \
                                          Tensor<T const, P>, Tensor<compute_t<T> const, P>, int,            \
                                          HeadColumns<T, P> const&, std::int64_t, Tensor<compute_t<T>, P>);  \
  prefix template decltype(activate<T, P>) activate<T, P>;                                                   \
  prefix template decltype(embedding_forward<T, P>) embedding_forward<T, P>;                                 \
  prefix template decltype(embedding_backward<T, P>) embedding_backward<T, P>;                               \
  prefix template decltype(layer_norm_forward<T, P>) layer_norm_forward<T, P>;                               \
  prefix template decltype(layer_norm_backward_input<T, P>) layer_norm_backward_input<T, P>;                 \
  prefix template decltype(layer_norm_backward_weight<T, P>) layer_norm_backward_weight<T, P>;               \
  prefix template decltype(rms_norm_forward<T, P>) rms_norm_forward<T, P>;                                   \
  prefix template decltype(rms_norm_backward_input<T, P>) rms_norm_backward_input<T, P>;                     \
  prefix template decltype(rms_norm_backward_weight<T, P>) rms_norm_backward_weight<T, P>;                   \
  prefix template decltype(swiglu_forward<T, P>) swiglu_forward<T, P>;                                       \
  prefix template decltype(swiglu_backward<T, P>) swiglu_backward<T, P>;                                     \
  prefix template void rotary(Context<P>&, Tensor<T const, P>, Tensor<T, P>, RotaryFrequencies const&,       \
                              RotaryOptions const&);                                                         \
  prefix template void cross_entropy(Context<P>&, Tensor<T, P>, std::int64_t, Tensor<std::int32_t const, P>, \
                                     Tensor<compute_t<T>, P>, bool, compute_t<T> const*);                    \
  }
// If T has 16 bits, a weight gradient has the format T or fp32, the format of sums. So the operation that
// computes weight gradients is instantiated for T and for fp32.
#define TESSERA_OPERATIONS_16_BIT(prefix, P, T)                                                          \
  TESSERA_OPERATIONS(prefix, P, T)                                                                       \
  namespace ops {                                                                                        \
  prefix template decltype(linear_backward_weight<T const, T, P>) linear_backward_weight<T const, T, P>; \
  prefix template decltype(linear_backward_weight<T, T, P>) linear_backward_weight<T, T, P>;             \
  }
#define TESSERA_OPERATIONS_ON(P)             \
  TESSERA_OPERATIONS(extern, P, float)       \
  TESSERA_OPERATIONS(extern, P, double)      \
  TESSERA_OPERATIONS_16_BIT(extern, P, half) \
  TESSERA_OPERATIONS_16_BIT(extern, P, bfloat16)
TESSERA_OPERATIONS_ON(Cpu)
TESSERA_OPERATIONS_ON(Cuda)
#undef TESSERA_OPERATIONS_ON

namespace detail {

template <class M, class Place, class... Types>
void add_functions(ModelFunctions& functions) {
  ((std::get<UnitFunctions<Place, Types>>(functions) = unit_functions<M, Place, Types>()), ...);
}
template <class M, class Place>
void add_all_functions(ModelFunctions& functions) {
  add_functions<M, Place, float, double, half, bfloat16>(functions);
}

/// Whether tessera::recipes contains the compiled functions of a model.
template <class M>
inline constexpr bool in_library =
    std::is_same_v<M, Gpt2> || std::is_same_v<M, Opt> || std::is_same_v<M, Llama>;
/// Returns the unit functions of the model `M`, which must be one of the models in the compiled library (see
/// in_library). This header only declares the function. The compiled library contains its definition.
template <class M, class Place, class T>
UnitFunctions<Place, T> library_functions();

}  // namespace detail

/// Returns a model for trainers whose recipe is chosen at run time. Compiles the model's functions in this
/// source file, for the devices `Places`. If `Places` is empty, compiles them for all devices of
/// tessera::recipes.
template <class... Places, Model M>
AnyModel any_model(M model) {
  detail::ModelFunctions functions;
  if constexpr (sizeof...(Places) > 0) {
    (detail::add_all_functions<M, Places>(functions), ...);
  } else {
    detail::add_all_functions<M, Cpu>(functions);
#if defined(TESSERA_RECIPES_CUDA)  // the target tessera::recipes defines it in a library with GPUs
    detail::add_all_functions<M, Cuda>(functions);
#endif
  }
  return AnyModel(std::move(model), functions);
}

}  // namespace v0
}  // namespace tessera
