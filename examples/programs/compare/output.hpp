// SPDX-License-Identifier: Apache-2.0
// The files of a comparison, which hold every row as soon as it is finished.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "tessera/data/file_bytes.hpp"

#include "cli/outputs.hpp"
#include "compare/measure.hpp"
#include "results/results.hpp"

namespace programs {
using namespace tessera;
namespace compare {

/// JSON, CSV and step logs, and in a folder of results a page of them at the end. "-" is stdout; it and other
/// streams get their document once, at the end.
class Outputs {
 public:
  /// Checks every output before training starts. Throws Error(failed or usage), which names the path, if an
  /// output cannot be written, would overwrite an input, or is in a folder that another compare is writing
  /// to.
  Outputs(Settings const& settings, std::vector<Point> const& points, cli::ProgramFiles const& read);

  /// After a row: replaces each file by one that holds all rows so far, so that a program that is killed
  /// leaves whole files. What cannot be written is a warning, and tried again after the next row.
  void update(results::Document const& document, std::vector<Measured> const& measured);
  /// After the last row. Returns a line for each file. Throws Error(failed) that names the path; a page that
  /// cannot be made or written is a warning, when all else is written.
  std::vector<std::string> finish(results::Document const& document, std::vector<Measured> const& measured);
  /// Returns the path of the HTML page; empty if the output files were named.
  std::filesystem::path const& report() const { return report_; }

 private:
  bool is_named() const { return !settings_.json.empty() || !settings_.csv.empty(); }
  std::filesystem::path runs_folder() const;
  std::filesystem::path experiment_folder(Point const& point) const;
  std::filesystem::path run_folder(Point const& point, std::size_t run) const;
  /// The step logs of the rows that have none yet. Those of more runs of such a row, by an earlier
  /// comparison, go.
  void write_logs(std::vector<Measured> const& measured);
  std::string write_report(results::Document const& document) const;
  /// Locks a named file against other runs until it is replaced.
  void hold(std::filesystem::path const& path);
  /// Whether a file of an earlier comparison holds more than what was measured now.
  bool kept(std::filesystem::path const& path) const;

  Settings const& settings_;
  std::string time_;                             // in the names; empty: it is in none
  std::filesystem::path json_, csv_, document_;  // empty: not asked for; the last is beside a flat one
  std::filesystem::path report_;                 // empty where files are named
  files::Descriptor folder_, held_[2];           // locked until this process ends
  bool found_ = false;                           // a row was measured to its end
  std::size_t rows_logged_ = 0, logs_ = 0;
};

}  // namespace compare
}  // namespace programs
