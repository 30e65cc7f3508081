// SPDX-License-Identifier: Apache-2.0
// Provides the tests of `compare` with artificial measurements, and with the tables that `compare` prints for
// these measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "cli/terminal.hpp"
#include "compare/report.hpp"
#include "workload/matrix.hpp"

namespace row_support {

namespace cli = programs::cli;
namespace compare = programs::compare;

/// Returns the settings of a comparison. The comparison has one row for each combination of the values in
/// `matrix`.
inline compare::Settings asked(cli::MatrixFlags matrix) {
  compare::Settings settings;
  settings.matrix = std::move(matrix);
  return settings;
}
inline cli::MatrixFlags lists() {
  cli::MatrixFlags matrix;
  matrix.device = "cpu";
  matrix.ranks = {4};
  matrix.slots.of<tessera::slot::sharding>() = {"zs0", "zs2"};
  matrix.slots.of<tessera::slot::precision>() = {"bf16"};
  matrix.slots.of<tessera::slot::offload>() = {"none"};
  return matrix;
}

/// Returns timed steps for the measurement `row`. Each element of `milliseconds` is the duration of one step.
inline compare::TimedSteps steps_of(compare::Measured const& row, std::vector<double> const& milliseconds) {
  compare::TimedSteps timed;
  for (double const each : milliseconds) {
    tessera::StepReport report;
    report.interval = each * 1e-3;
    report.tokens = row.point.split.global() * row.point.sequence;
    timed.add(report);
  }
  return timed;
}
/// Replaces the timed steps of the last repeat (run of the same training) of `row`. Each element of
/// `milliseconds` is the duration of one step.
inline void set_steps(compare::Measured& row, std::vector<double> const& milliseconds) {
  row.repeats.back().timed = steps_of(row, milliseconds);
}

/// Returns one artificial measurement for each row of the comparison `settings`. Each measurement has
/// `repeats` repeats of the same training run. Each repeat has `steps` steps of 100 ms.
inline std::vector<compare::Measured> measured(compare::Settings const& settings, int steps = 4,
                                               int repeats = 1) {
  std::vector<compare::Measured> rows;
  for (cli::Point const& point : cli::make_matrix(settings.matrix, 0)) {
    compare::Measured row;
    row.point = point;
    row.status = "ok";
    row.params = 1000000;
    for (int repeat = 0; repeat < repeats; ++repeat) {
      compare::Repeat one;
      one.timed = steps_of(row, std::vector<double>(static_cast<std::size_t>(steps), 100.0));
      one.log.push_back({.global_step = 1, .step_time_s = 0.1, .tokens_per_sec = 1.0, .loss = 5.0});
      one.comm_s = 0.01;
      one.comm_exposed_s = 0.004;
      one.comm_waiting_s = 0.002;
      one.weights_hash = "0123456789abcdef";
      row.repeats.push_back(one);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

inline std::string table(std::vector<compare::Measured> const& rows, compare::Settings const& settings,
                         int width = 0) {
  cli::Terminal terminal;
  terminal.width = width;
  return compare::table_text(
      rows,
      compare::measurements(rows, settings,
                            tessera::device_facts(tessera::device_named(settings.matrix.device))),
      terminal);
}

inline bool has(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// Returns the text `text` with each sequence of spaces replaced by one space.
inline std::string squeezed(std::string text) {
  auto const both = [](char one, char other) { return one == ' ' && other == ' '; };
  text.erase(std::unique(text.begin(), text.end(), both), text.end());
  return text;
}

}  // namespace row_support
