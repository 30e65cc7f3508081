// SPDX-License-Identifier: Apache-2.0
// Implements the class Outputs, which writes the output files of the program `compare`. Outputs checks all
// paths before the first training, so that a long comparison does not fail at its end. It writes the files
// after every row.
#include "compare/output.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <fcntl.h>
#include <iostream>
#include <set>
#include <sys/file.h>
#include <thread>

#include "tessera/io/file.hpp"

#include "cli/program.hpp"
#include "report/pages.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

namespace fs = std::filesystem;
using results::Row;

/// Returns a copy of the result row `row`, with the column names that the published comparisons of stages and
/// offloads use. The comparison of stages and the comparison of offloads have different names for the device
/// memory, so the row has both names. A rate counts all ranks, and GB are 10^9 bytes, as in the publications.
Row published_keys(Row const& row) {
  auto const scaled = [&](char const* field, double factor) {
    Row const& value = row.at(field);
    return value.is_number() ? Row(value.get<double>() * factor) : Row(nullptr);
  };
  constexpr double decimal_gb = 1024.0 * 1024.0 / 1e9;  // of one MB, which is 2^20 bytes
  Row const peak = scaled("peak_gpu_mem_mb", decimal_gb), process = scaled("process_mem_mb", decimal_gb);
  Row const allocated = scaled(row.at("allocated_mb").is_null() ? "arena_mb" : "allocated_mb", decimal_gb);
  return {{"stage", row.at("stage")},
          {"strategy", row.at("offload")},
          {"throughput_tokens_per_sec", row.at("median_tokens_per_sec")},
          {"gpu_peak_gb", peak},
          {"memory_peak_gb", peak},
          {"gpu_allocated_gb", allocated},
          {"memory_allocated_gb", allocated},
          {"cpu_used_gb", process},
          {"cpu_memory_gb", process},
          {"avg_step_time_ms", scaled("avg_step_time_s", 1e3)},
          {"success", row.at("status") == "ok"},
          {"error", row.at("reason")}};
}

/// Returns the rows of the result file `document` as one array of flat objects, which libraries for data
/// frames can read. Nested values are left out. Each object contains the schema version.
Row flat(results::Document const& document) {
  Row list = Row::array();
  for (Row const& row : document.rows) {
    Row flat_row = published_keys(row);
    flat_row["schema_version"] = results::schema_version;
    for (auto const& field : row.items())
      if (!field.value().is_structured()) flat_row[field.key()] = field.value();
    list.push_back(std::move(flat_row));
  }
  // A data frame needs one type per column. The stage is a number, but "dp" is text. If a row has "dp", all
  // stages become text.
  if (std::ranges::any_of(list, [](Row const& row) { return row.at("stage").is_string(); }))
    for (Row& row : list)
      if (row.at("stage").is_number()) row["stage"] = std::to_string(row.at("stage").get<int>());
  return list;
}

std::string text_of(Row const& json) {
  return json.dump(2, ' ', false, Row::error_handler_t::replace) + "\n";
}
Row json_of(Settings const& settings, results::Document const& document) {
  return settings.format == "flat" ? flat(document) : results::to_json(document);
}

std::string csv_text(Settings const& settings, results::Document const& document) {
  if (settings.format != "flat") return results::to_csv(document.rows);
  std::vector<std::string> columns, cells;
  std::set<std::string> known;
  Row const rows = flat(document);
  for (Row const& row : rows)
    for (auto const& field : row.items())
      if (known.insert(field.key()).second) columns.push_back(field.key());
  std::string text;
  for (auto const& column : columns) cells.push_back(results::detail::csv_cell(column));
  results::detail::append_line(text, cells);
  for (Row const& row : rows) {
    cells.clear();
    for (auto const& column : columns)
      cells.push_back(row.contains(column) ? results::detail::csv_cell(row.at(column)) : std::string());
    results::detail::append_line(text, cells);
  }
  return text;
}

/// Returns the start of the names of the output files. With --timestamp, the time follows it in the names.
std::string stem_of(Settings const& settings) {
  return settings.defaults == "stage-sweep"     ? "zero_comparison"
         : settings.defaults == "offload-sweep" ? "offload_comparison"
                                                : "compare";
}

/// Returns the current time in the form 20231120_143022. If a file in `folder` has this time in its name,
/// waits for the next second.
std::string free_time(fs::path const& folder, std::string const& stem) {
  for (;;) {
    std::time_t const now = std::time(nullptr);
    std::tm parts{};
    std::array<char, 32> text{};
    ::localtime_r(&now, &parts);
    std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &parts);
    std::error_code code;
    if (!fs::exists(folder / (stem + "_" + text.data() + ".json"), code) &&
        !fs::exists(folder / text.data(), code))
      return text.data();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

bool is_stream(fs::path const& path) {
  std::error_code code;
  return path == "-" || (fs::exists(path, code) && !fs::is_regular_file(path, code));
}

/// Locks a folder until the returned descriptor is closed. There is no lock file. On a file system without
/// locks, a second comparison in the folder is not detected.
files::Descriptor locked(fs::path const& folder) {
  files::Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open && ::flock(open.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::failed, files::path_text(folder) +
                                       ": another compare is writing its files there; wait until it has "
                                       "ended, or give another --output-dir");
  return open;
}

/// `experiment` is the folder of one row. It has a folder run1, run2, ... for each training of the row.
/// Removes the logs of the trainings with number `first` and above, and then the folders that are empty.
void remove_runs(fs::path const& experiment, std::size_t first) {
  std::error_code code;
  std::vector<fs::path> stale;
  for (fs::directory_iterator entry(experiment, code), end; !code && entry != end; entry.increment(code)) {
    std::string const name = entry->path().filename();
    std::size_t run = 0;
    auto const [stop, error] =
        std::from_chars(name.data() + std::min<std::size_t>(3, name.size()), name.data() + name.size(), run);
    if (name.starts_with("run") && error == std::errc() && stop == name.data() + name.size() && run >= first)
      stale.push_back(entry->path());
  }
  for (auto const& folder : stale) {
    fs::remove(folder / "step_log.csv", code);
    fs::remove(folder / "epoch_log.csv", code);
    fs::remove(folder, code);
  }
  if (!stale.empty()) fs::remove(experiment, code);
}

/// Returns whether the row was trained for at least one step, and no signal interrupted the training.
bool ended(Measured const& row) { return !row.repeats.empty() && !row.repeats.back().interrupted; }

}  // namespace

fs::path Outputs::runs_folder() const {
  return time_.empty() ? settings_.output_dir : settings_.output_dir / time_;
}
fs::path Outputs::experiment_folder(Point const& point) const { return runs_folder() / point.experiment; }
fs::path Outputs::run_folder(Point const& point, std::size_t run) const {
  return experiment_folder(point) / ("run" + std::to_string(run));
}

Outputs::Outputs(Settings const& settings, std::vector<Point> const& points, cli::ProgramFiles const& read)
    : settings_(settings), json_(settings.json), csv_(settings.csv) {
  if (is_named()) {
    for (auto const& path : {json_, csv_}) {
      if (path.empty() || path == "-") continue;
      check_writable(path);
      if (!is_stream(path)) hold(path);
    }
    return;
  }
  std::string const stem = stem_of(settings);
  if (settings.timestamp) time_ = free_time(settings.output_dir, stem);
  auto const name = [&](std::string const& first, char const* suffix) {
    return settings.output_dir / (first + (time_.empty() ? "" : "_" + time_) + suffix);
  };
  json_ = name(stem, ".json");
  csv_ = name(stem, ".csv");
  report_ = name("report", ".html");
  if (settings.format == "flat" && stem != "compare") document_ = name("compare", ".json");
  auto const check_file = [&](fs::path const& path) { read.check({{"--output-dir", path}}); };
  check_writable_folder(settings.output_dir);
  std::vector<fs::path> files = {json_, csv_, report_};
  if (!document_.empty()) files.push_back(document_);
  for (auto const& path : files) check_file(path);
  std::error_code code;
  bool const is_new = !fs::exists(settings.output_dir, code);
  if (!is_new)
    for (auto const& path : files) check_writable(path);
  for (Point const& point : points) {
    if (is_new || point.refusal || !time_.empty()) continue;
    for (int run = 1; run <= settings.repeat; ++run) {
      fs::path const folder = run_folder(point, static_cast<std::size_t>(run));
      check_writable_folder(folder);
      check_file(folder / "step_log.csv");
      if (fs::exists(folder, code)) check_writable(folder / "step_log.csv");
    }
  }
  make_folder(settings.output_dir);
  folder_ = locked(settings.output_dir);
}

void Outputs::hold(fs::path const& path) {
  files::Descriptor& file = held_[path == csv_];
  file = files::Descriptor(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file) files::lock_for_run(file.get(), path);
}

bool Outputs::keep_existing(fs::path const& path) const {
  std::error_code code;
  return cli::Interrupt::caught() && !found_ && fs::exists(path, code);
}

void Outputs::write_logs(std::vector<Measured> const& measured) {
  if (is_named()) return;
  for (; rows_logged_ < measured.size(); ++rows_logged_) {
    Measured const& row = measured[rows_logged_];
    for (std::size_t run = 1; run <= row.repeats.size(); ++run) {
      fs::path const folder = run_folder(row.point, run);
      make_folder(folder);
      if (keep_existing(folder / "step_log.csv")) continue;
      results::write_step_log(folder / "step_log.csv", row.repeats[run - 1].log);
      std::error_code code;
      if (settings_.epochs > 0)
        results::write_epoch_log(folder / "epoch_log.csv", row.repeats[run - 1].epochs);
      else
        fs::remove(folder / "epoch_log.csv", code);  // the file is from an earlier comparison
      ++logs_;
    }
    if (ended(row) || !cli::Interrupt::caught())
      remove_runs(experiment_folder(row.point), row.repeats.size() + 1);
  }
}

void Outputs::update(results::Document const& document, std::vector<Measured> const& measured) {
  if (!found_ && ended(measured.back()) && !is_named()) {
    std::error_code code;
    // The existing HTML page does not contain the new row. The new page is written after the last row.
    fs::remove(report_, code);
  }
  found_ = found_ || ended(measured.back());
  if (!found_) return;
  try {
    write_logs(measured);
    auto const write = [&](fs::path const& path, std::string const& text) {
      if (path.empty() || is_stream(path)) return;
      write_file(path, text);
      if (is_named()) hold(path);
    };
    write(json_, text_of(json_of(settings_, document)));
    write(csv_, csv_text(settings_, document));
    if (!document_.empty()) write_file(document_, text_of(results::to_json(document)));
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::failed) throw;
    std::cout.flush();
    std::cerr << "warning: " << error.what() << "; it is tried again after the next row" << std::endl;
  }
}

std::string Outputs::write_report(results::Document const& document) const {
  fs::path const& results = document_.empty() ? json_ : document_;
  Row const json = document_.empty() ? json_of(settings_, document) : results::to_json(document);
  try {
    write_file(report_, reporting::html_page_of(results, json, document.command));
    return "wrote " + files::path_text(report_);
  } catch (std::exception const& error) {
    std::cout.flush();
    std::cerr << "warning: cannot write the page of results: " << error.what() << "; the results are in "
              << files::path_text(results) << ", and report can make the page from them" << std::endl;
    return {};
  }
}

std::vector<std::string> Outputs::finish(results::Document const& document,
                                         std::vector<Measured> const& measured) {
  std::vector<std::string> lines;
  auto const write = [&](fs::path const& path, std::string const& text) {
    if (path == "-") {
      std::cout << text << std::flush;
      return;
    }
    if (keep_existing(path)) {
      lines.push_back("left " + files::path_text(path) + " as it was: interrupted before a row was finished");
      return;
    }
    write_file(path, text);
    lines.push_back("wrote " + files::path_text(path));
  };
  write_logs(measured);
  if (!json_.empty()) write(json_, text_of(json_of(settings_, document)));
  if (!csv_.empty()) write(csv_, csv_text(settings_, document));
  if (!document_.empty()) write(document_, text_of(results::to_json(document)));
  if (!is_named() && !keep_existing(report_))
    if (std::string line = write_report(document); !line.empty()) lines.push_back(std::move(line));
  if (!is_named())
    lines.push_back("wrote " + std::to_string(logs_) + " step logs: " + files::path_text(runs_folder()) +
                    "/EXPERIMENT/runN/step_log.csv");
  return lines;
}

}  // namespace compare
}  // namespace programs
