// SPDX-License-Identifier: Apache-2.0
// The files of a comparison: asked for before the first step, written after the last one.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <utility>

#include "tessera/io/file.hpp"

#include "common/outputs.hpp"
#include "common/program.hpp"
#include "compare/report.hpp"

namespace tessera::inline v0 {
namespace compare {

namespace {

namespace fs = std::filesystem;
using results::Row;

bool is_named(Settings const& settings) { return !settings.json.empty() || !settings.csv.empty(); }

fs::path run_folder(Settings const& settings, Point const& point, int run) {
  return settings.output_dir / point.experiment / ("run" + std::to_string(run));
}

/// Rows without arrays, each with the version, as one array: what a data frame reads.
Row flat(results::Document const& document) {
  Row list = Row::array();
  for (Row const& row : document.rows) {
    Row flat_row = Row::object();
    flat_row["schema_version"] = results::schema_version;
    for (auto const& field : row.items())
      if (!field.value().is_structured()) flat_row[field.key()] = field.value();
    list.push_back(std::move(flat_row));
  }
  return list;
}

std::string json_text(Settings const& settings, results::Document const& document) {
  Row const json = settings.format == "flat" ? flat(document) : results::to_json(document);
  return json.dump(2, ' ', false, Row::error_handler_t::replace) + "\n";
}

}  // namespace

void check_outputs(Settings const& settings, std::vector<Point> const& points) {
  std::vector<cli::NamedPath> const inputs = cli::data_paths(settings.data);
  if (is_named(settings)) {
    std::vector<cli::NamedPath> const outputs = {{"--json", settings.json}, {"--csv", settings.csv}};
    cli::check_distinct(outputs);
    cli::check_apart(outputs, inputs);
    for (auto const& path : {settings.json, settings.csv})
      if (!path.empty() && path != "-") check_writable(path);
    return;
  }
  auto const check_file = [&](fs::path const& path) { cli::check_apart({{"--output-dir", path}}, inputs); };
  check_writable_folder(settings.output_dir);
  for (char const* name : {"compare.json", "compare.csv"}) check_file(settings.output_dir / name);
  std::error_code code;
  if (!fs::exists(settings.output_dir, code)) return;
  for (char const* name : {"compare.json", "compare.csv"}) check_writable(settings.output_dir / name);
  for (Point const& point : points) {
    if (point.refusal) continue;
    for (int run = 1; run <= settings.repeat; ++run) {
      fs::path const folder = run_folder(settings, point, run);
      check_writable_folder(folder);
      check_file(folder / "step_log.csv");
      if (fs::exists(folder, code)) check_writable(folder / "step_log.csv");
    }
  }
}

std::vector<std::string> write_outputs(Settings const& settings, results::Document const& document,
                                       std::vector<Measured> const& measured) {
  std::vector<std::string> lines;
  // Files of an earlier comparison hold more than one that ended before its first row did.
  bool const nothing_new =
      cli::Interrupt::caught() &&
      std::none_of(measured.begin(), measured.end(), [](Measured const& row) { return row.ok(); });
  auto const kept = [&](fs::path const& path) {
    std::error_code code;
    return nothing_new && fs::exists(path, code);
  };
  auto const write = [&](fs::path const& path, std::string const& text) {
    if (path == "-") {
      std::cout << text << std::flush;
      return;
    }
    if (kept(path)) {
      lines.push_back("left " + v0::detail::path_text(path) +
                      " as it was: interrupted before a row was finished");
      return;
    }
    write_file(path, text);
    lines.push_back("wrote " + v0::detail::path_text(path));
  };
  if (is_named(settings)) {
    if (!settings.json.empty()) write(settings.json, json_text(settings, document));
    if (!settings.csv.empty()) write(settings.csv, results::to_csv(document.rows));
    return lines;
  }
  make_folder(settings.output_dir);
  std::size_t logs = 0;
  for (Measured const& row : measured)
    for (std::size_t run = 0; run < row.repeats.size(); ++run) {
      fs::path const folder = run_folder(settings, row.point, static_cast<int>(run) + 1);
      make_folder(folder);
      if (kept(folder / "step_log.csv")) continue;
      results::write_step_log(folder / "step_log.csv", row.repeats[run].log);
      ++logs;
    }
  write(settings.output_dir / "compare.json", json_text(settings, document));
  write(settings.output_dir / "compare.csv", results::to_csv(document.rows));
  lines.push_back("wrote " + std::to_string(logs) + " step logs: " +
                  v0::detail::path_text(settings.output_dir) + "/EXPERIMENT/runN/step_log.csv");
  return lines;
}

}  // namespace compare
}  // namespace tessera::inline v0
