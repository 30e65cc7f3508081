// SPDX-License-Identifier: Apache-2.0
// The code that runs every recipe of one device and one compute type.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/nn/init.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/store/parameter_store.hpp"
#include "tessera/train/executor.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"

namespace tessera::inline v0 {

/// A model without its type: what the engine needs of it.
template <class Place, class T>
struct ErasedModel {
  std::shared_ptr<void const> object;
  UnitFunctions<Place, T> functions;
  UnitLister units;
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;
};

/// The threads of one rank: what was asked for, or the machine's cores over the ranks.
inline int threads_of_rank(int asked, int world) {
  if (asked > 0) return asked;
  int const cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, world));
}

/// The numbers of a plan from the options of a trainer.
template <class Place>
StepShape step_shape(TrainerOptions const& options, int rank, int world) {
  StepShape shape;
  shape.batch = options.batch;
  shape.sequence = options.sequence;
  shape.accumulation = options.accumulation;
  shape.world = world;
  shape.rank = rank;
  shape.bucket_bytes = options.bucket_bytes;
  shape.recompute_every = std::max(1, options.recompute_every);
  shape.workspace_bytes =
      static_cast<std::int64_t>(Context<Place>::workspace_bytes(threads_of_rank(options.threads, world)));
  return shape;
}

/// Holds one rank's memory and state and runs its steps. Not copyable, used by one thread at a time. The
/// transport must outlive it.
template <class Place, class T>
class Engine {
 public:
  /// Refuses what does not fit (Error(out_of_memory)) before anything is allocated; compares the schedule's
  /// hash over all ranks; fills the weights from the seed.
  Engine(ErasedModel<Place, T> model, RecipeTable const& recipe, TrainerOptions const& options,
         comm::Transport& transport);

  /// One optimizer step. Throws Error(usage or data) for a batch of another shape or with impossible tokens;
  /// what fails inside the step is thrown by the ticket, and then by every later step.
  Ticket step(Batch const& batch);

  /// The mean loss over a batch's unmasked tokens, over all ranks: forward only, changes nothing. All ranks
  /// call it together.
  double evaluate(Batch const& batch);

  void settle() { store_.settle(); }
  /// Calls the observer after every entry of every later step; an empty one ends that.
  void observe(StepObserver observer) { observer_ = std::move(observer); }
  /// Replaces all weights; moments, step count and loss scale start anew.
  void fill(ParameterSource const& source);
  /// Hands all weights to rank 0's sink, in the order of names.
  void collect(ParameterSink const& sink) { store_.collect(sink); }

  StepPlan const& plan() const { return plan_; }
  StepMemory<Place> const& memory() const { return memory_; }
  StepState const& state() const { return store_.state(); }

  /// Runs a step on a recording context: every operation is reported to the recorder and nothing is computed.
  /// For a world of one.
  void record(Recorder& recorder) {
    Context<Place> context(1, {}, &recorder);
    Store store(plan_, memory_, context, transport_, rule_);
    train_.run(context, store, transport_);
  }

 private:
  using Store = ParameterStore<Place, T>;

  void load(Batch const& batch);
  void check(Batch const& batch, int accumulation) const;
  StepReport report(std::chrono::steady_clock::time_point start, comm::Traffic const& before) const;

  ErasedModel<Place, T> model_;
  TrainerOptions options_;
  comm::Transport& transport_;
  StepPlan plan_;
  StepMemory<Place> memory_;
  Context<Place> context_;
  StepRule rule_;
  RateSchedule rates_;
  Store store_;
  Executor<Place, T> train_;
  Executor<Place, T> evaluate_;
  StepObserver observer_;
  std::exception_ptr failure_;
  bool filled_ = false;
};

namespace detail {

template <class Place, class T>
StepPlan checked_plan(ErasedModel<Place, T> const& model, RecipeTable const& recipe,
                      TrainerOptions const& options, comm::Transport& transport) {
  check_supported(recipe);
  StepShape const shape = step_shape<Place>(options, transport.rank(), transport.world());
  StepPlan plan = make_plan(model.units({shape.batch, shape.sequence}), recipe, shape);
  refuse_if_too_big(model.units, plan, recipe, options.memory_limit, model.positions);
  transport.barrier({"plan"});  // no rank takes memory while another still asks what is free
  return plan;
}

template <class Place>
std::span<std::byte> workspace_of(StepPlan const& plan, StepMemory<Place> const& memory) {
  int const buffer = plan.train.find(BufferKind::workspace, -1);
  return {memory.train(buffer), static_cast<std::size_t>(plan.train.at(buffer).bytes)};
}

/// A hash of every number that must be the same on all ranks and is not in the schedule.
inline std::uint64_t hash_of_numbers(TrainerOptions const& options, StepPlan const& plan) {
  std::uint64_t hash = 14695981039346656037ull;
  auto const mix = [&](auto value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    hash = (hash ^ bits) * 1099511628211ull;
    hash ^= hash >> 29;
  };
  for (double const number :
       {options.learning_rate, options.beta1, options.beta2, options.epsilon, options.weight_decay,
        options.clip, options.final_fraction, options.loss_scale.initial, options.loss_scale.minimum,
        options.loss_scale.maximum})
    mix(number);
  for (std::int64_t const number :
       {options.warmup_steps, options.total_steps, options.loss_scale.growth_interval, options.skips_allowed,
        plan.shape.batch, plan.shape.sequence})
    mix(number);
  mix(options.seed);
  mix(options.schedule);
  for (UnitLayout const& layout : plan.layouts)
    for (Range const& parameter : layout.parameters) mix(parameter.end);
  return hash;
}

inline StepRule step_rule(RecipeTable const& recipe, TrainerOptions const& options, StepShape const& shape) {
  StepRule rule;
  rule.loss_scale = recipe.loss_scale;
  rule.scale = options.loss_scale;
  rule.adamw = {options.beta1, options.beta2, options.epsilon, options.weight_decay};
  rule.clip = options.clip;
  rule.tokens = shape.global_batch() * shape.sequence;
  return rule;
}

}  // namespace detail

template <class Place, class T>
Engine<Place, T>::Engine(ErasedModel<Place, T> model, RecipeTable const& recipe,
                         TrainerOptions const& options, comm::Transport& transport)
    : model_(std::move(model)),
      options_(options),
      transport_(transport),
      plan_(detail::checked_plan(model_, recipe, options, transport)),
      memory_(plan_),
      context_(threads_of_rank(options.threads, transport.world()), detail::workspace_of(plan_, memory_)),
      rule_(detail::step_rule(recipe, options, plan_.shape)),
      rates_{options.learning_rate, options.schedule, options.warmup_steps, options.total_steps,
             options.final_fraction},
      store_(plan_, memory_, context_, transport, rule_),
      train_(plan_, plan_.train, memory_, model_.functions, model_.object.get()),
      evaluate_(plan_, plan_.evaluate, memory_, model_.functions, model_.object.get()) {
  comm::agree(transport_, hash_of(plan_.train.schedule), "step schedule");
  comm::agree(transport_, detail::hash_of_numbers(options, plan_),
              "numbers of the run (model sizes, batch, optimizer, seed)");
  fill([this](int unit, int parameter, std::int64_t offset, std::span<float> out) {
    initial_values(options_.seed, unit, parameter,
                   plan_.unit(unit).parameters[static_cast<std::size_t>(parameter)].init, offset, out);
  });
}

template <class Place, class T>
void Engine<Place, T>::fill(ParameterSource const& source) {
  store_.fill(source);
  StepState& state = store_.state();
  state = StepState{};
  if (rule_.loss_scale != LossScaleKind::none) state.loss_scale = rule_.scale.initial;
  for (Buffer const& buffer : plan_.train.buffers)
    if (buffer.kind == BufferKind::moments) {
      int const index = plan_.train.find(buffer.kind, buffer.unit, buffer.index);
      // Untouched pages of an arena are zero already; writing them would only take time before step 1.
      if (filled_) std::memset(memory_.train(index), 0, static_cast<std::size_t>(buffer.bytes));
    }
  filled_ = true;
}

template <class Place, class T>
void Engine<Place, T>::check(Batch const& batch, int accumulation) const {
  StepShape const& shape = plan_.shape;
  auto const fail = [&](char const* what, std::int64_t has, std::int64_t wants) {
    throw Error(ErrorKind::usage,
                std::string("batch: ") + what + " is " + std::to_string(has) +
                    ", but this trainer was planned for " + std::to_string(wants) +
                    "; make a trainer for each batch shape",
                transport_.rank());
  };
  if (batch.batch != shape.batch) fail("the micro-batch", batch.batch, shape.batch);
  if (batch.sequence != shape.sequence) fail("the sequence", batch.sequence, shape.sequence);
  if (batch.accumulation != accumulation) fail("the accumulation", batch.accumulation, accumulation);
  std::int64_t const elements = batch.elements();
  if (static_cast<std::int64_t>(batch.tokens.size()) != elements)
    fail("the number of tokens", static_cast<std::int64_t>(batch.tokens.size()), elements);
  if (static_cast<std::int64_t>(batch.targets.size()) != elements)
    fail("the number of targets", static_cast<std::int64_t>(batch.targets.size()), elements);
  auto const impossible = [&](char const* what, std::int64_t at, std::int32_t value) {
    throw Error(ErrorKind::data,
                std::string("batch: ") + what + " " + std::to_string(at) + " is " + std::to_string(value) +
                    ", but the model's vocabulary is " + std::to_string(model_.vocabulary) +
                    "; choose a larger vocabulary or other data",
                transport_.rank());
  };
  for (std::int64_t at = 0; at < elements; ++at) {
    std::int32_t const token = batch.tokens[static_cast<std::size_t>(at)];
    if (token < 0 || token >= model_.vocabulary) impossible("token", at, token);
    std::int32_t const target = batch.targets[static_cast<std::size_t>(at)];
    if (target >= model_.vocabulary) impossible("target", at, target);
  }
}

template <class Place, class T>
void Engine<Place, T>::load(Batch const& batch) {
  std::byte* const to = memory_.train(plan_.train.find(BufferKind::batch, -1));
  std::size_t const bytes = batch.tokens.size() * sizeof(std::int32_t);
  std::size_t const half_way =
      static_cast<std::size_t>(plan_.shape.accumulation * plan_.shape.batch * plan_.shape.sequence) *
      sizeof(std::int32_t);
  std::memcpy(to, batch.tokens.data(), bytes);
  std::memcpy(to + half_way, batch.targets.data(), bytes);
}

template <class Place, class T>
StepReport Engine<Place, T>::report(std::chrono::steady_clock::time_point start,
                                    comm::Traffic const& before) const {
  StepState const& state = store_.state();
  StepReport report;
  report.step = state.attempted;
  report.loss = state.loss;
  report.grad_norm = state.norm;
  report.learning_rate = state.learning_rate;
  report.scale = state.used_scale;
  report.skipped = state.skipped != 0;
  if (state.bad_unit >= 0) report.overflow = store_.name_at(state.bad_unit, state.bad_element);
  report.tokens = rule_.tokens;
  report.unmasked = state.unmasked;
  comm::Traffic const& now = transport_.traffic();
  report.comm_bytes = now.bytes_sent - before.bytes_sent;
  report.comm_seconds = now.seconds - before.seconds;
  report.comm_waiting = now.waiting - before.waiting;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

template <class Place, class T>
Ticket Engine<Place, T>::step(Batch const& batch) {
  if (failure_) return Ticket(failure_);
  auto const start = std::chrono::steady_clock::now();
  check(batch, plan_.shape.accumulation);
  comm::Traffic const before = transport_.traffic();
  try {
    load(batch);
    store_.begin_step(rates_.at(store_.state().attempted));
    train_.run(context_, store_, transport_, observer_);
    StepReport done = report(start, before);
    if (store_.state().skips_in_row > options_.skips_allowed)
      throw Error(ErrorKind::diverged,
                  "the gradient overflowed " + std::to_string(store_.state().skips_in_row) +
                      " steps in a row, the last time in " + done.overflow + " at loss scale " +
                      std::to_string(done.scale) + " in step " + std::to_string(done.step) +
                      "; lower the learning rate or use Precision<bfloat16>",
                  transport_.rank(), done.overflow);
    return Ticket(std::move(done));
  } catch (std::exception const& error) {
    failure_ = std::current_exception();
    // The others wait for this rank, which may read the ticket late or never. All of them see the same
    // divergence.
    auto const* const known = dynamic_cast<Error const*>(&error);
    if (!known || (known->kind() != ErrorKind::peer_lost && known->kind() != ErrorKind::diverged))
      transport_.poison(error.what());
    return Ticket(failure_);
  } catch (...) {
    failure_ = std::current_exception();
    transport_.poison("a step threw something that is no std::exception");
    return Ticket(failure_);
  }
}

template <class Place, class T>
double Engine<Place, T>::evaluate(Batch const& batch) {
  if (failure_) std::rethrow_exception(failure_);
  check(batch, batch.accumulation);
  settle();
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
    evaluate_.run(context_, store_, transport_);
    Sums const own{*store_.loss_slot(0), static_cast<double>(*store_.count_slot(0))};
    transport_.all_gather(&own, all.data(), sizeof own, {"evaluate", "head", micro});
    for (Sums const& sums : all) {  // in the order of micro-batches, whatever the world
      loss += sums.loss;
      counted += sums.counted;
    }
  }
  return counted > 0.0 ? loss / counted : 0.0;
}

}  // namespace tessera::inline v0
