// SPDX-License-Identifier: Apache-2.0
// Defines Unit, the list of the tensors of one unit of a model. A model's constructor creates layers. Each
// layer adds its tensors to the list and keeps handles to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// A function that returns the shape of a tensor for a micro-batch.
using ShapeOf = std::function<Shape(MicroBatch)>;

/// Returns a function that gives the shape (B,T,columns) for a micro-batch.
inline ShapeOf per_token(std::int64_t columns) {
  return [columns](MicroBatch of) { return Shape{of.batch, of.sequence, columns}; };
}

/// Returns a function that gives the shape (B,heads,T) for a micro-batch.
inline ShapeOf per_head(std::int64_t heads) {
  return [heads](MicroBatch of) { return Shape{of.batch, heads, of.sequence}; };
}

/// The tensors of a unit's layers, in order of creation. A layer adds each tensor once, with a name. In the
/// forward and the backward pass, the layer refers to the tensor by the handle that this class returned.
class Unit {
 public:
  bool input_gradient = true;  // these three members mean the same as in UnitSpec
  bool backward_reads_weights = true;
  bool recomputable = true;
  ShapeOf output;  ///< empty for the last unit
  Split output_split;

  Weight parameter(ParameterSpec spec) {
    parameters_.push_back(std::move(spec));
    return {static_cast<int>(parameters_.size()) - 1};
  }
  /// Adds a parameter that another unit owns. `owner` is the index of the owner in the model's list of units,
  /// and `parameter` is the owner's handle. Returns the handle for this unit.
  Weight borrow(int owner, Weight parameter) {
    borrows_.push_back({owner, parameter.index});
    return {static_cast<int>(borrows_.size()) - 1, true};
  }
  /// Freezes a parameter: it has no gradient and no optimizer state, and is never updated.
  void freeze(Weight owned) { parameters_[static_cast<std::size_t>(owned.index)].trainable = false; }
  /// Adds a tensor that forward saves for backward. `cheap_to_recompute`: the policy Recompute<Gelu>
  /// recomputes the tensor instead of keeping it.
  Saved saved(std::string_view name, ShapeOf const& shape, bool cheap_to_recompute = false,
              Split const& split = {}) {
    return {saved_.add(name, shape, segment(), false, split, cheap_to_recompute)};
  }
  SavedStatistic saved_statistic(std::string_view name, ShapeOf const& shape, Split const& split = {}) {
    return {saved_.add(name, shape, segment(), true, split)};
  }
  /// Declares that backward needs the tensor `activation` only for the gradients of these parameters, and
  /// that the unit's function `recompute` does not read it.
  void needed_for(Saved activation, std::initializer_list<Weight> parameters) {
    saved_.specs[static_cast<std::size_t>(activation.index)].needed_for = parameters;
  }
  /// Adds a tensor that backward_input writes and backward_weight reads. Returns its handle.
  Backward backward(std::string_view name, ShapeOf const& shape, Split const& split = {}) {
    return {backward_.add(name, shape, segment(), false, split)};
  }
  /// Adds a statistic that backward_input writes and backward_weight reads. `upper_bound`: some devices write
  /// only a part of the statistic. `needed_for`: the parameters whose gradients need it; an empty list means
  /// all parameters.
  BackwardStatistic backward_statistic(std::string_view name, ShapeOf const& shape, bool upper_bound = false,
                                       std::initializer_list<Weight> needed_for = {},
                                       Split const& split = {}) {
    int const index = backward_.add(name, shape, segment(), true, split, false, upper_bound);
    backward_.specs.back().needed_for = needed_for;
    return {index};
  }
  /// Ends the current segment of the unit's computation. The result of the segment is the saved tensor
  /// `value`. Tensors that are added later belong to the next segment. Returns the handle of the gradient of
  /// `value`, which the next segment writes. `before` and `after` are as in Boundary.
  Backward boundary(Saved value, Boundary::Side before = {}, Boundary::Side after = {}) {
    int const index = static_cast<int>(backward_.specs.size());
    boundaries_.push_back({value.index, index, before, after});
    std::size_t const of = static_cast<std::size_t>(value.index);
    return backward("d_" + saved_.specs[of].name, saved_.shapes[of], saved_.specs[of].split);
  }

  /// Returns the unit's specification for a micro-batch of this shape. `prefix` precedes the names of the
  /// parameters.
  UnitSpec at(MicroBatch shape, std::string name, std::string const& prefix = "") const {
    UnitSpec spec{.name = std::move(name),
                  .parameters = parameters_,
                  .borrows = borrows_,
                  .output = output ? output(shape) : Shape{},
                  .saved = saved_.at(shape),
                  .backward = backward_.at(shape),
                  .input_gradient = input_gradient,
                  .backward_reads_weights = backward_reads_weights,
                  .recomputable = recomputable,
                  .boundaries = boundaries_,
                  .output_split = output_split};
    for (ParameterSpec& parameter : spec.parameters) parameter.name = prefix + parameter.name;
    return spec;
  }

 private:
  int segment() const { return static_cast<int>(boundaries_.size()); }

  struct Activations {
    std::vector<ActivationSpec> specs;
    std::vector<ShapeOf> shapes;

    int add(std::string_view name, ShapeOf const& shape, int segment, bool statistic, Split const& split,
            bool cheap_to_recompute = false, bool upper_bound = false) {
      specs.push_back(
          {std::string(name), {}, statistic, cheap_to_recompute, upper_bound, segment, {}, split});
      shapes.push_back(shape);
      return static_cast<int>(specs.size()) - 1;
    }
    std::vector<ActivationSpec> at(MicroBatch shape) const {
      std::vector<ActivationSpec> result = specs;
      for (std::size_t index = 0; index < result.size(); ++index) result[index].shape = shapes[index](shape);
      return result;
    }
  };

  std::vector<ParameterSpec> parameters_;
  std::vector<Borrow> borrows_;
  Activations saved_, backward_;
  std::vector<Boundary> boundaries_;
};

}  // namespace nn
}  // namespace v0
}  // namespace tessera
