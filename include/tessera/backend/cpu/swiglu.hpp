// SPDX-License-Identifier: Apache-2.0
// Implements SwiGLU on the CPU. ops/swiglu.hpp documents the operations.
#pragma once

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

struct SwiGlu {
  template <class T>
  static void forward(Context<Cpu>& context, ConstTensor<T> const& gate, ConstTensor<T> const& up,
                      Tensor<T> const& y) {
    using S = compute_t<T>;
    transform<S>(
        context.pool(), y.elements(),
        [](Packet<S> g, Packet<S> u, Packet<S>& result) { result = g * sigmoid(g) * u; }, gate.data(),
        up.data(), y.data());
  }

  /// Computes both gradients with silu'(g) = s + g s (1 - s), where s = sigmoid(g).
  template <class T>
  static void backward(Context<Cpu>& context, ConstTensor<T> const& gate, ConstTensor<T> const& up,
                       ConstTensor<T> const& dy, Tensor<T> const& dgate, Tensor<T> const& dup) {
    using S = compute_t<T>;
    transform<S>(
        context.pool(), dgate.elements(),
        [](Packet<S> g, Packet<S> u, Packet<S> slope, Packet<S>& to_gate, Packet<S>& to_up) {
          Packet<S> const s = sigmoid(g), silu = g * s;
          to_gate = slope * u * fma(silu, Packet<S>(S(1)) - s, s);
          to_up = slope * silu;
        },
        gate.data(), up.data(), dy.data(), dgate.data(), dup.data());
  }

 private:
  template <class S>
  static EIGEN_STRONG_INLINE Packet<S> sigmoid(Packet<S> x) {
    Packet<S> const one(S(1));
    return one / (one + exp(-x));
  }
};

}  // namespace cpu

template <>
struct backend::SwiGlu<Cpu> : cpu::SwiGlu {};
}  // namespace v0
}  // namespace tessera
