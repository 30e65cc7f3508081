// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Offload<Nvme> keeps state in files, and this file does not include the code that reads and
// writes them. Include <tessera/nvme.hpp>. See docs/policies/offload.md.
#include <tessera/tessera.hpp>
#if defined(TESSERA_TWIN)
#include <tessera/nvme.hpp>
#endif

namespace ts = tessera;
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<1>, ts::Offload<ts::Nvme>>;

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
