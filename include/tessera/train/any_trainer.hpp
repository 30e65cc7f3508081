// SPDX-License-Identifier: Apache-2.0
// Declares trainers whose recipe is chosen at run time. The functions are compiled once, in the library
// tessera::recipes, so a program that compares a hundred recipes compiles in a second.
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

/// Makes a trainer of any model for any legal recipe that this build can run. `options.batch` and
/// `options.sequence` must be set. All ranks call it together. Throws Error(config) with the broken rule for
/// an illegal recipe. Throws Error(unsupported) if the recipe is not part of this build or the model was not
/// compiled for its device. Throws Error(out_of_memory) if the run does not fit.
std::unique_ptr<AnyTrainer> make_trainer(AnyModel const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options);

/// Reports the operations and collectives of a training step as AnyTrainer::record does. Needs no device, no
/// other ranks and none of a trainer's memory. If the library lacks the recipe's device, reports the
/// CPU's operations. The observer's buffers have addresses but no memory. Returns the plan of the step.
/// Throws what make_trainer throws, except Error(out_of_memory).
StepPlan record_step(AnyModel const& model, RecipeTable const& recipe, TrainerOptions const& options,
                     int rank, int world, Recorder& recorder, StepObserver const& observer = {});

/// Returns why this library cannot run a legal recipe, and a way out; nullopt if it can.
std::optional<std::string> unavailable_reason(RecipeTable const& recipe);

/// Throws Error(unsupported), naming what is missing, if this library supports the device and this machine
/// has no usable one.
void need_device(Device device);

/// The default device of programs: cuda in a library built with CUDA, else cpu.
Device default_device();
/// The default rank counts of `compare`: 4 threads on the CPU; 1, 2 and 4 GPUs, as far as the machine has
/// them.
std::vector<int> default_ranks(Device device);

/// Describes a device and its libraries, for reports.
struct DeviceFacts {
  Device device = Device::cpu;
  std::vector<std::string> models;     ///< names of the machine's devices, without its CPU: "NVIDIA H200"
  std::vector<std::string> addresses;  ///< their bus addresses: "0000:1b:00.0"; empty if one is unknown
  std::string driver, runtime, products, transport;  ///< versions of the device's libraries; empty: none
};
/// Queries the libraries without taking a device. For a device that this library lacks, sets only `device`.
DeviceFacts device_facts(Device device);

/// Keeps timed algorithms for a device's matrix products in a folder. While it lives, every trainer of this
/// library on that device uses them. Create and destroy it while no trainer runs a step. Results stay the
/// same to the bit.
class ProductPlans {
 public:
  virtual ~ProductPlans() = default;
  /// Returns how many products used a measured plan since the last call. Counts each one once over all ranks.
  virtual std::size_t take_used() = 0;
  /// Why something was not measured or not stored; empty if nothing went wrong.
  virtual std::string failure() const = 0;
};
/// Creates the folder. Measures a missing plan when a step first needs it. Throws Error(unsupported) with
/// unmeasurable_reason, and Error(failed or data) for files that cannot be created, read or written.
std::unique_ptr<ProductPlans> measure_products(Device device, std::string const& folder);
/// Returns why a device's matrix products cannot be measured, and a way out; nullopt if they can.
std::optional<std::string> unmeasurable_reason(Device device);

/// Runs tessera::run on the recipe's device: one thread per rank, each with its own device. Throws
/// Error(unsupported) if this library lacks the device, and what tessera::run throws.
void run_ranks(RecipeTable const& recipe, int ranks, std::function<void(comm::Comm&)> const& fn,
               RunOptions const& options = {});

/// Returns the memory that ranks on a device may plan: the limits in the options, else what is free now. If
/// this machine or this library lacks the device, 0 bytes of it are free.
MemoryLimit memory_limit(Device device, TrainerOptions const& options);
/// Makes a plan's shape for the recipe's device from a trainer's options (threads, workspace). Neither this
/// machine nor this library needs to have the device.
StepShape step_shape(RecipeTable const& recipe, TrainerOptions const& options, int rank, int world);

/// The default recipes of `compare` and the benchmarks: every combination of sharding, precision (except
/// fp64) and offload that the CPU engines run without a disk. Other slots have their defaults. Each recipe is
/// the table of a Trainer type.
std::vector<RecipeTable> const& registered_recipes();

}  // namespace v0
}  // namespace tessera
