// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model has no usable member backward_weight. It is missing, misspelt, private, not const,
// or takes other arguments, such as a Pass by value. Write template <class Place, class T> void
// backward_weight(int unit, Pass<Place, T>& pass) const. See docs/how-to/add-a-model.md.
#include "model_support.hpp"

namespace ts = tessera;

// Mistake: the number of the segment must be an argument before the pass, not after it.
struct Mine : ts::WholeModel {
#if defined(TESSERA_TWIN)
  template <class Place, class T>
  void backward_weight(int, int, ts::Pass<Place, T>&) const {}
#else
  template <class Place, class T>
  void backward_weight(int, ts::Pass<Place, T>&, int) const {}
#endif
};

using Run = ts::Trainer<Mine, ts::ZeroStage<2>>;

Run make() { return Run{1}; }
