// SPDX-License-Identifier: Apache-2.0
// The program `plan`. It computes how much memory a training needs under each recipe, without allocating the
// memory. It prints which recipes fit, and recommends one of them.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
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
#include "plan/picks.hpp"
#include "plan/planning.hpp"
#include "plan/rows.hpp"
#include "plan/settings.hpp"
#include "results/published.hpp"
#include "workload/data.hpp"
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
  plan --model gpt2-large --machine l4 --ranks 1 --sequence 1024 --data book.txt --tokenizer gpt2 --epochs 1
  plan --model gpt2 --freeze 'wte|wpe|h\.[0-5]\.'      what training the upper half needs
  plan --model layers=2,heads=2,channels=64 --stages 3 --precisions bf16 --offloads none --schedule

Nothing is allocated, and neither this machine nor this build needs the device. Without --memory and --host-memory,
the limits are the available memory of this machine. With only --memory, the host and the disk for state on NVMe
are not limited; --host-memory, --nvme-memory and --nvme-path set limits.
On the CPU the ranks' devices are host memory too. A GB is 2^30 bytes in --memory, as in the names of GPUs, and 10^9
bytes in the other sizes. On one rank all stages run the same program, so without --stages they have
one row.
A + after the largest batch or sequence: more may fit; ?: the search took too long.
In 16 bits, gradients have 4 bytes a parameter if they are summed in fp32: with --accumulation, with offload of the
parameters, and on several ranks in dp, zs2, zs3 and with --reduction ordered. Otherwise they have 2. On several ranks,
zs2 and zs3 divide them by the ranks.
The column slower divides the predicted time by the smallest one of all rows with the same model, precision, ranks,
batch and sequence. Only for the pick of --prefer speed and efficiency, rows whose predictions are within 10% of the
best one count as equal, and the simplest of them is picked.
+-N% after a prediction is its expected error. If the machine's file has no time of some kind of work, this work is
guessed: its time is estimated from other work. If more than half of a step is guessed, the error is possibly larger.
The exit code is 0 if some recipe fits, 5 if none does, 1 if a row could not be planned, and 3 if every recipe
was refused. If the reader of its output is gone and it writes no file, plan ends with exit code 141.
)";

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
  line.custom(
      "--vocabulary", "N", "",
      "tokens of the vocabulary; default: the vocabulary of a named model, of --tokenizer or of --data; "
      "otherwise 256, as for text",
      [&](std::string const& flag, std::string const& value) {
        settings.data.vocabulary = cli::parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
      });
  cli::add_freeze_flag(line, settings.freeze, settings.trainer);
  cli::add_lora_flag(line, settings.trainer.lora, settings.lora);
  add_limit_flags(line, settings.limits);
  line.integer(
      "--hosts", settings.hosts,
      "hosts over which the ranks of a row are divided. Collectives between hosts use the network of "
      "--machine; --host-memory and --nvme-memory are limits of one host",
      1, 64);
  line.integer("--threads", settings.trainer.threads, "threads of a rank; 0: an equal share of the cores", 0,
               1024);
  line.toggle("--checkpoint-async", settings.checkpoint_async,
              "include the memory of train --checkpoint-async: a copy of the state in host memory");
  line.group("Advice");
  cli::add_machine_flag(line, settings.machine);
  line.custom("--prefer", "speed|memory|efficiency", "",
              "pick the best row by this measure; default: the simplest row, which offloads least (none, "
              "then cpu_optimizer, cpu_full, NVMe), then divides most of the offloaded state among "
              "the ranks, then recomputes least, then has the lowest stage",
              [&](std::string const& flag, std::string const& value) {
                settings.prefer = cli::choice(flag, value, preferences);
              });
  line.integer(
      "--samples", settings.samples,
      "print the steps and the time of a pass over N samples of --sequence tokens. N is the tokens of "
      "the text (prepare prints them) / --sequence. With --data: only its first N samples",
      1, (std::int64_t{1} << 31) - 1);
  line.integer("--epochs", settings.epochs, "number of passes over the samples of --samples or --data", 1,
               1 << 30);
  line.values(
      "--data", "PATH...", "",
      "print the steps and the time of an epoch of this text or token file. plan counts its samples as "
      "train does, and reads no data without this flag",
      [&](std::string const&, cli::Names const& values) { settings.data.paths = values; });
  cli::add_sample_flags(line, settings.data);
  line.group("Output");
  line.path("--json", "FILE", settings.json, "write the plans here; - is stdout");
  line.toggle("--schedule", settings.schedule,
              "print the step of each recipe, entry by entry, as rank 0 runs it");
  line.toggle("--brief", settings.brief, "print the header, the picks and the notes, but no rows");
  line.toggle("--no-search", settings.no_search,
              "do not search for the largest batch and sequence, which takes most of the time");
  line.real("--search-time", settings.search_time,
            "seconds for each of a row's two searches; a search that runs out of time shows + or ?",
            {.min = 0.0, .max = 86400.0, .open_below = true});
  cli::add_published_flag(line, settings.published);
  cli::advise_on_launcher_flags(line,
                                "plan needs no launcher, so use --ranks N, and --hosts N for several hosts");
  cli::add_defaults_flag(line, settings.defaults);
  cli::add_config_flags(line, settings.file);
  line.group("Flags of train, for the command that plan prints");
  cli::add_order_flag(line, settings.data);
  line.real("--learning-rate,--lr", settings.trainer.learning_rate, "learning rate of the optimizer",
            cli::at_least(0.0));
  line.group("Flags of compare, accepted here without effect on memory or time");
  Unused& unused = settings.unused;
  line.integer("--steps,--num-steps", unused.number, "timed steps", 1, 1 << 30);
  line.integer("--warmup,--warmup-steps", unused.number, "untimed steps before them", 0, 1 << 30);
  line.integer("--repeat", unused.number, "runs of a row", 1, 1000);
  line.real("--min-time", unused.real, "seconds of timed steps", cli::at_least(0.0));
  line.text("--output-dir", "FOLDER", unused.text, "folder of the files of compare");
  line.toggle("--timestamp", unused.said, "put the time into the names of these files");
}

/// Returns a line about frozen parameters: "trains 42,528,768 of 124,439,808 parameters, 81,911,040 are
/// frozen".
std::string frozen_text(Planned const& row) {
  return row.point.model.name + " trains " + cli::grouped(row.trainable) + " of " + cli::grouped(row.params) +
         " parameters, " + cli::grouped(row.params - row.trainable) + " are frozen\n";
}

/// Returns lines that name the rows without a prediction, the reasons, and the command that measures missing
/// times. If `with_legend` is true, adds lines that explain the column `slower` and the mark of rows whose
/// steps are guessed for more than a tenth.
std::string predictions_text(std::vector<Planned> const& rows, Preference preferred, bool with_legend) {
  std::string out;
  bool guessed = false, compared = false;
  std::map<std::string, cli::Names> by_reason;
  std::vector<Planned const*> to_measure;
  for (Planned const& row : rows) {
    guessed = guessed || row.predicted.guesses_much();
    compared = compared || row.slower.has_value();
    if (row.is_planned() && !row.predicted.reason.empty() && row.same_program_as.empty())
      by_reason[row.predicted.reason].push_back(row.point.experiment);
    // If no row of a family can be picked by its rate, the lines below the pick have the command.
    if (row.is_planned() && row.predicted.lacks_times && row.same_program_as.empty() &&
        !(compares_rates(preferred) && !pick(rows, family(row.point), preferred)))
      to_measure.push_back(&row);
  }
  for (auto const& [reason, names] : by_reason)
    out += "not predicted: " + names.front() +
           (names.size() > 1
                ? " and " + std::to_string(names.size() - 1) + (names.size() > 2 ? " more rows" : " more row")
                : "") +
           ": " + reason + "\n";
  if (!to_measure.empty()) out += "to get the missing times, " + measuring_text(to_measure) + "\n";
  if (!with_legend) return out;
  if (compared)
    out +=
        "slower: the predicted time divided by the smallest one of all rows with the same model, precision, "
        "ranks, batch and sequence" +
        (compares_rates(preferred)
             ? "; only --prefer " + std::string(preferred == Preference::speed ? "speed" : "efficiency") +
                   " counts rows within " + cli::fixed(100.0 * equal_share, 0) + "% of the best one as equal"
             : std::string()) +
        "\n";
  return out + (guessed
                    ? "~ more than 10% of the step is guessed: the machine's file has no times of this work, "
                      "or none with this number of ranks, so its time is estimated from other work\n"
                    : "");
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

/// Plans, predicts and searches the rows of the table, each of them once.
class Planning {
 public:
  /// `data` is the data whose samples are counted; null: no data.
  Planning(std::vector<Point> const& points, Settings const& settings, MemoryLimit const& limit,
           cli::DataSets* data)
      : points_(points), settings_(settings), limit_(limit), data_(data) {}

  /// Returns the row that is printed instead of the row `point`, because both run the same program; null if
  /// the row `point` is printed.
  Point const* twin_of(Point const& point) {
    Point const* const twin = same_without_ranks(point, points_, settings_);
    return twin && same_plan(planned(point).row, planned(*twin).row) ? twin : nullptr;
  }

  /// Returns the row with all figures that the settings select.
  Planned const& complete(Point const& point) {
    State& state = planned(point);
    if (state.is_complete) return state.row;
    state.is_complete = true;
    Planned& row = state.row;
    if (settings_.times && row.is_planned()) {
      if (auto const step = predicted(point).row.predicted.step_s) row.slower = *step / fastest_of(point);
    }
    if (!settings_.no_search) search_largest(row, settings_.trainer, limit_, settings_.search_time);
    row.epoch_samples =
        data_ ? cli::samples_of(data_->of(point.model.sizes.vocabulary), point.sequence, settings_.samples)
              : settings_.samples;
    return row;
  }

 private:
  struct State {
    Planned row;
    bool is_predicted = false, is_complete = false;
  };

  State& planned(Point const& point) {
    auto const [found, is_new] = states_.try_emplace(&point);
    if (is_new) found->second.row = plan_point(point, settings_.trainer, limit_);
    return found->second;
  }

  State& predicted(Point const& point) {
    State& state = planned(point);
    if (!state.is_predicted && state.row.is_planned())
      state.row.predicted =
          cli::predict(point, settings_.trainer, *settings_.times, static_cast<int>(settings_.hosts));
    state.is_predicted = true;
    return state;
  }

  /// Returns the smallest predicted time of a step in the family of a row, in seconds. At least one row of
  /// the family must have a prediction.
  double fastest_of(Point const& point) {
    auto const [found, is_new] = fastest_.try_emplace(family(point), std::numeric_limits<double>::infinity());
    for (Point const& other : points_)
      if (is_new && family(other) == found->first && !twin_of(other))
        if (auto const step = predicted(other).row.predicted.step_s)
          found->second = std::min(found->second, *step);
    return found->second;
  }

  std::vector<Point> const& points_;
  Settings const& settings_;
  MemoryLimit const& limit_;
  cli::DataSets* data_;
  std::map<Point const*, State> states_;
  std::map<std::string, double> fastest_;
};

/// Returns the vocabulary of a model without a known vocabulary: the vocabulary of the data or of the
/// tokenizer. Without data and tokenizer, returns 256, the number of bytes.
std::int64_t text_vocabulary(Settings const& settings, std::optional<cli::DataSets> const& data) {
  if (data) return data->vocabulary();
  cli::SharedTokenizer const tokenizer = cli::open_tokenizer(settings.data);
  return tokenizer ? tokenizer->vocabulary() : 256;
}

/// Returns a line about the samples for each sequence length of the rows, as `train` describes them: how many
/// records are cut, and how much padding there is. Returns "" if samples are no records and no lines.
std::string samples_lines(std::vector<Point> const& points, Settings const& settings, cli::DataSets& data) {
  if (settings.data.samples_are == SamplesAre::tokens) return {};
  std::map<std::int64_t, std::string> by_sequence;
  for (Point const& point : points)
    if (std::string& text = by_sequence[point.sequence]; text.empty())
      text = cli::samples_text(data.of(point.model.sizes.vocabulary), settings.data, point.sequence,
                               settings.samples);
  std::string out;
  for (auto const& [sequence, text] : by_sequence)
    out += "samples: " + text +
           (by_sequence.size() > 1 ? ", with --sequence " + std::to_string(sequence) : std::string()) + "\n";
  return out;
}

/// Returns a note if text is counted in bytes although a model has a vocabulary of longer tokens; ""
/// otherwise.
std::string bytes_note(std::vector<Point> const& points, Settings const& settings,
                       cli::DataSets const& data) {
  constexpr std::int64_t bytes = 256;  // the vocabulary of text without a tokenizer
  if (!settings.data.tokenizer.empty() || data.vocabulary() != bytes) return {};
  for (Point const& point : points)
    if (std::int64_t const own = point.model.sizes.vocabulary;
        own > 2 * bytes && settings.data.vocabulary == 0)
      return "note: without --tokenizer each byte of the text is a token. The vocabulary of " +
             point.model.name + " has " + cli::grouped(own) +
             " tokens, and most of them have several bytes, so its tokenizer gives fewer tokens; give "
             "--tokenizer FOLDER with the files of this tokenizer\n";
  return {};
}

/// Returns a note if rows that differ only in their capture have the same figures; "" otherwise.
std::string capture_note(std::vector<Planned> const& rows) {
  for (Planned const& row : rows)
    if (row.point.recipe.names.capture != rows.front().point.recipe.names.capture)
      return "note: --capture changes neither the planned bytes nor the predicted times, so its tables are "
             "equal\n";
  return {};
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
  settings.matrix.batch_names = cli::BatchNames::of(line);
  if (line.given("--steps") && line.given("--epochs"))
    cli::refuse("--steps and --epochs both say how long to train; give one of them");
  Preference const preferred = preference_of(settings);
  cli::check_data_flags(line, settings.data);
  cli::ProgramFiles(line, cli::folders_of(settings.matrix.models)).check();
  bool const device_given = line.given("--device");
  settings.times = cli::known_times(settings.machine, device_given ? settings.matrix.device : std::string());
  if (settings.times) {
    settings.matrix.device = settings.times->device();
    settings.limits.machine = settings.times->machine();
    settings.limits.machine_memory = settings.times->memory_bytes();
  }
  settings.limits.hosts = settings.hosts;
  for (int const ranks : settings.matrix.ranks)
    if (ranks % settings.hosts != 0)
      cli::refuse("--hosts " + std::to_string(settings.hosts) + " does not divide --ranks " +
                  std::to_string(ranks) + "; give each host the same number of ranks");
  cli::choose_adapters(settings.matrix, settings.trainer.lora);
  cli::read_published_strategies(settings.matrix, settings.defaults);
  if (settings.checkpoint_async) settings.trainer.checkpoints = CheckpointMemory::snapshot;
  std::optional<cli::DataSets> data;
  if (!settings.data.paths.empty()) data.emplace(settings.data, settings.trainer.threads);
  std::vector<Point> const points = cli::make_matrix(settings.matrix, settings.data.vocabulary,
                                                     text_vocabulary(settings, data), &unsupported_reason);
  for (Point const& point : points)
    if (data)  // refuses unsuitable data before the first row is printed
      (void)cli::samples_of(data->of(point.model.sizes.vocabulary), point.sequence, settings.samples);
  for (Point const& point : points)
    if (point.model.can_run())
      cli::check_trained(point.model.built.units(), point.recipe, cli::options_of(point, settings.trainer),
                         settings.freeze);
  cli::check_nvme_path(settings.limits.nvme_path);
  bool const stdout_is_data = settings.json == "-";
  if (!settings.json.empty() && !stdout_is_data) check_writable(settings.json);
  if (settings.file.print) {
    auto derived = cli::derived_flags(settings.matrix, points);
    if (!cli::reads_fields(settings.data)) derived["--field"] = "";
    std::cout << line.settings_text(derived);
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
  if (data)
    log << "data: " << data->first().description() << "\n"
        << samples_lines(points, settings, *data) << bytes_note(points, settings, *data);
  log << "limits: " << limit_text << "; the rows show the bytes of the rank that needs the most\n";
  if (settings.times) {
    bool const several =
        std::any_of(points.begin(), points.end(), [](Point const& point) { return point.world() > 1; });
    bool const offloaded = std::any_of(points.begin(), points.end(), [](Point const& point) {
      return point.recipe.names.offload != "none";
    });
    log << cli::times_text(*settings.times, settings.machine)
        << (several
                ? cli::hosts_text(*settings.times, static_cast<int>(settings.hosts), settings.matrix.ranks) +
                      cli::collectives_text(*settings.times)
                : std::string())
        << (offloaded ? cli::host_text(*settings.times) : std::string());
  }
  std::vector<Planned> rows;
  Planning planning(points, settings, limit, data ? &*data : nullptr);
  std::string group;  // the group of the row that was printed last
  cli::Names same;    // shardings whose rows are not printed, because they run the same program as stage 0
  cli::Names left_out;
  for (Point const& point : points) {
    if (settings.json.empty() && !std::cout && cli::reader_is_gone()) return 128 + SIGPIPE;
    bool const first = group != point.group();
    if (Point const* const twin = planning.twin_of(point)) {
      rows.push_back(planning.complete(*twin));
      rows.back().point = point;
      rows.back().same_program_as = twin->experiment;
      same.emplace_back(point.recipe.names.sharding);
      continue;
    }
    rows.push_back(planning.complete(point));
    group = point.group();
    if (first && (settings.trainer.freeze || settings.trainer.lora) && rows.back().params > 0)
      log << "\n" << frozen_text(rows.back());
    if (!settings.brief)
      log << (first ? "\n" : "") << row_text(rows.back(), first, settings, terminal, left_out) << std::flush;
    if (settings.schedule && rows.back().is_planned())
      log << "\nthe step of " << point.experiment << ":\n"
          << schedule_text(point, settings.trainer) << std::flush;
  }
  if (!same.empty())
    log << "\non one rank " << cli::joined(cli::distinct(same))
        << " run the same program as zs0 and get no row; --stages prints rows for the stages that it names\n";
  log << "\n"
      << cli::left_out_text(left_out, terminal, "the output of --json has them")
      << predictions_text(rows, preferred, !settings.brief) << picks_text(rows, limit, settings, preferred)
      << capture_note(rows) << warnings_text(rows);
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
