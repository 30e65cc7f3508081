// SPDX-License-Identifier: Apache-2.0
// Defines the class Engine, which implements the trainer of one rank. An Engine type runs every recipe with
// one device and one number format.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/detail/clock.hpp"
#include "tessera/nn/init.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/parameter_store.hpp"
#include "tessera/store/weights.hpp"
#include "tessera/tensor/arena.hpp"
#include "tessera/train/check_options.hpp"
#include "tessera/train/executor.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/planning.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/train/thread_binding.hpp"
#include "tessera/train/ticket.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// One rank's trainer on one device and in one number format: its memory, its state and its steps. Not
/// copyable. Only one thread may use it at a time. The functions `has_snapshot` and `snapshot` are
/// exceptions: another thread may call them.
template <class Place, class T>
class Engine : public AnyTrainer, private StateAccess {
 public:
  /// Plans the step, checks that all ranks have the same schedule, allocates memory and fills the weights
  /// from the seed. Throws Error(out_of_memory) for a run that does not fit, before it allocates anything.
  /// `open` opens the file for state on a disk. `open` may be null if the recipe keeps no state on a disk.
  Engine(ErasedModel<Place, T> model, CheckedRecipe const& recipe, TrainerOptions const& options,
         comm::Comm comm, OpenStateFile open = nullptr);

  Engine(Engine const&) = delete;
  Engine& operator=(Engine const&) = delete;
  /// Waits for running steps, or for the end of the communicator if a rank is lost. If the report of a step
  /// was not read before, `get` of the step's ticket throws an error from now on.
  ~Engine() override {
    abandon_readbacks();
    rest();
  }

  using AnyTrainer::step;
  Ticket step(Batch const& batch, bool stop) override;
  double evaluate(Batch const& batch) override;
  void synchronize() override { store_.synchronize(); }
  /// Sets the function that is called after each entry of a step. Throws Error(unsupported) if the host
  /// cannot read a step's buffers, as on a GPU.
  void observe(StepObserver observer) override {
    if (!Context<Place>::immediate)
      throw_error(
          ErrorKind::unsupported,
          {"steps on device ", Place::name,
           " cannot be observed, because their buffers are not in host memory; observe the same recipe "
           "with On<Cpu>"});
    observer_ = std::move(observer);
  }
  /// Starts to time each entry of the step's schedule. With a null `timer`, ends the timing. On a GPU, the
  /// first timed step captures a new CUDA graph.
  void time_entries(EntryTimer* timer) override { timer_ = timer; }
  void fill(ParameterSource const& source) override { fill(source, nullptr); }
  void collect_pieces(ParameterSink const& sink) override {
    synchronize();
    weights().collect_pieces(sink);
  }
  StateAccess& state() override { return *this; }
  StepPlan const& plan() const override { return plan_; }
  std::int64_t peak_bytes(Tier tier) const override { return memory_.high_water(tier); }
  FileUse file_use() const override {
    StateFile const* const file = memory_.file();
    if (!file) return {};
    return {{file->bytes_read(), file->bytes_written()}, file->description()};
  }
  AttentionKind attention_ran() const override { return context_.attention_ran(); }
  void record(Recorder& recorder, StepObserver const& observer = {}) override {
    Context<Place> context(1, {}, &recorder, context_.math());
    comm::RecordingTransport transport(transport_.rank(), transport_.world(), recorder);
    Store store(plan_, memory_, context, transport, rule_);
    train_.run(context, store, transport, observer);
  }

 private:
  TrainerOptions const& options() const override { return options_; }
  comm::Transport& transport() const override { return transport_; }
  StepState scalars() override {
    if (failure_) std::rethrow_exception(failure_);
    return store_.state();
  }
  void set_scalars(StepState const& state) override {
    context_.write(store_.state_address(), &state, sizeof state);
    attempted_ = state.attempted;
  }
  std::byte* staging() override {
    int const planned = plan_.train.find(BufferKind::saving, -1);
    if (planned >= 0) return memory_.train(planned);
    if (staging_.bytes() == 0) staging_ = HostArena(SaveStaging::bytes);
    return staging_.base();
  }
  std::byte const* view(Buffer const& buffer, Range part) override {
    detail::select_device<Place>(device_);
    return memory_.view(context_, buffer, part, staging() + SaveStaging::elements);
  }
  std::byte* stage(Buffer const& buffer, Range part) override {
    detail::select_device<Place>(device_);
    return memory_.stage(context_, buffer, part, staging() + SaveStaging::elements);
  }
  void put(Buffer const& buffer, Range part, std::byte* staged) override {
    memory_.unstage(context_, buffer, part, staged);
  }
  void take_snapshot() override;
  bool has_snapshot() const override {
    detail::select_device<Place>(device_);
    return context_.copied();
  }
  std::byte const* snapshot(Buffer const& buffer, Range part) const override {
    int const index = buffer.kind == BufferKind::moment ? 1 + buffer.index : 0;
    int const copy = plan_.train.find(BufferKind::snapshot, {buffer.unit, buffer.flat}, index);
    return memory_.train(copy) + plan_.train.at(copy).at(part.begin);
  }

  using Store = ParameterStore<Place, T>;

  using Clock = std::chrono::steady_clock;

  /// A running step whose loss and other scalars are still being copied to the host.
  struct Readback final : PendingStep {
    StepReport const& wait() override {
      if (engine) engine->read_back(*this);
      if (failure) std::rethrow_exception(failure);
      return report;
    }
    Engine* engine = nullptr;  ///< null: the scalars were already read
    int slot = 0;
    StepReport report;
    std::exception_ptr failure;
  };
  static constexpr int slots =
      Context<Place>::immediate ? 0 : static_cast<int>(Context<Place>::arrival_slots);

  WeightAccess<Place> weights() { return {plan_, memory_, context_, transport_}; }
  void fill(ParameterSource const& source, std::uint64_t const* seed);
  void load(Batch const& batch);
  void check(Batch const& batch, int accumulation) const;
  void admit(Batch const& batch, int accumulation);
  bool enqueue(Batch const& batch, bool stop);
  Ticket begin_readback(StepReport begun);
  void read_back(Readback& readback);
  void begin_timing() {
    if constexpr (slots > 0)
      for (auto const& readback : readbacks_)  // the next timed step reuses the CUDA events of these steps
        if (readback && readback->engine) read_back(*readback);
    synchronize();
    context_.begin_timing(*timer_, plan_.train.schedule.instances());
  }
  void abandon_readbacks();
  void rest() noexcept;
  void conclude(StepReport& report, StepState const& state) const;
  [[noreturn]] void diverge(StepReport const& report, StepState const& state) const;
  void give_up(char const* cause);

  ErasedModel<Place, T> model_;
  TrainerOptions options_;
  comm::Comm comm_;
  comm::Transport& transport_;
  int device_;
  detail::RankCores cores_;
  affinity::BoundThread bound_;  // must precede all members that allocate memory or start threads
  StepPlan plan_;
  StepMemory<Place> memory_;
  std::shared_ptr<void> shared_memory_;  // while it exists, other ranks can write to memory_
  Context<Place> context_;
  StepRule rule_;
  Store store_;
  Executor<Place, T> train_;
  Executor<Place, T> evaluate_;
  StepObserver observer_;
  EntryTimer* timer_ = nullptr;
  std::array<std::shared_ptr<Readback>, static_cast<std::size_t>(slots)> readbacks_;
  int next_slot_ = 0;
  comm::Traffic traffic_;                      // counted in the last step that did not replay a CUDA graph
  std::optional<Clock::time_point> last_end_;  // the end of the last step; set only on the CPU
  std::int64_t attempted_ = 0;
  std::exception_ptr failure_;
  bool filled_ = false;
  HostArena staging_;  // host memory for checkpoints; empty if the plan has this memory
};

template <class Place, class T>
Engine<Place, T>::Engine(ErasedModel<Place, T> model, CheckedRecipe const& recipe,
                         TrainerOptions const& options, comm::Comm comm, OpenStateFile open)
    : model_(detail::trained_by(std::move(model), recipe, options)),
      options_(options),
      comm_(std::move(comm)),
      transport_(comm_.transport()),
      device_(detail::select_device<Place>(transport_.local_rank())),
      cores_(detail::cores_of_rank(options, transport_, Context<Place>::numa_node(device_))),
      bound_(cores_.share),
      plan_(detail::checked_plan(model_, recipe, options, transport_, open, cores_.ranks)),
      memory_(plan_, detail::file_of(plan_, options, transport_, open)),
      shared_memory_(detail::share_with_ranks(plan_, memory_, transport_)),
      context_(cores_.threads, detail::workspace_of(plan_, memory_), nullptr, Math::of(recipe),
               cores_.of_workers),
      rule_(detail::step_rule(recipe, options, plan_.shape)),
      store_(plan_, memory_, context_, transport_, rule_),
      train_(plan_, plan_.train, memory_, model_.functions, model_.object.get()),
      evaluate_(plan_, plan_.evaluate, memory_, model_.functions, model_.object.get()) {
  if (int const error = bound_.error())
    throw_error(
        ErrorKind::failed,
        {"the system does not bind the threads of this rank to the cores ", affinity::text_of(cores_.share),
         " (", std::strerror(error), "); leave bind_threads at none"},
        transport_.rank());
  if constexpr (requires { context_.set_gradients_workspace({}); })
    context_.set_gradients_workspace(detail::workspace_of(plan_, memory_, 1));
  context_.reserve(
      std::max(plan_.train.schedule.entries.size(), plan_.evaluate.schedule.entries.size()),
      static_cast<std::size_t>(plan_.train.at(plan_.train.find(BufferKind::batch, -1)).bytes / 2));
  if (plan_.shape.checkpoints == CheckpointMemory::snapshot) context_.reserve_copies();
  // Memory is allocated before this call, because an allocation can wait for GPUs of other ranks.
  comm::agree(transport_, detail::hash_of_numbers(options, plan_),
              "numbers of the run (model sizes, batch, optimizer, seed)");
  fill(
      [this](int unit, int parameter, std::int64_t offset, std::span<float> out) {
        initial_values(options_.seed, unit, parameter,
                       plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)].init, offset, out);
      },
      &options_.seed);
  // On the CPU this thread computes, so it gets its own core now, after it has started its helper threads.
  if (Context<Place>::immediate && !cores_.of_workers.empty())
    (void)affinity::bind_thread({cores_.of_workers.front()});
}

template <class Place, class T>
void Engine<Place, T>::fill(ParameterSource const& source, std::uint64_t const* seed) {
  detail::select_device<Place>(device_);
  synchronize();
  weights().fill(source, seed);
  StepState state;
  if (rule_.loss_scale != LossScaleKind::none) state.loss_scale = rule_.scale.initial;
  set_scalars(state);
  // The first fill clears no moments. A new arena and a new file contain zeros, and writing them again would
  // delay step 1.
  if (std::exchange(filled_, true))
    for (Buffer const& buffer : plan_.train.buffers)
      if (buffer.kind == BufferKind::moment) {
        memory_.clear(context_, buffer);
        transport_.heartbeat();  // a slow disk must not look like a lost rank
      }
}

/// Enqueues copies of this rank's part of the master weights and moments, for a checkpoint. Later updates
/// wait for these copies.
template <class Place, class T>
void Engine<Place, T>::take_snapshot() {
  synchronize();
  detail::select_device<Place>(device_);
  for (Buffer const& snapshot : plan_.train.buffers) {
    if (snapshot.kind != BufferKind::snapshot) continue;
    Flat const of{snapshot.unit, snapshot.flat};
    BufferKind const kind = snapshot.index == 0 ? plan_.master_kind(of) : BufferKind::moment;
    int const from = plan_.train.find(kind, of, snapshot.index == 0 ? 0 : snapshot.index - 1);
    memory_.copy(context_, plan_.train.at(from), snapshot);
    transport_.heartbeat();
  }
  context_.end_copies();
}

template <class Place, class T>
void Engine<Place, T>::check(Batch const& batch, int accumulation) const {
  StepShape const& shape = plan_.shape;
  auto const fail = [&](char const* what, std::int64_t has, std::int64_t wants) {
    throw_error(ErrorKind::usage,
                {"batch: ", what, " is ", has, ", but this trainer was planned for ", wants,
                 "; make a trainer for each batch shape"},
                transport_.rank());
  };
  if (batch.batch != shape.batch) fail("the micro-batch", batch.batch, shape.batch);
  if (batch.sequence != shape.sequence) fail("the sequence", batch.sequence, shape.sequence);
  if (batch.accumulation != accumulation) fail("the accumulation", batch.accumulation, accumulation);
  if (transport_.world() > 1 && batch.world > 0 &&
      (batch.world != transport_.world() || batch.rank != transport_.rank()))
    throw_error(ErrorKind::usage,
                {"batch: it was made for rank ", batch.rank, " in a world of ", batch.world,
                 ", but this is rank ", transport_.rank(), " in a world of ", transport_.world(),
                 "; give the Loader .rank = comm.rank() and .world = comm.world()"},
                transport_.rank());
  std::int64_t const elements = batch.elements();
  if (static_cast<std::int64_t>(batch.tokens.size()) != elements)
    fail("the number of tokens", static_cast<std::int64_t>(batch.tokens.size()), elements);
  if (static_cast<std::int64_t>(batch.targets.size()) != elements)
    fail("the number of targets", static_cast<std::int64_t>(batch.targets.size()), elements);
  std::int64_t const vocabulary = model_.vocabulary;
  auto const impossible = [&](char const* what, std::int64_t at, std::int32_t value) {
    throw_error(ErrorKind::data,
                {"batch: ", what, " ", at, " is ", value, ", but the model's vocabulary is ", vocabulary,
                 "; choose a larger vocabulary or other data"},
                transport_.rank());
  };
  for (std::int64_t at = 0; at < elements; ++at) {
    std::int32_t const token = batch.tokens[static_cast<std::size_t>(at)];
    if (token < 0 || token >= vocabulary) impossible("token", at, token);
    std::int32_t const target = batch.targets[static_cast<std::size_t>(at)];
    if (target >= vocabulary) impossible("target", at, target);
  }
}

/// Checks a batch and throws an error if it is invalid. With several ranks, an invalid batch also ends the
/// run on all ranks, because other ranks possibly already run this step.
template <class Place, class T>
void Engine<Place, T>::admit(Batch const& batch, int accumulation) {
  try {
    check(batch, accumulation);
  } catch (Error const& error) {
    if (transport_.world() > 1) give_up(error.what());
    throw;
  }
}

template <class Place, class T>
void Engine<Place, T>::load(Batch const& batch) {
  std::byte* const to = memory_.train(plan_.train.find(BufferKind::batch, -1));
  std::size_t const bytes = batch.tokens.size() * sizeof(std::int32_t);
  std::size_t const targets_offset =
      static_cast<std::size_t>(plan_.shape.accumulation * plan_.shape.batch * plan_.shape.sequence) *
      sizeof(std::int32_t);
  context_.upload(to, batch.tokens.data(), bytes);
  context_.upload(to + targets_offset, batch.targets.data(), bytes);
}

/// Copies a finished step's scalars to the step's report. Throws Error(diverged) if the run cannot go on.
template <class Place, class T>
void Engine<Place, T>::conclude(StepReport& report, StepState const& state) const {
  report.step = state.attempted;
  report.loss = state.loss;
  report.grad_norm = state.norm;
  report.learning_rate = state.learning_rate;
  report.scale = state.used_scale;
  report.skipped = state.skipped != 0;
  if (state.bad_unit >= 0) report.overflow = plan_.name_at(state.bad_unit, state.bad_element);
  report.tokens = rule_.tokens;
  report.valid_tokens = state.valid_tokens;
  report.stop = state.stop_votes > 0;
  if (state.stopped_at > 0) diverge(report, state);
}

template <class Place, class T>
void Engine<Place, T>::diverge(StepReport const& report, StepState const& state) const {
  if (rule_.loss_scale == LossScaleKind::none)
    throw_error(ErrorKind::diverged,
                {"the gradient is not finite in step ", state.stopped_at, ", first in ", report.overflow,
                 "; the weights are as they were before that step; lower the learning rate or set clip"},
                transport_.rank(), report.overflow);
  char scale[32];
  std::snprintf(scale, sizeof scale, "%g", report.scale);
  throw_error(ErrorKind::diverged,
              {"the gradient overflowed ", state.skips_in_row, " steps in a row, the last time in ",
               report.overflow, " at loss scale ", scale, " in step ", state.stopped_at,
               "; lower the learning rate or use Precision<bfloat16>"},
              transport_.rank(), report.overflow);
}

/// Stores the current exception, which all later steps throw. Makes the communicator unusable
/// (Transport::poison), so that the other ranks fail, too, instead of waiting for this rank. This is not
/// necessary after a divergence, which all ranks detect, or after the loss of a rank, which has already made
/// the communicator unusable.
template <class Place, class T>
void Engine<Place, T>::give_up(char const* cause) {
  failure_ = std::current_exception();
  try {
    throw;
  } catch (Error const& error) {
    if (error.kind() != ErrorKind::peer_lost && error.kind() != ErrorKind::diverged) transport_.poison(cause);
  } catch (...) {
    transport_.poison(cause);
  }
}

/// Enqueues one step. Returns true if the schedule ran entry by entry, and false if a CUDA graph was
/// replayed.
template <class Place, class T>
bool Engine<Place, T>::enqueue(Batch const& batch, bool stop) {
  load(batch);
  store_.begin_step(rule_.rates.at(attempted_), stop);
  ++attempted_;
  return context_.replay(0, plan_.recipe.capture == CaptureKind::graph,
                         [&] { train_.run(context_, store_, transport_, observer_); });
}

template <class Place, class T>
Ticket Engine<Place, T>::step(Batch const& batch, bool stop) {
  if (failure_) return Ticket(failure_);
  detail::select_device<Place>(device_);
  auto const start = Clock::now();
  admit(batch, plan_.shape.accumulation);
  comm::Traffic const before = transport_.traffic();
  try {
    if (timer_) begin_timing();
    if constexpr (slots > 0) {
      auto const& oldest = readbacks_[static_cast<std::size_t>(next_slot_)];
      if (oldest && oldest->engine) read_back(*oldest);
      if (failure_) return Ticket(failure_);
      context_.mark_begin(next_slot_);
    }
    if (enqueue(batch, stop)) {
      comm::Traffic const& now = transport_.traffic();
      traffic_ = {now.bytes_sent - before.bytes_sent, now.collectives - before.collectives,
                  now.seconds - before.seconds, now.waiting - before.waiting, now.calls - before.calls};
    }
    if (timer_) context_.end_timing();
    StepReport begun;
    begun.comm_bytes = traffic_.bytes_sent;
    if constexpr (Context<Place>::immediate) {  // on a GPU, these times would only measure enqueueing
      begun.comm_seconds = traffic_.seconds;
      begun.comm_waiting = traffic_.waiting;
    }
    if constexpr (slots > 0) {
      return begin_readback(std::move(begun));
    } else {
      conclude(begun, store_.state());
      auto const end = Clock::now();
      begun.seconds = std::chrono::duration<double>(end - start).count();
      begun.interval = std::chrono::duration<double>(end - last_end_.value_or(start)).count();
      last_end_ = end;
      return Ticket(std::move(begun));
    }
  } catch (std::exception const& error) {
    give_up(error.what());
  } catch (...) {
    give_up("a step threw an exception that is not a std::exception");
  }
  return Ticket(failure_);
}

/// Enqueues the copy of the step's scalars to the host. Returns a ticket that waits for this copy.
template <class Place, class T>
Ticket Engine<Place, T>::begin_readback(StepReport begun) {
  auto readback = std::make_shared<Readback>();
  readback->engine = this;
  readback->slot = next_slot_;
  readback->report = std::move(begun);
  context_.begin_readback(next_slot_, store_.state_address(), sizeof(StepState));
  readbacks_[static_cast<std::size_t>(next_slot_)] = readback;
  next_slot_ = (next_slot_ + 1) % slots;
  return Ticket(std::shared_ptr<PendingStep>(std::move(readback)));
}

template <class Place, class T>
void Engine<Place, T>::read_back(Readback& readback) {
  readback.engine = nullptr;
  try {
    detail::select_device<Place>(device_);
    transport_.await([&] { return context_.arrived(readback.slot); }, "the end of a step");
    context_.raise();
    context_.report_times();
    StepState state;
    std::memcpy(&state, context_.readback(readback.slot), sizeof state);
    readback.report.seconds = context_.seconds(readback.slot);
    readback.report.interval = context_.interval(readback.slot);
    conclude(readback.report, state);
  } catch (std::exception const& error) {
    give_up(error.what());
    readback.failure = failure_;
  }
}

template <class Place, class T>
void Engine<Place, T>::abandon_readbacks() {
  for (auto const& readback : readbacks_) {
    if (!readback || !readback->engine) continue;
    readback->engine = nullptr;
    readback->failure = std::make_exception_ptr(
        Error(ErrorKind::usage, "this ticket was read after its trainer was destroyed; read it earlier"));
  }
}

/// Waits for enqueued work before the destructor frees the memory that this work uses.
template <class Place, class T>
void Engine<Place, T>::rest() noexcept {
  if (context_.finished()) return;
  try {
    detail::select_device<Place>(device_);
    synchronize();
  } catch (...) {  // the communicator has ended, so no kernel waits for another rank any longer
    context_.synchronize();
  }
}

template <class Place, class T>
double Engine<Place, T>::evaluate(Batch const& batch) {
  if (failure_) std::rethrow_exception(failure_);
  detail::select_device<Place>(device_);
  admit(batch, batch.accumulation);
  synchronize();
  struct Sums {
    double loss, counted;
  };
  std::vector<Sums> all(static_cast<std::size_t>(transport_.world()));
  Batch one;
  one.batch = batch.batch;
  one.sequence = batch.sequence;
  double loss = 0.0, counted = 0.0;
  for (int micro = 0; micro < batch.accumulation; ++micro) {
    auto const tokens = batch.micro_tokens(micro), targets = batch.micro_targets(micro);
    one.tokens.assign(tokens.begin(), tokens.end());
    one.targets.assign(targets.begin(), targets.end());
    load(one);
    context_.replay(1, plan_.recipe.capture == CaptureKind::graph,
                    [&] { evaluate_.run(context_, store_, transport_); });
    synchronize();
    LossSum sum;
    context_.read(store_.loss_slot(0), &sum, sizeof sum);
    Sums const own{sum.loss, static_cast<double>(sum.valid_tokens)};
    transport_.all_gather(&own, all.data(), sizeof own, {"evaluate", "head", micro});
    comm::ProcessGroup const by = plan_.losses_by();
    for (int part = 0; part < by.count; ++part) {  // in the order of the global batch's micro-batches
      Sums const& sums = all[static_cast<std::size_t>(by.rank(part))];
      loss += sums.loss;
      counted += sums.counted;
    }
  }
  return counted > 0.0 ? loss / counted : 0.0;
}

namespace detail {

template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(ErasedModel<Place, T> model, RecipeTable const& recipe,
                                        comm::Comm comm, TrainerOptions const& options, OpenStateFile open) {
  check_options(options, model.positions);
  return std::unique_ptr<AnyTrainer>(
      new Engine<Place, T>(std::move(model), CheckedRecipe(recipe), options, std::move(comm), open));
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
