// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Capture<How> does not support this mode. A step is enqueued operation by operation or
// replayed as one CUDA graph. Write Capture<Eager> or Capture<Graph>. See docs/policies/capture.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Eager>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Capture<ts::Fast>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
