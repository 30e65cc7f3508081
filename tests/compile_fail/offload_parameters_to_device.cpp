// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Offload<...> does not support these arguments. The optimizer, or the optimizer and the
// parameters, move to Cpu or Nvme. Write Offload<Cpu>, Offload<Nvme>, Offload<Cpu, AllState> or
// Offload<Optimizer<Nvme>, Parameters<Cpu>>. See docs/policies/offload.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Offload<ts::Optimizer<ts::Cpu>, ts::Parameters<ts::Nvme>>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Offload<ts::Optimizer<ts::Cpu>, ts::Parameters<ts::Cuda>>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
