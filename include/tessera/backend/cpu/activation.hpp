// SPDX-License-Identifier: Apache-2.0
// Provides activation functions on SIMD packets. GELU in its tanh form is gelu(x) = x s with s = 1 / (1 +
// e^(-2u)), u = sqrt(2/pi) (x + 0.044715 x^3).
#pragma once

#include "tessera/backend/cpu/packet.hpp"
#include "tessera/backend/operations.hpp"

namespace tessera {
inline namespace v0 {
namespace cpu {

namespace detail {

template <class S>
inline constexpr S gelu_twice_root = S(1.5957691216057307117597842397375);  // 2 sqrt(2/pi)
template <class S>
inline constexpr S gelu_cubic = S(0.044715);

/// Returns s of the formula at the top of this file. e^(-2u) may overflow to infinity or to a huge number. In
/// either case s becomes 0.
template <class S>
EIGEN_STRONG_INLINE Packet<S> gelu_sigmoid(Packet<S> x) {
  Packet<S> const cubic =
      fma(x * x, Packet<S>(gelu_twice_root<S> * gelu_cubic<S>), Packet<S>(gelu_twice_root<S>));
  Packet<S> const one(S(1));
  return one / (one + exp(-(x * cubic)));
}

}  // namespace detail

template <class S>
EIGEN_STRONG_INLINE Packet<S> gelu(Packet<S> x) {
  return x * detail::gelu_sigmoid(x);
}

/// Returns d gelu(x) / dx = s + x s (1 - s) 2u', with 2u' = 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2). The code
/// limits x^2 to 10000, so that 2u' cannot become infinite. The limit does not change the result, because s
/// (1 - s) vanishes for much smaller x. For an infinite x the result is NaN.
template <class S>
EIGEN_STRONG_INLINE Packet<S> gelu_derivative(Packet<S> x) {
  Packet<S> const s = detail::gelu_sigmoid(x);
  Packet<S> const slope = fma(min(x * x, Packet<S>(S(10000))),
                              Packet<S>(S(3) * detail::gelu_twice_root<S> * detail::gelu_cubic<S>),
                              Packet<S>(detail::gelu_twice_root<S>));
  Packet<S> const rest = s * (Packet<S>(S(1)) - s);
  return fma(x * slope, rest, s);
}

struct Gelu {
  template <class S>
  EIGEN_STRONG_INLINE Packet<S> value(Packet<S> x) const {
    return gelu(x);
  }
  template <class S>
  EIGEN_STRONG_INLINE Packet<S> derivative(Packet<S> x) const {
    return gelu_derivative(x);
  }
};

/// The activation ReLU. Its value at NaN is NaN. Its derivative at 0 is 0.
struct Relu {
  template <class S>
  EIGEN_STRONG_INLINE Packet<S> value(Packet<S> x) const {
    return zero_where(x, Eigen::internal::pcmp_lt(x.raw, Packet<S>(S(0)).raw));
  }
  template <class S>
  EIGEN_STRONG_INLINE Packet<S> derivative(Packet<S> x) const {
    return zero_where(Packet<S>(S(1)), Eigen::internal::pcmp_le(x.raw, Packet<S>(S(0)).raw));
  }

 private:
  template <class S>
  static EIGEN_STRONG_INLINE Packet<S> zero_where(Packet<S> x, typename Packet<S>::raw_type const& mask) {
    return Packet<S>(Eigen::internal::pandnot(x.raw, mask), 0);
  }
};

/// The activation that `kind` selects at run time. A selection at compile time would need one compiled kernel
/// per activation.
struct AnyActivation {
  Activation kind;

  template <class S>
  EIGEN_STRONG_INLINE Packet<S> value(Packet<S> x) const {
    switch (kind) {
      case Activation::gelu:
        return Gelu{}.value(x);
      case Activation::relu:
        return Relu{}.value(x);
      case Activation::none:
        break;
    }
    return x;
  }
  template <class S>
  EIGEN_STRONG_INLINE Packet<S> derivative(Packet<S> x) const {
    switch (kind) {
      case Activation::gelu:
        return Gelu{}.derivative(x);
      case Activation::relu:
        return Relu{}.derivative(x);
      case Activation::none:
        break;
    }
    return Packet<S>(S(1));
  }
};

/// Calls work(AnyActivation{activation}), or does nothing if `activation` is Activation::none.
template <class F>
void with_activation(Activation activation, F const& work) {
  if (activation != Activation::none) work(AnyActivation{activation});
}

}  // namespace cpu
}  // namespace v0
}  // namespace tessera
