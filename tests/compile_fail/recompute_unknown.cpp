// SPDX-License-Identifier: Apache-2.0
// expect: tessera: Recompute<What> does not know this part. The backward pass can compute the activation
// function, each block, or every K-th group of blocks again. Write Recompute<None>, <Gelu>, <Block> or
// <Every>. See docs/policies/recompute.md.
#include "support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::Gpt2, ts::Recompute<ts::Block>>;
#else
using Run = ts::Trainer<ts::Gpt2, ts::Recompute<ts::Fast>>;
#endif

Run make() { return Run{ts::Gpt2{}, 1e-3f}; }
