// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Lora trains adapters, and this file does not include their code. Include
// <tessera/lora.hpp>. See docs/policies/adapters.md.
#include <tessera/tessera.hpp>
#if defined(TESSERA_TWIN)
#include <tessera/lora.hpp>
#endif

namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<1>, ts::Lora>;

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
