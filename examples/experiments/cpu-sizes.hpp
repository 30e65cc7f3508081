// SPDX-License-Identifier: Apache-2.0
// The recipes of cpu-sizes.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::cpu_sizes {

using namespace tessera;

template <class Device>
using zs0_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<float>>;
template <class Device>
using zs0_bf16 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<bfloat16>>;

template <class Device>
using recipes = RecipeList<zs0_fp32<Device>, zs0_bf16<Device>>;

}  // namespace experiments::cpu_sizes
