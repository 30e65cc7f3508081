// SPDX-License-Identifier: Apache-2.0
// Reads the files and folders of other programs into the inputs of a report. An error names the file, the
// line or key, and the fix.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Returns the result files of comparisons in a folder, newest first: compare.json, and files with a time in
/// their names.
std::vector<std::filesystem::path> comparisons_in(std::filesystem::path const& folder);
/// Returns `given` if it is a file. For a folder, returns the result file of its newest comparison. Throws
/// Error(data).
std::filesystem::path file_of(std::filesystem::path const& given);

/// Adds a file: the JSON of `compare` (full, or from --format flat), of `plan` or of `monitor`, a log of
/// `train`, rows of other programs (docs/rivals.schema.json), or one step log. The kind is detected from the
/// contents. Throws Error(data).
void read_file(std::filesystem::path const& file, Inputs& inputs);

/// Adds the contents of a JSON file. `name` is the file's path for messages. Treats NaN and infinity as
/// absent values. Throws Error(data).
void add_json(std::string const& name, results::Row const& json, Inputs& inputs);

/// Returns what is invalid in a row of another program and how to fix it; "" if the row is valid.
std::string fault_of(Rival const& rival);

/// Returns all step logs below a folder, sorted by name. Throws Error(data) if there are none.
std::vector<std::filesystem::path> step_logs_below(std::filesystem::path const& folder);
/// Returns the folder of the experiment that a step log belongs to.
std::filesystem::path experiment_of(std::filesystem::path const& log);
/// Returns the result file of the comparison that wrote a step log; "" if there is none.
std::filesystem::path comparison_of(std::filesystem::path const& log);
/// Adds one row for each experiment in the step logs. Runs of one experiment become its repeats. Two runs
/// belong together if their experiment names agree, and also the settings in the result files of their
/// comparisons (without such a file, their memory use). Excludes the first `warmup` steps of each run from
/// timing. Throws Error(data).
void read_step_logs(std::filesystem::path const& folder, std::vector<std::filesystem::path> const& logs,
                    std::size_t warmup, Inputs& inputs);

/// Parses a name such as "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2" and fills the sharding, precision, ranks,
/// batch and so on. Leaves fields empty that the name does not give.
void describe_by_name(Row& row);

}  // namespace reporting
}  // namespace programs
