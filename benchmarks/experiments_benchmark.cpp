// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a tiny GPT-2 on 2 ranks of the CPU for every recipe in examples/experiments
// (experiment_steps.hpp). The time is rank 0's, from the batch of a step to its report.
#include <benchmark/benchmark.h>

#include "context.hpp"
#include "experiment_steps.hpp"

int main(int argc, char** argv) {
  steps::register_experiments<tessera::Cpu>(
      "experiments_benchmark", recipe_rows::this_machine(tessera::Device::cpu, {2}), recipe_rows::tiny);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
