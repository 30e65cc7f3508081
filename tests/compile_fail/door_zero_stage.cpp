// SPDX-License-Identifier: Apache-2.0
// expect: tessera: ZeroStage<N> has no such stage. ZeRO has stages 0 to 3: nothing sharded, then the
// optimizer, the gradients, the parameters. Write one of these. See docs/policies/sharding.md.
#include <tessera/tessera.hpp>
#include <tessera/train/trainer.hpp>

// Uses the real trainer, as a user's program does. The mistake must give only one error.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<3>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<7>>;
#endif

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
