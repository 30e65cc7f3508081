// SPDX-License-Identifier: Apache-2.0
// The recipes of large-models.flags as types, in the order of its rows.
#pragma once

#include <tessera/nvme.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::large_models {

using namespace tessera;

template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;
template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>>;
template <class Device>
using zs2_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs3_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs2_fp16_offnvme = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>, Offload<Nvme, AllState>>;
template <class Device>
using zs3_fp16_offnvme = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Offload<Nvme, AllState>>;

template <class Device>
using recipes = RecipeList<zs2_fp16<Device>, zs3_fp16<Device>, zs2_fp16_offcpu<Device>,
                           zs3_fp16_offcpu<Device>, zs2_fp16_offnvme<Device>, zs3_fp16_offnvme<Device>>;

}  // namespace experiments::large_models
