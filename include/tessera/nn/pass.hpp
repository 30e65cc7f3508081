// SPDX-License-Identifier: Apache-2.0
// Defines Pass, which has the views of the weights, activations and gradients of one unit. The functions of a
// model get a Pass as an argument.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {

namespace nn {

/// Handles to the tensors of a layer. A layer adds its tensors to the lists of its unit (nn::Unit). A handle
/// is the index of a tensor in such a list.
struct Weight {
  int index = -1;  ///< negative: no tensor; the views of this handle are empty
  bool borrowed = false;
};
struct Saved {
  int index = -1;
};
struct SavedStatistic {
  int index = -1;
};
struct Backward {
  int index = -1;
};
struct BackwardStatistic {
  int index = -1;
};

/// The low-rank adapter of a Linear's weight w: y = x w + scale (x a^T) b^T. a is (rank,in), b is (out,rank).
struct Adapter {
  Weight weight, a, b;
  Saved inner;       ///< scale x a^T
  Backward d_inner;  ///< the gradient of x a^T
  double scale = 1.0;
};

}  // namespace nn

template <class Place, class T>
struct AdapterFunctions;

namespace detail {

[[noreturn]] inline void no_such_entry(char const* what, int index, std::size_t size) {
  throw_error(ErrorKind::usage, {"a model uses ", what, " ", index, " in a pass that has ", size,
                                 "; list it in the unit's UnitSpec, and check which verbs may use it"});
}

}  // namespace detail

/// The views of the tensors of one unit, for a function of a model. Parameters include their padding rows
/// (ParameterSpec::in_memory). A view is empty if the function must not use the tensor, for example gradients
/// in `forward`. A Pass cannot be copied, because a copy would allocate memory in every step.
template <class Place, class T>
struct Pass {
  using Stat = compute_t<T>;
  using Value = Tensor<T, Place>;
  using ConstValue = Tensor<T const, Place>;

  Pass() = default;
  Pass(Pass&&) = default;
  Pass& operator=(Pass&&) = default;

  Context<Place>* device = nullptr;
  Tensor<std::int32_t const, Place> tokens;   // (B,T)
  Tensor<std::int32_t const, Place> targets;  // (B,T), negative: masked
  Tensor<T const, Place> input;               // the output of the previous unit
  Tensor<T, Place> output;  // has the shape UnitSpec::output; empty if a recompute does not need it
  Tensor<T const, Place> output_gradient;  // shape of output
  Tensor<T, Place> input_gradient;         // shape of input; empty if no earlier unit is trained

  /// Only the last unit uses these two members. `losses` receives one loss per token. `*gradient_scale` is
  /// the factor of the gradient of each loss: the loss scale divided by the number of tokens of the global
  /// batch.
  Tensor<Stat, Place> losses;
  Stat const* gradient_scale = nullptr;
  /// False in evaluation, and in units before the first unit with trained parameters. If `training` is false,
  /// forward need not write the tensors that only the backward pass reads.
  bool training = true;

  std::vector<Tensor<T const, Place>> weights;   // owned parameters
  std::vector<Tensor<T const, Place>> borrowed;  // borrowed parameters
  // Gradients. The view for a frozen parameter is empty, and the unit must not compute its gradient.
  std::vector<Tensor<T, Place>> gradients;  // of owned parameters: the unit overwrites them
  std::vector<Tensor<Stat, Place>>
      tied_gradients;  // of parameters that this unit borrows: this unit overwrites them
  std::vector<Tensor<Stat, Place>>
      tied_sums;  // of owned parameters that other units borrow: the sum of their gradients
  std::vector<Tensor<T, Place>> saved_values;  // entry i is empty if UnitSpec::saved[i] is a statistic
  std::vector<Tensor<Stat, Place>> saved_statistics;
  std::vector<Tensor<T, Place>> backward_values;  // entry i is empty if backward[i] is a statistic
  std::vector<Tensor<Stat, Place>> backward_statistics;
  std::span<nn::Adapter const> adapters;                 // the adapters of the unit
  AdapterFunctions<Place, T> const* adapting = nullptr;  // the functions that compute adapters

  Context<Place>& context() const { return *device; }
  /// Each of the next functions returns the view of one tensor. The argument is the index of the tensor in a
  /// list of UnitSpec: `parameters` for weight and gradient, `saved` for saved and statistic, `backward` for
  /// the others. The functions throw Error(usage) for an index beyond the list.
  Tensor<T const, Place> const& weight(int parameter) const { return entry(weights, parameter, "weight"); }
  Tensor<T, Place> const& gradient(int parameter) const { return entry(gradients, parameter, "gradient"); }
  Tensor<T, Place> const& saved(int index) const { return entry(saved_values, index, "saved value"); }
  Tensor<Stat, Place> const& statistic(int index) const {
    return entry(saved_statistics, index, "saved statistic");
  }
  Tensor<T, Place> const& backward(int index) const {
    return entry(backward_values, index, "backward value");
  }
  Tensor<Stat, Place> const& backward_statistic(int index) const {
    return entry(backward_statistics, index, "backward statistic");
  }

  /// The operators [] return the view of the tensor with this handle.
  ConstValue operator[](nn::Weight of) const {
    if (of.index < 0) return {};
    return of.borrowed ? entry(borrowed, of.index, "borrowed weight") : weight(of.index);
  }
  Value const& operator[](nn::Saved of) const { return saved(of.index); }
  Tensor<Stat, Place> const& operator[](nn::SavedStatistic of) const { return statistic(of.index); }
  Value const& operator[](nn::Backward of) const { return backward(of.index); }
  Tensor<Stat, Place> operator[](nn::BackwardStatistic of) const {
    return of.index < 0 ? Tensor<Stat, Place>() : backward_statistic(of.index);
  }
  /// `gradient` returns the gradient of an owned weight. `tied_gradient` returns the gradient that this unit
  /// computes for a borrowed weight. `partial_gradient` returns the sum of the gradients that the borrowers
  /// of an owned weight have computed in this backward pass.
  Value gradient(nn::Weight of) const { return of.index < 0 ? Value() : gradient(of.index); }
  Tensor<Stat, Place> const& tied_gradient(nn::Weight of) const {
    return entry(tied_gradients, of.index, "tied gradient");
  }
  Tensor<Stat, Place> const& partial_gradient(nn::Weight of) const {
    return entry(tied_sums, of.index, "tied gradient");
  }
  /// Returns the low-rank adapter of a weight, or null if the weight has none.
  nn::Adapter const* adapter(nn::Weight of) const {
    for (nn::Adapter const& one : adapters)
      if (one.weight.index == of.index && !of.borrowed) return &one;
    return nullptr;
  }

 private:
  template <class View>
  static View const& entry(std::vector<View> const& list, int index, char const* what) {
    if (index >= 0 && index < static_cast<int>(list.size())) return list[static_cast<std::size_t>(index)];
    detail::no_such_entry(what, index, list.size());
  }
};

}  // namespace v0
}  // namespace tessera
