// SPDX-License-Identifier: Apache-2.0
// expect: tessera: the first argument of Trainer is not a model. The model comes first, the policies follow
// in any order. Write Trainer<Gpt2, ZeroStage<2>>, or see what a model needs. See docs/policies/README.md.
#include <tessera/tessera.hpp>
#include <tessera/train/trainer.hpp>

// Uses the real trainer, as a user's program does. The mistake must give only one error.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<2>>;
#else
using Run = ts::Trainer<int, ts::ZeroStage<2>>;
#endif

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
