// SPDX-License-Identifier: Apache-2.0
// expect: tessera: LossScale<Dynamic> and LossScale<Static> need Precision<half>; the other formats have the
// range of fp32 or more, and a scale gains nothing. Drop LossScale, or use Precision<half>. See
// docs/policies/loss-scale.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::bfloat16>, ts::LossScale<ts::None>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Precision<ts::bfloat16>, ts::LossScale<ts::Dynamic>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
