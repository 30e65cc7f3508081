// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Precision<tf32> multiplies on tensor cores, so it needs On<Cuda>, and this recipe computes
// on the CPU. Add On<Cuda>, or use Precision<float>. See docs/policies/precision.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::tf32>, ts::On<ts::Cuda>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::tf32>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
