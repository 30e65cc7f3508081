// SPDX-License-Identifier: Apache-2.0
// Writes the output files of the program `compare`: the results as JSON, CSV and an HTML page, and the logs
// of the training steps. The JSON and CSV files contain each row as soon as it is finished.
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

/// The output files of `compare`: a JSON file, a CSV file, step logs, and an HTML page at the end. If --json
/// or --csv names the files, only these files are written. The path "-" means standard output, which gets its
/// text once, at the end.
class Outputs {
 public:
  /// Checks every output before training starts. `points` are the rows to train, and `read` are the input
  /// files. Throws Error(failed) or Error(usage) if an output cannot be written, would overwrite an input, or
  /// is in a folder to which another `compare` is writing. The message names the path.
  Outputs(Settings const& settings, std::vector<Point> const& points, cli::ProgramFiles const& read);

  /// Writes the files after a row. A new file with all rows so far replaces the old file, so the files are
  /// complete even if the program is killed. If a write fails, prints a warning; the next call tries again.
  void update(results::Document const& document, std::vector<Measured> const& measured);
  /// Writes the files after the last row. Returns one line to print for each file. Throws Error(failed),
  /// which names the path, if a file cannot be written. If only the HTML page cannot be made or written,
  /// prints a warning instead.
  std::vector<std::string> finish(results::Document const& document, std::vector<Measured> const& measured);
  /// Returns the path of the HTML page; empty if --json or --csv named the output files.
  std::filesystem::path const& report() const { return report_; }

 private:
  bool is_named() const { return !settings_.json.empty() || !settings_.csv.empty(); }
  std::filesystem::path runs_folder() const;
  std::filesystem::path experiment_folder(Point const& point) const;
  std::filesystem::path run_folder(Point const& point, std::size_t run) const;
  /// Writes the step logs of the rows that have none yet. An earlier comparison possibly had more repeats of
  /// a row; the logs of its surplus repeats are deleted.
  void write_logs(std::vector<Measured> const& measured);
  std::string write_report(results::Document const& document) const;
  /// Locks an output file that --json or --csv names. Without the lock, another `compare` could write the
  /// file before this comparison replaces it.
  void hold(std::filesystem::path const& path);
  /// Returns whether `path` exists and must not be overwritten. This is the case if a signal ended this
  /// comparison before a row was measured completely: the existing file is then the result of an earlier
  /// comparison.
  bool keep_existing(std::filesystem::path const& path) const;

  Settings const& settings_;
  std::string time_;  // the time in file names, for --timestamp; empty without it
  // The paths of the output files. A file whose path is empty is not written. With --format flat, json_
  // contains a flat array of rows. If document_ is not empty, it then contains the same rows with their
  // nested values.
  std::filesystem::path json_, csv_, document_;
  std::filesystem::path report_;        // the HTML page; empty if --json or --csv named the files
  files::Descriptor folder_, held_[2];  // locked until this process ends
  bool found_ = false;                  // whether a row has been measured completely
  std::size_t rows_logged_ = 0, logs_ = 0;
};

}  // namespace compare
}  // namespace programs
