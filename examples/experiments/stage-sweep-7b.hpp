// SPDX-License-Identifier: Apache-2.0
// The recipes of stage-sweep-7b.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::stage_sweep_7b {

using namespace tessera;

template <class Device>
using zs0_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<half>>;
template <class Device>
using zs1_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<half>>;
template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;
template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>>;

template <class Device>
using recipes = RecipeList<zs0_fp16<Device>, zs1_fp16<Device>, zs2_fp16<Device>, zs3_fp16<Device>>;

}  // namespace experiments::stage_sweep_7b
