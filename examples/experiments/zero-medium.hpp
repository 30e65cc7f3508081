// SPDX-License-Identifier: Apache-2.0
// The recipes of zero-medium.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::zero_medium {

using namespace tessera;

template <class Device>
using dp_fp16 = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<half>>;
template <class Device>
using zs1_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<half>>;
template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;

template <class Device>
using recipes = RecipeList<dp_fp16<Device>, zs1_fp16<Device>, zs2_fp16<Device>>;

}  // namespace experiments::zero_medium
