// SPDX-License-Identifier: Apache-2.0
// Defines Pass: the views through which a unit's code uses its gathered weights, its activations and its
// gradients.
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

/// A layer's handles to the tensors that it listed in its unit (nn::Unit): indices into the lists of the
/// UnitSpec.
struct Weight {
  int index = -1;  ///< negative: no tensor, and its views are empty
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

/// The adapter of a Linear's weight: y = x w + scale (x a^T) b^T. a is (rank,in), b (out,rank).
struct Adapter {
  Weight weight, a, b;
  Saved inner;       ///< scale x a^T
  Backward d_inner;  ///< its gradient, before the scale
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

/// The views that the executor passes to a unit's functions. Activations have logical shapes; parameters have
/// their shapes in memory (ParameterSpec::in_memory). Views that the running verb may not use are empty:
/// weights that are not gathered, gradients outside backward. A Pass cannot be copied, since a copy would
/// allocate in every step.
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
  Tensor<T, Place> output;                    // UnitSpec::output; empty when a recompute does not need it
  Tensor<T const, Place> output_gradient;     // shape of output
  Tensor<T, Place> input_gradient;            // shape of input; empty if no earlier unit is trained

  /// For the last unit: one loss per token, and the factor of loss gradients (1 / (G T) x the loss scale).
  Tensor<Stat, Place> losses;
  Stat const* gradient_scale = nullptr;
  /// False in evaluation and before the first trained unit: tensors for backward may stay unwritten.
  bool training = true;

  std::vector<Tensor<T const, Place>> weights;   // owned parameters
  std::vector<Tensor<T const, Place>> borrowed;  // borrowed parameters
  // Gradients. Empty for a frozen parameter, for which nothing must be computed.
  std::vector<Tensor<T, Place>> gradients;  // of owned parameters: overwritten, rounded once
  std::vector<Tensor<Stat, Place>>
      tied_gradients;  // of borrowed parameters: overwritten by this unit, which borrows them
  std::vector<Tensor<Stat, Place>>
      tied_sums;  // of owned parameters that other units borrow: the sum of their gradients
  std::vector<Tensor<T, Place>> saved_values;  // entry i is empty where saved[i] is a statistic
  std::vector<Tensor<Stat, Place>> saved_statistics;
  std::vector<Tensor<T, Place>> backward_values;  // likewise for backward
  std::vector<Tensor<Stat, Place>> backward_statistics;
  std::span<nn::Adapter const> adapters;                 // of the unit
  AdapterFunctions<Place, T> const* adapting = nullptr;  // the functions that compute them

  Context<Place>& context() const { return *device; }
  /// Access by index in the lists of the unit's UnitSpec. Throws Error(usage) for an index beyond them.
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

  /// Access by handle.
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
  /// The gradient of an owned weight, of a borrowed one for its owner, and what borrowers left for an owner.
  Value gradient(nn::Weight of) const { return of.index < 0 ? Value() : gradient(of.index); }
  Tensor<Stat, Place> const& lent_gradient(nn::Weight of) const {
    return entry(tied_gradients, of.index, "tied gradient");
  }
  Tensor<Stat, Place> const& partial_gradient(nn::Weight of) const {
    return entry(tied_sums, of.index, "tied gradient");
  }
  /// The adapter of a weight, or null.
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
