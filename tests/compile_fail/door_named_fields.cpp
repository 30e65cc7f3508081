// SPDX-License-Identifier: Apache-2.0
// names: layers batch layers
#include <tessera/tessera.hpp>

// Mistake: each case sets a field that the struct does not have. The compiler's own error must name the
// field.
namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<2>>;

#if defined(TESSERA_TWIN)
void use(ts::Gpt2 const& model) {
  Run trainer(model, {}, ts::TrainerOptions{.learning_rate = 1e-3, .batch = 2, .lora = {.rank = 4}});
  trainer.step(ts::Batch{.batch = 2, .tokens = {}});
}
#elif TESSERA_CASE == 0  // a field of a model
Run trainer(ts::Gpt2(), {}, ts::TrainerOptions{.layers = 2});
#elif TESSERA_CASE == 1
Run trainer{ts::Gpt2(), {}, {.seed = 1, .batch = 2}};
#elif TESSERA_CASE == 2
ts::Gpt2 model{{.heads = 2, .layers = 2}};
#endif
