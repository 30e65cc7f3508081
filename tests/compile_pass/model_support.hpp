// SPDX-License-Identifier: Apache-2.0
// Provides the code that tests of faulty models compile against: a minimal trainer that checks its model, and
// the correct model WholeModel. A test derives its model from WholeModel and hides one member.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "tessera/nn/model.hpp"
#include "tessera/policy/pack.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera {
inline namespace v0 {

struct WholeModel {
  std::vector<UnitSpec> units(MicroBatch) const { return {}; }
  std::int64_t vocabulary() const { return 1; }
  std::int64_t positions() const { return 1; }
  template <class Place, class T>
  void forward(int, Pass<Place, T>&) const {}
  template <class Place, class T>
  void recompute(int, Pass<Place, T>&) const {}
  template <class Place, class T>
  void backward_input(int, Pass<Place, T>&) const {}
  template <class Place, class T>
  void backward_weight(int, Pass<Place, T>&) const {}
};

template <class M, class Recipe>
struct BasicTrainer : rules<Recipe> {
  explicit BasicTrainer(int) {}
};

/// A trainer of the model M. If M is faulty, `rules` reports the fault with a static_assert. The trainer then
/// has WholeModel as its model, so that the compiler reports no further errors.
template <class M, class... Policies>
using Trainer = BasicTrainer<std::conditional_t<Model<M>, M, WholeModel>,
                             typename ResolvedFor<model_fault_t<M>, Policies...>::config>;

}  // namespace v0
}  // namespace tessera
