// SPDX-License-Identifier: Apache-2.0
// expect: tessera: two policies answer the same slot. A recipe has one answer for each slot. Keep one of
// them. See docs/policies/README.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<1>, ts::On<ts::Cpu>, ts::Precision<ts::half>,
                        ts::Offload<ts::Cpu>, ts::Recompute<ts::Block>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<1>, ts::On<ts::Cpu>, ts::Precision<ts::half>,
                        ts::Offload<ts::Cpu>, ts::Recompute<ts::Block>, ts::RootOptimizer>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
