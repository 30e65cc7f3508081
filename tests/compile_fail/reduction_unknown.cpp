// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Reduction<How> does not support this mode. The order of sums is either free or fixed to
// the bit. Write Reduction<Fast> or Reduction<Ordered>. See docs/policies/reduction.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Reduction<ts::Fast>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Reduction<ts::None>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
