// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model has no usable member units. It is missing, misspelt, private, not const, or its
// argument or result has another type. Write std::vector<UnitSpec> units(MicroBatch shape) const. See
// docs/how-to/add-a-model.md.
#include "model_support.hpp"

namespace ts = tessera;

#if defined(TESSERA_TWIN)
struct Mine : ts::WholeModel {};
#else
struct Mine;
#endif

using Run = ts::Trainer<Mine, ts::ZeroStage<2>>;

Run make() { return Run{1}; }
