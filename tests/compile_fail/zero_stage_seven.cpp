// SPDX-License-Identifier: Apache-2.0
// expect: tessera: ZeroStage<N> has no such stage. ZeRO has stages 0 to 3: nothing sharded, then the
// optimizer, the gradients, the parameters. Write one of these. See docs/policies/sharding.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<3>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::ZeroStage<7>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
