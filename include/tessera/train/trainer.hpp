// SPDX-License-Identifier: Apache-2.0
// Trainer: a model, a recipe as a type, and numbers. Everything that takes time is in the engine behind it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
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

/// Whether a place's backend was included.
template <class Place>
inline constexpr bool has_backend = requires {
  sizeof(Context<Place>);
};

/// Checks the numbers that belong together; throws Error(config) with the number and its range.
inline void check_options(TrainerOptions const& options, std::int64_t positions) {
  auto const fail = [](std::string const& text) { throw Error(ErrorKind::config, "options: " + text); };
  auto const text = [](double value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%g", value);
    return std::string(digits);
  };
  double const infinity = std::numeric_limits<double>::infinity();
  auto const number = [&](char const* name, double value, double least, double below) {
    if (!(value >= least && value < below))
      fail(std::string(name) + " is " + text(value) + "; it must be from " + text(least) + " to below " +
           (below < infinity ? text(below) : std::string("infinity")));
  };
  auto const count = [&](char const* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      fail(std::string(name) + " is " + std::to_string(value) + "; it must be at least " +
           std::to_string(least));
    if (value > (std::int64_t{1} << 40))
      fail(std::string(name) + " is " + std::to_string(value) +
           ", beyond any machine; it must be at most 2^40");
  };
  auto const power_of_two = [&](char const* name, double value) {
    int exponent = 0;
    if (!(value > 0.0 && value < infinity) || std::frexp(value, &exponent) != 0.5)
      fail(std::string(name) + " is " + text(value) + "; it must be a power of two");
  };
  number("learning_rate", options.learning_rate, 0.0, infinity);
  number("beta1", options.beta1, 0.0, 1.0);
  number("beta2", options.beta2, 0.0, 1.0);
  number("epsilon", options.epsilon, 0.0, infinity);
  if (options.epsilon < 0x1p-126)
    fail(
        "epsilon is 0 or not a normal number in fp32, and a weight without gradient would become 0 / 0; use "
        "1e-8");
  number("weight_decay", options.weight_decay, 0.0, infinity);
  number("clip", options.clip, 0.0, infinity);
  number("final_fraction", options.final_fraction, 0.0, infinity);
  count("warmup_steps", options.warmup_steps, 0);
  count("total_steps", options.total_steps, 0);
  if (options.schedule != RateShape::constant && options.total_steps <= options.warmup_steps)
    fail("total_steps is " + std::to_string(options.total_steps) + " and warmup_steps is " +
         std::to_string(options.warmup_steps) +
         "; a linear or cosine schedule needs total_steps beyond the warm-up");
  count("batch", options.batch, 1);
  count("sequence", options.sequence, 1);
  count("accumulation", options.accumulation, 1);
  count("prefetch", options.prefetch, 0);
  count("replicas", options.replicas, 1);
  if (options.accumulation > most_accumulation)
    fail("accumulation is " + std::to_string(options.accumulation) +
         ", and a step's schedule holds at most 16384 micro-batches; use a larger batch or more ranks");
  if (static_cast<double>(options.batch) * static_cast<double>(options.sequence) > 0x1p28)
    fail("batch " + std::to_string(options.batch) + " x sequence " + std::to_string(options.sequence) +
         " is more than 2^28 tokens a micro-batch; lower one of them");
  count("recompute_every", options.recompute_every, 1);
  count("bucket_bytes", options.bucket_bytes, 0);
  count("threads", options.threads, 0);
  count("skips_allowed", options.skips_allowed, 0);
  LossScaleOptions const& scale = options.loss_scale;
  power_of_two("loss_scale.initial", scale.initial);
  power_of_two("loss_scale.minimum", scale.minimum);
  power_of_two("loss_scale.maximum", scale.maximum);
  count("loss_scale.growth_interval", scale.growth_interval, 1);
  if (scale.minimum > scale.initial || scale.initial > scale.maximum)
    fail("loss_scale.initial is " + text(scale.initial) + "; it must lie between loss_scale.minimum " +
         text(scale.minimum) + " and loss_scale.maximum " + text(scale.maximum));
  if (options.sequence > positions)
    throw Error(ErrorKind::config,
                "the sequence " + std::to_string(options.sequence) + " is beyond the model's " +
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
    constexpr bool backend_included = detail::has_backend<device_t<recipe_type>>;
    static_assert(backend_included,
                  "tessera: On<Cuda> needs the GPU's backend, and this file does not include it. Include "
                  "<tessera/cuda.cuh> and compile the file with nvcc. See docs/policies/device.md.");
    if (options_.batch > 0) start();
  }
  /// Takes what is no TrainerOptions: else compilers list every constructor, each with the whole type. A
  /// template, so that it is never taken for a trainer without options.
  template <int = 0>
  BasicTrainer(M, comm::Comm, ...) = delete;  // tessera: unknown or misplaced option. See docs/trainer.md.

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

  /// The mean loss of a batch without changing anything; collective. Waits for its result.
  double evaluate(Batch const& batch) { return started().evaluate(batch); }
  /// Replaces all weights; moments, step count and loss scale start anew. Values pass through fp32. Local:
  /// every rank must do it. Waits for the steps under way.
  void fill(ParameterSource const& source) { started().fill(source); }
  /// Hands all weights to rank 0's sink in the order of names; collective. Waits for the steps under way;
  /// takes host memory for one unit and one parameter at a time. Throws what the sink and the transport
  /// throw.
  void collect(ParameterSink const& sink) { started().collect(sink); }
  /// Waits until every step under way has ended.
  void settle() { started().settle(); }
  /// Calls the observer after every entry of every later step.
  void observe(StepObserver observer) { started().observe(std::move(observer)); }

  /// What was planned; `plan().arena_bytes` equals the bytes in use.
  StepPlan const& plan() { return started().plan(); }
  M const& model() const { return model_; }
  TrainerOptions const& options() const { return options_; }

 private:
  /// Cpu stands in where the device's backend was not included, after that has been said.
  using Place = std::conditional_t<detail::has_backend<device_t<recipe_type>>, device_t<recipe_type>, Cpu>;
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
                             typename ResolvedFor<model_fault_t<M>, Policies...>::config>;

}  // namespace tessera::inline v0
