// SPDX-License-Identifier: Apache-2.0
// Every experiment of this folder, for tests and benchmarks that go through all of them.
#pragma once

#include "experiments/cpu-recipes.hpp"
#include "experiments/cpu-sizes.hpp"
#include "experiments/large-models.hpp"
#include "experiments/offload-sweep.hpp"
#include "experiments/scaling-gpt2.hpp"
#include "experiments/stage-sweep-7b.hpp"
#include "experiments/stage-sweep.hpp"
#include "experiments/zero-medium.hpp"
#include "experiments/zero-stages-gpt2.hpp"
#include "experiments/zero-stages-shapes.hpp"
#include "experiments/zero2-two-h100.hpp"
#include "experiments/zero3-large-offload.hpp"
#include "experiments/zero3-wished.hpp"

namespace experiments {

/// Calls visit("zero-medium", RecipeList) with the name and the recipes of each, on a device.
template <class Device, class Visit>
void for_each_experiment(Visit&& visit) {
  visit("cpu-recipes", cpu_recipes::recipes<Device>{});
  visit("cpu-sizes", cpu_sizes::recipes<Device>{});
  visit("large-models", large_models::recipes<Device>{});
  visit("offload-sweep", offload_sweep::recipes<Device>{});
  visit("scaling-gpt2", scaling_gpt2::recipes<Device>{});
  visit("stage-sweep", stage_sweep::recipes<Device>{});
  visit("stage-sweep-7b", stage_sweep_7b::recipes<Device>{});
  visit("zero-medium", zero_medium::recipes<Device>{});
  visit("zero-stages-gpt2", zero_stages_gpt2::recipes<Device>{});
  visit("zero-stages-shapes", zero_stages_shapes::recipes<Device>{});
  visit("zero2-two-h100", zero2_two_h100::recipes<Device>{});
  visit("zero3-large-offload", zero3_large_offload::recipes<Device>{});
  visit("zero3-wished", zero3_wished::recipes<Device>{});
}

}  // namespace experiments
