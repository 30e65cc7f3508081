// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Capture<Graph> records a CUDA graph, so it needs On<Cuda>, and this recipe computes on the
// CPU. Add On<Cuda>, or drop Capture<Graph>. See docs/policies/capture.md.
#include <tessera/tessera.hpp>
#include <tessera/train/trainer.hpp>

// Uses the real trainer, as a user's program does. The mistake must give only one error.
namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Eager>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Graph>>;
#endif

void train(ts::Gpt2 const& model, ts::comm::Comm const& comm, ts::Batch const& batch) {
  Run trainer{model, comm, {.learning_rate = 3e-4f, .weight_decay = 0.1f}};
  trainer.step(batch);
}
