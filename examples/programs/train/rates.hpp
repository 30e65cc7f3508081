// SPDX-License-Identifier: Apache-2.0
// Measures the times of the steps of a training run, and writes rates and GPU figures to the summary, the
// last line of the log.
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

/// Adds up the times of the timed steps. The device's clock measures a time from the end of one step to the
/// end of the next, so the time does not depend on when the host reads the reports. The size of the object
/// does not grow with the number of steps.
class RunRates {
 public:
  /// Must be called if other work, such as a validation, followed the last step. The time of the next step is
  /// then its own duration, without this other work.
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
  /// Returns the tokens per second of all ranks; 0 before the first step.
  double rate() const { return seconds_ > 0.0 ? static_cast<double>(tokens_) / seconds_ : 0.0; }
  /// Returns the tokens per second of all ranks; nullopt before the first step.
  std::optional<double> known_rate() const { return steps_ > 0 ? std::optional(rate()) : std::nullopt; }
  /// Returns the standard deviation of the step times in seconds; nullopt for fewer than two steps.
  std::optional<double> deviation() const {
    return steps_ > 1 ? std::optional(std::sqrt(squares_ / static_cast<double>(steps_ - 1))) : std::nullopt;
  }
  /// Returns the standard deviation of the step times as a fraction of their mean; nullopt for fewer than two
  /// steps.
  std::optional<double> spread() const {
    return steps_ > 1 && mean_ > 0.0 ? std::optional(*deviation() / mean_) : std::nullopt;
  }
  std::optional<bool> unsteady() const {
    return spread() ? std::optional(*spread() > steady_share) : std::nullopt;
  }

  /// Adds the rate, the times and the deviation of the times to the summary in the log. The keys are the
  /// column names of the result table of the program `compare`.
  void add_to(Json& summary) const {
    summary["avg_tokens_per_sec"] = steps_ > 0 ? Json(rate()) : Json(nullptr);
    summary["train_time_s"] = steps_ > 0 ? Json(seconds_) : Json(nullptr);
    summary["avg_step_time_s"] = steps_ > 0 ? Json(mean_) : Json(nullptr);
    summary["step_to_step_std_s"] = or_null(deviation());
    summary["spread_pct"] = spread() ? Json(100.0 * *spread()) : Json(nullptr);
    summary["unsteady"] = or_null(unsteady());
  }
  /// Returns the rate as text: "5,626 tok/s"; "~5,626 tok/s, steps vary by 31%" if the steps vary much; "-
  /// tok/s" if no step was timed.
  std::string text() const {
    if (steps_ == 0) return "- tok/s";
    std::string const rate_text = grouped(std::llround(rate())) + " tok/s";
    if (!unsteady().value_or(false)) return rate_text;
    return "~" + rate_text + ", steps vary by " + fixed(100.0 * *spread(), 0) + "%";
  }

 private:
  bool paused_ = false;
  std::int64_t steps_ = 0, tokens_ = 0;
  double seconds_ = 0.0, mean_ = 0.0, squares_ = 0.0;
};

/// Measures the rates of a run, and the use and the memory of its GPUs. Only rank 0 calls the functions,
/// except `prepare`, which is called before the ranks start.
class RunFigures {
 public:
  /// Finds the peak rate of the GPUs and opens their sensors. Must be called before the ranks start.
  void prepare(RecipeTable const& recipe, int ranks) {
    device_ = recipe.device;
    ranks_ = ranks;
    if (device_ != Device::cuda) return;
    DeviceFacts const facts = device_facts(device_);
    auto gpus = nvml_indices(gpus_at_start(), facts.addresses, ranks);
    ceiling_ = ceiling_of(recipe, ranks, facts);
    if (!gpus.empty()) watch_.emplace(gpu_library(), std::move(gpus));
  }
  /// Stores the seconds from the start of the process until now. Must be called when the report of the first
  /// step has been read.
  void first_step() { first_step_s_ = process_seconds(); }
  /// Starts to sample the GPUs. The steps that follow are the timed ones.
  void begin() {
    paused_ = false;
    if (watch_) watch_->begin();
  }
  /// Must be called if other work followed the last step. This call drops the GPU figures of the run, because
  /// they would include this work.
  void pause() {
    paused_ = true;
    rates.pause();
  }
  /// Reads the use and the memory of the GPUs. Must be called after the last step, while every rank still has
  /// its trainer, so that the memory of the trainers is counted.
  void end() {
    if (watch_ && !paused_) use_ = watch_->sums().use();
    memory_ = device_memory_of(device_, ranks_);
  }

  /// Returns the model FLOP utilization in percent; nullopt if it is unknown. `flops_per_token` must be
  /// nullopt if parameters are frozen, since its formula counts the gradients of all parameters.
  std::optional<double> mfu_pct(std::optional<double> flops_per_token) const {
    if (!ceiling_ || !flops_per_token || rates.rate() == 0.0) return std::nullopt;
    return 100.0 * rates.rate() / ranks_ * *flops_per_token / ceiling_->flops;
  }
  /// Adds all figures to the summary in the log. The keys are the column names of the result table of the
  /// program `compare`. Figures of GPUs are null on the CPU.
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
    summary["temp_min_c"] = of_use(&GpuUse::temp_min_c);
    summary["temp_max_c"] = of_use(&GpuUse::temp_max_c);
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
  std::optional<double> first_step_s_;  // seconds since the start of the process
  std::optional<Ceiling> ceiling_;
  std::optional<GpuWatch> watch_;
  std::optional<GpuUse> use_;
  std::optional<DeviceMemoryUse> memory_;
};

}  // namespace cli
}  // namespace programs
