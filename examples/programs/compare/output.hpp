// SPDX-License-Identifier: Apache-2.0
// Writes the files of a comparison. They contain every row as soon as it is finished.
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

/// Writes the output files of `compare`: JSON, CSV and step logs, and at the end an HTML page if they go to a
/// folder of results. The path "-" is stdout, which gets its document once, at the end.
class Outputs {
 public:
  /// Checks every output before training starts. Throws Error(failed or usage), which names the path, if an
  /// output cannot be written, would overwrite an input, or is in a folder that another compare is writing
  /// to.
  Outputs(Settings const& settings, std::vector<Point> const& points, cli::ProgramFiles const& read);

  /// Updates the files after a row. Replaces each file by one with all rows so far, so that a killed program
  /// leaves complete files. A write failure is a warning, and the write is retried after the next row.
  void update(results::Document const& document, std::vector<Measured> const& measured);
  /// Writes the files after the last row. Returns one line for each file, to be printed. Throws
  /// Error(failed), which names the path. If the HTML page cannot be made or written, prints a warning after
  /// all other files are written.
  std::vector<std::string> finish(results::Document const& document, std::vector<Measured> const& measured);
  /// Returns the path of the HTML page; empty if --json or --csv named the output files.
  std::filesystem::path const& report() const { return report_; }

 private:
  bool is_named() const { return !settings_.json.empty() || !settings_.csv.empty(); }
  std::filesystem::path runs_folder() const;
  std::filesystem::path experiment_folder(Point const& point) const;
  std::filesystem::path run_folder(Point const& point, std::size_t run) const;
  /// Writes the step logs of new rows. Deletes old step logs of the same row if an earlier comparison had
  /// more repeats.
  void write_logs(std::vector<Measured> const& measured);
  std::string write_report(results::Document const& document) const;
  /// Locks a file that --json or --csv names, so that no other `compare` writes it before this one replaces
  /// it.
  void hold(std::filesystem::path const& path);
  /// Returns whether to keep the existing file of an earlier comparison: a signal ended this one before it
  /// measured a complete row.
  bool keep_existing(std::filesystem::path const& path) const;

  Settings const& settings_;
  std::string time_;                             // time in the file names; empty if they have none
  std::filesystem::path json_, csv_, document_;  // empty if unused; document_ accompanies a flat json_
  std::filesystem::path report_;                 // empty if output files were named
  files::Descriptor folder_, held_[2];           // locked until this process ends
  bool found_ = false;                           // a row has been measured completely
  std::size_t rows_logged_ = 0, logs_ = 0;
};

}  // namespace compare
}  // namespace programs
