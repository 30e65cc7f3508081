// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Adapters<What> supports only None. A run trains the model's own weights or low-rank
// adapters. Write Adapters<None> or Lora. See docs/policies/adapters.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Adapters<ts::None>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Adapters<ts::Lora>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
