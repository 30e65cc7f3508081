// SPDX-License-Identifier: Apache-2.0
// Registers a benchmark of a training step for every recipe in examples/experiments, on any device. Each
// recipe is a type, so its trainer is compiled and not selected by name at run time. Benchmark names:
// experiment/<file>/<sharding>/<precision>/<offload>/<ranks>:<n>. For example,
// --benchmark_filter=/zero-medium/ measures one experiment.
#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include <benchmark/benchmark.h>

#include "experiments/experiments.hpp"
#include "steps.hpp"

namespace steps {

template <class Run>
void experiment(benchmark::State& state, Load const& load, int ranks, std::string const& folder) {
  Row row;
  row.recipe = Run::recipe;
  measure(
      state, load, ranks, 1, [](int count, auto const& fn) { ts::run_ranks(Run::recipe, count, fn); },
      [&](ts::comm::Comm const& comm) {
        return std::make_unique<Run>(ts::Gpt2(load.model), comm, recipe_rows::options_of(row, load, folder));
      });
}

/// Registers the experiments for each number of ranks of `machine`. Prints the ones that cannot run here,
/// with their reasons, to the standard error stream.
template <class Device>
void register_experiments(std::string const& program, Machine const& machine, Load const& load) {
  left_out::List list;
  std::size_t registered = 0;
  experiments::for_each_experiment<Device>([&](std::string const& file, auto recipes) {
    recipes.for_each([&]<class Run>(std::type_identity<Run>) {
      ts::SlotNames const& names = Run::recipe.names;
      auto const slash = [](auto const& text) { return "/" + std::string(text); };
      for (int const ranks : machine.ranks) {
        Row row{{"experiment", slash(file), slash(names.sharding), slash(names.precision),
                 slash(names.offload), slash(machine.unit()) + ":" + std::to_string(ranks)},
                Run::recipe};
        row.ranks = ranks;
        if (std::string const reason = recipe_rows::reason_against(machine, row); !reason.empty()) {
          list.add(row.name, reason);
          continue;
        }
        ++registered;
        benchmark::RegisterBenchmark(left_out::name_of(row.name).c_str(),
                                     [load, ranks, folder = machine.folder](benchmark::State& state) {
                                       experiment<Run>(state, load, ranks, folder);
                                     })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    });
  });
  list.print(program, registered);
}

}  // namespace steps
