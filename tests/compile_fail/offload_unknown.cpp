// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Offload<...> does not support these arguments. The optimizer, or the optimizer and the
// parameters, move to Cpu or Nvme. Write Offload<Cpu>, Offload<Nvme>, Offload<Cpu, AllState> or
// Offload<Optimizer<Nvme>, Parameters<Cpu>>. See docs/policies/offload.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Offload<ts::Cpu>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Offload<int>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
