// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Capture<Graph> records a CUDA graph, so it needs On<Cuda>, and this recipe computes on the
// CPU. Add On<Cuda>, or drop Capture<Graph>. See docs/policies/capture.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Graph>, ts::On<ts::Cuda>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Graph>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
