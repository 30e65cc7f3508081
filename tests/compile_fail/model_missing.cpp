// SPDX-License-Identifier: Apache-2.0
// expect: tessera: the first argument of Trainer is not a model. The model comes first, the policies follow
// in any order. Write Trainer<Gpt2, ZeroStage<2>>, or see what a model needs. See docs/policies/README.md.
#include "model_support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
using Run = ts::Trainer<ts::WholeModel, ts::ZeroStage<2>>;
#else
using Run = ts::Trainer<int, ts::ZeroStage<2>>;
#endif

Run make() { return Run{1}; }
