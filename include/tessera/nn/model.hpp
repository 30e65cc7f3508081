// SPDX-License-Identifier: Apache-2.0
// Defines the interface of a model. A model has a list of units (such as transformer blocks) with their
// parameters and activations, and four functions that compute a unit.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/nn/pass.hpp"
#include "tessera/policy/slot.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The shape of one micro-batch of one rank: B samples of T tokens.
struct MicroBatch {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;

  constexpr std::int64_t tokens() const { return batch * sequence; }
};

/// The initial values of a parameter. Random values depend only on the seed, the parameter and the element's
/// index.
struct Init {
  enum class Kind { zeros, ones, normal, uniform } kind = Kind::zeros;
  /// The standard deviation of normal values. Uniform values are in (-deviation, deviation).
  double deviation = 0.0;

  static constexpr Init zeros() { return {Kind::zeros, 0.0}; }
  static constexpr Init ones() { return {Kind::ones, 0.0}; }
  static constexpr Init normal(double deviation) { return {Kind::normal, deviation}; }
  static constexpr Init uniform(double bound) { return {Kind::uniform, bound}; }
};

/// Describes how tensor parallelism may split a tensor over ranks: along the dimension `dim`, whose meaning
/// is `kind`. The kinds are heads, the hidden width of an MLP, the vocabulary, experts, and positions of a
/// sequence. Shapes in ParameterSpec and ActivationSpec are shapes before the split.
struct Split {
  enum class Kind { none, heads, hidden, vocabulary, experts, sequence } kind = Kind::none;
  int dim = 0;
  int sections = 1;        ///< consecutive parts of the dim that are split separately: a packed qkv has 3
  std::int64_t grain = 1;  ///< number of adjacent elements that are not split, such as a head's channels
};

/// One parameter: its name in files, its shape without padding, its initial values, and options for updates
/// and memory layout.
struct ParameterSpec {
  std::string name{};
  Shape shape{};
  Init init = Init::zeros();
  bool decay = false;     ///< whether weight decay applies
  bool trainable = true;  ///< false: frozen, with no gradient, no optimizer state, no update
  Split split = {};
  /// The number of rows in memory, for a matrix with padding rows. 0: no padding. Padding rows are zero in
  /// the weights and in the gradient. Files do not contain them.
  std::int64_t padded_rows = 0;
  int inputs = -1;  ///< for the weight of a Linear: the dim of its inputs; otherwise -1

  /// Returns the shape of the parameter and of its gradient in memory, with padding rows.
  Shape in_memory() const { return padded_rows ? Shape{padded_rows, shape.columns()} : shape; }
};

/// A parameter that this unit reads and another unit owns (tied weights). In the backward pass, the owner
/// adds this unit's gradient of the parameter to the owner's gradient. `unit` is the index of the owner, and
/// `parameter` the index in the owner's list of parameters.
struct Borrow {
  int unit = 0;
  int parameter = 0;
};

/// One tensor that one function of a unit writes and a later function of the unit reads. For example, forward
/// writes it and backward_input reads it. A `statistic` has the format compute_t<T>, in which sums are
/// computed; other tensors have the format T. The unit's function `recompute` can compute a
/// `cheap_to_recompute` tensor from the other saved tensors, so the policy Recompute<Gelu> does not keep this
/// tensor.
struct ActivationSpec {
  std::string name{};
  Shape shape{};
  bool statistic = false;
  bool cheap_to_recompute = false;
  bool upper_bound = false;  ///< the shape is an upper bound; some devices write only a part of the tensor
  int segment = 0;           ///< the segment of the unit that writes the tensor
  /// The parameters whose gradients need this tensor. The unit owns or borrows them. If all these parameters
  /// are frozen, the tensor has no memory in the backward pass, and its views are empty. If the list is
  /// empty, the tensor is always kept.
  std::vector<nn::Weight> needed_for = {};
  Split split = {};
};

/// The border between two segments of a unit's computation. The later segment reads an activation that the
/// earlier segment saved, and writes the activation's gradient. With tensor parallelism, this activation and
/// its gradient can be distributed over ranks in one way before the border and in another way after it. The
/// function moves_between (plan/moves.hpp) returns the collectives for this change.
struct Boundary {
  /// The distribution over ranks on one side of the border, of the activation (`value`) and of its gradient.
  /// If the value is partial (one summand per rank), its gradient is replicated. If the value is replicated,
  /// its gradient is replicated, or partial if each rank uses the value only for its own part.
  struct Side {
    Sharding value{};  // replicated
    Sharding gradient{};
  };

  int activation = -1;  ///< index in UnitSpec::saved; the earlier segment writes the activation
  int gradient = -1;    ///< index in UnitSpec::backward; the later segment writes the gradient
  Side before{}, after{};

  constexpr bool moves() const { return before.value != after.value || before.gradient != after.gradient; }
};

/// One unit of a model, such as a transformer block. Its weights are gathered and freed together, and its
/// activations are recomputed together.
struct UnitSpec {
  std::string name{};
  std::vector<ParameterSpec> parameters{};
  std::vector<Borrow> borrows{};
  Shape output{};  ///< shape of the tensor that the next unit reads; the last unit has none
  std::vector<ActivationSpec> saved{};     ///< written by forward, read by backward
  std::vector<ActivationSpec> backward{};  ///< written by backward_input, read by backward_weight
  bool input_gradient = true;              ///< false for the first unit: it has no input to differentiate
  bool backward_reads_weights = true;      ///< false if backward_input needs no weights
  bool recomputable = true;  ///< whether Recompute<Block> and Recompute<Every> may recompute `saved`
  std::vector<Boundary> boundaries{};  ///< between the unit's segments, in order
  Split output_split = {};
  std::vector<nn::Adapter> adapters{};  ///< the low-rank adapters of its linear weights

  int segments() const { return static_cast<int>(boundaries.size()) + 1; }
  /// Returns the boundary at the end of the segment with the index `segment`.
  Boundary const& boundary(int segment) const { return boundaries[static_cast<std::size_t>(segment)]; }
};

namespace detail {

// The code below checks the members of a model. For each member there is a concept that checks it, and a
// class whose static_assert has the error message for a model without the member. Compilers print the message
// when the class is instantiated (as in policy/pack.hpp). A macro would be shorter, but compilers would print
// every step of its expansion.

template <class M>
concept fits_units = requires(M const& model, MicroBatch shape) {
  { model.units(shape) } -> std::same_as<std::vector<UnitSpec>>;
};
template <class M>
struct model_without_units {
  static_assert(
      never<M>,
      "tessera: a model has no usable member units. It is missing, misspelt, private, not const, or its "
      "argument or result has another type. Write std::vector<UnitSpec> units(MicroBatch shape) const. "
      "See docs/how-to/add-a-model.md.");
};
template <class M>
concept fits_vocabulary = requires(M const& model) {
  { model.vocabulary() } -> std::convertible_to<std::int64_t>;
};
template <class M>
struct model_without_vocabulary {
  static_assert(never<M>,
                "tessera: a model has no usable member vocabulary. It is missing, misspelt, private, not "
                "const, or not a function that returns a number. Write std::int64_t vocabulary() const. "
                "See docs/how-to/add-a-model.md.");
};
template <class M>
concept fits_positions = requires(M const& model) {
  { model.positions() } -> std::convertible_to<std::int64_t>;
};
template <class M>
struct model_without_positions {
  static_assert(never<M>,
                "tessera: a model has no usable member positions. It is missing, misspelt, private, not "
                "const, or not a function that returns a number. Write std::int64_t positions() const. "
                "See docs/how-to/add-a-model.md.");
};
template <class M, class P>
concept segments_forward = requires(M const& model, int unit, P& pass) {
  model.forward(unit, unit, pass);
};
template <class M>
concept fits_forward = segments_forward<M, Pass<Cpu, float>> ||
    requires(M const& model, int unit, Pass<Cpu, float>& pass) {
  model.forward(unit, pass);
};
template <class M>
struct model_without_forward {
  static_assert(never<M>,
                "tessera: a model has no usable member forward. It is missing, misspelt, private, not const, "
                "or takes other arguments, such as a Pass by value. Write template <class Place, class "
                "T> void forward(int unit, Pass<Place, T>& pass) const. "
                "See docs/how-to/add-a-model.md.");
};
template <class M, class P>
concept segments_recompute = requires(M const& model, int unit, P& pass) {
  model.recompute(unit, unit, pass);
};
template <class M>
concept fits_recompute = segments_recompute<M, Pass<Cpu, float>> ||
    requires(M const& model, int unit, Pass<Cpu, float>& pass) {
  model.recompute(unit, pass);
};
template <class M>
struct model_without_recompute {
  static_assert(
      never<M>,
      "tessera: a model has no usable member recompute. It is missing, misspelt, private, not const, or "
      "takes other arguments, such as a Pass by value. Write template <class Place, class T> void "
      "recompute(int unit, Pass<Place, T>& pass) const. "
      "See docs/how-to/add-a-model.md.");
};
template <class M, class P>
concept segments_backward_input = requires(M const& model, int unit, P& pass) {
  model.backward_input(unit, unit, pass);
};
template <class M>
concept fits_backward_input = segments_backward_input<M, Pass<Cpu, float>> ||
    requires(M const& model, int unit, Pass<Cpu, float>& pass) {
  model.backward_input(unit, pass);
};
template <class M>
struct model_without_backward_input {
  static_assert(
      never<M>,
      "tessera: a model has no usable member backward_input. It is missing, misspelt, private, not const, or "
      "takes other arguments, such as a Pass by value. Write template <class Place, class T> void "
      "backward_input(int unit, Pass<Place, T>& pass) const. "
      "See docs/how-to/add-a-model.md.");
};
template <class M, class P>
concept segments_backward_weight = requires(M const& model, int unit, P& pass) {
  model.backward_weight(unit, unit, pass);
};
template <class M>
concept fits_backward_weight = segments_backward_weight<M, Pass<Cpu, float>> ||
    requires(M const& model, int unit, Pass<Cpu, float>& pass) {
  model.backward_weight(unit, pass);
};
template <class M>
struct model_without_backward_weight {
  static_assert(
      never<M>,
      "tessera: a model has no usable member backward_weight. It is missing, misspelt, private, not const, "
      "or takes other arguments, such as a Pass by value. Write template <class Place, class T> void "
      "backward_weight(int unit, Pass<Place, T>& pass) const. "
      "See docs/how-to/add-a-model.md.");
};
template <class M>
struct model_not_copyable {
  static_assert(
      never<M>,
      "tessera: a model cannot be copied. Trainer takes it by value and each engine keeps a copy. Leave its "
      "copy constructor public, and hold members that cannot be copied in a std::shared_ptr. See "
      "docs/how-to/add-a-model.md.");
};
template <class M>
struct not_a_model {
  static_assert(
      never<M>,
      "tessera: the first argument of Trainer is not a model. The model comes first, the policies follow in "
      "any order. Write Trainer<Gpt2, ZeroStage<2>>, or see what a model needs. See "
      "docs/policies/README.md.");
};

/// Returns std::type_identity<F>. F is the class with the error message for the first fault of the model M,
/// or void if M is valid. The check of the copy constructor is last, because it needs M to be a complete
/// type.
template <class M>
constexpr auto fault_of_model() {
  using std::type_identity;
  if constexpr (!std::is_class_v<M> || Policy<M>)
    return type_identity<not_a_model<M>>();
  else if constexpr (!fits_units<M>)
    return type_identity<model_without_units<M>>();
  else if constexpr (!fits_vocabulary<M>)
    return type_identity<model_without_vocabulary<M>>();
  else if constexpr (!fits_positions<M>)
    return type_identity<model_without_positions<M>>();
  else if constexpr (!fits_forward<M>)
    return type_identity<model_without_forward<M>>();
  else if constexpr (!fits_recompute<M>)
    return type_identity<model_without_recompute<M>>();
  else if constexpr (!fits_backward_input<M>)
    return type_identity<model_without_backward_input<M>>();
  else if constexpr (!fits_backward_weight<M>)
    return type_identity<model_without_backward_weight<M>>();
  else if constexpr (!std::copy_constructible<M>)
    return type_identity<model_not_copyable<M>>();
  else
    return type_identity<void>();
}

}  // namespace detail

/// The first fault of a model: the class whose instantiation fails a static_assert with the error message.
/// The type is void for a valid model.
template <class M>
using model_fault_t = typename decltype(detail::fault_of_model<M>())::type;

/// The interface of every model: a copyable class with the members units, vocabulary, positions, forward,
/// recompute, backward_input and backward_weight. The last four are templates over the device and the number
/// format. They call operations of `ops/` and do not wait for the results. Their parameters are the index of
/// the unit, the index of the segment, and the Pass with the unit's tensors. A model whose units have one
/// segment may omit the segment. The last unit writes one loss per token (Pass::losses).
template <class M>
concept Model = std::is_void_v<model_fault_t<M>>;

/// A function that writes elements [offset, offset + out.size()) of one parameter, without padding, to `out`.
/// Several threads call it at the same time.
using ParameterSource =
    std::function<void(int unit, int parameter, std::int64_t offset, std::span<float> out)>;
/// A function that receives the values of one parameter in row-major order, without padding. Each call passes
/// all values of the parameter, or the next part of its values.
using ParameterSink = std::function<void(ParameterSpec const& parameter, std::span<float const> values)>;

/// Returns a sink that joins the parts of each parameter and passes the whole parameter to `sink`. The
/// returned sink keeps one parameter in memory.
inline ParameterSink whole_parameters(ParameterSink sink) {
  return [sink = std::move(sink), values_so_far = std::vector<float>()](
             ParameterSpec const& parameter, std::span<float const> values) mutable {
    auto const elements = static_cast<std::size_t>(parameter.shape.elements());
    if (values_so_far.empty() && values.size() == elements) return sink(parameter, values);
    std::size_t const begin = values_so_far.size();
    values_so_far.reserve(elements);
    values_so_far.resize(begin + values.size());
    std::copy_n(values.data(), values.size(), values_so_far.data() + begin);
    if (values_so_far.size() < elements) return;
    sink(parameter, {values_so_far.data(), elements});
    values_so_far.clear();
  };
}

/// Returns the number of parameters of a model, without padding. Tied weights count once.
inline std::int64_t parameter_count(std::vector<UnitSpec> const& units) {
  std::int64_t count = 0;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) count += parameter.shape.elements();
  return count;
}

/// Returns the number of parameters that are trained, without padding.
inline std::int64_t trainable_count(std::vector<UnitSpec> const& units) {
  std::int64_t count = 0;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters)
      if (parameter.trainable) count += parameter.shape.elements();
  return count;
}

namespace detail {

// Each of the next four functions calls the function of the model that has the same name. It passes `segment`
// only if the model's function has a parameter for a segment.

template <class M, class P>
void forward(M const& model, int unit, [[maybe_unused]] int segment, P& pass) {
  if constexpr (segments_forward<M, P>)
    model.forward(unit, segment, pass);
  else
    model.forward(unit, pass);
}
template <class M, class P>
void recompute(M const& model, int unit, [[maybe_unused]] int segment, P& pass) {
  if constexpr (segments_recompute<M, P>)
    model.recompute(unit, segment, pass);
  else
    model.recompute(unit, pass);
}
template <class M, class P>
void backward_input(M const& model, int unit, [[maybe_unused]] int segment, P& pass) {
  if constexpr (segments_backward_input<M, P>)
    model.backward_input(unit, segment, pass);
  else
    model.backward_input(unit, pass);
}
template <class M, class P>
void backward_weight(M const& model, int unit, [[maybe_unused]] int segment, P& pass) {
  if constexpr (segments_backward_weight<M, P>)
    model.backward_weight(unit, segment, pass);
  else
    model.backward_weight(unit, pass);
}

/// Returns the name of the first function of M that has no segment parameter, or null if all have one. The
/// functions are forward, recompute, backward_input and backward_weight.
template <class M, class P>
constexpr char const* member_without_segment() {
  return !segments_forward<M, P>           ? "forward"
         : !segments_recompute<M, P>       ? "recompute"
         : !segments_backward_input<M, P>  ? "backward_input"
         : !segments_backward_weight<M, P> ? "backward_weight"
                                           : nullptr;
}

}  // namespace detail

/// The four functions of a model as plain function pointers, for one device and one number format.
template <class Place, class T>
struct UnitFunctions {
  using Function = void (*)(void const* model, int unit, int segment, Pass<Place, T>& pass);
  Function forward = nullptr;
  Function recompute = nullptr;
  Function backward_input = nullptr;
  Function backward_weight = nullptr;
  char const* without_segment = nullptr;  ///< the first function without a segment parameter; null: none
  AdapterFunctions<Place, T> const* adapting = nullptr;  ///< the functions that create and compute adapters
};

template <class M, class Place, class T>
constexpr UnitFunctions<Place, T> unit_functions() {
  using P = Pass<Place, T>;
  return {[](void const* model, int unit, int segment, P& pass) {
            detail::forward(*static_cast<M const*>(model), unit, segment, pass);
          },
          [](void const* model, int unit, int segment, P& pass) {
            detail::recompute(*static_cast<M const*>(model), unit, segment, pass);
          },
          [](void const* model, int unit, int segment, P& pass) {
            detail::backward_input(*static_cast<M const*>(model), unit, segment, pass);
          },
          [](void const* model, int unit, int segment, P& pass) {
            detail::backward_weight(*static_cast<M const*>(model), unit, segment, pass);
          },
          detail::member_without_segment<M, P>()};
}

}  // namespace v0
}  // namespace tessera
