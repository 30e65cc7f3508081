// SPDX-License-Identifier: Apache-2.0
// Declares trainers whose recipe (the set of policies) is chosen at run time. The library tessera::recipes
// contains the compiled functions. So a program that compares a hundred recipes compiles in a second.
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
/// `options.sequence` must be set. All ranks must call this function together. Throws Error(config) with the
/// message of the broken rule for an illegal recipe. Throws Error(unsupported) if the recipe is not part of
/// this build or the model was not compiled for the recipe's device. Throws Error(out_of_memory) if the run
/// does not fit into memory.
std::unique_ptr<AnyTrainer> make_trainer(AnyModel const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options);

/// Passes the operations and collectives of a training step to `recorder`, as AnyTrainer::record does. Needs
/// no device, no other ranks and no memory for the model. If the library lacks the recipe's device, reports
/// the CPU's operations. The buffers that `observer` gets have addresses but no memory. Returns the plan of
/// the step. Throws the errors of make_trainer, except Error(out_of_memory).
StepPlan record_step(AnyModel const& model, RecipeTable const& recipe, TrainerOptions const& options,
                     int rank, int world, Recorder& recorder, StepObserver const& observer = {});

/// Returns why this library cannot run a legal recipe and how to solve this, or nullopt if it can.
std::optional<std::string> unavailable_reason(RecipeTable const& recipe);

/// Throws Error(unsupported) if this machine has no usable device of the type `device`. The message says what
/// is missing. Does nothing if this library was built without the engines of the device.
void need_device(Device device);

/// Returns the default device of programs: cuda if this library was built with CUDA, otherwise cpu.
Device default_device();
/// Returns the default numbers of ranks in the program `compare`. On the CPU: 4. On GPUs: 1, 2 and 4, up to
/// the number of GPUs of the machine.
std::vector<int> default_ranks(Device device);

/// Describes a device and its libraries, for reports.
struct DeviceFacts {
  Device device = Device::cpu;
  std::vector<std::string> models;     ///< names of the machine's devices, without its CPU: "NVIDIA H200"
  std::vector<std::string> addresses;  ///< PCI address of each: "0000:1b:00.0"; "" if unknown
  /// Versions of the device's libraries; empty: none. `products` is the library of matrix products
  /// (cuBLASLt), and `transport` the library of collectives (NCCL).
  std::string driver, runtime, products, transport;
};
/// Returns the facts of a device. Does not initialise the device. If this library lacks the device, sets only
/// DeviceFacts::device.
DeviceFacts device_facts(Device device);

/// Keeps the fastest measured algorithms for a device's matrix products in a folder. While this object
/// exists, every trainer of this library on this device uses these algorithms. Create and destroy it only
/// while no trainer runs a step. The algorithms change no bit of the results.
class ProductPlans {
 public:
  virtual ~ProductPlans() = default;
  /// Returns how many different matrix products used a measured algorithm since the last call. A product that
  /// several ranks compute counts once.
  virtual std::size_t take_used() = 0;
  /// Returns why an algorithm was not measured or not stored, or an empty text if there was no failure.
  virtual std::string failure() const = 0;
};
/// Returns a ProductPlans that keeps its algorithms in `folder`, and creates the folder. A product is
/// measured when a step first computes it, unless the folder already has an algorithm for it. If the products
/// cannot be measured, throws Error(unsupported) with the text of unmeasurable_reason. Throws Error(failed or
/// data) for files that cannot be created, read or written.
std::unique_ptr<ProductPlans> measure_products(Device device, std::string const& folder);
/// Returns why a device's matrix products cannot be measured and how to solve this, or nullopt if they can.
std::optional<std::string> unmeasurable_reason(Device device);

/// Calls fn(comm) for each rank. Each rank has its own device. Without a launcher, runs one thread of this
/// process per rank (tessera::run). If a launcher has started this process, calls fn only for the rank of
/// this process (comm::run_in_launch). In this case, `ranks` must be the launcher's number of ranks. Throws
/// Error(unsupported) if this library lacks the device. Throws the errors of tessera::run and
/// comm::run_in_launch.
void run_ranks(RecipeTable const& recipe, int ranks, std::function<void(comm::Comm&)> const& fn,
               RunOptions const& options = {});

/// Returns how many bytes ranks on a device may plan: the limits in the options, or the free memory if the
/// options set no limit. If this machine or this library lacks the device, the free memory of the device
/// counts as 0 bytes.
MemoryLimit memory_limit(Device device, TrainerOptions const& options);
/// Returns the numbers that a plan of the step needs, such as the batch and the size of the scratch memory on
/// the recipe's device. Neither this machine nor this library needs to have the device. `host_ranks` is the
/// number of ranks on the host of this rank; 0 means that all ranks are on one host.
StepShape step_shape(RecipeTable const& recipe, TrainerOptions const& options, int rank, int world,
                     int host_ranks = 0);

/// Returns the default recipes of the program `compare` and of the benchmarks: every combination of sharding,
/// precision (except fp64) and offload that the CPU engines run without a disk. All other slots have their
/// default policies.
std::vector<RecipeTable> const& registered_recipes();

}  // namespace v0
}  // namespace tessera
