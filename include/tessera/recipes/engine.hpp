// SPDX-License-Identifier: Apache-2.0
// Defines the code that each file engine_*.cpp and engine_*.cu of tessera::recipes compiles: the engine for
// one place (Cpu or Cuda) and one number type.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "tessera/io/nvme_file.hpp"
#include "tessera/nn/lora.hpp"
#include "tessera/recipes/devices.hpp"
#include "tessera/train/check_options.hpp"
#include "tessera/train/compiled_model.hpp"
#include "tessera/train/engine.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Returns a model's object, sizes and functions for the engine of one place (Cpu or Cuda) and one number
/// type. Includes the functions that compute adapters. Throws Error(unsupported) if the model was not
/// compiled for the place.
template <class Place, class T>
ErasedModel<Place, T> erased(AnyModel const& model) {
  UnitFunctions<Place, T> functions = model.functions<Place, T>();
  if (functions.forward == nullptr)
    throw Error(ErrorKind::unsupported, "this model was not compiled for device " + std::string(Place::name) +
                                            "; use another device, or add this one to its any_model<...>");
  functions.adapting = &lora_functions<Place, T>;
  return {model.object(), functions, model.units(), model.vocabulary(), model.positions()};
}

template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(AnyModel const& model, CheckedRecipe const& recipe, comm::Comm comm,
                                        TrainerOptions const& options) {
  check_options(options, model.positions());
  return std::make_unique<Engine<Place, T>>(erased<Place, T>(model), recipe, options, std::move(comm),
                                            open_state_file<Nvme>);
}

template <class Place, class T>
StepPlan record_engine(AnyModel const& model, CheckedRecipe const& recipe, TrainerOptions const& options,
                       StepShape const& shape, Recorder& recorder, StepObserver const& observer) {
  ErasedModel<Place, T> const of = trained_by(erased<Place, T>(model), recipe, options);
  StepPlan plan = make_plan(of.units({shape.batch, shape.sequence}), recipe, shape);
  check_segments(plan.units, of.functions.without_segment);
  auto const memory = StepMemory<Place>::without_memory(plan);
  Context<Place> context(1, {}, &recorder, Math::of(recipe));
  comm::RecordingTransport transport(shape.rank, shape.world, recorder);
  StepRule const rule = step_rule(recipe, options, shape);
  ParameterStore<Place, T> store(plan, memory, context, transport, rule);
  Executor<Place, T> step(plan, plan.train, memory, of.functions, of.object.get());
  step.run(context, store, transport, observer);
  return plan;
}

}  // namespace detail

#define TESSERA_ENGINE(P, T)                                                                                \
  namespace detail {                                                                                        \
  template std::unique_ptr<AnyTrainer> make_engine<P, T>(ErasedModel<P, T>, RecipeTable const&, comm::Comm, \
                                                         TrainerOptions const&, OpenStateFile);             \
  template std::unique_ptr<AnyTrainer> make_engine<P, T>(AnyModel const&, CheckedRecipe const&, comm::Comm, \
                                                         TrainerOptions const&);                            \
  template StepPlan record_engine<P, T>(AnyModel const&, CheckedRecipe const&, TrainerOptions const&,       \
                                        StepShape const&, Recorder&, StepObserver const&);                  \
  }

}  // namespace v0
}  // namespace tessera
