// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Attention<How> does not know this implementation. There are three, and Auto picks among
// them. Write Attention<Auto>, <Reference>, <Fused> or <Cudnn>. See docs/policies/attention.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Attention<ts::Fused>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Attention<ts::Fast>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
