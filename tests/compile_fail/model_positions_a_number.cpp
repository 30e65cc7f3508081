// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model has no usable member positions. It is missing, misspelt, private, not const, or
// not a function that returns a number. Write std::int64_t positions() const. See docs/how-to/add-a-model.md.
#include "model_support.hpp"

namespace ts = tessera;

struct Mine : ts::WholeModel {
#if defined(TESSERA_TWIN)
  std::int64_t positions() const { return 1024; }
#else
  std::int64_t positions = 1024;
#endif
};

using Run = ts::Trainer<Mine, ts::ZeroStage<2>>;

Run make() { return Run{1}; }
