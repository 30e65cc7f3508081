// SPDX-License-Identifier: Apache-2.0
// expect: tessera: LossScale<How> does not support this mode. A loss scale adapts, is fixed, or is absent.
// Write LossScale<Dynamic>, <Static> or <None>. See docs/policies/loss-scale.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::half>, ts::LossScale<ts::Static>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::half>, ts::LossScale<float>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
