// SPDX-License-Identifier: Apache-2.0
// The engine of one place and element type behind the interface of trainers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "tessera/tensor/arena.hpp"
#include "tessera/train/check_options.hpp"
#include "tessera/train/engine.hpp"
#include "tessera/train/state_access.hpp"
#include "tessera/train/trainer_interface.hpp"

namespace tessera {
inline namespace v0 {

/// That of an engine, which must outlive it.
template <class Place, class T>
class EngineState final : public StateAccess {
 public:
  explicit EngineState(Engine<Place, T>& engine) : engine_(engine) {}

  StepPlan const& plan() const override { return engine_.plan(); }
  TrainerOptions const& options() const override { return engine_.options(); }
  comm::Transport& transport() const override { return engine_.transport(); }
  StepState scalars() override { return engine_.state(); }
  void set_scalars(StepState const& state) override { engine_.set_state(state); }
  std::byte* staging() override {
    int const planned = plan().train.find(BufferKind::saving, -1);
    if (planned >= 0) return engine_.memory().train(planned);
    if (spare_.bytes() == 0) spare_ = HostArena(SaveStaging::bytes);
    return spare_.base();
  }
  std::byte const* view(Buffer const& buffer, Range part) override {
    return engine_.view(buffer, part, staging() + SaveStaging::elements);
  }
  std::byte* stage(Buffer const& buffer, Range part) override {
    return engine_.stage(buffer, part, staging() + SaveStaging::elements);
  }
  void put(Buffer const& buffer, Range part, std::byte* staged) override {
    engine_.unstage(buffer, part, staged);
  }
  void take_snapshot() override { engine_.take_snapshot(); }
  bool has_snapshot() const override { return engine_.has_snapshot(); }
  std::byte const* snapshot(Buffer const& buffer, Range part) const override {
    int const index = buffer.kind == BufferKind::moment ? 1 + buffer.index : 0;
    int const copy = plan().train.find(BufferKind::snapshot, {buffer.unit, buffer.flat}, index);
    return engine_.memory().train(copy) + plan().train.at(copy).at(part.begin);
  }

 private:
  Engine<Place, T>& engine_;
  HostArena spare_;
};

namespace detail {

template <class Place, class T>
class EngineTrainer final : public AnyTrainer {
 public:
  EngineTrainer(ErasedModel<Place, T> model, CheckedRecipe const& recipe, comm::Comm comm,
                TrainerOptions const& options, OpenStateFile open)
      : comm_(std::move(comm)),
        engine_(std::move(model), recipe, options, comm_.transport(), open),
        state_(engine_) {}

  Ticket step(Batch const& batch, bool stop) override { return engine_.step(batch, stop); }
  double evaluate(Batch const& batch) override { return engine_.evaluate(batch); }
  void fill(ParameterSource const& source) override { engine_.fill(source); }
  void collect_pieces(ParameterSink const& sink) override { engine_.collect_pieces(sink); }
  void settle() override { engine_.settle(); }
  void observe(StepObserver observer) override { engine_.observe(std::move(observer)); }
  void time_entries(EntryTimer* timer) override { engine_.time_entries(timer); }
  StateAccess& state() override { return state_; }
  StepPlan const& plan() const override { return engine_.plan(); }
  std::int64_t peak_bytes(Tier tier) const override { return engine_.memory().high_water(tier); }
  FileUse file_use() const override {
    StateFile const* const file = engine_.memory().file();
    if (!file) return {};
    return {{file->bytes_read(), file->bytes_written()}, file->description()};
  }
  AttentionKind attention_ran() const override { return engine_.attention_ran(); }
  void record(Recorder& recorder, StepObserver const& observer) override {
    engine_.record(recorder, observer);
  }

 private:
  comm::Comm comm_;
  Engine<Place, T> engine_;
  EngineState<Place, T> state_;
};

template <class Place, class T>
std::unique_ptr<AnyTrainer> make_engine(ErasedModel<Place, T> model, RecipeTable const& recipe,
                                        comm::Comm comm, TrainerOptions const& options, OpenStateFile open) {
  check_options(options, model.positions);
  return std::unique_ptr<AnyTrainer>(
      new EngineTrainer<Place, T>(std::move(model), CheckedRecipe(recipe), std::move(comm), options, open));
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
