// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Precision<half> without a loss scale loses gradients below 6e-8. Use LossScale<Dynamic> or
// LossScale<Static>, or Precision<bfloat16>. See docs/policies/loss-scale.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::half>, ts::LossScale<ts::Static>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::half>, ts::LossScale<ts::None>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
