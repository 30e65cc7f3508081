// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Attention<Cudnn> has kernels for 16-bit values only. Use Precision<half> or
// Precision<bfloat16>, or Attention<Auto>. See docs/policies/attention.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Attention<ts::Cudnn>, ts::Precision<ts::half>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Attention<ts::Cudnn>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
