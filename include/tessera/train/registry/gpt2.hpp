// SPDX-License-Identifier: Apache-2.0
// What the sources of tessera::recipes share: an AnyTrainer around one engine, one source per type.
#pragma once

#include <memory>
#include <utility>

#include "tessera/nn/gpt2.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::inline v0 {
namespace detail {

template <class T>
class Gpt2Trainer final : public AnyTrainer {
 public:
  Gpt2Trainer(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
              TrainerOptions const& options)
      : comm_(std::move(comm)), engine_(erase<Cpu, T>(Gpt2(model)), recipe, options, comm_.transport()) {}

  Ticket step(Batch const& batch) override { return engine_.step(batch); }
  double evaluate(Batch const& batch) override { return engine_.evaluate(batch); }
  void fill(ParameterSource const& source) override { engine_.fill(source); }
  void collect(ParameterSink const& sink) override { engine_.collect(sink); }
  void settle() override { engine_.settle(); }
  void observe(StepObserver observer) override { engine_.observe(std::move(observer)); }
  StepPlan const& plan() const override { return engine_.plan(); }
  std::int64_t peak_bytes(Tier tier) const override { return engine_.memory().high_water(tier); }
  void record(Recorder& recorder) override { engine_.record(recorder); }

 private:
  comm::Comm comm_;
  Engine<Cpu, T> engine_;
};

template <class T>
std::unique_ptr<AnyTrainer> make_gpt2(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                      TrainerOptions const& options) {
  return std::make_unique<Gpt2Trainer<T>>(model, recipe, std::move(comm), options);
}

extern template std::unique_ptr<AnyTrainer> make_gpt2<float>(Gpt2Options const&, RecipeTable const&,
                                                             comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<double>(Gpt2Options const&, RecipeTable const&,
                                                              comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<half>(Gpt2Options const&, RecipeTable const&,
                                                            comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<bfloat16>(Gpt2Options const&, RecipeTable const&,
                                                                comm::Comm, TrainerOptions const&);

}  // namespace detail
}  // namespace tessera::inline v0
