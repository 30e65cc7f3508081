// SPDX-License-Identifier: Apache-2.0
// expect: tessera: On<Place> does not support this type. A model computes on the CPU or on one CUDA device
// per rank. Write On<Cpu> or On<Cuda>. See docs/policies/device.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cpu>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Nvme>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
