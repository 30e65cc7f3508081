// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a tiny GPT-2 on 1 and 4 ranks for every registered recipe (combination of
// policies). Benchmark names: step/<sharding>/<precision>/<offload>/ranks:<n>. The time is rank 0's, from the
// batch of a step to its report.
#include <string>

#include <benchmark/benchmark.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "context.hpp"
#include "steps.hpp"

namespace ts = tessera;

namespace {

void step(benchmark::State& state, ts::RecipeTable const& recipe, int ranks) {
  auto const run = [&](int count, auto const& fn) { ts::run_ranks(recipe, count, fn); };
  steps::measure(state, steps::tiny, ranks, run,
                 [&](ts::comm::Comm const& comm, ts::TrainerOptions const& options) {
                   return ts::make_trainer(ts::any_model(steps::tiny.model), recipe, comm, options);
                 });
}

bool register_all() {
  for (int const ranks : {1, 4})
    for (ts::RecipeTable const& recipe : ts::registered_recipes()) {
      std::string const name = "step/" + std::string(recipe.names.sharding) + "/" +
                               std::string(recipe.names.precision) + "/" + std::string(recipe.names.offload) +
                               "/ranks:" + std::to_string(ranks);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&recipe, ranks](benchmark::State& state) { step(state, recipe, ranks); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  return true;
}

bool const registered = register_all();

}  // namespace
