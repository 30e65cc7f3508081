// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Precision<tf32>, <bf16x6> and <bf16x3> multiply on tensor cores, so they need On<Cuda>,
// and this recipe computes on the CPU. Add On<Cuda>, or use Precision<float>. See docs/policies/precision.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::bf16x6>, ts::On<ts::Cuda>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::bf16x6>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
