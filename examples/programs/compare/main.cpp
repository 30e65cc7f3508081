// SPDX-License-Identifier: Apache-2.0
// The program `compare`. It trains models under many recipes and reports the speed and the memory of each
// training. A recipe fixes how a model is trained: its sharding, precision, offload and so on. A row of the
// result table is one model under one recipe with one batch, sequence and number of ranks.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/environment.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/program.hpp"
#include "cli/run_flags.hpp"
#include "cli/terminal.hpp"
#include "compare/box.hpp"
#include "compare/measure.hpp"
#include "compare/minute.hpp"
#include "compare/output.hpp"
#include "compare/report.hpp"
#include "compare/settings.hpp"
#include "config/config_file.hpp"
#include "config/published_defaults.hpp"
#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "machine/nvme_folder.hpp"
#include "machine/product_plans.hpp"
#include "results/published.hpp"
#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

constexpr char examples[] = R"(Examples:
  compare                                           a first minute: the ZeRO stages, and two offloads
  compare --pairs                                   every sharding with every precision and every offload
  compare --full                                    all their combinations
  compare --stages 0,1,2,3 --precisions bf16 --offloads none   the ZeRO stages in one precision
  compare --ranks 1,2,4 --stages 2 --precisions bf16 --offloads none --repeat 3   how ZeRO-2 scales, with a spread
  compare --global-batch 16 --batch 4 --ranks 1,2,4 --stages 2 --precisions bf16 --offloads none   the same steps
                                                    split differently: weights equal to the bit
  compare --model gpt2 --stages 3 --precisions fp32 --offloads none --recompute block --batch 1 --sequence 256
          --steps 3 --warmup 1                      GPT-2 124M; minutes on a CPU
  compare --data book.txt --json out.json           your text; writes only this file
  compare --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 50      a published command, with its defaults
  compare @examples/experiments/stage-sweep.flags   flags from a file, here a sweep for a GPU; the command line wins
  compare --samples-are lines --samples 1000 --epochs 2 --stages 1,2 --precisions bf16 --offloads none
                                                    seconds, samples/s and loss of every epoch

Commas or spaces separate the items of a list. If a flag is given twice, the last one counts. Every row ends as ok,
oom, refused or failed; the exit code is 0 if none failed, 1 if one did, and 3 if every row was refused.
)";

void declare(cli::CommandLine& line, Settings& settings) {
  cli::add_matrix_flags(line, settings.matrix);
  line.toggle("--full", settings.full, "every recipe: all combinations of the lists above");
  line.toggle("--pairs", settings.pairs,
              std::to_string(cli::recipe_count(settings.matrix, /*selection=*/true)) +
                  " of these: every sharding with every precision, and every sharding with every offload");
  line.group("Length");
  line.integer("--steps,--num-steps", settings.steps, "timed optimizer steps of a row", 1, 1 << 30);
  line.integer("--warmup,--warmup-steps", settings.warmup, "untimed steps before them", 0, 1 << 30);
  line.custom("--epochs", "N", "",
              "passes over the samples, instead of --steps; --warmup counts steps of the first one",
              [&](std::string const& flag, std::string const& value) {
                settings.epochs = cli::parse_integer(flag, value, 1, 1 << 30);
              });
  line.custom("--samples", "N", "",
              "use only the first N samples of the data; without --steps and --epochs: for one epoch",
              [&](std::string const& flag, std::string const& value) {
                settings.samples = cli::parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });
  line.integer("--repeat", settings.repeat, "runs of each row, for medians and deviations", 1, 1000);
  line.real("--min-time", settings.min_time, "continue until this many seconds are timed",
            cli::at_least(0.0));
  cli::add_data_flags(line, settings.data);
  line.path("--init", "PATH", settings.init,
            "start every row from these weights: safetensors, an index of parts, or a folder");
  cli::add_optimizer_flags(line, settings.trainer, cli::warmup_in_compare);
  cli::add_freeze_flag(line, settings.freeze, settings.trainer);
  cli::add_lora_flag(line, settings.trainer.lora, settings.lora);
  cli::add_machine_flags(line, settings.trainer);
  cli::add_nvme_path_flag(line, settings.nvme_path);
  cli::add_product_plans_flag(line, settings.product_plans);
  cli::add_machine_flag(line, settings.machine);
  cli::add_defaults_flag(line, settings.defaults);
  cli::add_published_flag(line, settings.published);
  line.group("Output");
  line.path("--output-dir", "FOLDER", settings.output_dir,
            "folder for compare.json, compare.csv, report.html and the step logs");
  line.toggle("--timestamp", settings.timestamp,
              "put the time into the names of these files, so that no run replaces the files of another");
  line.path("--json", "FILE", settings.json, "write just this JSON (and --csv); - is stdout");
  line.path("--csv", "FILE", settings.csv, "write just this CSV (and --json); - is stdout");
  line.choice("--format", {"rows", "flat"}, settings.format,
              "format of the files: a document of rows; or a plain array, with the published keys");
  line.toggle("--list", settings.list, "list the recipes of this build and stop");
  cli::add_launch_flags(line, settings.launch);
  cli::add_config_flags(line, settings.file);
}

std::string length_text(Settings const& settings) {
  if (settings.epochs > 0) return "--epochs " + std::to_string(settings.epochs);
  return "--warmup " + std::to_string(settings.warmup) + " + --steps " + std::to_string(settings.steps);
}

/// Throws if a learning-rate schedule that decays would end before all `total` steps are done, or if the
/// warm-up of the learning rate leaves no step for the decay.
void check_schedule(Settings const& settings, std::int64_t total) {
  TrainerOptions const& trainer = settings.trainer;
  if (!needs_end(trainer.schedule)) return;
  std::string const schedule = std::string("--schedule ") + cli::name_of(trainer.schedule);
  if (settings.min_time > 0.0)
    throw Error(ErrorKind::usage, "--min-time continues after --steps, when " + schedule +
                                      " has ended; give --steps without "
                                      "--min-time, or --schedule constant");
  if (trainer.total_steps > 0) total = trainer.total_steps;
  if (total <= trainer.warmup_steps)
    throw Error(ErrorKind::config,
                schedule + " falls after --learning-rate-warmup " + std::to_string(trainer.warmup_steps) +
                    ", but " + length_text(settings) + " are only " + std::to_string(total) +
                    " steps; give more, or a --learning-rate-warmup below " + std::to_string(total));
}

/// Throws if the flags for the training length contradict each other.
void check_length(cli::CommandLine const& line, Settings& settings) {
  if (line.given("--steps") && settings.epochs > 0)
    cli::refuse("--steps " + std::to_string(settings.steps) + " and --epochs " +
                std::to_string(settings.epochs) + " both say how long to train; give one of them");
  if (!line.given("--steps") && settings.samples > 0)
    settings.epochs = std::max<std::int64_t>(1, settings.epochs);
  if (settings.min_time > 0.0 && settings.epochs > 0)
    cli::refuse(
        "--min-time continues after the last epoch; give --steps instead of --epochs, or leave --min-time "
        "out");
}

/// Throws if --defaults selects the defaults of a published comparison, and these defaults offload to NVMe,
/// but --nvme-path is not given. The published defaults name no folder for the files of this offload.
void check_published(cli::CommandLine const& line, Settings const& settings) {
  cli::Names const& offloads = settings.matrix.slots.of<slot::offload>();
  if (settings.defaults == "own" || !settings.nvme_path.empty() || line.given("--nvme-path")) return;
  auto const on_disk = std::find_if(offloads.begin(), offloads.end(), [](std::string const& offload) {
    return uses_files(parse_recipe({.offload = offload}).placement);
  });
  if (on_disk != offloads.end())
    cli::refuse(*on_disk + " keeps state in files, but the defaults of " + settings.defaults +
                " use it only with a folder for them; give --nvme-path FOLDER, or leave " + *on_disk +
                " out");
}

/// Throws if the data is unsuitable for one of the rows `points`. Called before any training.
void check_data(cli::DataSets& data, Settings const& settings, std::vector<Point> const& points) {
  for (Point const& point : points) {
    if (point.refusal) continue;
    TokenSource const& source = data.of(point.model.sizes.vocabulary);
    std::int64_t const samples = cli::samples_of(source, point.sequence, settings.samples);
    std::int64_t const steps = steps_of(settings, point, source);
    check_schedule(settings, steps);
    if (steps <= settings.warmup)
      throw Error(ErrorKind::config,
                  std::to_string(settings.epochs) + " epochs of " + cli::grouped(samples) +
                      " samples at a global batch of " + std::to_string(point.split.global()) + " are " +
                      std::to_string(steps) + " steps, but --warmup " + std::to_string(settings.warmup) +
                      " leaves none to time; give a --warmup below " + std::to_string(steps));
    std::int64_t const tokens = point.split.batch * point.split.accumulation * point.sequence;
    if (tokens > (std::int64_t{1} << 31) - 1)
      throw Error(ErrorKind::config,
                  "--batch " + std::to_string(point.split.batch) + " x --accumulation " +
                      std::to_string(point.split.accumulation) + " x --sequence " +
                      std::to_string(point.sequence) +
                      " is more than 2147483647 tokens a rank and step; lower one of them");
  }
}

/// Opens the initial weights of each model once and stores them in all rows of `points` that train this
/// model. `init` is the path of the weights, the value of --init. If `init` is empty, the weights come from
/// the folder of the model. If the rows have several models, `init` must be empty.
void open_weights(std::vector<Point>& points, std::filesystem::path const& init) {
  for (auto point = points.begin(); point != points.end(); ++point) {
    auto const before = std::find_if(
        points.begin(), point, [&](Point const& other) { return other.model.name == point->model.name; });
    if (before != point)
      point->model.weights = before->model.weights;
    else if (init.empty())
      cli::open_weights(point->model);
    else if (point->model.built)
      point->model.weights =
          ModelWeights::open(init, point->model.built.units({1, 1}), point->model.family->weights).source();
  }
}

/// Returns whether the recipe of any row in `points` offloads training state to files.
bool uses_files(std::vector<Point> const& points) {
  return std::any_of(points.begin(), points.end(),
                     [](Point const& point) { return !point.refusal && uses_files(point.recipe.placement); });
}

std::string row_line(Measured const& row, std::size_t index, std::size_t count) {
  std::string const head =
      "[" + std::to_string(index) + "/" + std::to_string(count) + "] " + row.point.experiment + ": ";
  if (row.status == "refused") return head + "refused";  // the results table gives the reason
  if (!row.ok()) return head + row.status + ": " + row.reason;
  Repeat const& last = row.repeats.back();
  // Reports the loss of the last step that --steps or --epochs requested. --min-time adds further steps, but
  // their number depends on the speed, so their losses are not comparable.
  auto const& end =
      last.hashed_after > 0 ? last.log.at(static_cast<std::size_t>(last.hashed_after - 1)) : last.log.back();
  return head + "ok, " + cli::grouped(static_cast<std::int64_t>(row.tokens_per_second())) + " tok/s, loss " +
         cli::fixed(last.log.front().loss.value_or(0.0), 4) + " -> " + cli::fixed(end.loss.value_or(0.0), 4) +
         ", " + cli::fixed(last.total_s, 1) + " s";
}

/// Trains and measures the rows `points` in order. After each row that was trained, calls `finished` with the
/// results of all rows so far. Ends before a row that would probably end after `deadline`. Prints one line
/// for each row to `log`.
std::vector<Measured> measure_all(std::vector<Point> const& points, Settings const& settings,
                                  cli::DataSets& data, std::ostream& log, cli::Terminal const& terminal,
                                  std::optional<std::chrono::steady_clock::time_point> deadline,
                                  std::function<void(std::vector<Measured> const&)> const& finished) {
  cli::Progress progress(log, terminal);
  auto const began = std::chrono::steady_clock::now();
  std::vector<Measured> measured;
  std::size_t run = 0;
  std::chrono::steady_clock::duration longest{};
  auto const runs = static_cast<std::size_t>(
      std::count_if(points.begin(), points.end(), [](Point const& point) { return !point.refusal; }));
  for (Point const& point : points) {
    if (cli::Interrupt::caught()) {
      measured.push_back(not_run(point, settings, "not run: interrupted by " + cli::Interrupt::name()));
      continue;
    }
    auto const row_began = std::chrono::steady_clock::now();
    if (deadline && !measured.empty() && row_began + longest > *deadline) break;
    double const elapsed = seconds_since(began);
    double const more = static_cast<double>(runs - std::min(runs, run + 1));
    progress.start("[" + std::to_string(measured.size() + 1) + "/" + std::to_string(points.size()) + "] " +
                       point.experiment,
                   point.refusal ? 0 : steps_of(settings, point, data.of(point.model.sizes.vocabulary)));
    StepObserver const observer = [&](std::int64_t done, std::int64_t total, double rate, double loss) {
      if (done > total) return;
      double const a_row =
          run > 0 ? elapsed / static_cast<double>(run)
                  : seconds_since(row_began) * static_cast<double>(total) / static_cast<double>(done);
      progress.show(done, rate, "loss " + cli::fixed(loss, 3), more * a_row);
    };
    if (point.refusal)
      measured.push_back(not_run(point, settings, {}));
    else
      measured.push_back(measure(point, settings, data.of(point.model.sizes.vocabulary), observer));
    note_twins(measured);
    longest = std::max(longest, std::chrono::steady_clock::now() - row_began);
    run += point.refusal ? 0 : 1;
    progress.clear();
    if (!point.refusal) finished(measured);
    log << row_line(measured.back(), measured.size(), points.size()) << std::endl;
    if (measured.back().ok())
      for (auto const& epoch : measured.back().repeats.back().epochs)
        log << "  " << cli::epoch_text(epoch) << std::endl;
  }
  return measured;
}

/// Returns the measured speed of matrix products on the device in 10^12 FLOP/s, for each precision of the
/// rows; null on the CPU.
cli::Json product_rates(std::vector<Point> const& points) {
  cli::Json rates = nullptr;
  for (Point const& point : points)
    if (auto const rate = point.refusal ? std::nullopt : product_rate(point.recipe))
      rates[std::string(point.recipe.names.precision)] = *rate * 1e-12;
  return rates;
}

/// Returns the name of the GPU, such as "NVIDIA H200", or of the processor if the rows ran on the CPU.
std::string machine_text(results::Row const& environment, DeviceFacts const& facts) {
  if (!facts.models.empty()) return cli::joined(cli::distinct(facts.models));
  results::Row const& processor = environment.at("cpu");
  return processor.is_string() ? processor.get<std::string>() : "an unnamed processor";
}

int list_recipes() {
  for (RecipeTable const& recipe : registered_recipes()) std::cout << to_string(recipe) << "\n";
  std::cout << registered_recipes().size()
            << " recipes without a disk; state on NVMe and other values of recompute, reduction and "
               "attention also run\n";
  return 0;
}

int run(int argc, char const* const* argv) {
  auto const began = std::chrono::steady_clock::now();
  Settings settings;
  settings.trainer.learning_rate = 1e-3;
  settings.trainer.clip = 1.0;
  cli::CommandLine line("compare",
                        "Trains one model under a matrix of recipes and compares speed, memory and result.",
                        examples);
  declare(line, settings);
  if (!line.parse(argc, argv)) return 0;
  settings.matrix.batch_names = cli::BatchNames::of(line);
  if (settings.list) return list_recipes();
  if (line.given("--output-dir") && !(settings.json.empty() && settings.csv.empty()))
    cli::refuse("--output-dir " + files::path_text(settings.output_dir) +
                " would stay empty: with --json or --csv, only these files are written; leave one out");
  if (settings.timestamp && !(settings.json.empty() && settings.csv.empty()))
    cli::refuse(
        "--timestamp changes the names of the files in --output-dir, but --json and --csv name their files; "
        "leave one out");
  cli::ProgramFiles const files(line, cli::folders_of(settings.matrix.models));
  files.check();
  check_published(line, settings);
  cli::join_launch(line, settings.launch);
  check_length(line, settings);
  if (settings.pairs && settings.full)
    cli::refuse("--pairs trains a selection and --full all recipes; give one of them");
  cli::check_loss_scale(line, settings.trainer.loss_scale);
  cli::check_data_flags(line, settings.data);
  if (settings.epochs == 0) check_schedule(settings, settings.warmup + settings.steps);
  if (!settings.init.empty() && settings.matrix.models.size() > 1)
    cli::refuse("--init " + files::path_text(settings.init) +
                " holds the weights of one model, and --models gives " +
                std::to_string(settings.matrix.models.size()) + "; give one of them");
  cli::check_nvme_path(settings.nvme_path);
  cli::check_product_plans(settings.product_plans, device_named(settings.matrix.device));
  cli::DataSets data(settings.data, settings.trainer.threads);
  settings.minute = !says_rows(line, argc, argv);
  settings.matrix.selection =
      settings.pairs || !(settings.full || settings.minute || settings.matrix.stages_given ||
                          settings.matrix.offloads_given || line.given("--precisions"));
  cli::choose_adapters(settings.matrix, settings.trainer.lora);
  cli::read_published_strategies(settings.matrix, settings.defaults);
  std::vector<Point> points = cli::make_matrix(settings.matrix, settings.data.vocabulary, data.vocabulary());
  std::size_t const all_rows = points.size();
  for (std::size_t number = 0; number < points.size(); ++number) points[number].number = number;
  if (settings.minute) {
    points = minute_of(std::move(points), settings);
    settings.matrix.ranks = {points.front().world()};
  }
  Device const device = device_named(settings.matrix.device);
  // NVML must read the GPUs before CUDA creates a context
  if (device == Device::cuda) (void)cli::gpus_at_start();
  need_device(device);
  check_data(data, settings, points);
  open_weights(points, settings.init);
  for (Point const& point : points)
    if (point.model.can_run())
      cli::check_trained(point.model.built.units(), point.recipe, cli::options_of(point, settings.trainer),
                         settings.freeze);
  cli::NvmeFolder const nvme_folder(settings.nvme_path, uses_files(points));
  settings.trainer.nvme_directory = nvme_folder.path();
  cli::Names differences;
  if (line.given("--config"))
    for (auto const& model : settings.matrix.models)
      for (auto const& point : points)
        if (point.model.name == model.name && point.model.can_run()) {
          differences =
              cli::deepspeed_differences(settings.file.deepspeed, point.model.built.units()({1, 1}));
          break;
        }
  if (settings.file.print) {
    // The program prints its settings as flags, which a user can give to repeat this run. `derived` maps a
    // flag that was not given to the value that the program chose. If this value is "", the flag is not
    // printed, because `compare` would refuse it together with other printed flags.
    auto derived = cli::derived_flags(settings.matrix, points);
    if (!cli::reads_fields(settings.data)) derived["--field"] = "";
    if (settings.epochs > 0) derived["--steps"] = "";
    if (!settings.json.empty() || !settings.csv.empty()) derived["--output-dir"] = "";
    // In these two cases, `compare` trains only a selection of all combinations of stages, precisions and
    // offloads. If the printed settings listed the stages, precisions and offloads, a repeated run would
    // train all combinations. So these three flags are not printed.
    if (settings.minute || settings.matrix.selection)
      for (char const* flag : {"--stages", "--precisions", "--offloads"}) derived[flag] = "";
    if (settings.minute)
      for (auto const& flag : row_flags()) derived[flag] = "";
    std::cout << line.settings_text(derived);
    cli::print_notes(std::cout, settings.file, differences);
    return 0;
  }
  settings.times = cli::known_times(settings.machine, settings.matrix.device);
  settings.plans = cli::open_product_plans(settings.product_plans, device);
  if (!cli::is_first_process()) {
    cli::Interrupt const interrupt;
    serve_rows(points, settings, [&](Point const& point) -> TokenSource const& {
      return data.of(point.model.sizes.vocabulary);
    });
    return cli::Interrupt::exit_code();
  }
  RowServers const servers;
  Outputs outputs(settings, points, files);

  bool const stdout_is_data = settings.json == "-" || settings.csv == "-";
  std::ostream& log = stdout_is_data ? std::cerr : std::cout;
  cli::Terminal const terminal = cli::Terminal::of(stdout_is_data ? 2 : 1);
  cli::Interrupt const interrupt;
  cli::print_notes(log, settings.file, differences);
  DeviceFacts const facts = device_facts(device);
  cli::warn_of_gpus(facts, std::ranges::max(settings.matrix.ranks));
  if (settings.init.empty())
    for (auto const& model : settings.matrix.models) cli::warn_of_random_weights("--models", model);
  std::vector<Point> const requested = points;
  std::optional<std::chrono::steady_clock::time_point> deadline;
  if (settings.minute) {
    log << "measuring " << points.front().experiment << " to find out how many recipes fit into a minute"
        << std::endl;
    Measured const first =
        measure(points.front(), probe_of(settings), data.of(points.front().model.sizes.vocabulary), {});
    double const seconds = choose_minute(points, settings, first, seconds_since(began));
    deadline = began + std::chrono::seconds(static_cast<int>(minute_s) - 1);
    log << "trains " << points.size() << " recipes for " << settings.warmup << " + " << settings.steps
        << " steps each: about " << cli::duration_text(seconds) << std::endl;
  }
  log << cli::defaults_note(line) << box_text(line, settings, points, data.first(), terminal);
  if (settings.times) log << cli::times_text(*settings.times, settings.machine);
  log << std::flush;

  results::Document document;
  document.command = cli::command_text(argc, argv);
  document.environment = cli::environment(facts);
  document.environment["schedule_hash"] = nullptr;
  document.environment["plan_file_hash"] = nullptr;
  document.environment["settings"] = settings_json(settings, data.first());
  document.environment["machine_source"] = cli::machine_source(settings.times);
  document.environment["product_tflops"] = product_rates(points);
  std::vector<results::Measurements> rows;
  cli::PublishedModels const published_models = cli::published_models(points);
  auto const add_rows = [&](std::vector<Measured> const& measured) {
    std::string schedules;
    for (Measured const& row : measured) schedules += row.schedule_hash + "\n";
    document.environment["schedule_hash"] = hash_of(schedules);
    rows = measurements(measured, settings, facts);
    document.rows = result_rows(measured, rows);
    cli::add_published(document.rows, settings.published, published_models);
  };
  double writing_s = 0.0;
  auto row_began = began;
  auto const update = [&](std::vector<Measured> const& so_far) {
    auto const start = std::chrono::steady_clock::now();
    // A comparison may have thousands of short rows. After a short row the files are written only while all
    // writing so far took at most 10% of the time. After a longer row they are always written.
    bool const brief = seconds_since(row_began) < 0.25;
    if (!brief || writing_s <= 1.0 + 0.1 * seconds_since(began)) {
      add_rows(so_far);
      outputs.update(document, so_far);
      writing_s += seconds_since(start);
    }
    row_began = std::chrono::steady_clock::now();
  };
  std::vector<Measured> const measured = measure_all(points, settings, data, log, terminal, deadline, update);
  add_rows(measured);
  document.wall_s = seconds_since(began);
  log << "\n" << table_text(measured, rows, terminal);
  log << cli::published_text(document.rows, settings.published, machine_text(document.environment, facts),
                             terminal, published_models);
  if (settings.minute) log << left_out_text(settings, requested, measured.size(), all_rows, terminal);
  for (auto const& text : outputs.finish(document, measured)) log << text << "\n";
  cli::warn_of_plans(settings.plans.get());
  log << "total " << cli::duration_text(*document.wall_s) << std::endl;
  if (cli::Interrupt::caught()) return cli::Interrupt::exit_code();
  if (settings.minute) {
    std::string given;
    for (int at = 1; at < argc; ++at) given += " " + cli::in_shell(argv[at]);
    log << next_text(settings, outputs.report(), cli::in_shell(argv[0]), given, measured, all_rows)
        << std::flush;
  }
  auto const is = [](char const* status) {
    return [status](Measured const& row) { return row.status == status; };
  };
  if (std::all_of(measured.begin(), measured.end(), is("refused")))
    throw Error(ErrorKind::unsupported, "every recipe was refused: " + measured.front().reason);
  return std::any_of(measured.begin(), measured.end(), is("failed")) ? exit_code(ErrorKind::failed) : 0;
}

}  // namespace

}  // namespace compare
}  // namespace programs

int main(int argc, char** argv) {
  return programs::cli::guarded([&] { return programs::compare::run(argc, argv); });
}
