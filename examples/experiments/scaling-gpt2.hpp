// SPDX-License-Identifier: Apache-2.0
// The recipes of scaling-gpt2.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::scaling_gpt2 {

using namespace tessera;

template <class Device>
using dp_fp32 = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<float>>;
template <class Device>
using zs0_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<float>>;
template <class Device>
using zs2_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<float>>;
template <class Device>
using zs3_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<float>>;

template <class Device>
using recipes = RecipeList<dp_fp32<Device>, zs0_fp32<Device>, zs2_fp32<Device>, zs3_fp32<Device>>;

}  // namespace experiments::scaling_gpt2
