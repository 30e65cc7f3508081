// SPDX-License-Identifier: Apache-2.0
// expect: tessera: a model has no usable member backward_weight. It is missing, misspelt, private, not const,
// or takes other arguments, such as a Pass by value. Write template <class Place, class T> void
// backward_weight(int unit, Pass<Place, T>& pass) const. See docs/how-to/add-a-model.md.
#include <tessera/tessera.hpp>

// Mistake: a member function of the user's model is misspelt.
namespace ts = tessera;

struct Mine {
  std::vector<ts::UnitSpec> units(ts::MicroBatch) const { return {}; }
  std::int64_t vocabulary() const { return 1; }
  std::int64_t positions() const { return 1; }
  template <class Place, class T>
  void forward(int, ts::Pass<Place, T>&) const {}
  template <class Place, class T>
  void recompute(int, ts::Pass<Place, T>&) const {}
  template <class Place, class T>
  void backward_input(int, ts::Pass<Place, T>&) const {}
#if defined(TESSERA_TWIN)
  template <class Place, class T>
  void backward_weight(int, ts::Pass<Place, T>&) const {}
#else
  template <class Place, class T>
  void backward_weights(int, ts::Pass<Place, T>&) const {}
#endif
};

double train(ts::comm::Comm const& comm, ts::Batch const& batch) {
  ts::Trainer<Mine, ts::ZeroStage<2>> trainer{Mine{}, comm, {.learning_rate = 3e-4, .weight_decay = 0.1}};
  trainer.step(batch);
  return trainer.evaluate(batch);
}
