// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Reduction<Ordered> promises the same bits on every run, and Attention<Cudnn> does not: its
// backward may sum in any order. Use Attention<Fused>, or Reduction<Fast>. See docs/policies/reduction.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<ts::half>, ts::Reduction<ts::Ordered>,
                        ts::Attention<ts::Fused>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<ts::half>, ts::Reduction<ts::Ordered>,
                        ts::Attention<ts::Cudnn>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
