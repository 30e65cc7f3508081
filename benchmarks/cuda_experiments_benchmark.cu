// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a GPT-2 with 35 million parameters on 1 and 2 GPUs, as far as the machine has
// them, for every recipe in examples/experiments (experiment_steps.hpp). The time is the first GPU's,
// measured with CUDA events from the batch of a step to its report.
#include "tessera/cuda.cuh"

#include "cuda_benchmark.cuh"
#include "experiment_steps.hpp"

int main(int argc, char** argv) {
  steps::register_experiments<tessera::Cuda>("cuda_experiments_benchmark",
                                             recipe_rows::this_machine(tessera::Device::cuda, {1, 2}),
                                             recipe_rows::small);
  return gpu::run(argc, argv);
}
