// SPDX-License-Identifier: Apache-2.0
// expect: tessera: it takes a model, a Comm, options. See docs/trainer.md.
#include <tessera/tessera.hpp>

// Mistake: the trainer gets no communicator.
namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<2>, ts::Precision<ts::bfloat16>, ts::Offload<ts::Cpu>>;

void train(ts::Gpt2 const& model) {
#if defined(TESSERA_TWIN)
  Run trainer(model, {}, {.learning_rate = 1e-3, .batch = 2, .sequence = 64});
  Run moved(std::move(trainer));
#else
  Run trainer(model, {.learning_rate = 1e-3, .batch = 2, .sequence = 64});
#endif
}
