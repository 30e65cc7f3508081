// SPDX-License-Identifier: Apache-2.0
// Reads step logs, and makes rows of the report's result table from them. A step log is a CSV file with one
// line for each step of one training. An experiment is one configuration of a comparison. All trainings of
// one experiment become one row.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "cli/values.hpp"
#include "report/reading.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

namespace fs = std::filesystem;

/// The numbers of one training, read from its step log.
struct Log {
  std::vector<double> seconds;  ///< the time of each timed step
  double tokens = 0.0;          ///< tokens of all timed steps
  std::vector<std::optional<double>> losses;
  std::optional<double> memory;
  /// the numbers of all steps, of the first steps that are not timed, and of the steps without an update
  std::size_t steps = 0, warmup = 0, skipped = 0;
  /// the status and the reason of the run's row in the result file of its comparison; empty if there is none
  std::string status, reason;

  double time() const {
    double sum = 0.0;
    for (double const one : seconds) sum += one;
    return sum;
  }
};

std::vector<std::string_view> split(std::string_view line) {
  std::vector<std::string_view> cells;
  for (std::size_t begin = 0; begin <= line.size();) {
    std::size_t const end = std::min(line.find(',', begin), line.size());
    cells.push_back(line.substr(begin, end - begin));
    begin = end + 1;
  }
  return cells;
}

Log read_log(fs::path const& file, std::size_t warmup) {
  std::string const name = files::path_text(file);
  FileBytes const bytes = FileBytes::open(file);
  std::string_view const text(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (!text.starts_with("global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb"))
    throw Error(ErrorKind::data, name +
                                     ": line 1 is not the header of a step log of compare; give another "
                                     "folder, or remove the file");
  std::vector<std::string_view> header;
  Log log;
  log.warmup = warmup;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t const end = std::min(text.find('\n', begin), text.size());
    std::string_view words = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (words.ends_with('\r')) words.remove_suffix(1);
    if (line == 1) {
      header = split(words);
      continue;
    }
    if (words.empty()) continue;
    auto const fail = [&](std::string const& what) {
      throw Error(ErrorKind::data, name + ": line " + std::to_string(line) + ": " + what +
                                       "; the file is damaged or cut off, remove the line or the file");
    };
    auto const cells = split(words);
    if (cells.size() != header.size())
      fail("has " + std::to_string(cells.size()) + " values, not " + std::to_string(header.size()));
    auto const value = [&](std::string_view column) -> std::optional<double> {
      auto const found = std::find(header.begin(), header.end(), column);
      if (found == header.end()) return std::nullopt;
      std::string_view const cell = cells[static_cast<std::size_t>(found - header.begin())];
      if (cell.empty()) return std::nullopt;
      double number = 0.0;
      auto const [stop, code] = std::from_chars(cell.data(), cell.data() + cell.size(), number);
      if (code != std::errc() || stop != cell.data() + cell.size() || !(std::fabs(number) <= 1e30))
        fail(std::string(column) + " is " + cli::in_quotes(cell) + ", which is not a number");
      return number;
    };
    ++log.steps;
    log.losses.push_back(value("loss"));
    auto const seconds = value("step_time_s"), rate = value("tokens_per_sec");
    auto const memory = value("gpu_max_mem_mb");
    if (memory) log.memory = std::max(log.memory.value_or(0.0), *memory);
    if (value("skipped").value_or(0.0) != 0.0) ++log.skipped;
    if (log.steps <= warmup || !seconds || !rate || !(*seconds > 0.0)) continue;
    if (!(*rate > 0.0))
      fail("tokens_per_sec is " + cli::shortest(*rate) + ", but a measured rate is above 0");
    log.seconds.push_back(*seconds);
    log.tokens += *seconds * *rate;
  }
  if (log.steps == 0)
    throw Error(ErrorKind::data, name + ": holds no step; remove the file, or give another folder");
  return log;
}

/// An experiment with the settings that the result file of its comparison gives.
struct Described {
  Row row;  ///< only its settings are filled
  std::string status, reason;
  std::optional<double> warmup;
  std::string known_key;  ///< the experiment's and the comparison's settings as text, to compare experiments
};

/// Returns the settings of the comparison whose result file is `source`, as text. Leaves out the settings
/// that say how many steps are trained.
std::string settings_in(Source const& source) {
  for (auto const& [key, words] : source.environment) {
    if (key != "settings") continue;
    std::string rest;
    for (std::size_t begin = 0; begin < words.size();) {
      std::size_t const end = std::min(words.find(", ", begin), words.size());
      std::string_view const item = std::string_view(words).substr(begin, end - begin);
      begin = end + 2;
      if (!item.starts_with("steps ") && !item.starts_with("warmup ") && !item.starts_with("repeat ") &&
          !item.starts_with("min_time_s "))
        rest.append(item).append(";");
    }
    return rest;
  }
  return {};
}

/// Returns the result file of the comparison that wrote step logs to the folder `folder`; an empty path if
/// there is none.
fs::path comparison_in(fs::path const& folder) {
  std::error_code code;
  fs::path file = folder / "compare.json";
  for (char const* stem : {"compare_", "zero_comparison_", "offload_comparison_"})
    if (!fs::exists(file, code)) file = folder.parent_path() / (stem + folder.filename().string() + ".json");
  return fs::exists(file, code) ? file : fs::path();
}

/// Reads the result file of the comparison that wrote its step logs to `folder`. Returns the experiments of
/// this comparison as a map from name to description. The map is empty if the file is missing or unreadable.
std::map<std::string, Described> described_in(fs::path const& folder) {
  std::map<std::string, Described> found;
  fs::path const file = comparison_in(folder);
  if (file.empty()) return found;
  Inputs inputs;
  try {
    read_file(file, inputs);
  } catch (Error const&) {
    return found;
  }
  for (Row const& of : inputs.rows) {
    Described one;
    for (Word const word : {Word::model, Word::device, Word::sharding, Word::precision, Word::offload,
                            Word::recompute, Word::reduction, Word::communication, Word::capture,
                            Word::attention, Word::loss_scale, Word::parallel, Word::adapters, Word::mesh}) {
      one.row[word] = of[word];
      one.known_key += of[word] + ";";
    }
    for (Number const number : {Number::params, Number::trainable_params, Number::world, Number::batch,
                                Number::sequence, Number::accumulation, Number::global_batch, Number::seed}) {
      one.row[number] = of[number];
      one.known_key += (of[number] ? cli::exact(*of[number]) : std::string()) + ";";
    }
    one.status = of[Word::status];
    one.reason = of[Word::reason];
    one.warmup = of[Number::warmup];
    one.known_key += settings_in(inputs.sources.front());
    found.emplace(of[Word::experiment], std::move(one));
  }
  return found;
}

/// An experiment and the numbers of its trainings.
struct Experiment {
  std::string name;
  fs::path folder;                   ///< the folder that contains the experiment folder of the first run
  Described const* known = nullptr;  ///< null: only the experiment's name is known
  std::vector<Log> runs;
};

/// Sets the status of a summary row to the worst status of the rows to which its runs belong, and its reason
/// to the reason of this status. Without result files the status is ok. The reason then says if some runs
/// have fewer steps than others.
void add_status(Row& row, std::vector<Log> const& runs) {
  constexpr std::string_view statuses[] = {"ok", "refused", "oom", "failed"};  // from the best to the worst
  auto const place = [&](Log const& run) {
    return std::ranges::find(statuses, run.status.empty() ? statuses[0] : std::string_view(run.status)) -
           statuses;
  };
  Log const& worst = *std::ranges::max_element(runs, {}, place);
  row[Word::status] = worst.status.empty() ? "ok" : worst.status;
  auto const of_all = [&](std::ptrdiff_t count) {
    return std::to_string(count) + " of " + std::to_string(runs.size()) + (count == 1 ? " run" : " runs");
  };
  if (!row.ok()) {
    auto const bad = std::ranges::count_if(runs, [&](Log const& run) { return place(run) > 0; });
    row[Word::reason] = of_all(bad) + (bad == 1 ? " belongs to a row" : " belong to rows") +
                        " with this status" + (worst.reason.empty() ? "" : ": " + worst.reason);
    return;
  }
  std::size_t const most = std::ranges::max(runs, {}, &Log::steps).steps;
  auto const shorter =
      std::ranges::count_if(runs, [&](Log const& run) { return run.status.empty() && run.steps < most; });
  if (shorter > 0)
    row[Word::reason] = of_all(shorter) + (shorter == 1 ? " has" : " have") + " fewer than " +
                        std::to_string(most) +
                        " steps and no result file, so it is not known whether it was interrupted";
}

Row summarized(Experiment const& experiment) {
  std::vector<Log> const& runs = experiment.runs;
  Row row;
  if (experiment.known != nullptr) row = experiment.known->row;
  row[Word::experiment] = experiment.name;
  add_status(row, runs);
  if (experiment.known == nullptr) describe_by_name(row);
  std::vector<double> rates, means, medians;
  std::vector<std::vector<double>> steps;
  double time = 0.0, timed = 0.0;
  for (Log const& run : runs) {
    if (run.memory)
      row[Number::peak_gpu_mem_mb] = std::max(row[Number::peak_gpu_mem_mb].value_or(0.0), *run.memory);
    if (run.seconds.empty()) continue;
    rates.push_back(run.tokens / run.time());
    means.push_back(cli::mean(run.seconds));
    medians.push_back(cli::median(run.seconds));
    steps.push_back(run.seconds);
    time += run.time();
    timed += static_cast<double>(run.seconds.size());
  }
  Log const& first = runs.front();
  row[Number::repeats] = static_cast<double>(runs.size());
  row[Number::steps] = static_cast<double>(first.steps);
  row[Number::warmup] = static_cast<double>(std::min(first.warmup, first.steps));
  row[Number::skipped_steps] = static_cast<double>(first.skipped);
  row.losses = first.losses;
  for (auto const& loss : first.losses) {
    if (!loss) continue;
    if (!row[Number::first_loss]) row[Number::first_loss] = loss;
    row[Number::final_loss] = loss;
  }
  if (rates.empty()) {
    if (row[Word::reason].empty()) row[Word::reason] = "no step was timed: all are warm-up";
    return row;
  }
  row[Number::median_tokens_per_sec] = cli::median(rates);
  if (row[Number::world]) row[Number::tokens_per_sec_per_rank] = cli::median(rates) / *row[Number::world];
  row[Number::median_step_time_s] = cli::median(medians);
  row[Number::avg_step_time_s] = time / timed;
  row[Number::train_time_s] = time;
  auto const within = cli::deviation_within(steps);
  row[Number::step_to_step_std_s] = within;
  if (rates.size() > 1) {
    row[Number::std_tokens_per_sec] = cli::deviation(rates);
    row[Number::std_step_time_s] = cli::deviation(means);
    row[Number::spread_pct] = 100.0 * cli::deviation(rates) / cli::mean(rates);
  } else if (within) {
    row[Number::spread_pct] = 100.0 * *within / means.front();
  }
  if (row[Number::spread_pct])
    row.unsteady = *row[Number::spread_pct] > 100.0 * cli::steady_share ||
                   within.value_or(0.0) > cli::steady_share * time / timed;
  return row;
}

bool is_run(std::string const& name) {
  return name.size() > 3 && name.starts_with("run") &&
         std::all_of(name.begin() + 3, name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

void describe_by_name(Row& row) {
  std::string const& name = row[Word::experiment];
  std::size_t at = 0;
  for (std::size_t begin = 0; begin <= name.size(); ++at) {
    std::size_t const end = std::min(name.find('_', begin), name.size());
    std::string const part = name.substr(begin, end - begin);
    begin = end + 1;
    auto const number = [&](std::string_view prefix) -> std::optional<double> {
      std::int64_t value = 0;
      char const *const first = part.data() + prefix.size(), *const last = part.data() + part.size();
      if (!part.starts_with(prefix) || first == last) return std::nullopt;
      auto const [stop, code] = std::from_chars(first, last, value);
      return code == std::errc() && stop == last && value > 0 ? std::optional(static_cast<double>(value))
                                                              : std::nullopt;
    };
    if (at == 0) {
      if (part != "dp" && !number("zs") && part != "zs0") return;  // the name is not an experiment name
      row[Word::sharding] = part;
      row[Word::offload] = "none";
      row[Number::accumulation] = 1.0;
    } else if (at == 1) {
      row[Word::precision] = part;
    } else if (auto const ranks = number("ranks")) {
      row[Number::world] = ranks;
      row[Word::device] = "cpu";
    } else if (auto const gpus = number("gpus")) {
      row[Number::world] = gpus;
      row[Word::device] = "cuda";
    } else if (auto const batch = number("bs")) {
      row[Number::batch] = batch;
    } else if (auto const sequence = number("sl")) {
      row[Number::sequence] = sequence;
    } else if (auto const accumulation = number("acc")) {
      row[Number::accumulation] = accumulation;
    } else if (part.starts_with("off") && part.size() > 3) {
      static std::map<std::string, std::string> const names = {
          {"cpu", "cpu_optimizer"}, {"cpufull", "cpu_full"}, {"nvmeopt", "nvme_optimizer"}};
      auto const found = names.find(part.substr(3));
      row[Word::offload] = found == names.end() ? part.substr(3) : found->second;
    } else if (part == "parameters" && row[Word::offload] == "nvme") {
      row[Word::offload] = "nvme_parameters";
    }
  }
}

fs::path experiment_of(fs::path const& log) {
  fs::path const above = fs::absolute(log).lexically_normal().parent_path();
  return is_run(above.filename().string()) ? above.parent_path() : above;
}
fs::path comparison_of(fs::path const& log) { return comparison_in(experiment_of(log).parent_path()); }

std::vector<fs::path> step_logs_below(fs::path const& folder) {
  std::string const name = files::path_text(folder);
  std::error_code code;
  if (!fs::exists(folder, code)) throw Error(ErrorKind::data, name + ": no such folder; check the path");
  if (!fs::is_directory(folder, code))
    throw Error(ErrorKind::data, name +
                                     ": is not a folder; give --summarize a folder with step logs, and give "
                                     "files without --summarize");
  std::vector<fs::path> logs;
  fs::recursive_directory_iterator entry(folder, code);
  for (; !code && entry != fs::recursive_directory_iterator(); entry.increment(code))
    if (entry->path().filename() == "step_log.csv") logs.push_back(entry->path());
  if (code) throw Error(ErrorKind::data, name + ": cannot list the folder (" + code.message() + ")");
  if (logs.empty())
    throw Error(ErrorKind::data, name + ": contains no step_log.csv; give the folder that compare wrote to");
  std::sort(logs.begin(), logs.end());
  return logs;
}

void read_step_logs(fs::path const& folder, std::vector<fs::path> const& logs,
                    std::optional<std::size_t> warmup, Inputs& inputs) {
  std::map<fs::path, std::map<std::string, Described>> described;
  std::map<std::pair<std::string, std::string>, Experiment> experiments;
  std::map<std::string, std::size_t> named;
  std::set<std::size_t> warmups;
  for (fs::path const& log : logs) {
    fs::path const above = experiment_of(log);
    std::string const name = above.filename().string();
    fs::path const where = above.parent_path();
    if (!described.contains(where)) described.emplace(where, described_in(where));
    auto const known = described[where].find(name);
    bool const is_known = known != described[where].end();
    double const own_warmup = is_known ? known->second.warmup.value_or(1.0) : 1.0;
    Log run = read_log(log, warmup ? *warmup : static_cast<std::size_t>(own_warmup));
    if (is_known) {
      run.status = known->second.status;
      run.reason = known->second.reason;
    }
    warmups.insert(run.warmup);
    std::string const key = is_known     ? known->second.known_key
                            : run.memory ? cli::exact(*run.memory)
                                         : above.string();
    auto const [found, is_new] = experiments.try_emplace({name, key});
    if (is_new) {
      found->second = {name, where, is_known ? &known->second : nullptr, {}};
      ++named[name];
    }
    found->second.runs.push_back(std::move(run));
  }
  Source source;
  source.kind = Kind::step_logs;
  source.path = files::path_text(folder);
  source.rows = experiments.size();
  std::size_t const least = *warmups.begin(), most = *warmups.rbegin();
  std::string const untimed =
      least == most ? std::to_string(most) : std::to_string(least) + " to " + std::to_string(most);
  source.notes.push_back(std::to_string(logs.size()) + (logs.size() == 1 ? " run" : " runs") +
                         "; the first " + untimed +
                         (most == 1 ? " step of each was" : " steps of each were") + " not timed");
  for (auto& [key, experiment] : experiments) {
    if (named[experiment.name] > 1)  // several experiments have this name, for example with different models
      experiment.name += " in " + files::path_text(experiment.folder.filename());
    Row row = summarized(experiment);
    row.source = inputs.sources.size();
    inputs.rows.push_back(std::move(row));
  }
  inputs.sources.push_back(std::move(source));
}

}  // namespace reporting
}  // namespace programs
