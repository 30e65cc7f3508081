// SPDX-License-Identifier: Apache-2.0
// Reads the input files and folders of a report and adds their contents to an object of type Inputs. An error
// message names the file, the line or key, and the remedy.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "report/rows.hpp"

namespace programs {
namespace reporting {

/// Returns the result files of comparisons in a folder, newest first. They are compare.json and files with a
/// time in their names. Two files with times in their names are ordered by these times, other files by their
/// modification times.
std::vector<std::filesystem::path> comparisons_in(std::filesystem::path const& folder);
/// Returns the path `given` if it is a file. If it is a folder, returns the result file of the newest
/// comparison in it. If a folder has no file with the name of a comparison, returns all its JSON files,
/// sorted by name. Throws Error(data) if there are none.
std::vector<std::filesystem::path> files_of(std::filesystem::path const& given);

/// Reads a file and adds its contents to `inputs`. The file may be the JSON of `compare` (full, or from
/// --format flat), of `plan` or of `monitor`, a log of `train`, rows of other programs
/// (docs/rivals.schema.json), or one step log. The contents say which kind it is. Throws Error(data).
void read_file(std::filesystem::path const& file, Inputs& inputs);

/// Adds the contents of a JSON file to `inputs`. `name` is the file's path for messages. NaN and infinity
/// count as missing values. Throws Error(data).
void add_json(std::string const& name, results::Row const& json, Inputs& inputs);

/// Returns what is invalid in a row of another program, with a remedy; "" if the row is valid.
std::string fault_of(Rival const& rival);

/// Returns the paths of all step logs in a folder and its subfolders, sorted. Throws Error(data) if there are
/// none.
std::vector<std::filesystem::path> step_logs_below(std::filesystem::path const& folder);
/// Returns the folder of the experiment to which a step log belongs.
std::filesystem::path experiment_of(std::filesystem::path const& log);
/// Returns the result file of the comparison that wrote a step log; an empty path if there is none.
std::filesystem::path comparison_of(std::filesystem::path const& log);
/// Adds one row for each experiment in the step logs. Several runs of one experiment become the repeats of
/// its row. Two runs belong to one experiment if they have the same experiment name, and the same settings in
/// the result files of their comparisons. Without a result file, the runs must have the same memory use; if
/// the logs do not have it either, runs in different folders are different experiments. The first `warmup`
/// steps of each run are not timed. If `warmup` is absent, these are the warm-up steps of the run's
/// comparison, or one step if its result file is missing. Throws Error(data).
void read_step_logs(std::filesystem::path const& folder, std::vector<std::filesystem::path> const& logs,
                    std::optional<std::size_t> warmup, Inputs& inputs);

/// Parses the name of an experiment, such as "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2", and fills the row's
/// sharding, precision, ranks, batch and so on. Fields that the name does not contain stay empty.
void describe_by_name(Row& row);

}  // namespace reporting
}  // namespace programs
