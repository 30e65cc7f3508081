// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model has no usable member units. It is missing, misspelt, private, not const, or its
// argument or result has another type. Write std::vector<UnitSpec> units(MicroBatch shape) const. See
// docs/how-to/add-a-model.md.
#include "model_support.hpp"

namespace ts = tessera;

struct Mine : ts::WholeModel {
#if defined(TESSERA_TWIN)
  std::vector<ts::UnitSpec> units(ts::MicroBatch) const { return {}; }
#else
  ts::UnitSpec const* units(ts::MicroBatch) const { return nullptr; }
#endif
};

using Run = ts::Trainer<Mine, ts::ZeroStage<2>>;

Run make() { return Run{1}; }
