// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Precision<T> does not know this type. Models compute in one of seven formats. Write
// float, tessera::tf32, tessera::bf16x6, tessera::bf16x3, tessera::half, tessera::bfloat16 or double. See
// docs/policies/precision.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<float>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<int>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
