// SPDX-License-Identifier: Apache-2.0
// The recipes of zero3-wished.flags as types, in the order of its rows.
#pragma once

#include <tessera/nvme.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::zero3_wished {

using namespace tessera;

template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Recompute<Block>>;
template <class Device>
using zs3_fp16_offcpu =
    Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Recompute<Block>, Offload<Cpu>>;
template <class Device>
using zs3_fp16_offnvmeopt =
    Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Recompute<Block>, Offload<Nvme>>;

template <class Device>
using recipes = RecipeList<zs3_fp16<Device>, zs3_fp16_offcpu<Device>, zs3_fp16_offnvmeopt<Device>>;

}  // namespace experiments::zero3_wished
