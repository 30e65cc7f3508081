// SPDX-License-Identifier: Apache-2.0
// What the refusal tests and the type tests compile against: the policy layer and the smallest trainer over
// it.
#pragma once

#include <concepts>
#include <type_traits>

#include "tessera/policy/pack.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera::inline v0 {

template <class M>
concept Model = requires {
  typename M::units_type;
};

struct Gpt2 {
  using units_type = int;
};

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

/// A wrong model is a mistake like any other; the refused trainer then acts as one of Gpt2.
template <class M, class... Policies>
using Trainer = BasicTrainer<std::conditional_t<Model<M>, M, Gpt2>,
                             typename ResolvedFor<M, Model<M>, Policies...>::config>;

}  // namespace tessera::inline v0
