// SPDX-License-Identifier: Apache-2.0
// Compares the rate and the memory of a training run with the row of a comparison that the run repeats
// (`train --from`).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/train/planning.hpp"

#include "cli/option_flags.hpp"
#include "cli/values.hpp"
#include "config/config_file.hpp"
#include "machine/machine.hpp"
#include "results/results.hpp"
#include "train/rates.hpp"
#include "train/settings.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns the largest `bytes` of all ranks. All ranks must call it together. Waits for the other ranks.
inline std::int64_t largest_on_ranks(comm::Comm const& comm, std::int64_t bytes) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  comm.transport().all_gather(&bytes, all.data(), sizeof bytes, {"report", "peak memory"});
  return *std::max_element(all.begin(), all.end());
}

/// The differences of the rate and the peak memory between a run and a row of a result file.
class RowComparison {
 public:
  /// `rate` is the run's tokens per second of all ranks, or nullopt if no step was timed. `peak_bytes` is the
  /// peak of the run's device arena, the largest of all ranks.
  RowComparison(RepeatedRow const& repeated, Settings const& settings, std::optional<double> rate,
                std::int64_t peak_bytes)
      : file_(repeated.path),
        experiment_(files::printable(row_text(repeated.row, "experiment"))),
        row_rate_(number_of(repeated.row, "median_tokens_per_sec")),
        row_spread_pct_(number_of(repeated.row, "spread_pct")),
        row_peak_mb_(number_of(repeated.row, "peak_gpu_mem_mb")),
        peak_mb_(mebibytes(peak_bytes)) {
    find_differences(repeated, settings);
    if (!differs_.empty()) return;
    if (rate && row_rate_ && *row_rate_ > 0.0) rate_pct_ = 100.0 * (*rate / *row_rate_ - 1.0);
    if (row_peak_mb_ && *row_peak_mb_ > 0.0) peak_pct_ = 100.0 * (peak_mb_ / *row_peak_mb_ - 1.0);
    if (rate_pct_ && row_spread_pct_) within_spread_ = std::abs(*rate_pct_) <= *row_spread_pct_;
  }

  /// Returns the comparison for the log. The differences are null if the run and the row cannot be compared.
  /// The field `differs` then says why.
  Json json() const {
    Json json = Json::object();
    json["file"] = file_;
    json["experiment"] = experiment_;
    json["differs"] = differs_;
    json["row_tokens_per_sec"] = or_null(row_rate_);
    json["row_spread_pct"] = or_null(row_spread_pct_);
    json["rate_difference_pct"] = or_null(rate_pct_);
    json["within_row_spread"] = or_null(within_spread_);
    json["row_peak_gpu_mem_mb"] = or_null(row_peak_mb_);
    json["peak_gpu_mem_mb"] = peak_mb_;
    json["peak_difference_pct"] = or_null(peak_pct_);
    return json;
  }

  /// Returns the comparison as one line.
  std::string text() const {
    std::string const row = "row " + experiment_ + " of " + file_;
    if (!differs_.empty()) return "not compared with " + row + ", because of another " + joined(differs_);
    std::string const rate = !rate_pct_
                                 ? "rate -"
                                 : "rate " + signed_pct(*rate_pct_) + " from " +
                                       grouped(std::llround(*row_rate_)) + " tok/s" +
                                       (!within_spread_   ? ", the row has no spread"
                                        : *within_spread_ ? ", within the row's spread of "
                                                          : ", outside the row's spread of ") +
                                       (within_spread_ ? fixed(*row_spread_pct_, 1) + "%" : std::string());
    return "against " + row + " | " + rate + " | peak memory " +
           (peak_pct_ ? signed_pct(*peak_pct_) + " from " + fixed(*row_peak_mb_, 2) + " MB a rank" : "-");
  }

 private:
  static std::string signed_pct(double value) { return (value < 0.0 ? "" : "+") + fixed(value, 1) + "%"; }
  static std::optional<double> number_of(results::Row const& row, char const* field) {
    auto const found = row.find(field);
    return found != row.end() && found->is_number() ? std::optional(found->get<double>()) : std::nullopt;
  }

  /// Fills `differs_`. A field that an older program did not write is not compared.
  void find_differences(RepeatedRow const& repeated, Settings const& settings) {
    auto const compare = [&](std::string const& title, auto const& row, auto const& run,
                             std::string const& field) {
      auto const before = row.find(field);
      auto const now = run.find(field);
      if (before == row.end() || now == run.end() || before->is_null()) return;
      if (before->dump() == now->dump()) return;
      auto const text = [](auto const& value) {
        return value.is_string() ? value.template get<std::string>()
                                 : value.dump(-1, ' ', false, Json::error_handler_t::replace);
      };
      differs_.push_back(title + " (" + text(*now) + ", in the row " + text(*before) + ")");
    };
    Json const here = environment(device_facts(settings.recipe.device));
    compare("CPU", repeated.environment, here, "cpu");
    compare("number of cores", repeated.environment, here, "cores");
    if (settings.recipe.device == Device::cuda) compare("GPU", repeated.environment, here, "device_models");
    Point point;
    point.model = settings.model;
    point.split = settings.relation;
    point.mesh.replicas = settings.options.replicas;
    point.sequence = settings.options.sequence;
    point.recipe = settings.recipe;
    results::Row run = results::Row::object();
    describe_point(run, point);
    run["params"] = parameter_count(settings.units());
    run["trainable_params"] = trainable_count(settings.units());
    for (char const* const derived : {"experiment", "stage", "attention", "global_batch"}) run.erase(derived);
    for (auto const& [field, value] : run.items()) compare(title_of(field), repeated.row, run, field);
    if (auto const with = repeated.environment.find("settings");
        with != repeated.environment.end() && with->is_object()) {
      Json options = Json::object();
      add_option_values(options, OptionGroup::machine, settings.options);
      options.erase("seed");  // changes neither the rate nor the memory
      results::Row before = *with;
      // 0 threads means an equal share of the cores. The row has the same share as this run, unless its
      // number of cores or ranks differs, which the differences above already say.
      auto const resolve = [&](auto& values) {
        if (auto const threads = values.find("threads");
            threads != values.end() && threads->is_number_integer())
          *threads = threads_of_rank(threads->template get<int>(), point.world());
      };
      resolve(before);
      resolve(options);
      for (auto const& [field, value] : options.items()) compare(title_of(field), before, options, field);
    }
    differs_ = distinct(differs_);
  }
  /// Returns the name of a field for the sentence about differences: "number of ranks", "bucket bytes".
  static std::string title_of(std::string field) {
    if (field == "world") return "number of ranks";
    if (field == "threads") return "number of threads";
    if (field == "params") return "number of parameters";
    if (field == "trainable_params") return "number of trained parameters";
    std::replace(field.begin(), field.end(), '_', ' ');
    return field;
  }

  std::string file_, experiment_;
  std::optional<double> row_rate_, row_spread_pct_, row_peak_mb_;
  double peak_mb_;
  Names differs_;
  std::optional<double> rate_pct_, peak_pct_;
  std::optional<bool> within_spread_;
};

}  // namespace cli
}  // namespace programs
