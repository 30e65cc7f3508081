// SPDX-License-Identifier: Apache-2.0
// Runs one training: the ranks, their steps, validation, the log, the progress bar and the final weights.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/comm/run.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/io/model_weights.hpp"
#include "tessera/io/step_log.hpp"
#include "tessera/loop/training_loop.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/program.hpp"
#include "cli/terminal.hpp"
#include "machine/machine.hpp"
#include "trace/tensorboard.hpp"
#include "train/rates.hpp"
#include "train/row_comparison.hpp"
#include "train/run_json.hpp"
#include "train/settings.hpp"
#include "train/shared_end.hpp"
#include "train/step_lines.hpp"
#include "train/tracing.hpp"
#include "workload/weights.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// One training run. Its ranks are threads of this process; under a launcher, this process is one rank.
/// Threads share constant data, and data behind a mutex or an atomic. Comments mark code for rank 0 only.
class Training {
 public:
  Training(Settings const& settings, std::string command)
      : settings_(settings),
        command_(std::move(command)),
        units_(settings.model.built.units({1, 1})),
        times_(static_cast<std::size_t>(settings.relation.ranks)),
        terminal_(Terminal::of(STDOUT_FILENO)),
        bar_(std::cout, settings.quiet ? Terminal{} : terminal_),
        lines_({.first = settings.checkpoints.first_step(),
                .last = settings.steps,
                .every = settings.print_every,
                .bar = bar_.interactive(),
                .extended = settings.min_time > 0.0}),
        checkpoints_(settings.checkpoints.folder, settings.checkpoints.keep),
        done_(settings.checkpoints.first_step()),
        logged_(done_) {
    if (!settings.init.empty() && !settings.checkpoints.from)
      init_ = ModelWeights::open(settings.init, units_, settings.model.family->weights).source();
    if ((init_ || settings.adapters.weights) && !settings.checkpoints.from)
      init_ = source_with_adapters(settings.units(), init_, settings.adapters.weights, settings.options.seed);
  }

  /// Trains the model and saves the results. Returns the exit code of the program.
  int run() {
    std::optional<Interrupt> interrupt;
    unsigned const grace = settings_.checkpoints.grace;
    if (grace > 0)
      interrupt.emplace(grace,
                        "error: interrupted, and --grace-period ended before the run did; the newest "
                        "checkpoint, if there is one, is complete\n");
    else
      interrupt.emplace(saves() ? 0 : seconds_to_end);
    if (checkpoints() && is_first_process()) {
      checkpoints_.lock();
      if (checkpoints_.newest().value_or(0) != settings_.checkpoints.first_step())
        throw Error(ErrorKind::failed,
                    files::path_text(settings_.checkpoints.folder) +
                        ": another run has saved there since this one checked; start again");
    }
    int const ranks = static_cast<int>(settings_.relation.ranks);
    figures_.prepare(settings_.recipe, ranks);
    run_ranks(settings_.recipe, ranks, [this](comm::Comm& comm) { train(comm); }, {.stuck = &exit_stuck});
    if (data_error_ && !is_first_process()) return tessera::exit_code(data_error_->kind());
    if (data_error_)
      throw Error(data_error_->kind(),
                  data_error_->what() + (!saves()     ? std::string()
                                         : done_ == 0 ? "; nothing was saved"
                                         : checkpoints() && settings_.save.empty()
                                             ? "; all state after step " + std::to_string(done_) + " is in " +
                                                   files::path_text(checkpoints_.path(done_))
                                             : "; the weights after step " + std::to_string(done_) +
                                                   " are in " + files::path_text(settings_.save)),
                  data_error_->rank());
    int code = !interrupted() ? 0 : unread_ ? 128 + SIGPIPE : Interrupt::exit_code();
    if (events_cut_) {
      print_error(files::path_text(settings_.tensorboard) +
                  ": the event file is incomplete; the training and its weights are not affected");
      if (code == 0) code = tessera::exit_code(ErrorKind::failed);
    }
    if (trace_lost_) {
      print_error(files::path_text(settings_.trace.file) +
                  ": the trace was not written; the training and its weights are not affected");
      if (code == 0) code = tessera::exit_code(ErrorKind::failed);
    }
    if (!log_cut_) return code;
    print_error(files::path_text(settings_.log) + ": the log is incomplete, it ends after step " +
                std::to_string(logged_) + " of " + std::to_string(done_) +
                "; the training and its weights are not affected");
    return code == 0 ? tessera::exit_code(ErrorKind::failed) : code;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr unsigned seconds_to_end = 10;

  bool checkpoints() const { return !settings_.checkpoints.folder.empty(); }
  bool saves() const { return checkpoints() || !settings_.save.empty() || !settings_.adapters.save.empty(); }
  /// Returns whether standard output is the run's only output and its reader (such as `head`) has exited.
  bool unread() const {
    return !std::cout && !saves() && settings_.log.empty() && settings_.tensorboard.empty() &&
           settings_.trace.file.empty() && reader_is_gone();
  }

  // ---- on every rank ------------------------------------------------------------------------------------

  void train(comm::Comm const& comm) {
    bool const root = comm.is_root();
    auto const trainer = make_trainer(settings_.model.built, settings_.recipe, comm, settings_.options);
    if (init_) {
      trainer->fill(init_);
      // The last rank releases the file of weights: its memory-mapped pages would count as memory of this
      // process.
      if (filled_.fetch_add(1) + 1 == ranks_here(static_cast<int>(settings_.relation.ranks))) init_ = nullptr;
    }
    if (settings_.checkpoints.from) resume(*trainer, settings_.checkpoints.from->folder);
    if (root) begin(*trainer);
    std::optional<Loader> loader, validation;
    if (settings_.source) loader.emplace(*settings_.source, settings_.training_loader(comm.rank()));
    if (settings_.validation)
      validation.emplace(*settings_.validation, settings_.validation_loader(comm.rank()));
    agree_on_data(comm, settings_.source, settings_.validation);
    if (root && settings_.epochs > 0)
      epoch_.emplace(loader->samples(), loader->global_batch(), settings_.options.sequence,
                     settings_.checkpoints.first_step(), settings_.checkpoints.epoch());

    std::int64_t const first = settings_.checkpoints.first_step(), every = settings_.checkpoints.every;
    // With --min-time, the run adds steps until its timed steps took that time; `last` is then never true.
    bool const beyond = settings_.min_time > 0.0 && settings_.steps > 0;
    TracedSteps traced(settings_.trace, first, *trainer, comm.rank());
    std::int64_t validated = -1, saved = first;
    AsyncCheckpoint async_checkpoint;
    auto const last = [&](std::int64_t done) { return done == settings_.steps && !beyond; };
    // Returns whether the run has all its steps. With --min-time only rank 0 knows the measured time.
    auto const complete = [&](std::int64_t done) {
      return done >= settings_.steps && (!beyond || figures_.rates.seconds() >= settings_.min_time);
    };
    TrainingLoop loop(
        *trainer, comm,
        {.first_step = first,
         .steps = beyond ? std::numeric_limits<std::int64_t>::max() : settings_.steps,
         .batch = [&](std::int64_t step) { return loader->load(step + settings_.checkpoints.data_shift); },
         .stop =
             [&](std::int64_t step) {
               return async_checkpoint.failed() ||
                      (step > 0 && (Interrupt::caught() || (root && wants_end()))) ||
                      (root && beyond && complete(step));
             },
         .report =
             [&](StepReport const& report) {
               if (!root) return;
               record(report);
               if (!saving_.empty() && !async_checkpoint.busy() && !async_checkpoint.failed()) say_saved();
             },
         .tasks = {{.due = [&](std::int64_t done) { return beyond && done == settings_.steps; }},
                   {.due =
                        [&](std::int64_t done) {
                          return validation && settings_.validate_every > 0 &&
                                 done % settings_.validate_every == 0 && !last(done);
                        },
                    .run =
                        [&](std::int64_t done) { validate(*trainer, *validation, comm, validated = done); }},
                   {.due =
                        [&](std::int64_t done) {
                          return checkpoints() && every > 0 && done % every == 0 && !last(done);
                        },
                    .run =
                        [&](std::int64_t done) {
                          checkpoint(*trainer, saved = done, root,
                                     settings_.checkpoints.async ? &async_checkpoint : nullptr);
                        }}},
         .isolated = {.due = [&](std::int64_t step) { return traced.times(step); },
                      .begin =
                          [&](std::int64_t step) {
                            if (root) figures_.pause();
                            traced.begin(step);
                          },
                      .end =
                          [&](std::int64_t step, StepReport const& report) {
                            if (traced.end(step, report.seconds)) collect_times(traced.take(), comm);
                          }}});
    std::int64_t const step = without_save([&] { return loop.run(); });
    if (loop.data_error()) note(*loop.data_error());
    if (auto const other = shared_end(comm, data_error_)) note(*other);
    // All ranks synchronise in this vote, so afterwards rank 0 sees the errors that other ranks stored.
    bool const complete_end = !loop.stopped() || comm::unanimous(comm, !root || complete(step));
    if (root) figures_.end();
    if (settings_.repeated) peak_bytes_ = largest_on_ranks(comm, trainer->peak_bytes(Tier::device));
    if (validation && complete_end && validated != step)
      without_save([&] { validate(*trainer, *validation, comm, step); });
    if (traced.wants(step)) collect_times(traced.take(), comm);
    if (settings_.checkpoints.grace == 0) Interrupt::cancel_countdown();
    async_checkpoint.wait();
    if (root && !saving_.empty()) say_saved();
    if (checkpoints() && step > saved) checkpoint(*trainer, step, root);
    if (step > 0 || settings_.steps == 0) finish(*trainer, root);
  }

  /// Collects the traced times of all ranks, which call it together. Rank 0 writes the trace.
  void collect_times(RankTimes times, comm::Comm const& comm) {
    gather_times(std::move(times), comm, times_);
    if (!comm.is_root()) return;
    figures_.pause();
    TraceSettings const& trace = settings_.trace;
    bar_.clear();
    bool const any = !times_.front().steps.empty();
    if (any && !write_requested(trace, times_)) trace_lost_ = true;
    say((trace.file.empty() ? "profiled " : "traced ") + steps_text(times_.front()) +
        (any && !trace.file.empty() && !trace_lost_ ? " | " + files::path_text(trace.file) : ""));
    if (any && trace.profile) to_log([&](JsonlLog& log) { log.note({{"profile", profile_json(times_)}}); });
  }

  /// Saves a checkpoint after `step`, whose line is in the log already. With `async`, a thread writes the
  /// checkpoint during the next steps.
  void checkpoint(AnyTrainer& trainer, std::int64_t step, bool root, AsyncCheckpoint* async = nullptr) {
    if (async) async->wait();
    if (root && !saving_.empty()) say_saved();
    auto const start = Clock::now();
    if (root) to_log([](JsonlLog& log) { log.sync(); });
    nlohmann::ordered_json notes;
    notes["samples"] = settings_.samples_after(step);
    notes["data"] = settings_.data_identity().json();
    if (root && epoch_) notes["epoch"] = part_json(epoch_->part());
    notes["config"] = config_json(settings_);
    CheckpointOptions const options{
        .config = settings_.checkpoints.config,  // the notes contain paths, possibly not in UTF-8
        .notes = notes.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
    std::filesystem::path const folder =
        async ? checkpoints_.save(trainer, *async, options) : checkpoints_.save(trainer, options);
    if (!root) return;
    figures_.pause();
    saving_ = files::path_text(folder);
    saving_since_ = start;
    if (!async) say_saved();
  }

  /// Returns f(). The weights must not be saved yet: if f throws because the loss diverged, the message of
  /// the error adds that nothing was saved.
  template <class F>
  std::invoke_result_t<F> without_save(F&& f) const {
    try {
      return f();
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::diverged || settings_.save.empty()) throw;
      throw Error(error.kind(), std::string(error.what()) + "; nothing was saved", error.rank(),
                  error.unit());
    }
  }

  /// Stores an error of the data. Only the first error is kept.
  void note(Error const& error) {
    std::lock_guard const lock(data_mutex_);
    if (!data_error_) data_error_ = error;
  }

  /// Returns a validation batch. If the data cannot be read, stores the error and returns null.
  Batch const* load(Loader& loader, std::int64_t step) {
    try {
      return &loader.load(step);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::data) throw;
      note(error);
      return nullptr;
    }
  }

  /// Computes the mean loss over all targets of the validation data, and prints and logs it.
  void validate(AnyTrainer& trainer, Loader& loader, comm::Comm const& comm, std::int64_t after_step) {
    auto const start = Clock::now();
    std::int64_t const batches = loader.steps_per_epoch();
    double sum = 0.0;
    std::int64_t index = 0, tokens = 0;
    for (; index < batches; ++index) {
      Batch const* const batch = load(loader, index);
      bool const stopped = comm.is_root() && Interrupt::caught();
      if (!comm::unanimous(comm, batch != nullptr && !stopped)) break;
      std::int64_t const counted = loader.targets_in(index);
      sum += trainer.evaluate(*batch) * static_cast<double>(counted);
      tokens += counted;
    }
    if (!comm.is_root()) return;
    figures_.pause();
    if (index < batches) {  // interrupted: a mean over a part would be misleading
      validation_cut_ = true;
      return;
    }
    double const loss = sum / static_cast<double>(tokens);
    double const seconds = std::chrono::duration<double>(Clock::now() - start).count();
    to_log([&](JsonlLog& log) {
      log.note({{"validation_loss", loss},
                {"after_step", after_step},
                {"samples", loader.samples()},
                {"tokens", tokens},
                {"ms", seconds * 1e3}});
    });
    to_events([&](EventFile& events) { events.scalars(after_step, {{"validation/loss", loss}}); });
    say("validation after step " + std::to_string(after_step) + " | loss " + fixed(loss, 4) + " | " +
        grouped(tokens) + " tokens | " + fixed(seconds * 1e3, 1) + " ms");
    if (!std::isfinite(loss))
      throw Error(ErrorKind::diverged,
                  "the validation loss is not finite after step " + std::to_string(after_step) +
                      "; lower --learning-rate, or give --clip 1",
                  0);
  }

  /// Collects the weights in blocks, and writes each block to the file and to the hash. This needs no more
  /// memory than a step. Throws if a weight is not finite.
  void finish(AnyTrainer& trainer, bool root) {
    if (root) bar_.clear();
    if (!root) return trainer.collect_pieces([](ParameterSpec const&, std::span<float const>) {});
    WeightsHash hash;
    FiniteWeights finite;
    std::optional<WeightsOutput> writer;
    if (!settings_.save.empty())
      writer.emplace(settings_.save, units_, settings_.save_config, settings_.save_tokenizer);
    ParameterSink sink = writer ? writer->sink() : ParameterSink();
    std::vector<UnitSpec> const& units = trainer.plan().units;
    if (sink && settings_.adapters.merge) sink = merging(units, sink);
    std::optional<AdapterWriter> adapter;
    if (!settings_.adapters.save.empty())
      adapter.emplace(
          settings_.adapters.save, units, settings_.options.lora, settings_.model.family->weights.prefix,
          settings_.model.folder.empty() ? settings_.model.name : settings_.model.folder.string());
    ParameterSink const adapter_sink = adapter ? adapter->sink() : ParameterSink();
    trainer.collect_pieces([&](ParameterSpec const& parameter, std::span<float const> values) {
      finite.check(parameter, values, settings_.save.empty() && !adapter ? "" : "; nothing was saved");
      if (sink) sink(parameter, values);
      if (adapter_sink) adapter_sink(parameter, values);
      hash.append(parameter.name, parameter.shape, values);
    });
    if (writer) writer->commit();
    if (adapter) adapter->commit();
    summarize(hash.digest());
  }

  // ---- on rank 0 only -----------------------------------------------------------------------------------

  void say_saved() {
    say("checkpoint " + saving_ + " | " +
        fixed(std::chrono::duration<double>(Clock::now() - saving_since_).count(), 1) + " s");
    saving_.clear();
  }
  void say(std::string const& text) {
    if (settings_.quiet) return;
    bar_.clear();
    std::cout << text << std::endl;
  }

  /// Returns whether to stop before the next step. The reason is a signal, an incomplete validation, or an
  /// exited reader of the output.
  bool wants_end() {
    unread_ = unread_ || unread();
    return Interrupt::caught() || validation_cut_ || unread_;
  }

  /// Returns whether steps or a validation loss are missing because the run was interrupted.
  bool interrupted() const { return done_ < settings_.steps || validation_cut_; }

  /// Calls write(log) if there is a log. If writing fails, prints a warning and closes the log.
  template <class Write>
  void to_log(Write&& write) {
    if (!log_) return;
    try {
      write(*log_);
    } catch (Error const& error) {
      if (error.kind() != ErrorKind::failed) throw;
      log_.reset();
      log_cut_ = true;
      bar_.clear();
      std::cout.flush();
      std::cerr << "warning: " << error.what() << "; the run goes on without its log" << std::endl;
    }
  }

  /// Calls write(event file), for TensorBoard. Handles a failure like `to_log`.
  template <class Write>
  void to_events(Write&& write) {
    if (!events_) return;
    try {
      write(*events_);
    } catch (Error const& error) {
      events_.reset();
      events_cut_ = true;
      bar_.clear();
      std::cout.flush();
      std::cerr << "warning: --tensorboard " << error.what() << "; the run goes on without its event file"
                << std::endl;
    }
  }

  /// Opens the log and the event file. Throws if this fails, since no training is lost yet.
  void begin(AnyTrainer const& trainer) {
    std::int64_t const device = bytes_on(Tier::device, trainer.plan().arena_bytes);
    std::int64_t const host = bytes_on(Tier::host, trainer.plan().arena_bytes);
    std::int64_t const nvme = trainer.plan().file_bytes();
    std::string const engine = trainer.file_use().engine;
    say("memory of rank 0: " + bytes_text(device) + (host > 0 ? ", on the host " + bytes_text(host) : "") +
        (nvme > 0 ? ", on NVMe " + bytes_text(nvme) + " (" + engine + ")" : ""));
    std::int64_t const first = settings_.checkpoints.first_step();
    if (first > 0)
      say("resumed " + files::path_text(settings_.checkpoints.from->folder) + " after step " +
          std::to_string(first));
    if (first > 0 && first == settings_.steps)
      say(std::string(settings_.save.empty() && !settings_.validation ? "nothing to do"
                                                                      : "nothing to train") +
          ": the checkpoint is at step " + std::to_string(first) + " of " + std::to_string(settings_.steps) +
          "; raise " + (settings_.epochs > 0 ? "--epochs" : "--steps"));
    if (settings_.recipe.reduction == ReductionKind::ordered) {
      std::string const warning = warning_of_split(settings_.checkpoints, settings_.relation.batch);
      bar_.clear();
      if (!warning.empty()) std::cerr << warning << std::endl;
    }
    if (first == 0 && settings_.checkpoints.resume)
      say("no checkpoint in " + files::path_text(settings_.checkpoints.folder) + "; starts from step 1");
    if (!settings_.log.empty()) {
      std::optional<std::uintmax_t> const end = first > 0 ? end_of_log(settings_.log, first) : std::nullopt;
      log_.emplace(settings_.log, end.has_value());
      if (end) std::filesystem::resize_file(settings_.log, *end);
      log_->note({{"schema_version", 1},
                  {"after_step", first},
                  {"command", command_},
                  {"config", config_json(settings_)},
                  {"planned_bytes", {{"device", device}, {"host", host}, {"nvme", nvme}}},
                  {"nvme_engine", or_null(engine)},
                  {"environment", environment(device_facts(settings_.recipe.device))}});
    }
    if (!settings_.tensorboard.empty()) {
      trainer_ = &trainer;
      std::error_code code;  // a folder of checkpoints is locked already
      events_.emplace(settings_.tensorboard, !std::filesystem::equivalent(
                                                 settings_.tensorboard, settings_.checkpoints.folder, code));
      std::string table = "| setting | value |\n|---|---|\n";
      Json const config = config_json(settings_);
      for (auto const& [name, value] : config.items())
        table += "| " + name + " | " + value.dump(-1, ' ', false, Json::error_handler_t::replace) + " |\n";
      events_->text("recipe", table);
      events_->scalars(0, {{"memory/planned_device_mb", mebibytes(device)},
                           {"memory/planned_host_mb", mebibytes(host)},
                           {"memory/planned_nvme_mb", mebibytes(nvme)}});
    }
    bar_.start("train", settings_.steps);
  }

  void record(StepReport const& report) {
    done_ = report.step;
    double const rate = report.tokens_per_second();
    std::int64_t const steps_run = done_ - settings_.checkpoints.first_step();
    if (steps_run == 1) {
      first_loss_ = report.loss;
      figures_.first_step();
    }
    last_loss_ = report.loss;
    bool const only = settings_.steps - settings_.checkpoints.first_step() == 1 && settings_.min_time == 0.0;
    if (steps_run == 1 && !only)  // the first step warms up caches, so it is not timed
      figures_.begin();
    else if (settings_.trace.warms_up(steps_run))
      figures_.pause();
    else
      figures_.rates.add(report);
    std::int64_t const positions = epoch_ ? epoch_->positions(done_) : report.tokens;
    auto const with_padding =
        report.valid_tokens < positions ? std::optional(loss_with_padding(report, positions)) : std::nullopt;
    to_log([&](JsonlLog& log) {
      log.write({report.step, report.loss, report.grad_norm, report.learning_rate, report.scale,
                 report.skipped, rate, report.seconds * 1e3, with_padding});
      logged_ = report.step;
    });
    to_events([&](EventFile& events) {
      auto const peak = [this](Tier tier) { return trainer_->peak_bytes(tier); };
      events.scalars(report.step, {{"train/loss", report.loss},
                                   {"train/grad_norm", report.grad_norm},
                                   {"train/learning_rate", report.learning_rate},
                                   {"train/loss_scale", report.scale},
                                   {"train/skipped", report.skipped ? 1.0 : 0.0},
                                   {"train/tokens_per_sec", rate},
                                   {"train/step_ms", report.seconds * 1e3},
                                   {"memory/device_mb", mebibytes(bytes_on(Tier::device, peak))},
                                   {"memory/host_mb", mebibytes(bytes_on(Tier::host, peak))}});
    });
    std::optional<results::EpochLogRow> const epoch = epoch_ ? epoch_->add(report) : std::nullopt;
    if (epoch) to_log([&](JsonlLog& log) { log.note(epoch_json(*epoch)); });
    if (!settings_.quiet) {
      if (lines_.add(report)) {
        bar_.clear();
        std::cout << report << (with_padding ? " | with padding " + fixed(*with_padding, 4) : std::string())
                  << lines_.time_left() << std::endl;
      }
      if (epoch) say(epoch_text(*epoch));
      bar_.show(std::min(done_, settings_.steps),
                figures_.rates.seconds() > 0.0 ? figures_.rates.rate() : rate,
                "loss " + fixed(report.loss, 4));
    }
    if (!std::isfinite(report.loss))
      throw Error(
          ErrorKind::diverged,
          "the loss of step " + std::to_string(report.step) + " is not finite" +
              (report.overflow.empty() ? std::string()
                                       : ", and the gradient of " + report.overflow + " is not either") +
              "; lower --learning-rate, give --clip 1, or use another --precision than " +
              std::string(settings_.recipe.names.precision),
          0, report.overflow);
  }

  void summarize(std::string const& weights_hash) {
    bool const all = trainable_count(settings_.units()) == parameter_count(settings_.units());
    auto const flops =
        all ? std::optional(settings_.model.built.flops_per_token(settings_.options.sequence)) : std::nullopt;
    std::int64_t const steps_run = done_ - settings_.checkpoints.first_step();
    std::optional<RowComparison> against;
    if (settings_.repeated && steps_run > 0)
      against.emplace(*settings_.repeated, settings_, figures_.rates.known_rate(), peak_bytes_);
    to_log([&](JsonlLog& log) {
      Json summary = {{"steps_done", done_}, {"interrupted", interrupted()}};
      summary["first_loss"] = steps_run > 0 ? Json(first_loss_) : Json(nullptr);
      summary["final_loss"] = steps_run > 0 ? Json(last_loss_) : Json(nullptr);
      figures_.add_to(summary, flops);
      summary["measured_products"] = settings_.plans ? Json(settings_.plans->take_used()) : Json(nullptr);
      summary["against_row"] = against ? against->json() : Json(nullptr);
      summary["weights_hash"] = weights_hash;
      log.note({{"summary", std::move(summary)}});
    });
    if (interrupted() && !data_error_ && !unread_)
      say("interrupted by " + Interrupt::name() + " after step " + std::to_string(done_) + " of " +
          std::to_string(settings_.steps) +
          (validation_cut_ ? ", during its validation: there is no validation loss" : ""));
    if (steps_run > 0)
      say("trained " + grouped(steps_run) + (steps_run < done_ ? " more" : "") +
          (steps_run == 1 ? " step" : " steps") +
          (steps_run < done_ ? ", " + grouped(done_) + " in all" : std::string()) + " | loss " +
          fixed(first_loss_, 4) + " -> " + fixed(last_loss_, 4) + " | " + figures_.text(flops));
    if (against) say(against->text());
    if (settings_.trace.profile && !times_.front().steps.empty())
      say(profile_text(profile_of(times_.front()), times_.size()));
    if (!settings_.adapters.save.empty()) say("saved adapters " + files::path_text(settings_.adapters.save));
    if (!settings_.save.empty())
      say("saved " + files::path_text(settings_.save) + " | weights " + weights_hash);
  }

  Settings const& settings_;
  std::string command_;
  std::vector<UnitSpec> units_;
  ParameterSource init_;         // the initial weights; released when all ranks have read them
  std::atomic<int> filled_ = 0;  // number of ranks that have read init_
  std::mutex data_mutex_;
  std::optional<Error> data_error_;  // the first stored error of the data; read after all ranks' last step

  std::vector<RankTimes> times_;  // one element for each rank; read after the ranks synchronise
  Terminal terminal_;
  Progress bar_;
  StepLines lines_;
  std::optional<EpochSums> epoch_;  // only if the training length is given in epochs
  Checkpoints checkpoints_;
  std::string saving_;  // the folder of a checkpoint that is not reported yet
  Clock::time_point saving_since_;
  std::optional<JsonlLog> log_;
  std::optional<EventFile> events_;
  AnyTrainer const* trainer_ = nullptr;  // rank 0's trainer during training, for the event file
  bool log_cut_ = false, trace_lost_ = false, events_cut_ = false, validation_cut_ = false;
  bool unread_ = false;
  std::int64_t done_, logged_;
  RunFigures figures_;
  double first_loss_ = 0.0, last_loss_ = 0.0;
  // the most bytes that a rank used in its device arena; only with --from
  std::atomic<std::int64_t> peak_bytes_ = 0;
};

}  // namespace cli
}  // namespace programs
