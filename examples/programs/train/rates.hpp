// SPDX-License-Identifier: Apache-2.0
// Measures the duration of a run's steps and reports it in the summary.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/train/options.hpp"

#include "cli/values.hpp"
#include "machine/device_memory.hpp"
#include "machine/gpu_watch.hpp"
#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "prediction/ceiling.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Sums the durations of timed steps. A duration is measured by the device's clock, from the end of one step
/// to the end of the next, so it does not depend on when the host reads the reports. Its memory does not grow
/// with the run.
class RunRates {
 public:
  /// Call it when other work, such as a validation, followed the last step. The next step then counts only
  /// its own time, without the gap before it.
  void pause() { paused_ = true; }
  void add(StepReport const& report) {
    double const took = std::exchange(paused_, false) ? report.seconds : report.interval;
    ++steps_;
    seconds_ += took;
    tokens_ += report.tokens;
    double const off = took - mean_;  // Welford's algorithm
    mean_ += off / static_cast<double>(steps_);
    squares_ += off * (took - mean_);
  }

  double seconds() const { return seconds_; }
  /// Returns tokens per second over all ranks; 0 before the first step.
  double rate() const { return seconds_ > 0.0 ? static_cast<double>(tokens_) / seconds_ : 0.0; }
  /// Returns the standard deviation of the step times in seconds.
  std::optional<double> deviation() const {
    return steps_ > 1 ? std::optional(std::sqrt(squares_ / static_cast<double>(steps_ - 1))) : std::nullopt;
  }
  /// Returns the deviation as a fraction of the mean step time.
  std::optional<double> spread() const {
    return steps_ > 1 && mean_ > 0.0 ? std::optional(*deviation() / mean_) : std::nullopt;
  }
  std::optional<bool> unsteady() const {
    return spread() ? std::optional(*spread() > steady_share) : std::nullopt;
  }

  /// Adds these fields to the summary in the log. They are named like columns of compare's rows.
  void add_to(Json& summary) const {
    summary["avg_tokens_per_sec"] = steps_ > 0 ? Json(rate()) : Json(nullptr);
    summary["train_time_s"] = steps_ > 0 ? Json(seconds_) : Json(nullptr);
    summary["avg_step_time_s"] = steps_ > 0 ? Json(mean_) : Json(nullptr);
    summary["step_to_step_std_s"] = or_null(deviation());
    summary["spread_pct"] = spread() ? Json(100.0 * *spread()) : Json(nullptr);
    summary["unsteady"] = or_null(unsteady());
  }
  /// Formats the rate: "5,626 tok/s", or "~5,626 tok/s, steps vary by 31%" if it is unsteady, or "- tok/s" if
  /// no step was timed.
  std::string text() const {
    if (steps_ == 0) return "- tok/s";  // no step was timed
    std::string const rate_text = grouped(std::llround(rate())) + " tok/s";
    if (!unsteady().value_or(false)) return rate_text;
    return "~" + rate_text + ", steps vary by " + fixed(100.0 * *spread(), 0) + "%";
  }

 private:
  bool paused_ = false;
  std::int64_t steps_ = 0, tokens_ = 0;
  double seconds_ = 0.0, mean_ = 0.0, squares_ = 0.0;
};

/// Measures the rates of a run and the use and memory of its GPUs. Used by rank 0 only, except `prepare`.
class RunFigures {
 public:
  /// Call it before the ranks start.
  void prepare(RecipeTable const& recipe, int ranks) {
    device_ = recipe.device;
    ranks_ = ranks;
    if (device_ != Device::cuda) return;
    DeviceFacts const facts = device_facts(device_);
    auto gpus = nvml_indices(gpus_at_start(), facts.addresses, ranks);
    ceiling_ = ceiling_of(recipe, ranks, facts);
    if (!gpus.empty()) watch_.emplace(gpu_library(), std::move(gpus));
  }
  /// Call it once the report of the first step has been read.
  void first_step() { first_step_s_ = process_seconds(); }
  /// Starts sampling the GPUs for the steps that follow.
  void begin() {
    paused_ = false;
    if (watch_) watch_->begin();
  }
  /// Call it when other work followed the last step. The GPU figures of the run are then dropped, since they
  /// would include that work.
  void pause() {
    paused_ = true;
    rates.pause();
  }
  /// Call it after the last step, while every rank still has its trainer.
  void end() {
    if (watch_ && !paused_) use_ = watch_->sums().use();
    memory_ = device_memory_of(device_, ranks_);
  }

  /// Returns the model FLOP utilization in percent. `flops_per_token` is absent if parameters are frozen,
  /// since its formula counts the gradients of all parameters.
  std::optional<double> mfu_pct(std::optional<double> flops_per_token) const {
    if (!ceiling_ || !flops_per_token || rates.rate() == 0.0) return std::nullopt;
    return 100.0 * rates.rate() / ranks_ * *flops_per_token / ceiling_->flops;
  }
  /// Adds all fields to the summary in the log. They are named like columns of compare's rows. Fields of GPUs
  /// are null on the CPU.
  void add_to(Json& summary, std::optional<double> flops_per_token) const {
    rates.add_to(summary);
    summary["first_step_s"] = or_null(first_step_s_);
    auto const mfu = mfu_pct(flops_per_token);
    summary["mfu_pct"] = or_null(mfu);
    summary["mfu_against"] = mfu ? Json(ceiling_->from) : Json(nullptr);
    auto const of_use = [&](auto field) { return use_ ? or_null((*use_).*field) : Json(nullptr); };
    summary["avg_gpu_util_pct"] = of_use(&GpuUse::util_pct);
    summary["avg_power_w"] = of_use(&GpuUse::power_w);
    summary["peak_power_w"] = of_use(&GpuUse::peak_power_w);
    summary["energy_j"] = use_ && use_->power_w ? Json(*use_->power_w * rates.seconds()) : Json(nullptr);
    summary["temp_start_c"] = of_use(&GpuUse::temp_start_c);
    summary["temp_end_c"] = of_use(&GpuUse::temp_end_c);
    summary["allocated_mb"] = memory_ ? Json(mebibytes(memory_->allocated)) : Json(nullptr);
    bool const known = memory_ && memory_->library;
    summary["library_mb"] = known ? Json(mebibytes(*memory_->library)) : Json(nullptr);
  }
  std::string text(std::optional<double> flops_per_token) const {
    auto const mfu = mfu_pct(flops_per_token);
    return rates.text() + (mfu ? " | MFU " + fixed(*mfu, 1) + "%" : std::string()) +
           (first_step_s_ ? " | first step after " + fixed(*first_step_s_, 2) + " s" : std::string());
  }

  RunRates rates;

 private:
  Device device_ = Device::cpu;
  int ranks_ = 1;
  bool paused_ = false;
  std::optional<double> first_step_s_;  // since the start of the process
  std::optional<Ceiling> ceiling_;
  std::optional<GpuWatch> watch_;
  std::optional<GpuUse> use_;
  std::optional<DeviceMemoryUse> memory_;
};

}  // namespace cli
}  // namespace programs
