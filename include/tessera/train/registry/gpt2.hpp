// SPDX-License-Identifier: Apache-2.0
// What the sources of tessera::recipes share: an AnyTrainer around one engine, one source per type.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/run.hpp"
#include "tessera/nn/gpt2.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/trainer.hpp"

namespace tessera::inline v0 {
namespace detail {

template <class Place, class T>
class Gpt2Trainer final : public AnyTrainer {
 public:
  Gpt2Trainer(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
              TrainerOptions const& options)
      : comm_(std::move(comm)), engine_(erase<Place, T>(Gpt2(model)), recipe, options, comm_.transport()) {}

  Ticket step(Batch const& batch) override { return engine_.step(batch); }
  double evaluate(Batch const& batch) override { return engine_.evaluate(batch); }
  void fill(ParameterSource const& source) override { engine_.fill(source); }
  void collect(ParameterSink const& sink) override { engine_.collect(sink); }
  void settle() override { engine_.settle(); }
  void observe(StepObserver observer) override { engine_.observe(std::move(observer)); }
  StepPlan const& plan() const override { return engine_.plan(); }
  std::int64_t peak_bytes(Tier tier) const override { return engine_.memory().high_water(tier); }
  AttentionKind attention_ran() const override { return engine_.attention_ran(); }
  void record(Recorder& recorder) override { engine_.record(recorder); }

 private:
  comm::Comm comm_;
  Engine<Place, T> engine_;
};

template <class Place, class T>
std::unique_ptr<AnyTrainer> make_gpt2(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                      TrainerOptions const& options) {
  return std::make_unique<Gpt2Trainer<Place, T>>(model, recipe, std::move(comm), options);
}

/// The maker for the format that a recipe computes in.
template <class Place>
std::unique_ptr<AnyTrainer> make_gpt2_of(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                         TrainerOptions const& options) {
  switch (recipe.types.activation) {
    case DType::f64:
      return make_gpt2<Place, double>(model, recipe, std::move(comm), options);
    case DType::f16:
      return make_gpt2<Place, half>(model, recipe, std::move(comm), options);
    case DType::bf16:
      return make_gpt2<Place, bfloat16>(model, recipe, std::move(comm), options);
    default:
      return make_gpt2<Place, float>(model, recipe, std::move(comm), options);
  }
}

/// What the library offers of one device.
struct DeviceRecipes {
  std::unique_ptr<AnyTrainer> (*make)(Gpt2Options const& model, RecipeTable const& recipe, comm::Comm comm,
                                      TrainerOptions const& options);
  int (*devices)();  ///< of this machine
  std::vector<int> (*default_ranks)();
  std::size_t steps_read_late;
  AttentionKind (*attention)(AttentionKind asked);  ///< what runs for it
  DeviceFacts (*facts)();
  MemoryLimit (*memory_limit)(std::int64_t limit);  ///< with a device there
  void (*run)(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options);
};

/// tessera::run with a GPU for each rank.
void run_on_gpus(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options);
/// NCCL's version, empty in a library that was built without it.
std::string nccl_version();

/// The GPU's, or null in a library that was built without CUDA.
DeviceRecipes const* cuda_recipes();

extern template std::unique_ptr<AnyTrainer> make_gpt2<Cpu, float>(Gpt2Options const&, RecipeTable const&,
                                                                  comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cpu, double>(Gpt2Options const&, RecipeTable const&,
                                                                   comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cpu, half>(Gpt2Options const&, RecipeTable const&,
                                                                 comm::Comm, TrainerOptions const&);
extern template std::unique_ptr<AnyTrainer> make_gpt2<Cpu, bfloat16>(Gpt2Options const&, RecipeTable const&,
                                                                     comm::Comm, TrainerOptions const&);

}  // namespace detail
}  // namespace tessera::inline v0
