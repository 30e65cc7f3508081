// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a tiny GPT-2 on 2 ranks for every recipe in examples/experiments. Each recipe
// is a type, so its trainer is compiled and not selected by name at run time. Benchmark names:
// experiment/<file>/<sharding>/<precision>/<offload>/ranks:2. For example, --benchmark_filter=/zero-medium/
// measures one experiment. Recipes that no engine supports are left out.
#include <memory>
#include <string>
#include <type_traits>

#include <benchmark/benchmark.h>

#include "tessera/plan/support.hpp"

#include "context.hpp"
#include "experiments/experiments.hpp"
#include "steps.hpp"

namespace ts = tessera;

namespace {

template <class Run>
void step(benchmark::State& state) {
  auto const run = [](int ranks, auto const& fn) { ts::run(ranks, fn); };
  steps::measure(state, steps::tiny, 2, run,
                 [](ts::comm::Comm const& comm, ts::TrainerOptions const& options) {
                   return std::make_unique<Run>(ts::Gpt2(steps::tiny.model), comm, options);
                 });
}

bool register_all() {
  experiments::for_each_experiment<ts::Cpu>([&](std::string const& experiment, auto list) {
    list.for_each([&]<class Run>(std::type_identity<Run>) {
      if (ts::unsupported_reason(Run::recipe)) return;
      ts::SlotNames const& names = Run::recipe.names;
      std::string const name = "experiment/" + experiment + "/" + std::string(names.sharding) + "/" +
                               std::string(names.precision) + "/" + std::string(names.offload) + "/ranks:2";
      benchmark::RegisterBenchmark(name.c_str(), &step<Run>)->UseManualTime()->Unit(benchmark::kMillisecond);
    });
  });
  return true;
}

bool const registered = register_all();

}  // namespace
