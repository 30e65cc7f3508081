// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a tiny model on 1 and 4 ranks of the CPU for every combination that
// recipe_rows.hpp lists. Benchmark names: step/<sharding>/<precision>/<offload>/ranks:<n>, with more segments
// before the last for values that are not the default. The time is rank 0's, from the batch of a step to its
// report.
#include <benchmark/benchmark.h>

#include "context.hpp"
#include "steps.hpp"

int main(int argc, char** argv) {
  steps::register_rows("recipes_benchmark", recipe_rows::this_machine(tessera::Device::cpu, {1, 4}),
                       recipe_rows::tiny);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
