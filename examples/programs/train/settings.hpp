// SPDX-License-Identifier: Apache-2.0
// Defines the command-line flags of the program `train`, and derives the settings of a training run from the
// flags.
#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/data/tokens.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/model_weights.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/options.hpp"

#include "cli/command_line.hpp"
#include "cli/launch.hpp"
#include "cli/outputs.hpp"
#include "cli/run_flags.hpp"
#include "cli/slot_flags.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "config/config_file.hpp"
#include "machine/nvme_folder.hpp"
#include "machine/product_plans.hpp"
#include "train/adapters.hpp"
#include "train/checkpointing.hpp"
#include "train/tracing.hpp"
#include "workload/batches.hpp"
#include "workload/data.hpp"
#include "workload/mesh.hpp"
#include "workload/models.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The values of the flags as they were given, before they are checked.
struct TrainFlags {
  TrainFlags() { slots.of<slot::device>() = name_of(default_device()); }

  std::string model = "tiny";
  int ranks = 1;
  std::int64_t batch = 8, sequence = 128, accumulation = 1, global_batch = 0;
  Mesh mesh;
  PerSlot<std::string> slots;       ///< one choice for each slot of the recipe; empty: the slot's default
  bool bf16 = false, fp16 = false;  ///< whether --bf16 or --fp16 was given
  DataFlags data;
  std::int64_t steps = 100, epochs = 0, samples = 0;
  TrainerOptions options;
  std::string freeze;  ///< the text of --freeze; `options` has the parsed pattern
  AdapterSettings adapters;
  std::filesystem::path validation, init, save, log, nvme_path, product_plans, tensorboard;
  double min_time = 0.0;
  std::int64_t validate_every = 0, print_every = 0;
  bool quiet = false, deepspeed_keys = false;
  LaunchFlags launch;
  ConfigFile file;
  CheckpointSettings checkpoints;
  TraceSettings trace;
};

inline void declare(CommandLine& line, TrainFlags& flags) {
  line.group("Model");
  line.text("--model", "NAME", flags.model,
            joined(model_names(/*runnable_only=*/true)) +
                ", a folder with a config.json, a file of llm.c, or " + model_forms());
  line.path("--init", "PATH", flags.init,
            "start from these weights: safetensors, an index of parts, or a folder; default: the weights of "
            "--model's folder, or random ones from --seed");
  line.path("--save", "PATH", flags.save,
            "write the weights here (fp32): FILE.safetensors, or a folder with its config.json and the files "
            "of --tokenizer; never a partial file");

  add_adapter_flags(line, flags.adapters, flags.options.lora);
  line.group("Size of a step (global batch = batch x ranks x accumulation)");
  line.integer("--ranks,--gpus", flags.ranks, "workers, each with its own memory", 1, 64);
  line.integer("--batch,--batch-size", flags.batch, "sequences in a micro-batch of one rank", 1, 1 << 30);
  line.integer("--sequence,--seq-length", flags.sequence, "tokens in a sequence", 1, 1 << 30);
  line.integer("--accumulation,--grad-accum", flags.accumulation, "micro-batches of one rank in a step", 1,
               max_accumulation);
  line.custom("--global-batch", "N", "", "sequences in a step over all ranks; sets batch or accumulation",
              [&](std::string const& flag, std::string const& value) {
                flags.global_batch = parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });

  line.custom(
      "--mesh", "replicate=R,shard=S", "replicate=1", "R rows of ranks; each row has a copy of all shards",
      [&](std::string const& flag, std::string const& value) { flags.mesh = read_mesh(flag, value); });
  line.group("Recipe");
  std::string const device = flags.slots.of<slot::device>();
  for_each_slot([&]<class Slot>(Slot) {
    std::string& value = flags.slots.template of<Slot>();
    line.custom(slot_flag<Slot>().one, joined(slot_choices<Slot>(), "|"),
                value.empty() ? slot_default<Slot>(device) : value, slot_flag<Slot>().help,
                [&value](std::string const& flag, std::string const& given) {
                  value = slot_choice<Slot>(flag, given);
                });
  });
  line.toggle("--bf16", flags.bf16, "the same as --precision bf16");
  line.toggle("--fp16", flags.fp16, "the same as --precision fp16");

  add_data_flags(line, flags.data);
  line.path("--validation", "PATH", flags.validation, "text or tokens whose loss is measured and logged");
  line.integer("--validate-every", flags.validate_every,
               "steps between validations; 0: after the last step only", 0, std::int64_t{1} << 40);

  line.group("Length");
  line.integer("--steps,--num-steps", flags.steps,
               "optimizer steps; 0: no training, only --save and --validation", 0, std::int64_t{1} << 40);
  line.custom(
      "--epochs", "N", "",
      "passes over the samples, instead of --steps; sequences that the last step of a pass lacks are masked",
      [&](std::string const& flag, std::string const& value) {
        flags.epochs = parse_integer(flag, value, 1, 1 << 30);
      });
  line.custom("--samples", "N", "",
              "use only the first N samples of the data; without --steps and --epochs: for one epoch",
              [&](std::string const& flag, std::string const& value) {
                flags.samples = parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });

  line.real("--min-time", flags.min_time,
            "continue after --steps until this many seconds are timed; default on GPUs: 3, if the run has no "
            "given length, falling schedule or --validation and saves nothing",
            at_least(0.0));

  add_checkpoint_flags(line, flags.checkpoints);
  add_optimizer_flags(line, flags.options);
  add_freeze_flag(line, flags.freeze, flags.options);
  add_machine_flags(line, flags.options);
  add_nvme_path_flag(line, flags.nvme_path);
  add_product_plans_flag(line, flags.product_plans);

  line.group("Reports");
  line.path("--log", "FILE", flags.log, "one JSON object per line: the settings, then every step");
  line.path("--tensorboard", "FOLDER", flags.tensorboard, "write event files for TensorBoard here");
  line.integer("--print-every", flags.print_every,
               "steps between two printed lines; 0: the first ten steps, then about a hundred lines in all",
               0, std::int64_t{1} << 40);
  add_trace_flags(line, flags.trace);
  line.toggle("-q,--quiet", flags.quiet, "print errors only");
  add_launch_flags(line, flags.launch);
  add_config_flags(line, flags.file);
  add_row_flags(line, flags.file);
  line.toggle("--deepspeed-keys", flags.deepspeed_keys,
              "print the effect of every key of a DeepSpeed configuration");
}

/// The settings of a training run. The flags were checked. Settings whose flags were not given have derived
/// values.
struct Settings {
  ModelChoice model;
  RecipeTable recipe;
  BatchRelation relation;
  TrainerOptions options;
  std::string freeze;  ///< the text of --freeze; `options` has the parsed pattern
  AdapterSettings adapters;
  DataFlags data;
  /// the training data; nullopt if nothing is trained and --data is not given
  std::optional<TokenSource> source;
  std::optional<TokenSource> validation;
  std::int64_t steps = 0;
  std::int64_t samples = 0;  ///< how many samples to use, from the start of the data; 0: all
  std::int64_t epochs = 0;   ///< 0: the length is given in steps
  double min_time = 0.0;     ///< steps are added until the timed steps have taken this many seconds
  std::int64_t validate_every = 0, print_every = 0;
  std::filesystem::path init, save, log, tensorboard;
  /// the folder for training state that is offloaded to a disk; empty: a temporary folder, if the recipe
  /// offloads to a disk
  std::filesystem::path nvme_path;
  std::filesystem::path product_plans;
  std::shared_ptr<ProductPlans> plans;  ///< null: the library chooses the algorithms of products
  std::string save_config;              ///< the config.json for --save FOLDER; empty if --save names a file
  std::vector<text::TokenizerFile> save_tokenizer;  ///< copied to --save FOLDER
  CheckpointSettings checkpoints;
  TraceSettings trace;
  std::string data_text;                ///< a description of the data
  std::string length_from;              ///< the flag that gives the training length
  std::optional<RepeatedRow> repeated;  ///< the row that --from names
  bool quiet = false;

  /// Returns the function that lists the model's units (the embedding, each block, the head), with their
  /// adapters and frozen parameters.
  UnitLister lister() const { return trained_units(model.built.units(), recipe, options); }
  std::vector<UnitSpec> units() const { return lister()({1, 1}); }
  LoaderOptions loader(int rank, Order order) const {
    return {.batch = static_cast<int>(options.batch),
            .sequence = static_cast<int>(options.sequence),
            .accumulation = options.accumulation,
            .rank = rank,
            .world = static_cast<int>(relation.ranks),
            .order = order,
            .seed = options.seed};
  }
  LoaderOptions training_loader(int rank) const {
    LoaderOptions loads = loader(rank, data.order);
    loads.samples = samples;
    loads.whole_epochs = epochs > 0;
    return loads;
  }
  /// Returns the options of a loader that reads every sample of the validation data once, in order.
  LoaderOptions validation_loader(int rank) const {
    LoaderOptions loads = loader(rank, Order::sequential);
    loads.whole_epochs = true;
    return loads;
  }
  DataIdentity data_identity() const {
    return {.tokens = source ? source->size() : 0,
            .sequence = options.sequence,
            .samples = source ? samples_of(*source, options.sequence, samples) : 0,
            .samples_are = name_of(data.samples_are),
            .order = tessera::name_of(data.order),
            .seed = options.seed,
            .whole_epochs_of = epochs > 0 ? relation.global() : 0};
  }
  /// Returns how many samples the run has read after `step` steps.
  std::int64_t samples_after(std::int64_t step) const {
    if (epochs == 0) return (step + checkpoints.data_shift) * relation.global();
    std::int64_t const in_epoch = samples_of(*source, options.sequence, samples);
    std::int64_t const steps_in_epoch = steps_of_epoch(in_epoch, relation.global());
    return step / steps_in_epoch * in_epoch + step % steps_in_epoch * relation.global();
  }
};

inline RecipeTable recipe_of(TrainFlags const& flags) {
  SlotNames names;
  for_each_slot([&]<class Slot>(Slot) { names.*Slot::field = flags.slots.template of<Slot>(); });
  if (flags.bf16 || flags.fp16) names.precision = flags.bf16 ? "bf16" : "fp16";
  if (names.adapters.empty() && (flags.options.lora || !flags.adapters.from.empty())) names.adapters = "lora";
  RecipeTable const recipe = parse_recipe(names);
  if (auto const rule = broken_rule(recipe)) throw Error(ErrorKind::config, in_flags(std::string(*rule)));
  if (auto const reason = unavailable_reason(recipe)) throw Error(ErrorKind::unsupported, *reason);
  return recipe;
}

/// Throws if an output would overwrite an input or another output, or if the path of an output file is "-".
inline void check_outputs(CommandLine const& line, Settings const& settings) {
  for (auto const& [flag, path] : {std::pair("--log", settings.log), std::pair("--save", settings.save),
                                   std::pair("--trace", settings.trace.file)})
    if (path == "-")
      refuse(std::string(flag) + " '-' is not the name of a file; give " + flag +
             " /dev/stdout with --quiet, or the name of a file");
  std::error_code code;
  if (!settings.tensorboard.empty() && std::filesystem::exists(settings.tensorboard, code) &&
      !std::filesystem::is_directory(settings.tensorboard, code))
    refuse("--tensorboard " + files::path_text(settings.tensorboard) +
           " is a file; give a folder, which is created if it does not exist");
  ProgramFiles const files(line, {settings.model.folder});
  files.check();
  if (!is_model_folder(settings.save)) return;
  files.check({{"--save", settings.save / ModelFolderWriter::weights_name},
               {"--save", settings.save / ModelFolderWriter::config_name}});
}

/// Throws if the disk does not have enough free space for all outputs of the run. Training state that is
/// offloaded to the disk counts too, because it exists until the weights are saved.
inline void check_free_space_for(Settings const& settings) {
  constexpr std::int64_t line_bytes = 150, max_steps = std::int64_t{1} << 50;
  std::vector<PlannedFile> files;
  TrainerOptions const& options = settings.options;
  if (uses_files(settings.recipe.placement)) {
    int const ranks = static_cast<int>(settings.relation.ranks);
    StepShape const shape = step_shape(settings.recipe, options, 0, ranks, cli::ranks_on_host());
    std::int64_t const state = footprint(settings.lister(), settings.recipe, shape).nvme;
    // If only the state is too large for the disk, this function does not throw. The planning of memory
    // throws later, with a message that says what would fit.
    if (state <= host_memory::free_bytes(options.nvme_directory))
      files.push_back({.path = std::filesystem::path(options.nvme_directory) / "tessera-scratch",
                       .bytes = state,
                       .named = options.nvme_directory});
  }
  if (!settings.save.empty())
    files.push_back({.path = settings.save_config.empty() ? settings.save : weights_file_in(settings.save),
                     .bytes = 4 * settings.model.built.parameters(),
                     .named = settings.save});
  if (!settings.log.empty())
    files.push_back({settings.log, line_bytes * std::min(settings.steps, max_steps), true});
  check_free_space(files);
}

/// Throws if the folder of --save cannot be written, or if models of this family cannot be saved as a folder.
inline void check_folder_to_save(Settings const& settings) {
  if (settings.model.family->hub.model_type.empty())
    throw Error(ErrorKind::unsupported,
                "--save '" + files::path_text(settings.save) + "' is a folder, and " +
                    settings.model.family->title +
                    " models have no config.json; give a name that ends in .safetensors");
  ModelFolderWriter::check(settings.save);
}

/// Returns the files of the tokenizer that are copied to the folder of --save. Throws if a copy would
/// overwrite an input or another output, or if the folder holds files of another tokenizer.
inline std::vector<text::TokenizerFile> tokenizer_to_save(CommandLine const& line, Settings const& settings,
                                                          text::Tokenizer const& tokenizer) {
  std::error_code code;
  std::vector<text::TokenizerFile> copied;
  std::vector<NamedPath> outputs;
  for (text::TokenizerFile const& file : tokenizer.files()) {
    std::filesystem::path const copy = settings.save / file.name;
    if (std::filesystem::equivalent(file.path.parent_path(), settings.save, code)) return {};
    if (std::filesystem::equivalent(file.path, copy, code)) continue;
    copied.push_back(file);
    outputs.emplace_back("--save", copy);
    if (is_first_process() && std::filesystem::exists(copy, code)) check_writable(copy);
  }
  ProgramFiles(line, {settings.model.folder}).check(outputs);
  Names others;
  for (std::filesystem::directory_iterator entry(settings.save, code), end; !code && entry != end;
       entry.increment(code))
    if (std::string const name = entry->path().filename();
        is_tokenizer_file(name) &&
        std::ranges::find(tokenizer.files(), name, &text::TokenizerFile::name) == tokenizer.files().end())
      others.push_back(name);
  std::ranges::sort(others);
  if (!others.empty())
    throw Error(ErrorKind::failed, "--save '" + files::path_text(settings.save) +
                                       "' holds files of another tokenizer than --tokenizer '" +
                                       files::path_text(settings.data.tokenizer) +
                                       "': " + files::path_text(joined(others)) + "; give another folder");
  return copied;
}

/// Sets the number of steps over which the learning-rate schedule decays, if no flag gives the number. Throws
/// if a decaying schedule has no step left after its warm-up.
inline void check_schedule(Settings& settings) {
  TrainerOptions& options = settings.options;
  if (options.total_steps == 0) options.total_steps = settings.steps;
  if (has_end(options.schedule) && options.total_steps == 0) options.total_steps = 1;  // nothing is trained
  if (!needs_end(options.schedule) || options.total_steps > options.warmup_steps) return;
  std::string const schedule = std::string("--schedule ") + name_of(options.schedule);
  if (settings.steps > 0)
    throw Error(ErrorKind::config,
                schedule + " begins after the warm-up, but --warmup-steps " +
                    std::to_string(options.warmup_steps) + " leaves none of the run's " +
                    std::to_string(options.total_steps) +
                    " steps; lower --warmup-steps, raise --steps, or give --schedule constant");
  options.total_steps = options.warmup_steps + 1;  // nothing is trained, so no rate is used
}

/// Sets the minimum time of the timed steps. On GPUs the default is 3 s, because measuring power and
/// utilisation needs seconds. In three cases the default is 0: the user gives the length, the schedule has an
/// end, or the run saves or validates weights. The weights must not depend on the speed. Throws if --min-time
/// is given although the number of steps must be fixed.
inline void resolve_min_time(CommandLine const& line, TrainFlags const& flags, Settings& settings) {
  constexpr double seconds_on_gpus = 3.0;
  TrainerOptions const& options = settings.options;
  bool const falls = needs_end(options.schedule);
  bool const length_given = line.given("--steps") || settings.epochs > 0;
  bool const leaves = !settings.save.empty() || !settings.adapters.save.empty() ||
                      !settings.checkpoints.folder.empty() || settings.validation;
  settings.min_time = flags.min_time;
  if (!line.given("--min-time") && !info_of(settings.recipe.device).on_cores && !falls && !length_given &&
      !leaves)
    settings.min_time = seconds_on_gpus;
  if (settings.min_time == 0.0) return;
  if (settings.epochs > 0)
    refuse(
        "--min-time continues after the last epoch; give --steps instead of --epochs, or leave --min-time "
        "out");
  if (settings.steps == 0) refuse("--min-time times steps, and --steps 0 trains nothing; leave it out");
  if (falls)
    refuse(std::string("--min-time continues after --steps, when --schedule ") + name_of(options.schedule) +
           " has ended; give --steps without --min-time, or --schedule constant");
  if (!settings.checkpoints.folder.empty())
    refuse(
        "--min-time continues after --steps, but a run with --checkpoint ends after --steps; leave one out");
}

/// Checks the flags and returns the settings of the run. Finds every mistake that can be known before the
/// first step. The free space on disks is checked later, because state files can reduce it. Throws Error.
inline Settings resolve(CommandLine const& line, TrainFlags const& flags) {
  Settings settings;
  settings.options = flags.options;
  settings.freeze = flags.freeze;
  settings.adapters = flags.adapters;
  settings.data = flags.data;
  settings.init = flags.init;
  settings.save = flags.save;
  settings.log = flags.log;
  settings.nvme_path = flags.nvme_path;
  check_nvme_path(settings.nvme_path);
  settings.validate_every = flags.validate_every;
  settings.checkpoints = flags.checkpoints;
  settings.print_every = flags.print_every;
  settings.tensorboard = flags.tensorboard;
  settings.trace = flags.trace;
  settings.quiet = flags.quiet;
  settings.repeated = flags.file.repeated;

  check_row_flags(line, flags.file);
  check_loss_scale(line, flags.options.loss_scale);
  check_data_flags(line, flags.data);
  auto const if_given = [&](char const* flag, std::int64_t value) {
    return line.given(flag) ? std::optional(value) : std::nullopt;
  };
  if (line.given("--steps") && (flags.epochs > 0))
    refuse("--steps " + std::to_string(flags.steps) + " and --epochs " + std::to_string(flags.epochs) +
           " both say how long to train; give one of them");
  if (flags.validate_every > 0 && flags.validation.empty())
    refuse("--validate-every " + std::to_string(flags.validate_every) +
           " needs data; give --validation PATH");
  if ((line.on_line("--precision") != nullptr) + flags.bf16 + flags.fp16 > 1)
    refuse("--precision, --bf16 and --fp16 all say in which format products are computed; give one of them");
  settings.recipe = recipe_of(flags);
  settings.product_plans = flags.product_plans;
  check_product_plans(settings.product_plans, settings.recipe.device);
  check_adapter_flags(settings.adapters, settings.options.lora, settings.recipe, settings.save, line);
  settings.model = model_choice("--model", flags.model);
  if (auto const reason = model_refusal(settings.model)) throw Error(ErrorKind::unsupported, *reason);
  settings.relation = batch_relation(
      if_given("--global-batch", flags.global_batch), flags.ranks, if_given("--batch", flags.batch),
      if_given("--accumulation", flags.accumulation), flags.batch, BatchNames::of(line));
  settings.options.batch = settings.relation.batch;
  settings.options.accumulation = static_cast<int>(settings.relation.accumulation);
  settings.options.sequence = flags.sequence;
  settings.options.replicas = flags.mesh.replicas;
  check_mesh(flags.mesh, settings.relation.ranks);
  bool const trains = !(line.given("--steps") && flags.steps == 0);
  check_outputs(line, settings);
  resolve_checkpoints(line, settings.checkpoints);
  settings.options.checkpoints = settings.checkpoints.memory();
  bool const saves_folder = is_model_folder(settings.save);
  bool const writes = is_first_process();
  if (saves_folder)
    check_folder_to_save(settings);
  else if (writes && !settings.save.empty())
    check_writable(settings.save);
  if (writes && !settings.log.empty()) {
    std::error_code ignored;  // if a settings file names the log, its folder is created
    if (line.on_line("--log") == nullptr && settings.log.has_parent_path())
      std::filesystem::create_directories(settings.log.parent_path(), ignored);
    check_writable(settings.log);
  }
  if (writes && !settings.trace.file.empty()) check_writable(settings.trace.file);

  std::int64_t text_vocabulary = 256;
  std::int64_t vocabulary = flags.data.vocabulary;
  if (vocabulary == 0 && settings.model.named) vocabulary = settings.model.sizes.vocabulary;
  auto const tokenizer = open_tokenizer(flags.data);
  auto const open = [&](Names const& paths, std::int64_t known) {
    return open_data(paths, flags.data, known, tokenizer, flags.options.threads);
  };
  if (tokenizer) text_vocabulary = tokenizer->vocabulary();
  if (trains || !flags.data.paths.empty()) {
    settings.source = open(flags.data.paths, vocabulary);
    text_vocabulary = settings.source->vocabulary();
  }
  settings.model = with_sizes(settings.model, flags.sequence, flags.data.vocabulary, text_vocabulary);
  if (!settings.model.family->hub.model_type.empty())
    settings.checkpoints.config = hub_config_text(
        settings.model.config,
        settings.model.family->hub_entries(settings.model.sizes, !settings.model.config.empty()));
  if (saves_folder) settings.save_config = settings.checkpoints.config;
  if (saves_folder && tokenizer) settings.save_tokenizer = tokenizer_to_save(line, settings, *tokenizer);
  if (settings.init.empty() && holds_weights(settings.model.folder)) settings.init = settings.model.folder;
  check_magnitude(settings.model, settings.options.batch, settings.options.sequence);
  check_micro_batch(settings.options.batch, settings.options.sequence);
  open_adapter(settings.adapters, settings.options.lora, settings.model.built.units({1, 1}), trains);
  check_trained(settings.model.built.units(), settings.recipe, settings.options, settings.freeze);
  if (!flags.validation.empty())
    settings.validation = open({flags.validation.string()}, settings.model.sizes.vocabulary);

  if (settings.source) {
    settings.data_text = settings.source->description();
    settings.samples = flags.samples;
    Loader::check(*settings.source, settings.training_loader(0));
  }
  if (settings.validation) Loader::check(*settings.validation, settings.validation_loader(0));
  settings.steps = flags.steps;
  settings.length_from = line.origin("--steps");
  if (!line.given("--steps") && (flags.epochs > 0 || flags.samples > 0)) {
    std::int64_t const samples = samples_of(*settings.source, flags.sequence, flags.samples);
    settings.epochs = std::max<std::int64_t>(1, flags.epochs);
    settings.steps = settings.epochs * steps_of_epoch(samples, settings.relation.global());
    settings.length_from = std::to_string(settings.epochs) +
                           (settings.epochs == 1 ? " epoch of " : " epochs of ") + grouped(samples) +
                           " samples";
  }
  resolve_min_time(line, flags, settings);
  check_schedule(settings);
  continue_data(settings.checkpoints, settings.data_identity(), settings.relation.global(), settings.steps);
  check_trace(line, settings.trace, settings.steps - settings.checkpoints.first_step(),
              settings.min_time > 0.0, settings.quiet && settings.log.empty());
  if (settings.checkpoints.from) (void)end_of_log(settings.log, settings.checkpoints.from->step);
  check_free_space_for_checkpoints(settings.checkpoints, parameter_count(settings.units()),
                                   trainable_count(settings.units()), settings.steps);
  return settings;
}

/// Returns the values that the program derived for flags that were not given. The value "" means that the
/// flag must not be printed, because the program would refuse the flag together with the other printed flags.
inline std::map<std::string, std::string> derived_flags(Settings const& settings) {
  std::map<std::string, std::string> flags;
  for_each_slot([&]<class Slot>(Slot) {
    std::string const names = slot_flag<Slot>().one;
    flags[names.substr(0, names.find(','))] = settings.recipe.names.*Slot::field;
  });
  flags["--batch"] = std::to_string(settings.relation.batch);
  flags["--accumulation"] = std::to_string(settings.relation.accumulation);
  if (settings.min_time > 0.0) flags["--min-time"] = shortest(settings.min_time);
  flags["--steps"] = settings.epochs > 0 ? "" : std::to_string(settings.steps);
  if (!reads_fields(settings.data)) flags["--field"] = "";
  if (settings.checkpoints.folder.empty()) flags["--checkpoint-every"] = flags["--keep"] = "";
  if (!settings.trace.requested()) flags["--trace-steps"] = "";
  return flags;
}

/// Returns a box with every setting and its source, such as a flag or a default.
inline Box box_of(Settings const& settings, CommandLine const& line) {
  Box box("train");
  auto const origin = [&](char const* flag) { return line.origin(flag); };
  RecipeTable const& recipe = settings.recipe;
  TrainerOptions const& options = settings.options;
  box.add("model", settings.model.name + ", " + grouped(parameter_count(settings.units())) + " parameters",
          origin("--model"));
  std::int64_t const trained = trainable_count(settings.units());
  if (!settings.freeze.empty())
    box.add("frozen",
            settings.freeze + ": " + grouped(parameter_count(settings.units()) - trained) + " parameters, " +
                grouped(trained) + " are trained",
            "flag");
  if (settings.recipe.adapters == AdapterKind::lora)
    box.add("adapters", settings.adapters.text() + ": " + grouped(trained) + " parameters", "flag");
  box.add("vocabulary", grouped(settings.model.sizes.vocabulary),
          line.given("--vocabulary") ? "flag"
          : settings.model.named     ? "model"
                                     : "data");
  box.add("weights",
          settings.checkpoints.from ? files::path_text(settings.checkpoints.from->folder)
          : !settings.init.empty()
              ? files::path_text(settings.init)
              : "seed " + std::to_string(options.seed) +
                    (settings.model.hub.empty() ? "" : ", random: nothing was downloaded"),
          origin(settings.checkpoints.from ? "--resume"
                 : settings.init.empty()   ? "--seed"
                 : line.given("--init")    ? "--init"
                                           : "--model"));
  if (!settings.model.not_applied.empty()) box.add("not applied", settings.model.not_applied, "config.json");
  if (settings.source) box.add("data", settings.data_text, origin("--data"));
  if (settings.source)
    box.add("samples", samples_text(*settings.source, settings.data, options.sequence, settings.samples),
            origin(line.given("--samples") ? "--samples" : "--samples-are"));
  if (settings.source) box.add("order", tessera::name_of(settings.data.order), origin("--order"));
  if (settings.validation) box.add("validation", settings.validation->description(), "flag");
  box.add("global batch", settings.relation.text(),
          line.given("--global-batch") ? origin("--global-batch") : "derived");
  box.add("sequence", std::to_string(options.sequence), origin("--sequence"));
  box.add("steps", grouped(settings.steps), settings.length_from);
  if (settings.min_time > 0.0)
    box.add("least time", shortest(settings.min_time) + " s", origin("--min-time"));
  if (CheckpointSettings const& saved = settings.checkpoints; !saved.folder.empty())
    box.add("checkpoints",
            files::path_text(saved.folder) +
                (saved.every > 0 ? ", every " + grouped(saved.every) + " steps" : "") +
                (saved.keep > 0 ? ", the newest " + std::to_string(saved.keep) : ""),
            "flag");
  box.add("sharding", std::string(recipe.names.sharding), origin("--stage"));
  char const* const precision_flag = line.given("--bf16")   ? "--bf16"
                                     : line.given("--fp16") ? "--fp16"
                                                            : "--precision";
  box.add("precision", std::string(recipe.names.precision), origin(precision_flag));
  box.add("offload", std::string(recipe.names.offload), origin("--offload"));
  if (!options.nvme_directory.empty())
    box.add("nvme path", files::path_text(options.nvme_directory), origin("--nvme-path"));
  if (settings.plans)
    box.add("product plans", files::path_text(settings.product_plans), origin("--product-plans"));
  box.add("recompute", std::string(recipe.names.recompute), origin("--recompute"));
  box.add("reduction", std::string(recipe.names.reduction), origin("--reduction"));
  box.add("learning rate",
          shortest(options.learning_rate) + " " + name_of(options.schedule) +
              (options.warmup_steps > 0 ? ", warm-up " + std::to_string(options.warmup_steps) : ""),
          origin("--learning-rate"));
  box.add("weight decay", shortest(options.weight_decay), origin("--weight-decay"));
  box.add("clip", options.clip > 0.0 ? shortest(options.clip) : "none", origin("--clip"));
  return box;
}

}  // namespace cli
}  // namespace programs
