// SPDX-License-Identifier: Apache-2.0
// Reads and writes result files: the rows of a comparison as JSON and CSV, and step logs. Also builds the
// names of experiments. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/json_lines.hpp"

#include "results/result_columns.hpp"

namespace programs {
using namespace tessera;
namespace results {

/// The version of the format of result files. It rises if a field changes its name or meaning, but not for
/// new fields. Version 1: rates come from the median step, and `attention` is the requested kernel. Version
/// 2: a rate is the tokens of all timed steps divided by their time, and `attention` is the kernel that ran.
/// Version 3: `std_step_time_s` is the deviation over repeats, and `median_step_time_s` is the median over
/// repeats of the median step of each repeat. In earlier versions these two were over the steps of all
/// repeats.
inline constexpr int schema_version = 3;

/// The contents of a result file.
struct Document {
  std::string command;                          ///< the command line that made the file
  Row environment = Row::object();              ///< machine, compiler, versions of libraries, hashes
  std::optional<double> wall_s = std::nullopt;  ///< duration of the whole run in seconds
  std::vector<Row> rows;
};

/// Returns the document as JSON: {"schema_version", "command", "environment", "wall_s", "rows"}. Numbers that
/// are not finite become null.
inline Row to_json(Document const& document) {
  Row json = Row::object();
  json["schema_version"] = schema_version;
  json["command"] = document.command;
  json["environment"] = document.environment;
  json["wall_s"] = document.wall_s ? Row(*document.wall_s) : Row(nullptr);
  json["rows"] = document.rows;
  return json;
}

namespace detail {

/// Returns the text of a JSON value. Bytes that are not UTF-8 (for example in a path) become U+FFFD.
inline std::string dump(Row const& json, int indent = -1) {
  return json.dump(indent, ' ', false, Row::error_handler_t::replace);
}

/// Returns a value as a CSV cell, quoted according to RFC 4180. Null becomes an empty cell. The elements of
/// an array are separated by spaces.
inline std::string csv_cell(Row const& value) {
  std::string text;
  if (value.is_string()) {
    text = value.get<std::string>();
  } else if (value.is_array()) {
    for (Row const& element : value)
      text += (&element == &value.front() ? "" : " ") +
              (element.is_string() ? element.get<std::string>() : dump(element));
  } else if (!value.is_null()) {
    text = dump(value);
  }
  if (text.find_first_of(",\"\r\n") == text.npos && !text.starts_with(' ') && !text.ends_with(' '))
    return text;
  std::string quoted = "\"";
  for (char const c : text) quoted.append(c == '"' ? 2 : 1, c);
  return quoted + '"';
}

inline void append_line(std::string& text, std::span<std::string const> cells) {
  for (std::size_t i = 0; i < cells.size(); ++i) text.append(i == 0 ? "" : ",").append(cells[i]);
  text += '\n';
}

}  // namespace detail

/// Returns rows as CSV with a header line. The first columns are those of `columns`; other fields follow in
/// the order in which they first appear. Lines end in LF.
inline std::string to_csv(std::span<Row const> rows) {
  std::vector<std::string> names;
  for (Column const& column : columns) names.emplace_back(column.name);
  std::set<std::string> known(names.begin(), names.end());
  for (Row const& row : rows)
    for (auto const& field : row.items())
      if (known.insert(field.key()).second) names.push_back(field.key());
  std::string text;
  std::vector<std::string> cells;
  for (auto const& name : names) cells.push_back(detail::csv_cell(name));
  detail::append_line(text, cells);
  for (Row const& row : rows) {
    cells.clear();
    for (auto const& name : names) {
      auto const field = row.find(name);
      cells.push_back(field == row.end() ? std::string() : detail::csv_cell(*field));
    }
    detail::append_line(text, cells);
  }
  return text;
}

/// Writes the document as JSON. The file is replaced atomically.
inline void write_json(std::filesystem::path const& path, Document const& document) {
  write_file(path, detail::dump(to_json(document), 2) + "\n");
}

/// Writes rows as CSV. The file is replaced atomically.
inline void write_csv(std::filesystem::path const& path, std::span<Row const> rows) {
  write_file(path, to_csv(rows));
}

/// Returns whether `json` is the output of the program `plan`, not of `compare`.
inline bool holds_plans(Row const& json) {
  auto const rows = json.find("rows");
  return rows != json.end() && rows->is_array() && !rows->empty() &&
         rows->front().contains("limit_device_bytes");
}

/// Returns the contents of a result file of the program `compare`. Throws Error(data), which names the file,
/// if the file is missing or damaged, if it is an output of the program `plan` or of another program, or if
/// its schema version is newer than `schema_version`.
inline Document read_results(std::filesystem::path const& path) {
  std::string const name = files::path_text(path);
  auto const fail = [&](std::string const& text) { throw Error(ErrorKind::data, name + ": " + text); };
  FileBytes const bytes = FileBytes::open(path);
  auto const* const text = reinterpret_cast<char const*>(bytes.data());
  if (json_lines::nests_too_deeply({text, bytes.size()}))
    fail("is nested more than 64 deep; the file is damaged or of another kind");
  Row json;
  try {
    json = Row::parse(text, text + bytes.size());
  } catch (Row::parse_error const& error) {
    fail("is not valid JSON, byte " + std::to_string(error.byte) +
         "; the file is damaged or of another kind");
  } catch (Row::out_of_range const&) {
    fail("holds a number that is too large; the file is damaged or of another kind");
  }
  auto const member = [&](char const* field) -> Row const& {
    auto const found = json.find(field);
    if (found == json.end()) fail(std::string("is not a result file, because it lacks ") + field);
    return *found;
  };
  if (!json.is_object()) fail("is not a result file, because it holds no JSON object");
  Row const& version = member("schema_version");
  if (!version.is_number_integer() || version.get<std::int64_t>() < 1)
    fail("is not a result file, because its schema_version is " + files::printable(detail::dump(version)));
  if (version.get<std::int64_t>() > schema_version)
    fail("has schema_version " + detail::dump(version) + ", but this program reads up to " +
         std::to_string(schema_version) + "; use a newer program");
  Document document;
  Row const& command = member("command");
  if (!command.is_string()) fail("is damaged: command is not a string");
  document.command = command.get<std::string>();
  document.environment = member("environment");
  if (!document.environment.is_object()) fail("is damaged: environment is not an object");
  if (holds_plans(json))
    fail(
        "holds plans, which did not run; give the JSON file of a compare. To train a pick of plan, run the "
        "train command that plan prints below it");
  Row const& wall = member("wall_s");
  if (wall.is_number())
    document.wall_s = wall.get<double>();
  else if (!wall.is_null())
    fail("is damaged: wall_s is not a number");
  Row const& rows = member("rows");
  if (!rows.is_array()) fail("is damaged: rows is not an array");
  for (Row const& row : rows) {
    if (!row.is_object())
      fail("is damaged: row " + std::to_string(document.rows.size()) + " is not an object");
    document.rows.push_back(row);
  }
  return document;
}

/// One line of step_log.csv, the log of a training: the figures of one step.
struct StepLogRow {
  std::int64_t global_step = 0;  ///< the first step is 1
  double step_time_s = 0;
  double tokens_per_sec = 0;
  std::optional<double> gpu_max_mem_mb = std::nullopt;
  std::optional<double> loss = std::nullopt;
  std::optional<double> grad_norm = std::nullopt;
  std::optional<double> lr = std::nullopt;
  std::optional<double> scale = std::nullopt;
  bool skipped = false;  ///< the update was skipped because gradients were not finite
};

/// Writes step_log.csv. Its columns are `global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb`, then loss,
/// grad_norm, lr, scale and skipped (0 or 1). A number that is absent or not finite is an empty cell. The
/// folder must exist.
inline void write_step_log(std::filesystem::path const& path, std::span<StepLogRow const> rows) {
  std::string text =
      "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss,grad_norm,lr,scale,skipped\n";
  auto const number = [](std::optional<double> value) {
    std::string const cell = value ? detail::dump(Row(*value)) : std::string();
    return cell == "null" ? std::string() : cell;
  };
  for (StepLogRow const& row : rows)
    detail::append_line(text, std::to_array({std::to_string(row.global_step), number(row.step_time_s),
                                             number(row.tokens_per_sec), number(row.gpu_max_mem_mb),
                                             number(row.loss), number(row.grad_norm), number(row.lr),
                                             number(row.scale), std::string(row.skipped ? "1" : "0")}));
  write_file(path, text);
}

/// One line of epoch_log.csv, the log of a training: the figures of one epoch.
struct EpochLogRow {
  std::int64_t epoch = 0;  ///< the first epoch is 1
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double seconds = 0;
  double samples_per_sec = 0;
  double loss = 0;  ///< mean over the tokens that count; a step's loss is computed before its update
  double loss_with_padding = 0;  ///< like `loss`, but padding counts too
};

/// Writes epoch_log.csv with the columns
/// `epoch,steps,samples,seconds,samples_per_sec,loss,loss_with_padding`. The folder must exist.
inline void write_epoch_log(std::filesystem::path const& path, std::span<EpochLogRow const> rows) {
  std::string text = "epoch,steps,samples,seconds,samples_per_sec,loss,loss_with_padding\n";
  for (EpochLogRow const& row : rows)
    detail::append_line(
        text,
        std::to_array({std::to_string(row.epoch), std::to_string(row.steps), std::to_string(row.samples),
                       detail::dump(Row(row.seconds)), detail::dump(Row(row.samples_per_sec)),
                       detail::dump(Row(row.loss)), detail::dump(Row(row.loss_with_padding))}));
  write_file(path, text);
}

/// The settings that form an experiment's name.
struct ExperimentName {
  std::string sharding = "zs0";    ///< dp, zs0 to zs3
  std::string precision = "fp32";  ///< fp32, tf32, bf16x6, bf16x3, fp16, bf16
  bool gpus = false;               ///< whether ranks are GPUs
  std::int64_t world = 1;
  std::int64_t batch = 1;  ///< per rank
  std::int64_t sequence = 128;
  std::string offload = "none";
  std::int64_t accumulation = 1;
};

/// Returns the name of an experiment, for example "zs2_fp16_ranks4_bs4_sl128_offcpu_acc2". Five offloads have
/// a short form in it; other offloads appear with their full name.
inline std::string experiment_name(ExperimentName const& of) {
  constexpr auto suffixes = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"none", ""},
      {"cpu_optimizer", "_offcpu"},
      {"cpu_full", "_offcpufull"},
      {"nvme_optimizer", "_offnvmeopt"},
      {"nvme", "_offnvme"},
      {"infinity", "_offinfinity"},
  });
  auto const* const suffix = std::find_if(suffixes.begin(), suffixes.end(),
                                          [&](auto const& entry) { return entry.first == of.offload; });
  std::string name = of.sharding;
  name += "_" + of.precision + (of.gpus ? "_gpus" : "_ranks") + std::to_string(of.world);
  name += "_bs" + std::to_string(of.batch) + "_sl" + std::to_string(of.sequence);
  name += suffix == suffixes.end() ? "_off" + of.offload : std::string(suffix->second);
  if (of.accumulation > 1) name += "_acc" + std::to_string(of.accumulation);
  return name;
}

}  // namespace results
}  // namespace programs
