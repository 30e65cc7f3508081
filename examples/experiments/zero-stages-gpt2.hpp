// SPDX-License-Identifier: Apache-2.0
// The recipes of zero-stages-gpt2.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::zero_stages_gpt2 {

using namespace tessera;

template <class Device>
using zs0_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<float>>;
template <class Device>
using zs1_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<float>>;
template <class Device>
using zs2_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<float>>;
template <class Device>
using zs3_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<float>>;
template <class Device>
using zs0_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<half>>;
template <class Device>
using zs1_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<half>>;
template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;
template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>>;

template <class Device>
using recipes = RecipeList<zs0_fp32<Device>, zs1_fp32<Device>, zs2_fp32<Device>, zs3_fp32<Device>,
                           zs0_fp16<Device>, zs1_fp16<Device>, zs2_fp16<Device>, zs3_fp16<Device>>;

}  // namespace experiments::zero_stages_gpt2
