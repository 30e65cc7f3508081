// SPDX-License-Identifier: Apache-2.0
// The files of a comparison: asked for before the first step, written after every row.
#include "compare/output.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <iostream>
#include <sys/file.h>

#include "tessera/io/file.hpp"
#include "tessera/io/model_weights.hpp"

#include "common/outputs.hpp"
#include "common/program.hpp"

namespace tessera {
inline namespace v0 {
namespace compare {

namespace {

namespace fs = std::filesystem;
using results::Row;

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

bool is_stream(fs::path const& path) {
  std::error_code code;
  return path == "-" || (fs::exists(path, code) && !fs::is_regular_file(path, code));
}

/// Locks a folder for this process, which then needs no file in it. Where the file system has no locks, two
/// comparisons are not told apart.
v0::detail::Descriptor locked(fs::path const& folder) {
  v0::detail::Descriptor open(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (open && ::flock(open.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::failed, v0::detail::path_text(folder) +
                                       ": another compare is writing its files there; wait until it has "
                                       "ended, or give another --output-dir");
  return open;
}

/// Removes the step logs of run `first` and later ones, and folders that are empty then.
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

/// Whether a row has steps and no signal cut it short.
bool ended(Measured const& row) { return !row.repeats.empty() && !row.repeats.back().interrupted; }

}  // namespace

fs::path Outputs::run_folder(Point const& point, std::size_t run) const {
  return settings_.output_dir / point.experiment / ("run" + std::to_string(run));
}

Outputs::Outputs(Settings const& settings, std::vector<Point> const& points)
    : settings_(settings), json_(settings.json), csv_(settings.csv) {
  std::vector<cli::NamedPath> inputs = cli::data_paths(settings.data);
  if (!settings.init.empty())
    for (auto const& file : weights_files(settings.init)) inputs.emplace_back("--init", file);
  if (is_named()) {
    std::vector<cli::NamedPath> const outputs = {{"--json", json_}, {"--csv", csv_}};
    cli::check_distinct(outputs);
    cli::check_apart(outputs, inputs);
    for (auto const& path : {json_, csv_})
      if (!path.empty() && path != "-") check_writable(path);
    return;
  }
  json_ = settings.output_dir / "compare.json";
  csv_ = settings.output_dir / "compare.csv";
  auto const check_file = [&](fs::path const& path) { cli::check_apart({{"--output-dir", path}}, inputs); };
  check_writable_folder(settings.output_dir);
  for (auto const& path : {json_, csv_}) check_file(path);
  std::error_code code;
  bool const is_new = !fs::exists(settings.output_dir, code);
  if (!is_new)
    for (auto const& path : {json_, csv_}) check_writable(path);
  for (Point const& point : points) {
    if (is_new || point.refusal) continue;
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

bool Outputs::kept(fs::path const& path) const {
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
      if (kept(folder / "step_log.csv")) continue;
      results::write_step_log(folder / "step_log.csv", row.repeats[run - 1].log);
      std::error_code code;
      if (settings_.epochs > 0)
        results::write_epoch_log(folder / "epoch_log.csv", row.repeats[run - 1].epochs);
      else
        fs::remove(folder / "epoch_log.csv", code);  // of an earlier comparison
      ++logs_;
    }
    if (ended(row) || !cli::Interrupt::caught())
      remove_runs(settings_.output_dir / row.point.experiment, row.repeats.size() + 1);
  }
}

void Outputs::update(results::Document const& document, std::vector<Measured> const& measured) {
  found_ = found_ || ended(measured.back());
  if (!found_) return;
  try {
    write_logs(measured);
    if (!json_.empty() && !is_stream(json_)) write_file(json_, json_text(settings_, document));
    if (!csv_.empty() && !is_stream(csv_)) write_file(csv_, results::to_csv(document.rows));
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::failed) throw;
    std::cout.flush();
    std::cerr << "warning: " << error.what() << "; it is tried again after the next row" << std::endl;
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
    if (kept(path)) {
      lines.push_back("left " + v0::detail::path_text(path) +
                      " as it was: interrupted before a row was finished");
      return;
    }
    write_file(path, text);
    lines.push_back("wrote " + v0::detail::path_text(path));
  };
  write_logs(measured);
  if (!json_.empty()) write(json_, json_text(settings_, document));
  if (!csv_.empty()) write(csv_, results::to_csv(document.rows));
  if (!is_named())
    lines.push_back("wrote " + std::to_string(logs_) + " step logs: " +
                    v0::detail::path_text(settings_.output_dir) + "/EXPERIMENT/runN/step_log.csv");
  return lines;
}

}  // namespace compare
}  // namespace v0
}  // namespace tessera
