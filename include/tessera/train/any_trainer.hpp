// SPDX-License-Identifier: Apache-2.0
// A trainer whose recipe is chosen at run time. Declared here, compiled once in the library tessera::recipes,
// so that a program which compares a hundred recipes compiles in a second.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/policy/table.hpp"
#include "tessera/train/any_model.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// A trainer of any model for any legal recipe that this build can run: `options.batch` and
/// `options.sequence` must be set. All ranks call it together. Throws Error(config) with the rule for an
/// illegal recipe, Error(unsupported) for one that is not part of this build and for a model that was not
/// compiled for its device, Error(out_of_memory) for one that does not fit.
std::unique_ptr<AnyTrainer> make_trainer(AnyModel const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options);

/// Reports the operations and collectives of a training step as AnyTrainer::record does, without the memory,
/// the device and the other ranks that a trainer takes. In a library without the recipe's device the
/// operations are those of the CPU; the observer's buffers have addresses and no memory. Returns the plan
/// that the step is of. Throws what make_trainer throws, but for what does not fit.
StepPlan record_step(AnyModel const& model, RecipeTable const& recipe, TrainerOptions const& options,
                     int rank, int world, Recorder& recorder, StepObserver const& observer = {});

/// Why this library cannot run a legal recipe, with the way out; nothing when it can.
std::optional<std::string> unavailable_reason(RecipeTable const& recipe);

/// Throws Error(unsupported), with what is missing, where this library has recipes of a device and this
/// machine has no such device that it can use.
void need_device(Device device);

/// The device that programs use unless told otherwise: cuda in a library built with it, else cpu.
Device default_device();
/// The rank counts that `compare` takes unless told otherwise: 4 threads, or 1, 2 and 4 of the GPUs there
/// are.
std::vector<int> default_ranks(Device device);

/// What recipes of a device run on and with, for reports.
struct DeviceFacts {
  Device device = Device::cpu;
  std::vector<std::string> models;     ///< of the machine's devices, apart from its cores: "NVIDIA H200"
  std::vector<std::string> addresses;  ///< theirs on the bus: "0000:1b:00.0"; empty where one does not say
  std::string driver, runtime, products, transport;  ///< versions of the device's libraries; empty: none
};
/// Asks the libraries and takes no device. A device that is not part of this library has its name alone.
DeviceFacts device_facts(Device device);

/// Algorithms of a device's products that are timed and kept in a folder. While it lives, every trainer of
/// this library on that device takes them; to be made and ended while no trainer takes a step. No bit changes
/// with them.
class ProductPlans {
 public:
  virtual ~ProductPlans() = default;
  /// How many products took a measured plan since the last call, each counted once over all ranks.
  virtual std::size_t take_used() = 0;
  /// Why something was not measured or is not on file; empty where nothing went wrong.
  virtual std::string failure() const = 0;
};
/// Makes the folder. What it lacks is measured when a step first needs it. Throws Error(unsupported) with
/// unmeasurable_reason, and Error(failed or data) for files that cannot be made, read or written.
std::unique_ptr<ProductPlans> measure_products(Device device, std::string const& folder);
/// Why the products of a device cannot be measured, with the way out; nothing when they can.
std::optional<std::string> unmeasurable_reason(Device device);

/// tessera::run on the recipe's device: a thread a rank, each with a device of its own. Throws
/// Error(unsupported) where that device is not part of this library, and what tessera::run throws.
void run_ranks(RecipeTable const& recipe, int ranks, std::function<void(comm::Comm&)> const& fn,
               RunOptions const& options = {});

/// What ranks on a device may plan: what the options say, and else what is free now, 0 bytes where this
/// machine or this library does not have the device.
MemoryLimit memory_limit(Device device, TrainerOptions const& options);
/// The numbers of a plan for the recipe's device from a trainer's options (threads, workspace). Neither this
/// machine nor this library need have the device.
StepShape step_shape(RecipeTable const& recipe, TrainerOptions const& options, int rank, int world);

/// The recipes that `compare` and the benchmarks run unless told otherwise: every sharding x precision (but
/// fp64) x offload among the slots' choices that the CPU's engines run without a disk, other slots at their
/// defaults. Each is the table of a Trainer type.
std::vector<RecipeTable> const& registered_recipes();

}  // namespace v0
}  // namespace tessera
