// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Precision<double> on CUDA has no fast attention, since it exists to check gradients. Add
// Attention<Reference>, or compute On<Cpu>. See docs/policies/precision.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<double>, ts::Attention<ts::Reference>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<double>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
