// SPDX-License-Identifier: Apache-2.0
// Provides the common code of the equivalence and engine tests: batches whose global content does not depend
// on the number of ranks and micro-batches, a tiny GPT-2 with odd sizes, and train(), which returns the
// results of a training run for comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "tessera/comm/run.hpp"
#include "tessera/core/philox.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/nn/gpt2_options.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/divergence.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"

namespace support {

using namespace tessera;

/// A GPT-2 whose sizes are not multiples of a vector register, a tile or a shard.
inline constexpr Gpt2Options tiny{.layers = 2, .heads = 3, .channels = 33, .positions = 40, .vocabulary = 61};

/// Returns every instance of the entries of `schedule`, in the order of execution. An entry is one operation
/// of the schedule. It has several instances if it is repeated for several micro-batches.
inline std::vector<Instance> instances_of(Schedule const& schedule) {
  std::vector<Instance> instances;
  for (std::int64_t index = 0; index < schedule.instances(); ++index)
    instances.push_back(schedule.instance(index));
  return instances;
}

/// How a global batch is divided: the number of ranks, and the number of micro-batches that each rank
/// computes per step (`accumulation`).
struct Spread {
  int ranks = 1;
  int accumulation = 1;
};

/// Writes micro-batch number `micro` of the global batch of step `step` to `tokens` and `targets`, which have
/// the shape (batch, sequence). The content of a sample depends only on its number in the global batch. If
/// `mask_every` is not 0, about one target in `mask_every` is masked (-1). The masks differ between samples.
inline void fill_micro_batch(std::int64_t step, std::int64_t micro, int batch, int sequence,
                             std::int64_t vocabulary, int mask_every, std::int32_t* tokens,
                             std::int32_t* targets) {
  for (int b = 0; b < batch; ++b)
    for (int t = 0; t < sequence; ++t) {
      auto const word = [&](int at) {
        return philox4x32({{static_cast<std::uint32_t>(micro * batch + b), static_cast<std::uint32_t>(at),
                            static_cast<std::uint32_t>(step), 77u}},
                          philox_key(5));
      };
      tokens[b * sequence + t] =
          static_cast<std::int32_t>(word(t).word[0] % static_cast<std::uint32_t>(vocabulary));
      std::int32_t& target = targets[b * sequence + t];
      target = static_cast<std::int32_t>(word(t + 1).word[0] % static_cast<std::uint32_t>(vocabulary));
      if (mask_every > 0 && word(t).word[1] % static_cast<std::uint32_t>(mask_every) == 0) target = -1;
    }
}

/// Returns the micro-batches of step `step` on which rank `rank` trains.
inline Batch make_batch(std::int64_t step, int rank, Spread split, int batch, int sequence,
                        std::int64_t vocabulary, int mask_every = 0) {
  Batch result;
  result.accumulation = split.accumulation;
  result.batch = batch;
  result.sequence = sequence;
  result.step = step;
  result.tokens.resize(static_cast<std::size_t>(result.elements()));
  result.targets.resize(result.tokens.size());
  for (int a = 0; a < split.accumulation; ++a) {
    std::size_t const at = static_cast<std::size_t>(a) * static_cast<std::size_t>(batch * sequence);
    fill_micro_batch(step, std::int64_t{1} * a * split.ranks + rank, batch, sequence, vocabulary, mask_every,
                     result.tokens.data() + at, result.targets.data() + at);
  }
  return result;
}

/// Returns the recipe (combination of policies) with these policies, which are given by name. An empty name
/// selects the default policy.
inline RecipeTable recipe(std::string_view sharding, std::string_view precision = "fp32",
                          std::string_view offload = "none", std::string_view recompute = "none",
                          std::string_view reduction = "ordered", std::string_view loss_scale = "") {
  SlotNames names;
  names.sharding = sharding;
  names.precision = precision;
  names.offload = offload;
  names.recompute = recompute;
  names.reduction = reduction;
  names.loss_scale = loss_scale;
  return parse_recipe(names);
}

/// Returns the names of all policies of `Slot` that an engine supports when every other slot has its default
/// policy. A slot is one category of policies, for example the shardings. Tests run all returned policies.
template <class Slot>
std::vector<std::string_view> runnable() {
  std::vector<std::string_view> names;
  for (std::string_view const name : choice_names<Slot>()) {
    SlotNames answers;
    answers.*Slot::field = name;
    RecipeTable const table = parse_recipe(answers);
    if (!broken_rule(table) && !unsupported_reason(table)) names.push_back(name);
  }
  return names;
}
inline std::vector<std::string_view> const shardings = runnable<slot::sharding>();
inline std::vector<std::string_view> const offloads = runnable<slot::offload>();
inline std::vector<std::string_view> const recomputes = runnable<slot::recompute>();

/// The results of a training run. Runs with equivalent recipes (combinations of policies) must have equal
/// results.
struct Outcome {
  std::string weights;
  std::vector<double> losses, norms, scales;
  std::vector<bool> skipped;
  std::vector<std::string> overflows;
  double evaluation = 0.0;

  friend bool operator==(Outcome const&, Outcome const&) = default;
};

/// The settings of a training run, except its recipe (its combination of policies).
struct Run {
  Spread split{};
  int steps = 3;
  int batch = 1;
  int sequence = 13;
  int mask_every = 5;
  std::int64_t vocabulary = tiny.vocabulary;
  TrainerOptions options{};
  StepTrace* trace = nullptr;
};

/// Returns the folder in which tests that use NVMe keep training state. The folder is TMPDIR if this variable
/// is set, otherwise the in-memory folder /dev/shm if the system has it. On a disk, tests with hundreds of
/// trainers would spend half of their time in waits for the disk. disk_test.cpp trains with files on a real
/// disk.
inline std::string state_folder() {
  char const* const memory = "/dev/shm";
  if (std::getenv("TMPDIR") == nullptr && ::access(memory, W_OK) == 0) return memory;
  return std::filesystem::temp_directory_path().string();
}

inline TrainerOptions options_of(Run const& run) {
  TrainerOptions options = run.options;
  options.batch = run.batch;
  options.sequence = run.sequence;
  options.accumulation = run.split.accumulation;
  if (options.threads == 0) options.threads = 1;
  if (options.nvme_directory.empty())
    options.nvme_directory = state_folder();  // the destructor of a trainer removes its files
  return options;
}

template <class AnyKindOfTrainer>
std::string hash_weights(AnyKindOfTrainer& trainer) {
  WeightsHash hash;
  trainer.collect_pieces([&](ParameterSpec const& parameter, std::span<float const> values) {
    hash.append(parameter.name, parameter.shape, values);
  });
  return hash.digest();
}

/// Trains `run.steps` steps on every rank, then evaluates one batch. Returns the results of rank 0.
/// `make(comm, options)` must return a pointer to a new trainer. `launch(ranks, fn)` must call fn(comm) on
/// each of `ranks` ranks.
template <class Make, class Launch>
Outcome train(Run const& run, Make const& make, Launch const& launch) {
  Outcome outcome;
  launch(run.split.ranks, [&](comm::Comm comm) {
    auto const trainer = make(comm, options_of(run));
    if (run.trace) trainer->observe(run.trace->observer());
    for (int step = 0; step < run.steps; ++step) {
      StepReport const report = trainer->step(
          make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary, run.mask_every));
      if (!comm.is_root()) continue;
      outcome.losses.push_back(report.loss);
      outcome.norms.push_back(std::isnan(report.grad_norm) ? -1.0 : report.grad_norm);
      outcome.scales.push_back(report.scale);
      outcome.skipped.push_back(report.skipped);
      outcome.overflows.push_back(report.overflow);
    }
    double const evaluation = trainer->evaluate(
        make_batch(99, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary, run.mask_every));
    std::string const hash = hash_weights(*trainer);
    if (!comm.is_root()) return;
    outcome.evaluation = evaluation;
    outcome.weights = hash;
  });
  return outcome;
}
template <class Make>
Outcome train(Run const& run, Make const& make) {
  return train(run, make, [](int ranks, auto const& fn) { tessera::run(ranks, fn); });
}

}  // namespace support
