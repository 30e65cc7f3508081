// SPDX-License-Identifier: Apache-2.0
// What a model is: a list of units, each with its parameters and activations, and four functions per unit.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/nn/pass.hpp"

namespace tessera::inline v0 {

/// The shape of one micro-batch of one rank: B samples of T tokens.
struct MicroBatch {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;

  constexpr std::int64_t tokens() const { return batch * sequence; }
};

/// How a parameter starts. Normal values are counter-based: they depend on the seed, the parameter and the
/// logical index alone.
struct Init {
  enum class Kind { zeros, ones, normal } kind = Kind::zeros;
  double deviation = 0.0;

  static constexpr Init zeros() { return {Kind::zeros, 0.0}; }
  static constexpr Init ones() { return {Kind::ones, 0.0}; }
  static constexpr Init normal(double deviation) { return {Kind::normal, deviation}; }
};

/// How tensor parallelism would split a parameter: not at all, along a dim, or by heads within the last dim.
struct Split {
  enum class Kind { none, dim, heads } kind = Kind::none;
  int dim = 0;
};

/// One parameter: its file name, logical shape, start, which updates it takes, and how it lies in memory.
struct ParameterSpec {
  std::string name;
  Shape shape;
  Init init = Init::zeros();
  bool decay = false;     ///< takes weight decay
  bool trainable = true;  ///< false: frozen, no gradient and no update
  Split split = {};
  /// Of a matrix: how many rows it takes in memory, 0 for those of its shape. Rows beyond the shape are zero
  /// in the weights and in the gradient, and no file has them.
  std::int64_t padded_rows = 0;

  /// The shape in which a unit's functions see the parameter and its gradient.
  Shape in_memory() const { return padded_rows ? Shape{padded_rows, shape.columns()} : shape; }
};

/// A parameter of another unit that this unit reads (tied weights). Its gradient goes to the owner.
struct Borrow {
  int unit = 0;
  int parameter = 0;
};

/// One tensor that a unit keeps. `statistic` tensors hold compute_t<T>, the others T. `cheap` tensors can be
/// rebuilt by the unit's `recompute` from its other saved tensors (Recompute<Gelu> drops them).
struct ActivationSpec {
  std::string name;
  Shape shape;
  bool statistic = false;
  bool cheap = false;
};

/// One unit: what is gathered, freed, recomputed, streamed or placed on a pipeline stage as one.
struct UnitSpec {
  std::string name;
  std::vector<ParameterSpec> parameters;
  std::vector<Borrow> borrows;
  Shape output;                          ///< what the next unit reads; no dims for the last unit
  std::vector<ActivationSpec> saved;     ///< written by forward, read by backward
  std::vector<ActivationSpec> backward;  ///< written by backward_input, read by backward_weight
  bool input_gradient = true;            ///< false for the first unit: it has no input to differentiate
  bool backward_reads_weights = true;    ///< false where backward_input needs no weight
  bool recomputable = true;              ///< Recompute<Block> and <Every> may rebuild its saved tensors
};

/// What every model provides. `forward`, `recompute`, `backward_input` and `backward_weight` are templates
/// over the place and the number format; they are written with `ops/` and only enqueue. The last unit writes
/// one loss a token (see Pass::losses).
template <class M>
concept Model = std::copy_constructible<M> &&
    requires(M const& model, MicroBatch shape, int unit, Pass<Cpu, float>& pass) {
  { model.units(shape) } -> std::same_as<std::vector<UnitSpec>>;
  { model.vocabulary() } -> std::convertible_to<std::int64_t>;
  { model.positions() } -> std::convertible_to<std::int64_t>;
  model.forward(unit, pass);
  model.recompute(unit, pass);
  model.backward_input(unit, pass);
  model.backward_weight(unit, pass);
};

/// Writes logical elements [offset, offset + out.size()) of one parameter. Called from several threads.
using ParameterSource =
    std::function<void(int unit, int parameter, std::int64_t offset, std::span<float> out)>;
/// Receives one parameter's logical values, row-major.
using ParameterSink = std::function<void(ParameterSpec const& parameter, std::span<float const> values)>;

/// The number of logical parameters of a unit list: borrowed ones are counted once, at their owner.
inline std::int64_t parameter_count(std::vector<UnitSpec> const& units) {
  std::int64_t count = 0;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) count += parameter.shape.elements();
  return count;
}

/// The four functions of a model, erased to plain pointers: one table per (model, place, type).
template <class Place, class T>
struct UnitFunctions {
  using Function = void (*)(void const* model, int unit, Pass<Place, T>& pass);
  Function forward = nullptr;
  Function recompute = nullptr;
  Function backward_input = nullptr;
  Function backward_weight = nullptr;
};

template <class M, class Place, class T>
constexpr UnitFunctions<Place, T> unit_functions() {
  using P = Pass<Place, T>;
  return {
      [](void const* model, int unit, P& pass) { static_cast<M const*>(model)->forward(unit, pass); },
      [](void const* model, int unit, P& pass) { static_cast<M const*>(model)->recompute(unit, pass); },
      [](void const* model, int unit, P& pass) { static_cast<M const*>(model)->backward_input(unit, pass); },
      [](void const* model, int unit, P& pass) {
        static_cast<M const*>(model)->backward_weight(unit, pass);
      }};
}

}  // namespace tessera::inline v0
