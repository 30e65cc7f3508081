// SPDX-License-Identifier: Apache-2.0
// Files and folders that other programs wrote, as the material of a report. What cannot be read is an error
// that names the file, the line or the key, and what to do.
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

/// Adds a file: rows of compare (whole or flat), the log of train, a plan, a recording of monitor, rows of
/// other programs (docs/rivals.schema.json), or one step log; what it is is seen from what it holds. Throws
/// Error(data).
void read_file(std::filesystem::path const& file, Material& material);

/// Adds what the JSON of a file holds; `name` is the file's path, printable. A number that is not finite is
/// absent, as in files. Throws Error(data).
void take_json(std::string const& name, results::Row const& json, Material& material);

/// What a row of another program says that it cannot mean, with what to do; empty: nothing.
std::string fault_of(Rival const& rival);

/// The step logs below a folder, by name. Throws Error(data) when there are none.
std::vector<std::filesystem::path> step_logs_below(std::filesystem::path const& folder);
/// Returns the folder of the experiment that a step log is of.
std::filesystem::path experiment_of(std::filesystem::path const& log);
/// Returns the file of the comparison that wrote a step log; empty if there is none.
std::filesystem::path comparison_of(std::filesystem::path const& log);
/// Adds one row for each experiment in the step logs; its runs become the repeats. Two runs are one
/// experiment if their comparisons describe it equally, from the model to the learning rate. Without a
/// comparison, the name and the memory decide. The first `warmup` steps of each run are not timed. Throws
/// Error(data).
void read_step_logs(std::filesystem::path const& folder, std::vector<std::filesystem::path> const& logs,
                    std::size_t warmup, Material& material);

/// Fills the sharding, precision, ranks, batch and so on from a name such as
/// "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2"; leaves out what it does not say.
void describe_by_name(Row& row);

}  // namespace reporting
}  // namespace programs
