// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model cannot be copied. Trainer takes it by value and each engine keeps a copy. Leave
// its copy constructor public, and hold members that cannot be copied in a std::shared_ptr. See
// docs/how-to/add-a-model.md.
#include "model_support.hpp"

namespace ts = tessera;

struct Mine : ts::WholeModel {
#if defined(TESSERA_TWIN)
  Mine(Mine const&) = default;
#else
  Mine(Mine const&) = delete;
#endif
};

using Run = ts::Trainer<Mine, ts::ZeroStage<2>>;

Run make() { return Run{1}; }
