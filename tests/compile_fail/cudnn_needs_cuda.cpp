// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Attention<Cudnn> calls cuDNN, so it needs On<Cuda>, and this recipe computes on the CPU.
// Add On<Cuda>, or use Attention<Auto>. See docs/policies/attention.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Attention<ts::Cudnn>, ts::Precision<ts::bfloat16>, ts::On<ts::Cuda>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Attention<ts::Cudnn>, ts::Precision<ts::bfloat16>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
