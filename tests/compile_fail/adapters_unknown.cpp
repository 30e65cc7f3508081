// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Adapters<What> knows None alone. The model's own weights are trained, or adapters of low
// rank beside them. Write Adapters<None> or Lora. See docs/policies/adapters.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Adapters<ts::None>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Adapters<ts::Lora>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
