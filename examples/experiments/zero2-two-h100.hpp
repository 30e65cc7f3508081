// SPDX-License-Identifier: Apache-2.0
// The recipes of zero2-two-h100.flags as types, in the order of its rows.
#pragma once

#include <tessera/tessera.hpp>

#include "experiments/recipe_list.hpp"

namespace experiments::zero2_two_h100 {

using namespace tessera;

template <class Device>
using zs2_fp16 = Trainer<Gpt2, On<Device>, ZeroStage<2>, Precision<half>>;

template <class Device>
using recipes = RecipeList<zs2_fp16<Device>>;

}  // namespace experiments::zero2_two_h100
