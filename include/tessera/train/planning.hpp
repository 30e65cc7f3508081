// SPDX-License-Identifier: Apache-2.0
// Makes one rank's plan of the step from a trainer's options. Throws errors for invalid runs before the
// trainer allocates memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/detail/host_memory.hpp"
#include "tessera/io/state_file.hpp"
#include "tessera/nn/adapter.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/store/parameter_store.hpp"
#include "tessera/train/option_table.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the number of threads of one rank: `requested` if it is positive, otherwise the cores on which
/// this process may run, divided by the `ranks` that share them, at least 1.
inline int threads_of_rank(int requested, int ranks) {
  if (requested > 0) return requested;
  return std::max(1, affinity::core_count() / std::max(1, ranks));
}

/// Returns the numbers that a plan needs, from a trainer's options. `product` is the number format in which
/// matrix products compute. `core_ranks` is the number of ranks that share the cores of this process; 0: all
/// ranks of the host.
template <class Place>
StepShape step_shape(TrainerOptions const& options, int rank, int world, DType product, int host_ranks = 0,
                     int host_first = 0, int core_ranks = 0) {
  StepShape shape;
  shape.batch = options.batch;
  shape.sequence = options.sequence;
  shape.accumulation = options.accumulation;
  shape.world = world;
  shape.rank = rank;
  shape.host_ranks = host_ranks;
  shape.host_first = host_first;
  shape.bucket_bytes = options.bucket_bytes;
  shape.recompute_every = std::max(1, options.recompute_every);
  shape.prefetch = options.prefetch;
  shape.channels = options.channels;
  shape.weight_lag = options.weight_lag;
  shape.replicas = options.replicas;
  shape.workspace_bytes = static_cast<std::int64_t>(Context<Place>::workspace_bytes(
      threads_of_rank(options.threads, core_ranks > 0 ? core_ranks : shape.ranks_on_host()),
      shape.batch * shape.sequence, product));
  shape.own_memory = detail::has_own_memory<Place>;
  shape.max_steps_in_flight = info_of(Place::device).max_steps_in_flight;
  shape.checkpoints = options.checkpoints;
  return shape;
}

/// Returns how many bytes the ranks of this process may plan on the host and on disk. For the host: the limit
/// in the options, or the free memory without a limit. For the disk: the free bytes of nvme_directory.
inline MemoryLimit memory_limit_off_device(TrainerOptions const& options) {
  MemoryLimit found{.host = options.host_memory_limit};
  if (found.host == 0) found.host = HostMemory::available();
  std::int64_t const free =
      options.nvme_directory.empty() ? -1 : host_memory::free_bytes(options.nvme_directory);
  if (free >= 0) found.nvme = free;
  return found;
}

/// Returns how many bytes may be planned on the device, on the host and on disk. For a GPU:
/// TrainerOptions::memory_limit, or the GPU's free memory if the option is 0. On the CPU, this option
/// limits the host memory. memory_limit_off_device returns all other limits.
template <class Place>
MemoryLimit memory_limit(TrainerOptions const& options) {
  MemoryLimit found = memory_limit_off_device(options);
  std::int64_t const limit = options.memory_limit;
  if constexpr (detail::has_own_memory<Place>)
    found.device = limit > 0 ? limit : DeviceArena<Place>::available();
  else if (limit > 0)
    found.host = options.host_memory_limit > 0 ? std::min(limit, found.host) : limit;
  return found;
}

namespace detail {

/// Throws Error(config) if the recipe has the policy Lora but `lora` is empty, or if `lora` is set but the
/// recipe does not have this policy.
inline void check_adapters(RecipeTable const& recipe, LoraOptions const& lora) {
  bool const has = recipe.adapters == AdapterKind::lora;
  if (has == bool(lora)) return;
  throw_error(
      ErrorKind::config,
      {has ? "options: the recipe trains adapters, but lora is not set; set lora.rank, lora.alpha and "
             "lora.targets (programs: --lora)"
           : "options: lora is set, but the recipe trains the model's own weights; add the policy "
             "Lora to the trainer's type (programs: --adapters lora)"});
}

/// Returns the model with the adapters that the options name. Marks the parameters that the options freeze,
/// so that they get no gradients.
template <class Place, class T>
ErasedModel<Place, T> trained_by(ErasedModel<Place, T> model, RecipeTable const& recipe,
                                 TrainerOptions const& options) {
  check_adapters(recipe, options.lora);
  if (options.lora) model.units = model.functions.adapting->add(std::move(model.units), options.lora);
  model.units = freezing(std::move(model.units), options.freeze);
  return model;
}

/// Makes device number `device` current for the calling thread, and returns `device`.
template <class Place>
int select_device(int device) {
  Context<Place>::select(device);
  return device;
}

/// Throws for units with segments that engines cannot run. `without_segment` is the name of a model function
/// that has no segment parameter, or null if all functions have one.
inline void check_segments(std::vector<UnitSpec> const& units, char const* without_segment) {
  for (UnitSpec const& unit : units) {
    if (unit.segments() > 1 && without_segment)
      throw_error(ErrorKind::config,
                  {"model: unit '", unit.name, "' has ", unit.segments(), " segments, but ", without_segment,
                   " has no segment argument; write ", without_segment,
                   "(int unit, int segment, Pass<Place, T>& pass)"},
                  -1, unit.name);
    for (Boundary const& at : unit.boundaries)
      if (at.moves())
        throw_error(ErrorKind::unsupported,
                    {"model: unit '", unit.name, "' passes '",
                     unit.saved[static_cast<std::size_t>(at.activation)].name,
                     "' through a boundary with different sides, which needs tensor parallelism; this is not "
                     "part of this build, make both sides replicated"},
                    -1, unit.name);
  }
}

template <class Place, class T>
StepPlan checked_plan(ErasedModel<Place, T> const& model, CheckedRecipe const& checked,
                      TrainerOptions const& options, comm::Transport& transport, OpenStateFile open,
                      int core_ranks = 0) {
  RecipeTable const& recipe = checked.table();
  if (uses_files(recipe.placement) && options.nvme_directory.empty())
    throw_error(ErrorKind::config, {"options: offload ", recipe.names.offload,
                                    " keeps state in a file and nvme_directory is empty; name an existing "
                                    "folder on the disk for it (programs: --nvme-path FOLDER)"});
  if (transport.world() % options.replicas != 0)
    throw_error(
        ErrorKind::config,
        {"options: replicas is ", options.replicas, ", which does not divide the world of ",
         transport.world(), " ranks; all replicas of the sharded state must have the same number of ranks"});
  StepShape const shape =
      step_shape<Place>(options, transport.rank(), transport.world(), recipe.precision,
                        transport.ranks_on_host(), transport.rank() - transport.local_rank(), core_ranks);
  StepPlan plan = make_plan(model.units({shape.batch, shape.sequence}), recipe, shape);
  check_segments(plan.units, model.functions.without_segment);
  comm::agree(transport, hash_of(plan.train.schedule), "step schedule");
  // Communicators need device memory, so this code opens them before it reads the size of the free memory.
  for (Program const* program : {&plan.train, &plan.evaluate})
    for (Entry const& entry : program->schedule.entries)
      if (entry.move > Move::copy) (void)transport.over(plan.ranks_of(entry));
  // Each rank checks the free memory of its own device. If the ranks compute in host memory, one rank of each
  // host checks this memory for all of them. The barrier at the end ensures that no rank allocates memory
  // before these checks are complete.
  if (has_own_memory<Place> || transport.local_rank() == 0) {
    // Opening an empty file removes the files of killed runs, so the bytes of these files count as free.
    if (uses_files(recipe.placement)) (void)open(options.nvme_directory, transport.rank(), 0);
    refuse_if_too_big(model.units, plan, recipe, memory_limit<Place>(options), model.positions);
  }
  transport.barrier({"plan"});
  return plan;
}

/// Opens the rank's file for state on a disk. Returns null if the plan keeps no state on a disk.
inline std::unique_ptr<StateFile> file_of(StepPlan const& plan, TrainerOptions const& options,
                                          comm::Transport& transport, OpenStateFile open) {
  if (plan.file_bytes() == 0) return nullptr;
  return open(options.nvme_directory, transport.rank(), plan.file_bytes());
}

/// Returns the scratch memory of the compute stream. Index 1 is for the stream of weight gradients
/// (Lane::gradients) and is empty if the plan does not use that stream.
template <class Place>
std::span<std::byte> workspace_of(StepPlan const& plan, StepMemory<Place> const& memory, int index = 0) {
  int const buffer = plan.train.find(BufferKind::workspace, -1, index);
  if (buffer < 0) return {};
  return {memory.train(buffer), static_cast<std::size_t>(plan.train.at(buffer).bytes)};
}

/// A hash of numbers, which ranks compare with each other. It has the structure of FNV-1a, but takes 64 bits
/// at once.
class NumberHash {
 public:
  template <class Number>
  void add(Number number) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof number);
    value_ = (value_ ^ bits) * 1099511628211ull;
    value_ ^= value_ >> 29;
  }
  std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 14695981039346656037ull;
};

/// Gives the other ranks access to the device memory of this rank. Returns an object that ends the access
/// when it is destroyed; null if there is no access.
template <class Place>
std::shared_ptr<void> share_with_ranks(StepPlan const& plan, StepMemory<Place> const& memory,
                                       comm::Transport& transport) {
  if (!has_own_memory<Place> || transport.world() == 1) return nullptr;
  NumberHash layout;
  for (Program const* program : {&plan.train, &plan.evaluate})
    for (Buffer const& buffer : program->buffers)
      for (std::int64_t const number : {static_cast<std::int64_t>(buffer.tier), buffer.offset, buffer.bytes})
        layout.add(number);
  auto const& arena = memory.device();
  return transport.share(arena, arena->base(), arena->bytes(), layout.value());
}

/// Returns a hash of every number that all ranks must share and that the schedule does not contain.
inline std::uint64_t hash_of_numbers(TrainerOptions const& options, StepPlan const& plan) {
  NumberHash hash;
  for (Option const& option : option_table) {
    if (!option.must_agree) continue;
    OptionValue const value = value_of(option, options);
    if (value.type() == OptionValue::Type::real)
      hash.add(value.real());
    else if (value.type() == OptionValue::Type::seed)
      hash.add(value.seed());
    else
      hash.add(value.integer());
  }
  hash.add(plan.shape.batch);
  hash.add(plan.shape.sequence);
  hash.add(plan.recipe.precision);  // tf32 and fp32 differ only in products, so their schedules are equal
  for (UnitLayout const& layout : plan.layouts)
    for (std::size_t index = 0; index < layout.parameters.size(); ++index) {
      hash.add(layout.parameters[index].end);
      hash.add(layout.flat_of[index]);
    }
  for (UnitSpec const& unit : plan.units)
    for (nn::Adapter const& adapter : unit.adapters) hash.add(adapter.scale);
  return hash.value();
}

inline StepRule step_rule(RecipeTable const& recipe, TrainerOptions const& options, StepShape const& shape) {
  StepRule rule;
  rule.loss_scale = recipe.loss_scale;
  rule.scale = options.loss_scale;
  rule.adamw = {options.beta1, options.beta2, options.epsilon, options.weight_decay, options.decoupled_decay};
  rule.rates = {options.learning_rate,  options.schedule,   options.warmup_steps, options.total_steps,
                options.final_fraction, options.first_rate, options.log_warmup};
  rule.clip = options.clip;
  rule.skips_allowed = options.skips_allowed;
  rule.tokens = shape.global_batch() * shape.sequence;
  return rule;
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
