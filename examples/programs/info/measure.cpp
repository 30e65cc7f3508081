// SPDX-License-Identifier: Apache-2.0
#include "info/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/core/place.hpp"
#include "tessera/io/file.hpp"
#include "tessera/loop/training_loop.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/outputs.hpp"
#include "info/measure_collectives.hpp"
#include "machine/machine.hpp"
#include "machine/nvme_folder.hpp"
#include "prediction/machine_times.hpp"
#include "results/statistics.hpp"
#include "results/verdicts.hpp"
#include "trace/step_times.hpp"
#include "workload/models.hpp"

namespace programs {
using namespace tessera;
namespace info {
namespace {

using Clock = std::chrono::steady_clock;

/// The settings of a run of `info --measure`.
struct Measuring {
  Device device = default_device();
  cli::Names precisions = {"fp32", "bf16", "fp16"};
  std::vector<int> ranks;
  double seconds = 30;  ///< the approximate total duration
  /// The model that --model names. It is measured first, with its own sizes but with at most two layers.
  /// Without --model, only the built-in sizes of `probes_of` are measured.
  std::optional<cli::ModelChoice> model;
  std::int64_t batch = 1, sequence = 128;  ///< the micro-batch and sequence of `model`
  std::filesystem::path nvme_path;         ///< the folder for state on disk; empty: disks are not measured
};

/// The size of a small model, and of the micro-batch of its step.
struct Size {
  std::string model;
  int layers = 0;  ///< 0: the number of layers of Measuring::model
  std::int64_t batch = 1, sequence = 128, vocabulary = 256;
};

/// The policies of a recipe to measure. Together, the recipes below use every kind of transfer, collective
/// and update.
struct Kind {
  std::string_view sharding, offload, recompute;
};
constexpr Kind plain{"zero0", "none", "none"};
constexpr Kind with_all_on_host{"zero3", "cpu_full", "none"};
constexpr Kind others[] = {with_all_on_host,
                           {"zero2", "cpu_optimizer", "gelu"},
                           {"dp", "none", "none"},
                           {"zero3", "none", "block"},
                           {"zero1", "none", "none"}};

/// One training run to time: a model with a recipe.
struct Probe {
  Size size;
  Kind kind;
};

/// Returns the training runs to time, the most informative first.
std::vector<Probe> probes_of(Measuring const& measuring) {
  auto const size = [](int heads, int channels, std::int64_t batch, std::int64_t sequence,
                       std::int64_t vocabulary = 256) {
    return Size{"heads=" + std::to_string(heads) + ",channels=" + std::to_string(channels), 2, batch,
                sequence, vocabulary};
  };
  constexpr std::int64_t large = 50257;
  std::vector<Size> sizes = {size(4, 128, 8, 128), size(12, 768, 1, 128, 8192), size(6, 384, 2, 256),
                             size(2, 64, 4, 64),   size(4, 128, 2, 512),        size(4, 256, 4, 128, 4096),
                             size(4, 128, 1, 64),  size(2, 32, 2, 16)};
  if (!info_of(measuring.device).on_cores)
    sizes = {size(12, 768, 32, 128, large),  size(12, 768, 8, 1024, large),
             size(25, 1600, 8, 1024, large), size(12, 768, 32, 1024, large),
             size(16, 1024, 4, 512, large),  size(4, 256, 16, 256, 4096),
             size(20, 1280, 2, 128, large),  size(12, 768, 4, 4096, large),
             size(32, 2048, 4, 512, large),  size(4, 128, 8, 128)};
  std::vector<Probe> probes;
  if (measuring.model)
    probes.push_back({{measuring.model->name, 0, measuring.batch, measuring.sequence}, plain});
  probes.push_back({sizes[0], plain});
  if (!measuring.nvme_path.empty()) probes.push_back({sizes[0], {"zero3", "nvme", "none"}});
  probes.push_back({sizes[1], plain});
  for (Kind const& kind : others) probes.push_back({sizes[0], kind});
  probes.push_back({sizes[2], plain});
  probes.push_back({sizes[2], with_all_on_host});
  if (!measuring.nvme_path.empty()) probes.push_back({sizes[2], {"zero3", "nvme", "none"}});
  for (std::size_t at = 3; at < sizes.size(); ++at) probes.push_back({sizes[at], plain});
  // On a GPU the models get six layers instead of two, for two reasons. The first work that the host enqueues
  // in a step takes longer than later work. Also, a GPU's clocks depend on its power: with two layers the
  // products of the head would dominate the power, unlike in most models. Models with state on disk keep two
  // layers, since only the times of their moves are used.
  if (!info_of(measuring.device).on_cores)
    for (Probe& probe : probes)
      if (probe.size.layers > 0 && probe.kind.offload != "nvme") probe.size.layers = 6;
  return probes;
}

/// Returns `count` tokens whose frequencies are like those of words in text. By Zipf's law, the n-th most
/// frequent word is 1/n times as frequent as the first. The time of the embedding's gradient depends on these
/// frequencies.
std::vector<std::int32_t> tokens_of(std::int64_t count, std::int64_t vocabulary) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (std::size_t at = 0; at < tokens.size(); ++at) {
    auto const share = static_cast<double>(at * 2654435761u % 1000003u) / 1000003.0;
    tokens[at] = static_cast<std::int32_t>(std::pow(static_cast<double>(vocabulary), share)) - 1;
  }
  return tokens;
}

/// Collects the measured times of schedule entries over all training runs. A schedule entry is one
/// computation or one data movement of a step. Entries with equal costs (operations, bytes) share one list of
/// times.
class Collected {
 public:
  /// Adds the times of the entries of one training run. All times are from one step, because ranks share
  /// cores: if one entry is faster in a step, another entry can be slower. On the CPU this step is the
  /// fastest one, which other programs disturbed least. On a GPU it is the median step, because clocks vary
  /// with power. The events between entries slow a GPU down, so its times are scaled to `undisturbed`, the
  /// seconds of a step without events. If the state is on disk, only the times of moves are used: other
  /// entries wait for the disk, and runs without a disk time them.
  void add(std::string const& precision, int ranks, std::vector<cli::Cost> const& entry_costs,
           cli::RankTimes const& timed, StepPlan const& plan, std::optional<double> undisturbed) {
    bool const clocks_vary = !info_of(plan.recipe.device).on_cores;
    bool const on_disk = uses_files(plan.recipe.placement);
    Schedule const& schedule = plan.train.schedule;
    std::vector<cli::TimedStep const*> steps;
    for (cli::TimedStep const& step : timed.steps) steps.push_back(&step);
    std::sort(steps.begin(), steps.end(), [](cli::TimedStep const* one, cli::TimedStep const* other) {
      return one->whole.size() < other->whole.size();
    });
    cli::TimedStep const& chosen = *steps[clocks_vary ? steps.size() / 2 : 0];
    // each entry has one instance, since accumulation is 1
    std::vector<double> took(schedule.entries.size());
    for (cli::TimedInstance const& instance : chosen.instances)
      took[static_cast<std::size_t>(instance.entry)] = static_cast<double>(instance.ran.size()) * 1e-9;
    if (undisturbed) took = cli::fitted_to(*undisturbed, plan, took);
    std::vector<cli::Cost> const costs = cli::joined(schedule, entry_costs);
    std::vector<std::size_t> const leaders = cli::completed_by(schedule);
    for (std::size_t at = 0; at < took.size(); ++at)
      if (leaders[at] != at) took[leaders[at]] += took[at];
    std::map<Key, std::pair<double, double>> sums;  // the sum of the seconds, and the number of entries
    for (std::size_t at = 0; at < took.size(); ++at) {
      cli::Cost const& cost = costs[at];
      if (cost.operations == 0) continue;
      if (on_disk && !cost.is_move) continue;
      Key const key{precision,  ranks,          cost.what, cost.flops, cost.attention_flops,
                    cost.bytes, cost.operations};
      all_[key].first = cost;
      auto& [seconds, entries] = sums[key];
      seconds += took[at];
      ++entries;
    }
    for (auto const& [key, sum] : sums) all_[key].second.push_back(sum.first / sum.second);
  }

  /// Adds the bytes that all ranks of one training run read and wrote per second of a busy disk.
  void add_disk(double bytes_per_s) { disk_.push_back(bytes_per_s); }
  /// Returns the median over the training runs with state on disk, in 10^9 bytes per second; nullopt if there
  /// was none.
  std::optional<double> disk_gb_per_s() const {
    return disk_.empty() ? std::nullopt : std::optional(1e-9 * cli::median(disk_));
  }

  /// Adds one time for each kind of entry to `times`: the median over all runs.
  void give(cli::MachineTimes& times) const {
    for (auto const& [key, found] : all_)
      if (double const seconds = cli::median(found.second); seconds > 0)
        times.add({std::get<0>(key), std::get<1>(key), found.first, seconds});
  }

 private:
  using Key = std::tuple<std::string, int, std::string, double, double, double, double>;
  std::map<Key, std::pair<cli::Cost, std::vector<double>>> all_;
  std::vector<double> disk_;
};

/// Trains until the GPU's clocks have settled and the host's memory and threads are ready. Returns the
/// seconds of a step, the median over the later half of the steps. Steps that skipped the update do not
/// count; if all did, returns nullopt.
std::optional<double> warm_up(comm::Comm& comm, AnyTrainer& trainer, Batch const& batch) {
  constexpr double enough_s = 0.3, max_s = 1.0;
  constexpr int min_steps = 8;  // the first steps allocate memory and wake threads
  auto const start = Clock::now();
  std::vector<double> steps;
  TrainingLoop(trainer, comm,
               {.batch = [&](std::int64_t) { return batch; },
                .stop =
                    [&](std::int64_t step) {
                      double const elapsed = std::chrono::duration<double>(Clock::now() - start).count();
                      return comm.is_root() && step > 0 && elapsed >= (step < min_steps ? max_s : enough_s);
                    },
                .report =
                    [&](StepReport const& report) {
                      if (!report.skipped) steps.push_back(report.interval);
                    }})
      .run();
  if (steps.empty()) return std::nullopt;
  steps.erase(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2));
  return cli::median(steps);
}

void time_steps(comm::Comm& comm, cli::ModelChoice const& model, RecipeTable const& recipe,
                TrainerOptions const& options, Collected& collected) {
  bool const clocks_vary = !info_of(recipe.device).on_cores;
  auto const trainer = make_trainer(model.built, recipe, comm, options);
  Batch batch;
  batch.batch = options.batch;
  batch.sequence = options.sequence;
  batch.tokens = tokens_of(batch.elements(), model.sizes.vocabulary);
  batch.targets = batch.tokens;
  std::optional<double> undisturbed;
  if (clocks_vary && !uses_files(recipe.placement)) undisturbed = warm_up(comm, *trainer, batch);
  cli::RankTimes const times = cli::time_steps(
      *trainer, comm, {.batch = [&](std::int64_t) { return batch; }, .max_steps = 4, .enough_s = 0.2});
  // Every rank reads and writes its own file, so the rate of the disk is the sum over the ranks.
  double const own = cli::profile_of(times).bytes_per_second(Lane::disk).value_or(0.0);
  std::vector<double> disk(static_cast<std::size_t>(comm.world()));
  comm.transport().gather(0, &own, disk.data(), sizeof own, {"disk"});
  if (!comm.is_root()) return;
  if (double const all = std::accumulate(disk.begin(), disk.end(), 0.0); all > 0.0) collected.add_disk(all);
  auto const record = [&](Recorder& recorder, StepObserver const& observer) {
    trainer->record(recorder, observer);
  };
  collected.add(std::string(recipe.names.precision), comm.world(), cli::costs_of(record), times,
                trainer->plan(), undisturbed);
}

/// Trains a few steps of the training run `probe` and adds the times of their schedule entries to
/// `collected`. Does nothing if this build does not have the recipe, or if a built-in model does not fit into
/// memory.
void run(Probe const& probe, Measuring const& measuring, std::string_view precision, int ranks,
         Collected& collected) {
  RecipeTable const recipe = parse_recipe({.device = name_of(measuring.device),
                                           .sharding = probe.kind.sharding,
                                           .precision = precision,
                                           .offload = probe.kind.offload,
                                           .recompute = probe.kind.recompute});
  if (broken_rule(recipe) || unavailable_reason(recipe)) return;
  bool const own = probe.size.layers == 0;
  cli::ModelChoice const model =
      cli::with_sizes(own ? *measuring.model
                          : cli::model_choice("--model", "layers=" + std::to_string(probe.size.layers) + "," +
                                                             probe.size.model),
                      probe.size.sequence, own && measuring.model->named ? 0 : probe.size.vocabulary);
  TrainerOptions options;
  options.batch = static_cast<int>(probe.size.batch);
  options.sequence = static_cast<int>(probe.size.sequence);
  options.nvme_directory = measuring.nvme_path;
  try {
    run_ranks(recipe, ranks, [&](comm::Comm& comm) { time_steps(comm, model, recipe, options, collected); });
  } catch (Error const& error) {
    if (own || error.kind() != ErrorKind::out_of_memory) throw;
  }
}

std::string machine_text(Device device) {
  if (info_of(device).on_cores) {
    std::string const name = cli::value_in("/proc/cpuinfo", "model name", ':');
    return (name.empty() ? std::string("CPU") : name) + ", " + std::to_string(cli::core_count()) + " cores";
  }
  DeviceFacts const facts = device_facts(device);
  return facts.models.empty() ? std::string(name_of(device)) : facts.models.front();
}

/// Returns a text about the link between the devices of this host.
std::string link_text(Device device) {
  if (info_of(device).on_cores) return "the memory of this host";
  DeviceFacts const facts = device_facts(device);
  return "the links between the GPUs of this host, with NCCL " + facts.transport;
}

/// Times all training runs, again and again, until `measuring.seconds` have passed. Returns the times. Writes
/// to `skipped_text` a sentence that says how many of the runs were not timed, or how often each run was
/// timed. Adds a line with the speed of the disk if state on disk was timed.
cli::MachineTimes measured(Measuring const& measuring, std::string& skipped_text) {
  auto const start = Clock::now();
  cli::CollectiveTimes collectives;
  RecipeTable const first =
      parse_recipe({.device = name_of(measuring.device), .precision = measuring.precisions.front()});
  for (int const ranks : measuring.ranks) time_collectives(first, ranks, collectives);
  Collected collected;
  std::size_t done = 0;
  std::vector<Probe> const probes = probes_of(measuring);
  std::size_t const all = probes.size() * measuring.ranks.size() * measuring.precisions.size();
  auto const is_over = [&] {
    return cli::decided_by_first_process(
        done > 0 && std::chrono::duration<double>(Clock::now() - start).count() >= measuring.seconds);
  };
  while (!is_over())  // one round
    for (Probe const& probe : probes)
      for (int const ranks : measuring.ranks)
        for (std::string const& precision : measuring.precisions) {
          if (is_over()) break;
          run(probe, measuring, precision, ranks, collected);
          ++done;
        }
  cli::MachineTimes times(std::string(name_of(measuring.device)), machine_text(measuring.device));
  collected.give(times);
  if (!collectives.empty()) {
    collectives.source = times.source();
    collectives.link = link_text(measuring.device);
    times.set_collectives(std::move(collectives));
  }
  if (times.timings().empty() && cli::is_first_process())
    throw Error(ErrorKind::out_of_memory, "no model fits this machine, so nothing was measured");
  skipped_text = done < all
                     ? std::to_string(all - done) + " of " + std::to_string(all) +
                           " trainings were left out after " + cli::fixed(measuring.seconds, 0) +
                           " s; raise --measure-time to time them"
                     : "every training was timed " +
                           cli::fixed(static_cast<double>(done) / static_cast<double>(all), 1) + " times";
  if (auto const disk = collected.disk_gb_per_s()) skipped_text += "\n" + results::disk_text(*disk);
  return times;
}

/// Returns the numbers of ranks that are measured by default: 1, the default numbers of the program
/// `compare`, and on the CPU also one rank per core (at most 64).
std::vector<int> usual_ranks(Device device) {
  std::vector<int> ranks = default_ranks(device);
  ranks.push_back(1);
  if (info_of(device).on_cores) ranks.push_back(std::min(cli::core_count(), 64));
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

constexpr char measure_examples[] =
    "Examples:\n"
    "  info --measure machine.json\n"
    "  info --measure machine.json --model gpt2-xl --batch 8 --sequence 1024 --precisions bf16\n"
    "\n"
    "plan --machine FILE and compare --machine FILE predict steps from this file.\nRun nothing else on the "
    "machine meanwhile, because it would change the times.\n";

}  // namespace

int measure(int argc, char const* const* argv) {
  cli::CommandLine line("info", "Times the operations of steps on this machine, and writes them to a file.",
                        measure_examples);
  Measuring measuring;
  std::filesystem::path file;
  std::string model, device(name_of(measuring.device));
  line.path("--measure", "FILE", file, "the file to write");
  line.choice("--device", {std::string(Cpu::name), std::string(Cuda::name)}, device, "the device to time");
  line.list("--precisions,--precision", "NAME,...", cli::joined(measuring.precisions, ","),
            "the precisions to time", [&](std::string const& flag, cli::Names const& items) {
              cli::Names known;
              for (std::string_view const name : choice_names<slot::precision>()) known.emplace_back(name);
              measuring.precisions.clear();
              for (auto const& item : items) measuring.precisions.push_back(cli::choice(flag, item, known));
            });
  line.integer_list("--ranks,--gpus", measuring.ranks,
                    "time with this many ranks; default: 1, compare's number, and on a CPU one rank per core",
                    1, 64);
  line.text("--model", "NAME", model, "measure two layers of this model too, at its own sizes");
  line.integer("--batch", measuring.batch, "sequences in a micro-batch of that model", 1, 1 << 20);
  line.integer("--sequence", measuring.sequence, "tokens in a sequence of that model", 1, 1 << 20);
  line.path("--nvme-path", "FOLDER", measuring.nvme_path, "measure state on this folder's disk too");
  line.real("--measure-time", measuring.seconds, "seconds after which no further training starts",
            {.min = 0.0, .max = 86400.0});
  cli::LaunchFlags launch;
  cli::add_launch_flags(line, launch);
  if (!line.parse(argc, argv)) return 0;
  cli::join_launch(line, launch);
  measuring.device = device_named(device);
  if (model.empty())
    for (char const* flag : {"--batch", "--sequence"})
      if (line.given(flag)) cli::refuse(std::string(flag) + " needs a model; give --model");
  if (!model.empty()) measuring.model = cli::model_choice("--model", model);
  cli::ProgramFiles(line, {measuring.model ? measuring.model->folder : std::filesystem::path()}).check();
  if (cli::is_first_process()) check_writable(file);
  cli::check_nvme_path(measuring.nvme_path);
  need_device(measuring.device);
  for (std::string const& precision : measuring.precisions) {
    RecipeTable const recipe = parse_recipe({.device = name_of(measuring.device), .precision = precision});
    if (auto const rule = broken_rule(recipe))
      throw Error(ErrorKind::config, cli::in_flags(std::string(*rule)));
    if (auto const reason = unavailable_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
  }
  if (measuring.ranks.empty()) measuring.ranks = usual_ranks(measuring.device);
  if (!model.empty()) {
    if (auto const reason = cli::model_refusal(*measuring.model)) throw Error(ErrorKind::config, *reason);
    for (auto& [name, number] : measuring.model->sizes.numbers)
      if (name == "layers") number = std::min(number, 2.0);
    // throws if the sequence is longer than the model's positions
    (void)cli::with_sizes(*measuring.model, measuring.sequence, 0);
  }
  cli::NvmeFolder const folder(measuring.nvme_path, !measuring.nvme_path.empty());
  if (!measuring.nvme_path.empty()) measuring.nvme_path = folder.path();
  std::string skipped_text;
  cli::MachineTimes times = measured(measuring, skipped_text);
  if (!cli::is_first_process()) return 0;
  cli::Json const environment = cli::environment(device_facts(measuring.device));
  // NVML gives the memory of the GPUs; it is null without NVML.
  if (cli::Json const gpus = environment.value("gpus", cli::Json()); !gpus.empty())
    if (cli::Json const memory = gpus[0].value("memory_bytes", cli::Json()); memory.is_number())
      times.set_memory(memory.get<std::int64_t>());
  times.write(file, environment);
  std::cout << skipped_text << "\ntimed " << times.timings().size() << " kinds and sizes of work on "
            << times.machine() << "\n";
  if (std::size_t const sizes = times.collectives().points().size())
    std::cout << "timed " << sizes << " kinds and sizes of collectives between ranks\n";
  std::cout << "wrote " << files::path_text(file) << "\n";
  return 0;
}

}  // namespace info
}  // namespace programs
