// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a field is misspelt or has another type. Write TrainerOptions{...}, and the compiler
// names the field. See docs/trainer.md.
#include <tessera/tessera.hpp>
#include <tessera/train/trainer.hpp>

// Mistake: a field of TrainerOptions is misspelt, for a trainer whose type has a long name.
namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<2>, ts::Precision<ts::bfloat16>, ts::Offload<ts::Cpu>>;

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm) {
#if defined(TESSERA_TWIN)
  Run trainer(model, comm, {.learning_rate = 1e-3, .batch = 2, .sequence = 64});
  Run without_options(model, comm);
#else
  Run trainer(model, comm, {.lr = 1e-3, .batch = 2, .sequence = 64});
#endif
}
