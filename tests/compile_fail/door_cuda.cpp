// SPDX-License-Identifier: Apache-2.0
// expect: tessera: On<Cuda> needs the GPU's backend, and this file does not include it. Include
// <tessera/cuda.cuh> and compile the file with nvcc. See docs/policies/device.md.
#include <tessera/tessera.hpp>
#include <tessera/train/trainer.hpp>

// Uses the real trainer, as a user's program does. The mistake must give only one error.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cpu>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>>;
#endif

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
