// SPDX-License-Identifier: Apache-2.0
// Defines the options of a run, and the report of a step.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include "tessera/data/file_bytes.hpp"
#include "tessera/nn/lora_options.hpp"
#include "tessera/optim/adamw.hpp"
#include "tessera/optim/loss_scale.hpp"
#include "tessera/optim/schedule.hpp"
#include "tessera/plan/checkpoint_memory.hpp"

namespace tessera {
inline namespace v0 {

/// The largest number of micro-batches of one rank in a step.
inline constexpr int max_accumulation = 16384;

/// On which cores the threads of a rank run. The ranks of a host that have the same affinity mask (set by
/// taskset, numactl, SLURM or a container) share the cores of this mask. The thread that constructs a trainer
/// is bound too. It gets its mask back when the trainer is destroyed, on any thread. If it has several
/// trainers, it gets the mask back when the last of them is destroyed.
enum class BindThreads : std::uint8_t {
  none,   ///< on any core of the mask; the system chooses
  cores,  ///< each rank has its own part of the mask, and each of its computing threads has its own core
  numa  ///< the cores of the mask in the NUMA node of the rank: the GPU's node, or the rank's share of nodes
};

/// The settings of a trainer that are chosen at run time. All ranks must have the same settings, except for
/// `threads` and the memory limits.
struct TrainerOptions {
  double learning_rate = 3e-4;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;   ///< only on parameters of two dimensions
  bool decoupled_decay = true;  ///< true: AdamW; false: Adam, which adds the decay to the gradient
  double clip = 0.0;            ///< largest gradient norm; 0: no clipping

  RateShape schedule = RateShape::constant;
  std::int64_t warmup_steps = 0;
  std::int64_t total_steps = 0;  ///< the step at which linear and cosine end
  double final_fraction = 0.0;   ///< fraction of the learning rate at the end of linear and cosine
  double first_rate = 0.0;       ///< the rate at which the warm-up of DeepSpeed's schedules begins
  bool log_warmup = true;  ///< DeepSpeed's warm-up rises with the logarithm of the step; false: linearly

  std::int64_t batch = 0;     ///< samples in a micro-batch of one rank; 0: taken from the first batch
  std::int64_t sequence = 0;  ///< tokens per sample; 0: taken from the first batch
  int accumulation = 1;       ///< micro-batches per rank and step; from the first batch if `batch` is 0

  std::uint64_t seed = 1;
  int threads = 0;  ///< threads of this rank; 0: the cores of the mask / the ranks that share it, at least 1
  BindThreads bind_threads = BindThreads::none;  ///< on which cores the threads run; never changes results
  std::int64_t bucket_bytes = 0;                 ///< minimum size of a bucket of micro-batch gradients
  int recompute_every = 2;  ///< blocks whose activations Recompute<Every> recomputes together
  int replicas = 1;  ///< copies of all sharded state; world / replicas ranks share a copy (hybrid sharding)
  int prefetch = 1;  ///< units by which weights are gathered early and gradients reduced late; 0: no overlap
  int channels = 1;  ///< communicators per group of ranks; 2: the second one gathers weights
  int weight_lag = 0;  ///< units by which weight gradients run behind input gradients, on a separate stream
  std::int64_t memory_limit = 0;       ///< bytes that may be planned: on the CPU by all ranks of this process
                                       ///< together, on GPUs by each rank; 0: the free memory
  std::int64_t host_memory_limit = 0;  ///< bytes of host memory that all ranks of this process may plan
                                       ///< together; 0: the free memory
  std::string nvme_directory = {};  ///< an existing folder for the files of recipes that keep state on NVMe
  CheckpointMemory checkpoints = CheckpointMemory::none;  ///< memory planned for saves (checkpoint.hpp)
  LossScaleOptions loss_scale = {};                       ///< for fp16
  /// The largest number of consecutive overflows in an fp16 run. One more consecutive overflow ends the run.
  std::int64_t skips_allowed = 50;

  /// Returns true for the names of parameters to freeze. A frozen parameter has no gradient and no optimizer
  /// state. Must match at least one name and leave at least one parameter to train. If empty, only the
  /// parameters that the model itself froze are frozen.
  std::function<bool(std::string_view name)> freeze = {};

  /// The adapters of the policy Lora. All other parameters are frozen. `freeze` is also called for the names
  /// of adapters.
  LoraOptions lora = {};
};

/// Describes one optimizer step. All fields are equal on every rank, except for times and comm_bytes.
struct StepReport {
  std::int64_t step = 0;   ///< counts from 1; includes skipped steps
  double loss = 0.0;       ///< mean over the batch's valid tokens, before the update; 0: no valid token
  double grad_norm = 0.0;  ///< norm of the whole gradient, without loss scale, before clipping
  double learning_rate = 0.0;
  double scale = 1.0;             ///< the loss scale of this step's gradients
  bool skipped = false;           ///< overflow, or all targets masked; nothing was updated
  std::string overflow{};         ///< the name of the first tensor with a non-finite value
  std::int64_t tokens = 0;        ///< number of tokens in the global batch
  std::int64_t valid_tokens = 0;  ///< the part of `tokens` that is not masked
  double seconds = 0.0;           ///< time on this rank from the batch to the report
  double interval = 0.0;  ///< from the end of the previous step to the end of this one, on the clock of the
                          ///< rank's device; does not depend on when reports are read; first step: `seconds`
  std::int64_t comm_bytes = 0;           ///< bytes that this rank sent
  std::optional<double> comm_seconds{};  ///< time in collectives; absent if the host only enqueues them
  std::optional<double> comm_waiting{};  ///< the part of comm_seconds spent waiting for other ranks
  bool stop = false;  ///< a rank requested in this step to end the training (AnyTrainer::step)

  double tokens_per_second() const { return seconds > 0.0 ? static_cast<double>(tokens) / seconds : 0.0; }
};

/// Prints one line: "step 14 | loss 3.2440 | norm 0.830 | lr 3.00e-04 | 137.3 ms | 7282 tok/s".
inline std::ostream& operator<<(std::ostream& out, StepReport const& report) {
  char line[256];
  std::snprintf(line, sizeof line, "step %lld | loss %.4f | norm %.3f | lr %.2e | %.1f ms | %.0f tok/s",
                static_cast<long long>(report.step), files::plain(report.loss),
                files::plain(report.grad_norm), report.learning_rate, report.seconds * 1e3,
                report.tokens_per_second());
  out << line;
  if (report.scale != 1.0) out << " | scale " << report.scale;
  if (report.skipped && report.valid_tokens == 0)
    out << " | skipped: all targets are masked";
  else if (report.skipped)
    out << " | skipped: overflow in " << report.overflow;
  return out;
}

}  // namespace v0
}  // namespace tessera
