// SPDX-License-Identifier: Apache-2.0
// Trainer: a model, a recipe as a type, and numbers. Everything that takes time is in the engine behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tessera/comm/communicator.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/policy/pack.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/engine.hpp"
#include "tessera/train/options.hpp"

namespace tessera::inline v0 {

namespace detail {

/// A model for the engine of one place and type.
template <class Place, class T, Model M>
ErasedModel<Place, T> erase(M model) {
  auto const object = std::make_shared<M const>(std::move(model));
  return {object, unit_functions<M, Place, T>(), [object](MicroBatch shape) { return object->units(shape); },
          static_cast<std::int64_t>(object->vocabulary()), static_cast<std::int64_t>(object->positions())};
}

/// The element type of a recipe's activations.
template <DType Type>
struct type_of;
template <>
struct type_of<DType::f64> {
  using type = double;
};
template <>
struct type_of<DType::f32> {
  using type = float;
};
template <>
struct type_of<DType::f16> {
  using type = half;
};
template <>
struct type_of<DType::bf16> {
  using type = bfloat16;
};

/// Checks the numbers that belong together; throws Error(config) with both of them.
inline void check_options(TrainerOptions const& options, std::int64_t positions) {
  auto const fail = [](std::string const& text) { throw Error(ErrorKind::config, text); };
  auto const number = [&](char const* name, double value, double least, double below) {
    if (!(value >= least && value < below))
      fail(std::string("options: ") + name + " is " + std::to_string(value) + "; it must be from " +
           std::to_string(least) + " to below " +
           (below < 1e300 ? std::to_string(below) : std::string("infinity")));
  };
  double const infinity = std::numeric_limits<double>::infinity();
  number("learning_rate", options.learning_rate, 0.0, infinity);
  number("beta1", options.beta1, 0.0, 1.0);
  number("beta2", options.beta2, 0.0, 1.0);
  number("epsilon", options.epsilon, 0.0, infinity);
  if (options.epsilon < 0x1p-126)
    fail(
        "options: epsilon is 0 or not a normal number in fp32, and a weight without gradient would become 0 "
        "/ 0; use 1e-8");
  number("weight_decay", options.weight_decay, 0.0, infinity);
  number("clip", options.clip, 0.0, infinity);
  auto const count = [&](char const* name, std::int64_t value) {
    if (value < 1)
      fail(std::string("options: ") + name + " is " + std::to_string(value) + "; it must be at least 1");
  };
  count("batch", options.batch);
  count("sequence", options.sequence);
  count("accumulation", options.accumulation);
  double mantissa_of_scale = options.loss_scale.initial;
  int exponent = 0;
  if (!(mantissa_of_scale > 0.0) || std::frexp(mantissa_of_scale, &exponent) != 0.5)
    fail("options: loss_scale.initial is " + std::to_string(options.loss_scale.initial) +
         "; it must be a power of two");
  if (options.sequence > positions)
    fail("the sequence " + std::to_string(options.sequence) + " is beyond the model's " +
         std::to_string(positions) +
         " positions; shorten the sequence or choose a model with more positions");
}

}  // namespace detail

/// Trains a model under one recipe. A type that holds no more than the type: the engine behind it is shared
/// by all recipes of one device and compute type. `Recipe` is a Config made by Resolved.
template <class M, class Recipe>
class BasicTrainer : public rules<Recipe> {
 public:
  using model_type = M;
  using recipe_type = Recipe;
  static constexpr RecipeTable recipe = recipe_table<Recipe>;

  /// Plans, allocates and fills the weights from the seed, unless `options.batch` is 0: then at the first
  /// step, whose batch gives the shape. All ranks construct it together. Throws Error(config or
  /// out_of_memory).
  BasicTrainer(M model, comm::Comm comm, TrainerOptions options = {})
      : model_(std::move(model)), comm_(std::move(comm)), options_(options) {
    if (options_.batch > 0) start();
  }

  /// One optimizer step over a batch of (accumulation, batch, sequence) tokens; collective.
  Ticket step(Batch const& batch) {
    if (!engine_) {
      options_.batch = batch.batch;
      options_.sequence = batch.sequence;
      options_.accumulation = batch.accumulation;
      start();
    }
    return engine_->step(batch);
  }

  /// The mean loss of a batch without changing anything; collective.
  double evaluate(Batch const& batch) { return started().evaluate(batch); }
  /// Replaces all weights; local to each rank.
  void fill(ParameterSource const& source) { started().fill(source); }
  /// Hands all weights to rank 0's sink in the order of names; collective.
  void collect(ParameterSink const& sink) { started().collect(sink); }
  void settle() { started().settle(); }
  /// Calls the observer after every entry of every later step.
  void observe(StepObserver observer) { started().observe(std::move(observer)); }

  /// What was planned; `plan().arena_bytes` equals the bytes in use.
  StepPlan const& plan() { return started().plan(); }
  M const& model() const { return model_; }
  TrainerOptions const& options() const { return options_; }

 private:
  using Place = Cpu;
  using T = typename detail::type_of<recipe.types.activation>::type;

  void start() {
    detail::check_options(options_, model_.positions());
    engine_ = std::make_unique<Engine<Place, T>>(detail::erase<Place, T>(model_), recipe, options_,
                                                 comm_.transport());
  }
  Engine<Place, T>& started() {
    if (!engine_)
      throw Error(
          ErrorKind::usage,
          "this trainer has no batch shape yet; set options.batch and options.sequence, or step first");
    return *engine_;
  }

  M model_;
  comm::Comm comm_;
  TrainerOptions options_;
  std::unique_ptr<Engine<Place, T>> engine_;
};

namespace detail {

/// Stands where a trainer was given something that is no model, after that has been said.
struct NoModel {
  template <class... Arguments>
  NoModel(Arguments const&...) {}
  std::vector<UnitSpec> units(MicroBatch) const { return {}; }
  std::int64_t vocabulary() const { return 1; }
  std::int64_t positions() const { return 1; }
  template <class P>
  void forward(int, P&) const {}
  template <class P>
  void recompute(int, P&) const {}
  template <class P>
  void backward_input(int, P&) const {}
  template <class P>
  void backward_weight(int, P&) const {}
};

}  // namespace detail

/// The policies in any order; what is left out has its documented default.
template <class M, class... Policies>
using Trainer = BasicTrainer<std::conditional_t<Model<M>, M, detail::NoModel>,
                             typename ResolvedFor<M, Model<M>, Policies...>::config>;

}  // namespace tessera::inline v0
