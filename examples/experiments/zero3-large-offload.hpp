// SPDX-License-Identifier: Apache-2.0
// The recipes of zero3-large-offload.flags as types, in the order of its rows.
#pragma once

#include "experiments/recipe_list.hpp"

namespace experiments::zero3_large_offload {

using namespace tessera;

template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>>;
template <class Device>
using zs3_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs3_fp16_offcpufull = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Offload<Cpu, AllState>>;

template <class Device>
using recipes = RecipeList<zs3_fp16<Device>, zs3_fp16_offcpu<Device>, zs3_fp16_offcpufull<Device>>;

}  // namespace experiments::zero3_large_offload
