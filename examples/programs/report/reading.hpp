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

/// Returns the comparisons in a folder, newest first: compare.json, and files with a time in their names.
std::vector<std::filesystem::path> comparisons_in(std::filesystem::path const& folder);
/// Returns the file for a path; for a folder, its newest comparison. Throws Error(data).
std::filesystem::path file_of(std::filesystem::path const& given);

/// Adds a file: rows of compare (whole or flat), a log of train, a plan, a recording of monitor, rows of
/// other programs (docs/rivals.schema.json), or one step log. The kind is detected from the contents. Throws
/// Error(data).
void read_file(std::filesystem::path const& file, Inputs& inputs);

/// Adds the JSON contents of a file. `name` is the file's printable path. A number that is not finite counts
/// as absent, as in files. Throws Error(data).
void take_json(std::string const& name, results::Row const& json, Inputs& inputs);

/// Returns what is invalid in a row of another program and how to fix it; empty if the row is valid.
std::string fault_of(Rival const& rival);

/// Returns the step logs below a folder, by name. Throws Error(data) if there are none.
std::vector<std::filesystem::path> step_logs_below(std::filesystem::path const& folder);
/// Returns the folder of the experiment that a step log belongs to.
std::filesystem::path experiment_of(std::filesystem::path const& log);
/// Returns the file of the comparison that wrote a step log; empty if there is none.
std::filesystem::path comparison_of(std::filesystem::path const& log);
/// Adds one row for each experiment in the step logs; its runs become the repeats. Two runs are one
/// experiment if their comparisons describe it equally, from the model to the learning rate. Without a
/// comparison, the name and the memory decide. The first `warmup` steps of each run are not timed. Throws
/// Error(data).
void read_step_logs(std::filesystem::path const& folder, std::vector<std::filesystem::path> const& logs,
                    std::size_t warmup, Inputs& inputs);

/// Fills the sharding, precision, ranks, batch and so on from a name such as
/// "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2"; leaves out what it does not say.
void describe_by_name(Row& row);

}  // namespace reporting
}  // namespace programs
