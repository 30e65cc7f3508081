// SPDX-License-Identifier: Apache-2.0
// The recipes of cpu-recipes.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::cpu_recipes {

using namespace tessera;

template <class Device>
using dp_fp32 = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<float>>;
template <class Device>
using zs0_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<float>>;
template <class Device>
using zs1_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<float>>;
template <class Device>
using zs2_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<float>>;
template <class Device>
using zs3_fp32 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<float>>;
template <class Device>
using dp_fp32_offcpu = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<float>, Offload<Cpu>>;
template <class Device>
using zs0_fp32_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<float>, Offload<Cpu>>;
template <class Device>
using zs1_fp32_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<float>, Offload<Cpu>>;
template <class Device>
using zs2_fp32_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<float>, Offload<Cpu>>;
template <class Device>
using zs3_fp32_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<float>, Offload<Cpu>>;
template <class Device>
using dp_fp16 = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<half>>;
template <class Device>
using zs0_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<half>>;
template <class Device>
using zs1_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<half>>;
template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;
template <class Device>
using zs3_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>>;
template <class Device>
using dp_fp16_offcpu = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs0_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs1_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs2_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>, Offload<Cpu>>;
template <class Device>
using zs3_fp16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<half>, Offload<Cpu>>;
template <class Device>
using dp_bf16 = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<bfloat16>>;
template <class Device>
using zs0_bf16 = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<bfloat16>>;
template <class Device>
using zs1_bf16 = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<bfloat16>>;
template <class Device>
using zs2_bf16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<bfloat16>>;
template <class Device>
using zs3_bf16 = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<bfloat16>>;
template <class Device>
using dp_bf16_offcpu = Trainer<Gpt2, On<Device>, RootOptimizer, Precision<bfloat16>, Offload<Cpu>>;
template <class Device>
using zs0_bf16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<0>, Precision<bfloat16>, Offload<Cpu>>;
template <class Device>
using zs1_bf16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<1>, Precision<bfloat16>, Offload<Cpu>>;
template <class Device>
using zs2_bf16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<bfloat16>, Offload<Cpu>>;
template <class Device>
using zs3_bf16_offcpu = Trainer<Gpt2, On<Device>, ZeroStage<3>, Precision<bfloat16>, Offload<Cpu>>;

template <class Device>
using recipes =
    RecipeList<dp_fp32<Device>, zs0_fp32<Device>, zs1_fp32<Device>, zs2_fp32<Device>, zs3_fp32<Device>,
               dp_fp32_offcpu<Device>, zs0_fp32_offcpu<Device>, zs1_fp32_offcpu<Device>,
               zs2_fp32_offcpu<Device>, zs3_fp32_offcpu<Device>, dp_fp16<Device>, zs0_fp16<Device>,
               zs1_fp16<Device>, zs2_fp16<Device>, zs3_fp16<Device>, dp_fp16_offcpu<Device>,
               zs0_fp16_offcpu<Device>, zs1_fp16_offcpu<Device>, zs2_fp16_offcpu<Device>,
               zs3_fp16_offcpu<Device>, dp_bf16<Device>, zs0_bf16<Device>, zs1_bf16<Device>, zs2_bf16<Device>,
               zs3_bf16<Device>, dp_bf16_offcpu<Device>, zs0_bf16_offcpu<Device>, zs1_bf16_offcpu<Device>,
               zs2_bf16_offcpu<Device>, zs3_bf16_offcpu<Device>>;

}  // namespace experiments::cpu_recipes
