// SPDX-License-Identifier: Apache-2.0
// Declares the functions that the library tessera::recipes provides for each device, for the sources of the
// library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/launch.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/train/any_trainer.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Makes a trainer that runs on one place (Cpu or Cuda) and computes in type T. Each combination is compiled
/// in its own source file, which includes engine.hpp.
template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(AnyModel const& model, CheckedRecipe const& recipe, comm::Comm comm,
                                        TrainerOptions const& options);

/// Reports the operations of a training step to `recorder`, without running them or allocating their memory.
/// Returns the plan of the step.
template <class Place, class T>
StepPlan record_engine(AnyModel const& model, CheckedRecipe const& recipe, TrainerOptions const& options,
                       StepShape const& shape, Recorder& recorder, StepObserver const& observer);

/// Calls `by` with a value of the type in which a recipe computes, and returns the result of `by`.
template <class F>
auto in_type_of(RecipeTable const& recipe, F&& by) {
  switch (recipe.types.activation) {
    case DType::f64:
      return by(double());
    case DType::f16:
      return by(half());
    case DType::bf16:
      return by(bfloat16());
    case DType::f32:
      return by(float());
    case DType::tf32:
    case DType::bf16x6:
    case DType::bf16x3:
    case DType::u8:
      break;
  }
  throw Error(ErrorKind::unsupported,
              "no engine computes in " + std::string(name_of(recipe.types.activation)));
}

/// Makes a trainer with the engine for the format in which a recipe computes.
template <class Place>
std::unique_ptr<AnyTrainer> make_engine_on(AnyModel const& model, CheckedRecipe const& recipe,
                                           comm::Comm comm, TrainerOptions const& options) {
  return in_type_of(
      recipe, [&]<class T>(T) { return make_engine<Place, T>(model, recipe, std::move(comm), options); });
}
template <class Place>
StepPlan record_on(AnyModel const& model, CheckedRecipe const& recipe, TrainerOptions const& options,
                   StepShape const& shape, Recorder& recorder, StepObserver const& observer) {
  return in_type_of(recipe, [&]<class T>(T) {
    return record_engine<Place, T>(model, recipe, options, shape, recorder, observer);
  });
}

/// Pointers to the library's functions for one device. The functions of any_trainer.hpp call them.
struct DeviceRecipes {
  std::unique_ptr<AnyTrainer> (*make)(AnyModel const& model, CheckedRecipe const& recipe, comm::Comm comm,
                                      TrainerOptions const& options);
  StepPlan (*record)(AnyModel const& model, CheckedRecipe const& recipe, TrainerOptions const& options,
                     StepShape const& shape, Recorder& recorder, StepObserver const& observer);
  int (*devices)();  ///< number of devices in this machine
  void (*need)();    ///< throws if this machine has no usable device
  std::vector<int> (*default_ranks)();
  DeviceFacts (*facts)();
  MemoryLimit (*memory_limit)(TrainerOptions const& options);  ///< needs a device
  void (*run)(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options);
  /// Returns the communicator of this process's rank in a launch of several processes.
  comm::Comm (*connect)(std::shared_ptr<comm::Launch> const& launch);
  std::unique_ptr<ProductPlans> (*measure_products)(std::string const& folder);  ///< null: not supported
};

/// Runs fn(comm) on one thread per rank, as tessera::run does. Each rank has its own GPU.
void run_on_gpus(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options);
/// Returns the communicator of this process's rank in a launch of several processes. Makes the rank's GPU
/// current for the calling thread.
comm::Comm connect_gpus(std::shared_ptr<comm::Launch> const& launch);
/// Returns NCCL's version, or an empty string in a library that was built without NCCL.
std::string nccl_version();

/// Returns the functions for GPUs, or null in a library that was built without CUDA.
DeviceRecipes const* cuda_recipes();

}  // namespace detail
}  // namespace v0
}  // namespace tessera
