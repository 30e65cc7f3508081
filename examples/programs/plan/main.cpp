// SPDX-License-Identifier: Apache-2.0
// The program `plan`. It computes how much memory a training needs under each recipe, without allocating the
// memory. It prints which recipes fit, and recommends one of them.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tessera/io/file.hpp"
#include "tessera/plan/support.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/outputs.hpp"
#include "cli/program.hpp"
#include "cli/run_flags.hpp"
#include "cli/terminal.hpp"
#include "config/config_file.hpp"
#include "config/published_defaults.hpp"
#include "machine/machine.hpp"
#include "machine/nvme_folder.hpp"
#include "plan/advice.hpp"
#include "plan/limits.hpp"
#include "plan/planning.hpp"
#include "results/published.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

using cli::Json;

constexpr char examples[] = R"(Examples:
  plan                                              what compare --full needs
  plan --device cuda --model gpt2-large --ranks 1 --sequence 1024 --memory 24GB
  plan --device cuda --model gpt2-xl --ranks 8 --memory 40GiB --host-memory 512GiB
  plan --model gpt2 --stages 3 --recompute none,gelu,block --host-memory 64GiB
  plan --model gpt2-medium --precisions bf16 --json plan.json
  plan --model gpt2 --machine machine.json --prefer speed   times of info --measure machine.json
  plan --model llama-2-7b --machine a100-80gb --gpus 4 --prefer speed   times and memory of GPUs elsewhere
  plan --model gpt2 --machine machine.json --samples 1000 --epochs 2           how long two epochs take
  plan --model gpt2 --freeze 'wte|wpe|h\.[0-5]\.'      what training the upper half needs
  plan --model layers=2,heads=2,channels=64 --stages 3 --precisions bf16 --offloads none --schedule

Nothing is allocated, and neither this machine nor this build needs the device. Without --memory and --host-memory,
the limits are the available memory of this machine. With only --memory, the host and the disk for state on NVMe
are not limited; --host-memory, --nvme-memory and --nvme-path set limits.
On the CPU the ranks' devices are host memory too. In --memory a GB is a GiB, 2^30 bytes, as in the names of GPUs;
in the other sizes it is 10^9 bytes. On one rank all stages run the same program, so without --stages they have
one row.
A + after the largest batch or sequence: more may fit; ?: the search took too long.
The exit code is 0 if some recipe fits, 5 if none does, 1 if a row could not be planned, and 3 if every recipe
was refused. If the reader of its output is gone and it writes no file, plan ends with exit code 141.
)";

/// Values of flags of the program `compare` that affect neither memory nor time. The program `plan` accepts
/// these flags so that both programs accept the same command line.
struct Unused {
  std::int64_t number = 0;
  double real = 0.0;
  std::string text;
  bool said = false;
};

struct Settings {
  cli::MatrixFlags matrix;
  std::string defaults = "own";  ///< "own", or the name of the published comparison whose defaults are used
  Unused unused;
  std::int64_t epochs = 0, samples = 0;  ///< 0 if the flag was not given
  TrainerOptions trainer;
  std::int64_t vocabulary = 0;
  std::string freeze, lora;  ///< the text of the flags; `trainer` holds the parsed values
  LimitFlags limits;
  std::filesystem::path json;
  double search_time = 0.5;  ///< seconds for each search
  std::filesystem::path machine;
  cli::KnownTimes times;  ///< measured times of a machine; empty: nothing is predicted
  std::string prefer;     ///< the text of the flag; empty: recommend the simplest row that fits
  bool no_search = false, schedule = false;
  bool checkpoint_async = false;  ///< also set in `trainer`
  cli::ConfigFile file;
  cli::Names published;  ///< published comparisons with which the plans are compared
};

cli::Names const preferences = {"speed", "memory", "efficiency"};

/// Returns the preference that --prefer names. Throws if the preference needs predictions and --machine is
/// not given.
Preference preference_of(Settings const& settings) {
  if (settings.prefer.empty()) return Preference::simple;
  if (settings.prefer == "memory") return Preference::memory;
  if (settings.machine.empty())
    cli::refuse("--prefer " + settings.prefer +
                " compares predicted speeds, which need the times of a machine; give --machine FILE, which "
                "info --measure FILE writes");
  return settings.prefer == "speed" ? Preference::speed : Preference::efficiency;
}

void declare(cli::CommandLine& line, Settings& settings) {
  cli::add_matrix_flags(line, settings.matrix);
  line.custom("--vocabulary", "N", "",
              "tokens of the vocabulary; default: a named model's own, or 256, as for text",
              [&](std::string const& flag, std::string const& value) {
                settings.vocabulary = cli::parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });
  cli::add_freeze_flag(line, settings.freeze, settings.trainer);
  cli::add_lora_flag(line, settings.trainer.lora, settings.lora);
  add_limit_flags(line, settings.limits);
  line.integer("--threads", settings.trainer.threads, "threads of a rank; 0: an equal share of the cores", 0,
               1024);
  line.toggle("--checkpoint-async", settings.checkpoint_async,
              "include the memory of train --checkpoint-async: a copy of the state in host memory");
  line.group("Advice");
  cli::add_machine_flag(line, settings.machine);
  line.custom("--prefer", "speed|memory|efficiency", "",
              "pick the best row by this measure; default: the simplest row",
              [&](std::string const& flag, std::string const& value) {
                settings.prefer = cli::choice(flag, value, preferences);
              });
  line.integer("--samples", settings.samples, "print the steps and the time of a pass over N samples", 1,
               (std::int64_t{1} << 31) - 1);
  line.integer("--epochs", settings.epochs, "number of passes over the samples", 1, 1 << 30);
  line.group("Output");
  line.path("--json", "FILE", settings.json, "write the plans here; - is stdout");
  line.toggle("--schedule", settings.schedule,
              "print the step of each recipe, entry by entry, as rank 0 runs it");
  line.toggle("--no-search", settings.no_search,
              "do not search for the largest batch and sequence, which takes most of the time");
  line.real("--search-time", settings.search_time,
            "seconds for each of a row's two searches; a search that runs out of time shows + or ?",
            {.min = 0.0, .max = 86400.0, .open_below = true});
  cli::add_published_flag(line, settings.published);
  cli::advise_on_launcher_flags(line, "plan needs no launcher, so use --ranks N");
  cli::add_defaults_flag(line, settings.defaults);
  cli::add_config_flags(line, settings.file);
  line.group("Flags of compare, accepted here without effect on memory or time");
  Unused& unused = settings.unused;
  line.integer("--steps,--num-steps", unused.number, "timed steps", 1, 1 << 30);
  line.integer("--warmup,--warmup-steps", unused.number, "untimed steps before them", 0, 1 << 30);
  line.choice("--samples-are", {"tokens", "lines", "records"}, unused.text, "what a sample is");
  line.integer("--repeat", unused.number, "runs of a row", 1, 1000);
  line.real("--min-time", unused.real, "seconds of timed steps", cli::at_least(0.0));
  line.real("--learning-rate,--lr", unused.real, "learning rate of the optimizer", cli::at_least(0.0));
  line.text("--output-dir", "FOLDER", unused.text, "folder of the files of compare");
  line.toggle("--timestamp", unused.said, "put the time into the names of these files");
}

Json limit_json(std::int64_t bytes) { return bytes == MemoryLimit::none ? Json(nullptr) : Json(bytes); }

Json to_json(Planned const& row, MemoryLimit const& limit, Planned const* picked) {
  Json json = Json::object();
  cli::describe_point(json, row.point);
  json["params"] = row.params;
  json["trainable_params"] = row.trainable;
  json["status"] = row.status;
  json["reason"] = cli::or_null(row.reason);
  json["limit_device_bytes"] = limit_json(limit.device);
  json["limit_host_bytes"] = limit_json(limit.host);
  json["limit_nvme_bytes"] = limit_json(limit.nvme);
  json["picked"] = picked == &row;
  json["same_program_as"] = cli::or_null(row.same_program_as);
  if (!row.is_planned()) return json;
  json["planned_gpu_mem_mb"] = cli::mebibytes(row.on(Tier::device));
  json["planned_host_mem_mb"] = cli::mebibytes(row.on(Tier::host));
  json["planned_nvme_mb"] = cli::mebibytes(row.on(Tier::nvme));
  json["all_ranks_bytes"] = row.footprint.total;
  json["all_ranks_nvme_bytes"] = row.footprint.nvme;
  Json places = Json::object();
  for (std::size_t tier = 0; tier < tier_count; ++tier) {
    Json place = Json::object();
    for (auto const& category : row.memory.categories) place[category.name] = category.bytes[tier];
    place["total"] = row.memory.total[tier];
    places[std::string(name_of(Tier{static_cast<std::uint8_t>(tier)}))] = std::move(place);
  }
  json["bytes"] = std::move(places);
  auto const found = [&](std::string const& name, Largest const& largest) {
    json[name] = largest.value > 0 ? Json(largest.value) : Json(nullptr);
    json[name + "_exact"] = largest.exact;  // if false, a larger value possibly fits
  };
  found("largest_batch", row.largest_batch);
  found("longest_sequence", row.longest_sequence);
  json["schedule_hash"] = row.schedule_hash;
  auto const rate = row.predicted.tokens_per_second();
  json["predicted_step_time_s"] = rate ? Json(*row.predicted.step_s) : Json(nullptr);
  json["predicted_tokens_per_sec"] = cli::or_null(rate);
  json["predicted_tokens_per_sec_per_gib"] = cli::or_null(efficiency(row));
  json["predicted_guessed_pct"] = rate ? Json(100.0 * row.predicted.guessed) : Json(nullptr);
  json["predicted_from_link_data"] = rate ? Json(row.predicted.from_link_data) : Json(nullptr);
  json["prediction_reason"] = cli::or_null(row.predicted.reason);
  return json;
}

/// Returns the plans as rows of result files without measured values, for the comparison with published rows.
std::vector<results::Row> result_rows(std::vector<Planned> const& rows) {
  std::vector<results::Row> list;
  for (Planned const& row : rows) {
    results::Row& json = list.emplace_back(results::empty_row());
    cli::describe_point(json, row.point);
    json["status"] = row.status;
    if (!row.is_planned()) continue;
    json["planned_gpu_mem_mb"] = cli::mebibytes(row.on(Tier::device));
    json["planned_host_mem_mb"] = cli::mebibytes(row.on(Tier::host));
    if (auto const rate = row.predicted.tokens_per_second()) {
      json["predicted_step_time_s"] = *row.predicted.step_s;
      json["predicted_tokens_per_sec"] = *rate;
    }
  }
  return list;
}

/// Returns a size as text: "1.50 GiB", "12.3 MiB", "7.8 KiB", "640 B".
std::string size_text(std::int64_t bytes) {
  if (bytes >= 1024 * 1024 || bytes < 1024) return bytes_text(bytes);
  return cli::fixed(static_cast<double>(bytes) / 1024.0, 1) + " KiB";
}

/// Returns the result of a search for the largest batch or the longest sequence as text: "37"; "none" if
/// nothing fits; or, if the search ran out of time, "37+" (more possibly fits) or "?".
std::string count_text(Largest const& found) {
  if (found.value == 0) return found.exact ? "none" : "?";
  return std::to_string(found.value) + (found.exact ? "" : "+");
}

/// Returns one row of the result table as text. If `first` is true, the row is the first of its group, and
/// the heading of the group precedes it. A row is printed as soon as it is planned, so the widths of columns
/// do not depend on later rows. Appends to `left_out` the names of columns that do not fit the terminal.
std::string row_text(Planned const& row, bool first, Settings const& settings, cli::Terminal const& terminal,
                     cli::Names& left_out) {
  constexpr std::size_t size = 11;  // "1023.5 MiB "
  std::vector<cli::Table::Column> columns = {
      {"stage", false, 100}, {"offload", false, 100, 13}, {"place", false, 9, 6}};
  for (char const* name : {"parameters", "gradients", "optimizer", "activations"})
    columns.push_back({name, true, 5, size});
  columns.push_back({"workspace", true, 2, size});
  columns.push_back({"bookkeeping", true, 1, size});
  if (settings.checkpoint_async) {
    columns.push_back({"staging", true, 3, size});
    columns.push_back({"snapshot", true, 4, size});
  }
  columns.push_back({"a rank", true, 90, size});
  columns.push_back({"all ranks", true, 8, size});
  columns.push_back({"fits", false, 100});
  if (settings.times) {
    columns.push_back({"ms/step", true, 50, 9});
    columns.push_back({"tok/s", true, 60, 11});
  }
  if (!settings.no_search) {
    columns.push_back({"batch up to", true, 7});
    columns.push_back({"sequence up to", true, 6});
  }
  cli::Table table(std::move(columns));
  if (first) table.heading(row.point.group());
  cli::Names const head = {std::string(row.point.recipe.names.sharding),
                           std::string(row.point.recipe.names.offload)};
  if (!row.is_planned()) table.text_row(head, row.status + ": " + row.reason);
  for (std::size_t tier = 0; tier < tier_count && row.is_planned(); ++tier) {
    if (tier > 0 && row.memory.total[tier] == 0) continue;
    cli::Names cells = tier == 0 ? head : cli::Names{"", ""};
    cells.emplace_back(name_of(Tier{static_cast<std::uint8_t>(tier)}));
    for (auto const& category : row.memory.categories)
      cells.push_back(category.bytes[tier] == 0 ? "-" : size_text(category.bytes[tier]));
    cells.push_back(size_text(row.memory.total[tier]));
    cells.push_back(tier == 0                                      ? size_text(row.footprint.total)
                    : tier == static_cast<std::size_t>(Tier::nvme) ? size_text(row.footprint.nvme)
                                                                   : "");
    cells.push_back(tier == 0 ? (row.fits() ? "yes" : "no") : "");
    if (settings.times) {
      auto const rate = tier == 0 ? row.predicted.tokens_per_second() : std::nullopt;
      cells.push_back(rate ? cli::fixed(*row.predicted.step_s * 1e3, 1) : tier == 0 ? "-" : "");
      bool const guessed = row.predicted.guesses_much();
      cells.push_back(rate ? (guessed ? "~" : "") + cli::grouped(std::llround(*rate)) : tier == 0 ? "-" : "");
    }
    if (!settings.no_search) {
      cells.push_back(tier == 0 ? count_text(row.largest_batch) : "");
      cells.push_back(tier == 0 ? count_text(row.longest_sequence) : "");
    }
    table.row(std::move(cells));
  }
  for (auto const& name : table.left_out(terminal)) left_out.push_back(name);
  left_out = cli::distinct(left_out);
  return table.text(terminal, first);
}

/// Returns a line about frozen parameters: "trains 42,528,768 of 124,439,808 parameters, 81,911,040 are
/// frozen".
std::string frozen_text(Planned const& row) {
  return row.point.model.name + " trains " + cli::grouped(row.trainable) + " of " + cli::grouped(row.params) +
         " parameters, " + cli::grouped(row.params - row.trainable) + " are frozen\n";
}

/// Returns flags that a user may try if a row does not fit at any batch and sequence; "" if there are none.
std::string untried_text(Planned const& row, MemoryLimit const& limit) {
  Point const& point = row.point;
  cli::Names remedies;
  // Recomputation does not change the bytes on NVMe. More ranks do not help against a full disk, since all
  // ranks share one disk.
  bool const disk = row.footprint.nvme > limit.nvme;
  bool shards_less = !disk;
  PlacementTable const& state = point.recipe.placement;
  for (Placement const& place : {state.parameters, state.master, state.moments})
    shards_less |= place.tier == Tier::nvme && place.over == Sharding::replicated;
  if (!disk && point.recipe.recompute != RecomputeKind::block) remedies.push_back("--recompute block");
  bool const more_ranks =
      !disk && row.footprint.host <= limit.host && point.world() < 64;  // more ranks need more host memory
  if (point.recipe.stage < 3 && point.world() > 1 && shards_less)
    remedies.push_back("--stages 3");
  else if (more_ranks)
    remedies.push_back(point.recipe.stage < 3 ? "more --ranks with --stages 3" : "more --ranks");
  if (disk) remedies.push_back("--offloads that keep less on NVMe");
  return remedies.empty() ? "" : "; try " + cli::joined(remedies, " or ");
}

/// Returns lines that name the rows without a prediction and the reasons. Adds a warning if more than a tenth
/// of a predicted step is guessed, because measured times are missing.
std::string predictions_text(std::vector<Planned> const& rows) {
  std::string out;
  bool guessed = false;
  std::set<std::string> reasons;
  for (Planned const& row : rows) {
    guessed = guessed || row.predicted.guesses_much();
    if (row.is_planned() && !row.predicted.reason.empty() && reasons.insert(row.predicted.reason).second)
      out += "not predicted: " + row.point.experiment + ": " + row.predicted.reason + "\n";
  }
  return out + (guessed ? "~ the time of more than 10% of the step is guessed, because its kinds of work "
                          "were not measured\n"
                        : "");
}

/// Returns a line with the predicted duration of an epoch and of --epochs; "" without --samples and --epochs.
std::string epochs_text(Planned const& row, Settings const& settings) {
  if (settings.samples == 0)
    return settings.epochs > 0
               ? "  for the time of an epoch, give --samples, the number of samples of an epoch\n"
               : "";
  std::int64_t const batch = row.point.split.global(), epochs = std::max<std::int64_t>(1, settings.epochs);
  auto const steps = [&](std::int64_t samples) { return (samples + batch - 1) / batch; };
  auto const length = [&](std::int64_t count) {
    return cli::grouped(count) + (count == 1 ? " step" : " steps") +
           (row.predicted.step_s
                ? ", " + cli::duration_text(static_cast<double>(count) * *row.predicted.step_s) + " predicted"
                : "");
  };
  std::string out =
      "  an epoch of " + cli::grouped(settings.samples) + " samples: " + length(steps(settings.samples));
  if (epochs > 1)  // one step can contain the last samples of an epoch and the first samples of the next
    out += "; " + cli::grouped(epochs) + " epochs: " + length(steps(settings.samples * epochs));
  if (!row.predicted.step_s)
    out += settings.times ? "; their time is not known: " + row.predicted.reason
                          : "; give --machine FILE or NAME for their time";
  return out + "\n";
}

/// Returns the row of stage 0 that is printed instead of the row `point`. On one rank all stages run the same
/// program, so only stage 0 is printed. Returns null if the row `point` itself is printed: its stage is 0, it
/// has several ranks, or --stages was given.
Point const* same_without_ranks(Point const& point, std::vector<Point> const& points,
                                Settings const& settings) {
  if (settings.matrix.stages_given || point.world() > 1 || point.recipe.stage == 0) return nullptr;
  auto const found = std::find_if(points.begin(), points.end(), [&](Point const& other) {
    return other.recipe.stage == 0 && other.group() == point.group() &&
           other.recipe.names.offload == point.recipe.names.offload;
  });
  return found == points.end() ? nullptr : &*found;
}

bool same_plan(Planned const& one, Planned const& other) {
  return one.status == other.status && one.reason == other.reason &&
         one.schedule_hash == other.schedule_hash && one.memory.total == other.memory.total;
}

std::string picks_text(std::vector<Planned> const& rows, MemoryLimit const& limit, Settings const& settings,
                       Preference preferred) {
  std::string out;
  cli::Names seen;
  for (Planned const& row : rows) {
    std::string const name = family(row.point);
    if (!row.is_planned() || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    std::string const label = row.point.model.name + ", " + std::string(row.point.recipe.names.precision) +
                              ", " + std::to_string(row.point.split.ranks) +
                              (row.point.split.ranks == 1 ? " rank" : " ranks") + ", batch " +
                              std::to_string(row.point.split.batch) + ", sequence " +
                              std::to_string(row.point.sequence);
    if (Planned const* best = pick_by_what_is_known(rows, name, preferred)) {
      out += "pick for " + label + ": " + picked_text(*best) + "\n" + advice_text(rows, *best, preferred) +
             epochs_text(*best, settings);
      continue;
    }
    auto const excess = [&](Planned const& other) {  // how many bytes the row needs beyond the limits
      return std::max<std::int64_t>(0, other.footprint.device - limit.device) +
             std::max<std::int64_t>(0, other.footprint.host - limit.host) +
             std::max<std::int64_t>(0, other.footprint.nvme - limit.nvme);
    };
    Planned const* nearest = nullptr;
    for (Planned const& other : rows)
      if (other.status == "oom" && family(other.point) == name &&
          (!nearest || excess(other) < excess(*nearest)))
        nearest = &other;
    out += "nothing fits " + label + ": the nearest is " + nearest->point.experiment + ", " + nearest->reason;
    Largest const &batch = nearest->largest_batch, &sequence = nearest->longest_sequence;
    out += batch.value > 0 ? "; largest batch that fits it: " + batch.text() : "";
    out += sequence.value > 0 ? "; longest sequence: " + sequence.text() : "";
    out += batch.value + sequence.value == 0 ? untried_text(*nearest, limit) : "";
    out += "\n";
  }
  return out;
}

/// Returns a warning for each row that needs more memory than the row of the previous stage. A higher stage
/// can need more memory, because the exchange between ranks needs buffers.
std::string warnings_text(std::vector<Planned> const& rows) {
  std::string out;
  for (Planned const& row : rows)
    for (Planned const& before : rows) {
      bool const next =
          row.point.recipe.stage == before.point.recipe.stage + 1 && before.point.recipe.stage >= 0;
      if (!row.is_planned() || !before.is_planned() || !next || row.point.group() != before.point.group() ||
          row.point.recipe.names.offload != before.point.recipe.names.offload ||
          row.footprint.total <= before.footprint.total)
        continue;
      out += "note: " + row.point.experiment + " needs " +
             size_text(row.footprint.total - before.footprint.total) + " more than " +
             before.point.experiment +
             ": the buffers of its exchanges are larger than the state that it shards\n";
    }
  return out;
}

int run(int argc, char const* const* argv) {
  Settings settings;
  cli::CommandLine line("plan",
                        "Prints how many bytes every recipe needs, which recipes fit, and which one to pick.",
                        examples);
  declare(line, settings);
  if (!line.parse(argc, argv)) return 0;
  if (line.given("--steps") && line.given("--epochs"))
    cli::refuse("--steps and --epochs both say how long to train; give one of them");
  Preference const preferred = preference_of(settings);
  cli::ProgramFiles(line, cli::folders_of(settings.matrix.models)).check();
  bool const device_given = line.given("--device");
  settings.times = cli::known_times(settings.machine, device_given ? settings.matrix.device : std::string());
  if (settings.times) {
    settings.matrix.device = settings.times->device();
    settings.limits.machine = settings.times->machine();
    settings.limits.machine_memory = settings.times->memory_bytes();
  }
  cli::choose_adapters(settings.matrix, settings.trainer.lora);
  cli::read_published_strategies(settings.matrix, settings.defaults);
  if (settings.checkpoint_async) settings.trainer.checkpoints = CheckpointMemory::snapshot;
  std::vector<Point> const points =
      cli::make_matrix(settings.matrix, settings.vocabulary, 256, &unsupported_reason);
  for (Point const& point : points)
    if (point.model.can_run())
      cli::check_trained(point.model.built.units(), point.recipe, cli::options_of(point, settings.trainer),
                         settings.freeze);
  cli::check_nvme_path(settings.limits.nvme_path);
  bool const stdout_is_data = settings.json == "-";
  if (!settings.json.empty() && !stdout_is_data) check_writable(settings.json);
  if (settings.file.print) {
    std::cout << line.settings_text(cli::derived_flags(settings.matrix, points));
    cli::print_notes(std::cout, settings.file, {});
    return 0;
  }
  auto const [limit, limit_text] = limits_of(device_named(settings.matrix.device), settings.limits);

  std::ostream& log = stdout_is_data ? std::cerr : std::cout;
  cli::Terminal const terminal = cli::Terminal::of(stdout_is_data ? 2 : 1);
  for (auto const& model : settings.matrix.models)
    if (!model.not_applied.empty())
      log << "not applied of " << model.name << "/config.json: " << model.not_applied << "\n";
  if (settings.defaults != "own")
    log << "defaults: " << settings.defaults << ", as published (" << line.origin("--defaults") << ")\n";
  log << "limits: " << limit_text << "; bytes are for the rank that needs the most\n";
  if (settings.times) {
    bool const several =
        std::any_of(points.begin(), points.end(), [](Point const& point) { return point.world() > 1; });
    log << cli::times_text(*settings.times, settings.machine)
        << (several ? cli::collectives_text(*settings.times) : std::string());
  }
  std::vector<Planned> rows;
  std::map<Point const*, Planned> planned;
  auto const plan_row = [&](Point const& point) -> Planned const& {
    auto const [found, is_new] = planned.try_emplace(&point);
    if (!is_new) return found->second;
    Planned& row = found->second;
    row = plan_point(point, settings.trainer, limit, settings.no_search ? 0.0 : settings.search_time);
    if (settings.times && row.is_planned())
      row.predicted = cli::predict(point, settings.trainer, *settings.times);
    return row;
  };
  std::string group;  // the group of the row that was printed last
  cli::Names same;    // shardings whose rows are not printed, because they run the same program as stage 0
  cli::Names left_out;
  for (Point const& point : points) {
    if (settings.json.empty() && !std::cout && cli::reader_is_gone()) return 128 + SIGPIPE;
    if (Point const* const twin = same_without_ranks(point, points, settings)) {
      Planned const& row = plan_row(*twin);
      if (same_plan(plan_point(point, settings.trainer, limit, 0.0), row)) {
        rows.push_back(row);
        rows.back().point = point;
        rows.back().same_program_as = twin->experiment;
        same.emplace_back(point.recipe.names.sharding);
        continue;
      }
    }
    rows.push_back(plan_row(point));
    bool const first = group != point.group();
    group = point.group();
    if (first && (settings.trainer.freeze || settings.trainer.lora) && rows.back().params > 0)
      log << "\n" << frozen_text(rows.back());
    log << (first ? "\n" : "") << row_text(rows.back(), first, settings, terminal, left_out) << std::flush;
    if (settings.schedule && rows.back().is_planned())
      log << "\nthe step of " << point.experiment << ":\n"
          << schedule_text(point, settings.trainer) << std::flush;
  }
  if (!same.empty())
    log << "\non one rank " << cli::joined(cli::distinct(same))
        << " run the same program as zs0 and get no row; --stages prints rows for the stages that it names\n";
  log << "\n"
      << cli::left_out_text(left_out, terminal, "the output of --json has them") << predictions_text(rows)
      << picks_text(rows, limit, settings, preferred) << warnings_text(rows);
  std::vector<results::Row> compared = result_rows(rows);
  cli::PublishedModels const models = cli::published_models(points);
  cli::add_published(compared, settings.published, models);
  log << cli::published_text(compared, settings.published,
                             "device " + settings.matrix.device + ", planned and not run" +
                                 (settings.times ? ", with the times of " + settings.machine.string() : ""),
                             terminal, models);
  if (!settings.json.empty()) {
    Json document = Json::object();
    document["schema_version"] = results::schema_version;
    document["command"] = cli::command_text(argc, argv);
    document["environment"] = cli::environment(device_facts(points.front().recipe.device));
    document["environment"]["machine_source"] = cli::machine_source(settings.times);
    Json list = Json::array();
    for (std::size_t at = 0; at < rows.size(); ++at) {
      Planned const& row = rows[at];
      list.push_back(to_json(row, limit, pick_by_what_is_known(rows, family(row.point), preferred)));
      if (compared[at].contains("published")) list.back()["published"] = compared[at]["published"];
    }
    document["rows"] = std::move(list);
    std::string const text = document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (stdout_is_data) {
      std::cout << text;
    } else {
      write_file(settings.json, text);
      log << "wrote " << files::path_text(settings.json) << "\n";
    }
  }
  auto const any = [&](char const* status) {
    return std::any_of(rows.begin(), rows.end(), [&](Planned const& row) { return row.status == status; });
  };
  if (any("failed")) return exit_code(ErrorKind::failed);
  if (any("fits")) return 0;
  if (any("oom"))
    throw Error(ErrorKind::out_of_memory, "no recipe fits " + limit_text + "; see the table for what would");
  throw Error(ErrorKind::unsupported, "every recipe was refused: " + rows.front().reason);
}

}  // namespace

}  // namespace planning
}  // namespace programs

int main(int argc, char** argv) {
  return programs::cli::guarded([&] { return programs::planning::run(argc, argv); });
}
