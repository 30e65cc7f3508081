// SPDX-License-Identifier: Apache-2.0
// expect: tessera: an argument of Trainer is not a policy. After the model, every argument fills one slot.
// Pass policies such as ZeroStage<2> or Precision<half>, and numbers to the constructor. See
// docs/policies/README.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cpu>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Cpu>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
