// SPDX-License-Identifier: Apache-2.0
// Trains one row of a comparison (one recipe with one batch, sequence and number of ranks), and measures the
// time, the memory and the communication of the training.
#include "compare/measure.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <mutex>
#include <optional>
#include <type_traits>
#include <unistd.h>
#include <utility>

#include "tessera/comm/run.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/io/adapter.hpp"
#include "tessera/io/hash.hpp"
#include "tessera/loop/training_loop.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/launch.hpp"
#include "cli/program.hpp"
#include "cli/run_flags.hpp"
#include "machine/device_memory.hpp"
#include "machine/gpu_watch.hpp"
#include "machine/gpus.hpp"
#include "machine/machine.hpp"
#include "trace/step_times.hpp"
#include "workload/data.hpp"
#include "workload/weights.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

/// Measurements of one rank during a repeat (one training run of a row). Processes exchange this struct as
/// bytes.
struct RankTotals {
  std::int64_t peak_device = 0, arena_device = 0, arena_host = 0;
  std::int64_t steps = 0;  ///< timed steps for which the rank has read the report
  std::int64_t bytes = 0;
  AttentionKind attention = AttentionKind::automatic;
  std::optional<double> comm_s = 0.0, waiting_s = 0.0;
  /// Both are seconds per step: the time in collectives, and the part of this time in which the rank computed
  /// nothing. They are measured in extra steps after the last step.
  std::optional<double> profiled_s, profiled_exposed_s;
  /// bytes per second of the disk lane while it is busy, measured in the same extra steps
  std::optional<double> disk_bytes_per_s;
  std::int64_t peak_nvme = 0, nvme_read = 0, nvme_written = 0;
  std::int64_t begun = 0;  ///< number of steps in which nvme_read and nvme_written were counted
  /// CPU time of this rank's process in the timed steps; 0 if ranks are threads
  double cpu_s = 0.0;
  std::int64_t peak_resident = -1;  ///< peak memory of this rank's process in bytes; -1: unknown
};
static_assert(std::is_trivially_copyable_v<RankTotals>);

/// Writes the memory use, the I/O bytes and the attention kernel of the rank whose trainer is `of` to `to`.
/// The destructor writes them, so they are known after the last step and also after an error.
class EndNote {
 public:
  EndNote(AnyTrainer const& of, RankTotals& to) : trainer_(of), totals_(to) {
    FileUse const use = trainer_.file_use();
    totals_.nvme_read = -use.bytes.read;
    totals_.nvme_written = -use.bytes.written;
  }
  ~EndNote() {
    totals_.peak_device = trainer_.peak_bytes(Tier::device);
    totals_.arena_device = bytes_on(Tier::device, trainer_.plan().arena_bytes);
    totals_.attention = trainer_.attention_ran();
    totals_.arena_host = bytes_on(Tier::host, trainer_.plan().arena_bytes);
    FileUse const use = trainer_.file_use();
    totals_.peak_nvme = trainer_.peak_bytes(Tier::nvme);
    totals_.nvme_read += use.bytes.read;
    totals_.nvme_written += use.bytes.written;
  }

 private:
  AnyTrainer const& trainer_;
  RankTotals& totals_;
};

/// Trains the row `point` once. `fixed_steps` is the number of steps. If `fixed_steps` is 0, the training
/// runs the steps that `settings` request, and then further steps until the timed steps have lasted
/// --min-time seconds. `observer` is called after every step. The results go to `done`.
class Training {
 public:
  Training(Point const& point, Settings const& settings, TokenSource const& data,
           StepObserver const& observer, std::int64_t fixed_steps, Repeat& done)
      : point_(point),
        settings_(settings),
        data_(data),
        observer_(observer),
        options_(cli::options_of(point, settings.trainer)),
        fixed_(fixed_steps),
        steps_(steps_of(settings, point, data)),
        done_(done) {
    done_.untimed = settings.warmup;
    ranks_.resize(static_cast<std::size_t>(point.world()));
    if (options_.total_steps == 0) options_.total_steps = steps_;
    if (settings.epochs > 0)
      epoch_.emplace(cli::samples_of(data, point.sequence, settings.samples), point.split.global(),
                     point.sequence);
  }

  /// Runs the training. If it throws, the Repeat that the constructor received holds the measurements up to
  /// the error.
  void run() {
    if (point_.recipe.device == Device::cuda) {
      auto gpus = cli::nvml_indices(cli::gpus_at_start(), device_facts(point_.recipe.device).addresses,
                                    point_.world());
      if (!gpus.empty()) watch_.emplace(cli::gpu_library(), gpus);
    }
    if (settings_.plans) (void)settings_.plans->take_used();  // discards the plans that earlier rows used
    cli::reset_peak_resident();
    start_ = Clock::now();
    RunOptions options;
    options.stuck = &cli::exit_stuck;
    try {
      run_ranks(
          point_.recipe, point_.world(), [this](comm::Comm& comm) { rank(comm); }, options);
    } catch (...) {
      finish();
      throw;
    }
    finish();
  }

 private:
  void finish() {
    done_.comm_s = done_.comm_exposed_s = done_.comm_waiting_s = 0.0;
    done_.attention = ranks_.front().attention;
    for (RankTotals const& totals : ranks_) {
      done_.peak_device = std::max(done_.peak_device, totals.peak_device);
      done_.arena_device = std::max(done_.arena_device, totals.arena_device);
      done_.arena_host = std::max(done_.arena_host, totals.arena_host);
      double const steps = std::max<double>(1.0, static_cast<double>(totals.steps));
      auto const mean = [&](std::optional<double> of_rank) -> std::optional<double> {
        if (of_rank) *of_rank /= steps * static_cast<double>(ranks_.size());
        return of_rank;
      };
      done_.peak_nvme = std::max(done_.peak_nvme, totals.peak_nvme);
      double const begun = std::max<double>(1.0, static_cast<double>(totals.begun));
      done_.nvme_read = std::max(done_.nvme_read, static_cast<double>(totals.nvme_read) / begun);
      done_.nvme_written = std::max(done_.nvme_written, static_cast<double>(totals.nvme_written) / begun);
      done_.comm_bytes = std::max(done_.comm_bytes, static_cast<double>(totals.bytes) / steps);
      std::optional<double> const waited = mean(totals.waiting_s);
      std::optional<double> in_collectives = mean(totals.comm_s), exposed = in_collectives;
      if (totals.profiled_s) {
        double const ranks = static_cast<double>(ranks_.size());
        in_collectives = *totals.profiled_s / ranks;
        exposed = *totals.profiled_exposed_s / ranks;
      }
      done_.comm_s = plus(done_.comm_s, in_collectives);
      done_.comm_exposed_s = plus(done_.comm_exposed_s, exposed);
      done_.comm_waiting_s = plus(done_.comm_waiting_s, waited);
      if (totals.disk_bytes_per_s)
        done_.nvme_bytes_per_s = done_.nvme_bytes_per_s.value_or(0.0) + *totals.disk_bytes_per_s;
    }
    double const peak = cli::mebibytes(done_.peak_device);
    for (auto& line : done_.log) line.gpu_max_mem_mb = peak;
    if (settings_.plans) done_.measured_products = settings_.plans->take_used();
    done_.total_s = seconds(start_, hashed_.value_or(Clock::now()));
    done_.peak_resident = cli::peak_resident_bytes();
    for (std::size_t rank = 1; rank < ranks_.size() && cli::joined_launch(); ++rank) {
      done_.cpu_seconds += ranks_[rank].cpu_s;
      if (done_.peak_resident >= 0 && ranks_[rank].peak_resident >= 0)
        done_.peak_resident += ranks_[rank].peak_resident;
    }
  }

  void rank(comm::Comm& comm) {
    bool const root = comm.is_root();
    auto const trainer = make_trainer(point_.model.built, point_.recipe, comm, options_);
    if (point_.model.weights)
      trainer->fill(
          source_with_adapters(trainer->plan().units, point_.model.weights, std::nullopt, options_.seed));
    Loader loader(data_, {.batch = static_cast<int>(point_.split.batch),
                          .sequence = static_cast<int>(point_.sequence),
                          .accumulation = static_cast<int>(point_.split.accumulation),
                          .rank = comm.rank(),
                          .world = comm.world(),
                          .order = settings_.data.order,
                          .seed = settings_.trainer.seed,
                          .samples = settings_.samples,
                          .whole_epochs = settings_.epochs > 0});
    RankTotals& totals = ranks_[static_cast<std::size_t>(comm.rank())];
    if (root) begin_window();
    if (root) done_.nvme_engine = trainer->file_use().engine;
    std::int64_t untimed = settings_.warmup;
    double cpu_before = cli::cpu_seconds();
    auto const read = [&](StepReport const& report) {
      if (root) note(report);
      if (report.step == untimed) cpu_before = cli::cpu_seconds();
      if (report.step <= untimed) return;
      if (cli::joined_launch()) totals.cpu_s = cli::cpu_seconds() - cpu_before;
      ++totals.steps;
      totals.bytes += report.comm_bytes;
      totals.comm_s = plus(totals.comm_s, report.comm_seconds);
      totals.waiting_s = plus(totals.waiting_s, report.comm_waiting);
    };
    // Called after the requested steps. If the timed steps took less than --min-time, hashes the weights and
    // restarts the timing. Hashing may read weights from NVMe; these bytes belong to no step, so they are
    // subtracted.
    auto const time_more = [&](std::int64_t done) {
      if (!comm::unanimous(comm, !root || (more(done) && !cli::Interrupt::caught()))) return;
      FileTraffic const before = trainer->file_use().bytes;
      add_weights(*trainer, done, root);
      FileTraffic const after = trainer->file_use().bytes;
      totals.nvme_read -= after.read - before.read;
      totals.nvme_written -= after.written - before.written;
      untimed = done + 1;  // the next step also waits for this hashing, so its time does not count
      if (root) time_again(untimed);
      totals.steps = totals.bytes = 0;
      totals.comm_s = totals.waiting_s = 0.0;
    };
    std::int64_t const last = fixed_ > 0                 ? fixed_
                              : settings_.min_time > 0.0 ? std::numeric_limits<std::int64_t>::max()
                                                         : steps_;
    TrainingLoop loop(
        *trainer, comm,
        {.steps = last,
         .batch = [&](std::int64_t step) { return loader.load(step); },
         .stop =
             [&](std::int64_t step) {
               totals.begun = step + 1;  // set before the step, in case the step throws
               return step > 0 && ((root && !more(step)) || cli::Interrupt::caught());
             },
         .report = read,
         // The trainer returns the report of a step only while it runs later steps. If there are several
         // warm-up steps, this task without a function makes the trainer wait for the report of the first
         // step. A wait in a warm-up step delays no timed step.
         .tasks = {{.due = [&](std::int64_t done) { return done == 1 && settings_.warmup > 1; }},
                   {.due = [&](std::int64_t done) { return done == steps_ && last > steps_; },
                    .run = time_more}}});
    {
      EndNote const end_note(*trainer, totals);
      totals.begun = loop.run();
      if (loop.data_error()) throw Error(*loop.data_error());
      if (root) done_.interrupted = cli::Interrupt::caught() && more(totals.begun);
      if (root) end_window();
      if (root && watch_) done_.gpus = watch_->sums().use();
      // This code must read the device memory before the ranks synchronise again: until then, no rank has
      // destroyed its trainer and freed its memory.
      if (root) done_.device_memory = cli::device_memory_of(point_.recipe.device, point_.world());
    }
    if (totals.begun <= steps_)
      add_weights(*trainer, totals.begun, root);
    else
      (void)comm::unanimous(comm, true);
    if (root) hashed_ = Clock::now();
    time_lanes(comm, *trainer, loader, totals);
    if (!cli::joined_launch()) return;
    totals.peak_resident = cli::peak_resident_bytes();
    comm.transport().gather(0, &totals, ranks_.data(), sizeof totals, {"totals"});
  }

  /// Times the collectives on GPUs, where the host only enqueues them and cannot time them, and the disk lane
  /// of rows with state on NVMe. A lane is a queue of operations of one kind. Runs a few extra steps. In
  /// these steps the device records an event before and after each operation of the step.
  void time_lanes(comm::Comm& comm, AnyTrainer& trainer, Loader& loader, RankTotals& totals) {
    bool const collectives = comm.world() > 1 && !totals.comm_s;
    if (!collectives && !uses_files(point_.recipe.placement)) return;
    if (!comm::unanimous(comm, !comm.is_root() || !cli::Interrupt::caught())) return;
    cli::Profile const profile = cli::profile_of(cli::time_steps(
        trainer, comm,
        {.batch = [&](std::int64_t step) { return loader.load(step); }, .max_steps = 3, .enough_s = 1.0}));
    if (collectives) {
      totals.profiled_s = profile.collectives;
      totals.profiled_exposed_s = profile.exposed();
    }
    totals.disk_bytes_per_s = profile.bytes_per_second(Lane::disk);
  }

  /// Hashes the weights after `steps` steps, and checks that they are finite. All ranks must call it.
  void add_weights(AnyTrainer& trainer, std::int64_t steps, bool root) {
    WeightsHash hash;
    cli::FiniteWeights finite;
    trainer.collect_pieces([&](ParameterSpec const& parameter, std::span<float const> values) {
      finite.check(parameter, values);
      hash.append(parameter.name, parameter.shape, values);
    });
    if (!root) return;
    done_.weights_hash = hash.digest();
    done_.hashed_after = steps;
  }

  /// Restarts the timing on rank 0. The first `untimed` steps then count as warm-up.
  void time_again(std::int64_t untimed) {
    done_.timed = {};
    done_.untimed = untimed;
  }

  /// On rank 0, adds the report of one step to the log and to the timing.
  void note(StepReport const& report) {
    std::int64_t const step = report.step - 1;
    if (!std::isfinite(report.loss))
      throw Error(ErrorKind::diverged, "the loss of step " + std::to_string(step + 1) +
                                           " is not finite; lower --learning-rate or give --clip");
    double const rate = static_cast<double>(report.tokens) / report.interval;
    done_.log.push_back({step + 1, report.interval, rate, std::nullopt, report.loss, report.grad_norm,
                         report.learning_rate, report.scale, report.skipped});
    done_.tokens += report.tokens;
    done_.valid_tokens += report.valid_tokens;
    if (step < steps_)  // later steps exist only to reach --min-time
      done_.final_loss_with_padding =
          cli::loss_with_padding(report, epoch_ ? epoch_->positions(step + 1) : report.tokens);
    if (epoch_)
      if (auto const ended = epoch_->add(report)) done_.epochs.push_back(*ended);
    if (step == 0) done_.first_step_s = seconds(start_, Clock::now());
    std::int64_t const done = step + 1;
    if (done == done_.untimed) begin_window();
    if (done > done_.untimed) {
      done_.timed.add(report);
      done_.cpu_seconds = cli::cpu_seconds() - cpu_before_;
      done_.window_s = seconds(window_, Clock::now());
    }
    if (observer_) observer_(done, std::max(planned(), done), rate, report.loss);
  }

  /// Starts measuring the CPU and GPU use at the beginning of the timed steps.
  void begin_window() {
    window_ = Clock::now();
    cpu_before_ = cli::cpu_seconds();
    busy_before_ = cli::busy_core_seconds();
    if (watch_) watch_->begin();
  }

  void end_window() {
    // a shorter window is too inaccurate, because the CPU clock ticks every 10 ms
    constexpr double enough_s = 0.3;
    double const took = seconds(window_, Clock::now());
    auto const busy = cli::busy_core_seconds();
    if (!busy || !busy_before_ || took < enough_s) return;
    double const others = *busy - *busy_before_ - (cli::cpu_seconds() - cpu_before_);
    done_.other_load = std::max(0.0, others) / (took * cli::core_count());
  }

  std::int64_t planned() const { return fixed_ > 0 ? fixed_ : steps_; }

  /// Returns whether the row needs more steps after `begun` steps. Only rank 0 measures the timed seconds, so
  /// only rank 0 may call this.
  bool more(std::int64_t begun) const {
    return begun < planned() || (fixed_ == 0 && done_.timed.total_s < settings_.min_time);
  }

  Point const& point_;
  Settings const& settings_;
  TokenSource const& data_;
  StepObserver const& observer_;
  TrainerOptions options_;
  std::int64_t fixed_, steps_;
  std::optional<cli::EpochSums> epoch_;
  std::vector<RankTotals> ranks_;
  Repeat& done_;
  Clock::time_point start_, window_;
  std::optional<Clock::time_point> hashed_;
  double cpu_before_ = 0.0;
  std::optional<double> busy_before_;
  std::optional<cli::GpuWatch> watch_;
};

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// Plans the row `point` without training it. Writes the facts that the plan gives, such as the planned
/// memory, to `row`. If `refuse` is true, throws Error(out_of_memory) if the buffers of the plan do not fit
/// into memory.
void add_plan(Measured& row, Point const& point, TrainerOptions const& options, bool refuse) {
  row.point = point;
  if (!point.model.built) {
    row.params = point.model.parameters;
    return;
  }
  UnitLister const units = cli::trained_units(point.model.built.units(), point.recipe, options);
  auto list = units({point.split.batch, point.sequence});
  row.params = parameter_count(list);
  row.trainable = trainable_count(list);
  if (point.refusal && !point.can_be_planned()) return;
  // This is the step plan of rank 0: the schedule and the buffers of its training step. Rank 0 needs the most
  // memory: all shards have the same size, and if only one rank updates the weights, it is rank 0.
  StepShape const shape =
      step_shape(point.recipe, cli::options_of(point, options), 0, point.world(), cli::ranks_on_host());
  StepPlan const plan = make_plan(std::move(list), point.recipe, shape);
  row.planned_device = bytes_on(Tier::device, plan.arena_bytes);
  row.planned_host = bytes_on(Tier::host, plan.arena_bytes);
  row.planned_nvme = bytes_on(Tier::nvme, plan.arena_bytes);
  row.schedule_hash = hexadecimal(hash_of(plan.train.schedule));
  if (!refuse) return;
  MemoryLimit const limit = memory_limit(point.recipe.device, options);
  // On the CPU, the devices are in host memory, which all ranks of the host share.
  bool const own_memory = info_of(point.recipe.device).own_memory;
  if (std::int64_t const all = own_memory ? limit.device : limit.host; all != MemoryLimit::none)
    row.device_limit = all / (own_memory ? 1 : shape.ranks_on_host());
  refuse_if_too_big(units, plan, point.recipe, limit, point.model.built.positions());
}

/// Called by rank 0. If a launcher started several processes, tells the other processes to train the row
/// `point` once with their ranks. `fixed_steps` is the parameter of Training. Without a launcher this
/// function does nothing.
void call_row_servers(Point const& point, Settings const& settings, std::int64_t fixed_steps) {
  auto const& launch = cli::joined_launch();
  if (!launch) return;
  cli::Json const call = {
      {"row", point.number}, {"fixed", fixed_steps}, {"steps", settings.steps}, {"warmup", settings.warmup}};
  launch->begin();
  (void)launch->all_gather(call.dump(), "begin a row");
}

/// Returns a sentence if the repeats of a row ended with different weights; "" if the weights are equal to
/// the bit, as they should be.
std::string disagreement(std::vector<Repeat> const& repeats) {
  for (std::size_t at = 1; at < repeats.size(); ++at)
    if (repeats[at].weights_hash != repeats[0].weights_hash)
      return "repeat " + std::to_string(at + 1) +
             " ended with other weights than repeat 1: " + repeats[at].weights_hash + " and " +
             repeats[0].weights_hash;
  return {};
}

}  // namespace

std::int64_t steps_of(Settings const& settings, Point const& point, TokenSource const& data) {
  if (settings.epochs == 0) return settings.warmup + settings.steps;
  return settings.epochs *
         cli::steps_of_epoch(cli::samples_of(data, point.sequence, settings.samples), point.split.global());
}

Measured not_run(Point const& point, Settings const& settings, std::string const& reason) {
  Measured row;
  if (settings.times) row.predicted = cli::predict(point, settings.trainer, *settings.times);
  try {
    add_plan(row, point, settings.trainer, false);
  } catch (Error const&) {  // a row that cannot be planned keeps its planned fields empty
  }
  row.status = point.refusal ? "refused" : "failed";
  row.reason = point.refusal ? *point.refusal : reason;
  return row;
}

void serve_rows(std::vector<Point> const& points, Settings const& settings,
                std::function<TokenSource const&(Point const&)> const& data_of) {
  auto const& launch = cli::joined_launch();
  for (;;) {
    launch->begin();
    auto const call = cli::Json::parse(launch->all_gather("", "begin a row").front());
    if (call.is_null()) return;
    auto const point = std::find_if(points.begin(), points.end(), [&](Point const& each) {
      return each.number == call["row"].get<std::size_t>();
    });
    if (point == points.end())
      throw Error(ErrorKind::config, "rank 0 measures a row that the flags of rank " +
                                         std::to_string(launch->rank()) +
                                         " do not give; start all ranks with the same flags");
    Settings own = settings;
    own.steps = call["steps"].get<std::int64_t>();
    own.warmup = call["warmup"].get<std::int64_t>();
    Repeat ignored;
    try {
      Training(*point, own, data_of(*point), {}, call["fixed"].get<std::int64_t>(), ignored).run();
    } catch (Error const& error) {  // rank 0 reports the error and goes on with the next row
      if (error.kind() == ErrorKind::peer_lost) throw;
    } catch (std::exception const&) {
    }
  }
}

RowServers::~RowServers() {
  auto const& launch = cli::joined_launch();
  if (!launch || launch->rank() > 0) return;
  try {
    launch->begin();
    (void)launch->all_gather("null", "begin a row", std::chrono::seconds(10));
  } catch (Error const&) {  // a process of the launch is lost; the other processes already have the error
  }
}

Measured measure(Point const& point, Settings const& settings, TokenSource const& data,
                 StepObserver const& observer) {
  if (point.refusal) return not_run(point, settings, {});
  Measured row;
  if (settings.times) row.predicted = cli::predict(point, settings.trainer, *settings.times);
  try {
    add_plan(row, point, settings.trainer, true);
    std::int64_t steps = 0;
    for (int repeat = 0; repeat < settings.repeat; ++repeat) {
      Repeat& last = row.repeats.emplace_back();
      call_row_servers(point, settings, steps);
      Training(point, settings, data, observer, steps, last).run();
      if (last.interrupted) {
        row.reason = "interrupted by " + cli::Interrupt::name() + " after step " +
                     std::to_string(last.log.size()) +
                     (settings.repeat > 1 ? " of repeat " + std::to_string(repeat + 1) : std::string());
        return row;
      }
      // Only the first training of a row adds steps until --min-time is reached. The repeats of this training
      // run as many steps as the first training.
      steps = static_cast<std::int64_t>(last.log.size());
    }
    row.reason = disagreement(row.repeats);
    row.status = row.reason.empty() ? "ok" : "failed";
  } catch (Error const& error) {
    // After the loss of a rank no further row can run, so the error ends the program.
    if (error.kind() == ErrorKind::peer_lost && cli::joined_launch()) throw;
    row.status = error.kind() == ErrorKind::out_of_memory ? "oom"
                 // the row needs more ranks than the machine has GPUs
                 : error.kind() == ErrorKind::unsupported ? "refused"
                                                          : "failed";
    row.reason = cli::in_flags(error.what());
  } catch (std::bad_alloc const&) {
    row.status = "oom";
    row.reason = "the system gave no more memory";
  } catch (std::exception const& error) {
    row.reason = error.what();
  }
  // After an error, the results of the last training remain if it finished at least one step. If not, they
  // are removed.
  if (!row.repeats.empty() && row.repeats.back().log.empty()) row.repeats.pop_back();
  return row;
}

}  // namespace compare
}  // namespace programs
