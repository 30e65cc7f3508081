// SPDX-License-Identifier: Apache-2.0
// Provides a minimal trainer that checks its policies. The tests of compile errors and the tests of types
// include this header instead of the real trainer.
#pragma once

#include <concepts>

#include "tessera/policy/pack.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera {
inline namespace v0 {

struct Gpt2 {};

template <class M, class Recipe>
struct BasicTrainer : rules<Recipe> {
  static constexpr RecipeTable recipe = recipe_table<Recipe>;
  using device = device_t<Recipe>;
  using precision = precision_t<Recipe>;

  BasicTrainer(M const&, float learning_rate) : learning_rate_(learning_rate) {}
  float step(int) { return learning_rate_; }

 private:
  float learning_rate_;
};

template <class M, class... Policies>
using Trainer = BasicTrainer<M, typename Resolved<Policies...>::config>;

}  // namespace v0
}  // namespace tessera
