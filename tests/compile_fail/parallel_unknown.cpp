// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Parallel<...> has an unknown or repeated axis. It takes each axis of the mesh at most
// once, without a size. Write Parallel<axis::Data, axis::Tensor, axis::Pipeline> or fewer of them. See
// docs/policies/parallel.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Parallel<ts::axis::Tensor>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Parallel<ts::axis::Data, int>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
