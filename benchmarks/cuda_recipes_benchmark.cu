// SPDX-License-Identifier: Apache-2.0
// Measures one training step of a model with 35 million parameters on 1, 2 and 4 GPUs, as far as the machine
// has them, for every combination that recipe_rows.hpp lists. Benchmark names:
// step/<sharding>/<precision>/<offload>/gpus:<n>, with more segments before the last for values that are not
// the default. The time is the first GPU's, measured with CUDA events from the batch of a step to its report.
// tok/s is over all GPUs. device_bytes, host_bytes, nvme_bytes and comm_bytes are the planned bytes of one
// GPU.
#include "cuda_benchmark.cuh"
#include "steps.hpp"

int main(int argc, char** argv) {
  steps::register_rows("cuda_recipes_benchmark", recipe_rows::this_machine(tessera::Device::cuda, {1, 2, 4}),
                       recipe_rows::small);
  return gpu::run(argc, argv);
}
