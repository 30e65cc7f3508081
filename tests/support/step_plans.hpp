// SPDX-License-Identifier: Apache-2.0
// Provides plan_of(), which makes a step plan from a few settings, for a small GPT-2 or for the tied model. A
// step plan describes the buffers of a training step and its schedule of operations.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/program.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace support {

struct Setting {
  std::string_view sharding = "zs0", precision = "fp32", offload = "none", recompute = "none",
                   reduction = "ordered";
  int world = 1, accumulation = 1, rank = 0, every = 1;
  std::int64_t bucket = 0;
  bool tied_model = false;
  int prefetch = 1, replicas = 1, channels = 1, weight_lag = 0;
  std::int64_t vocabulary = tiny.vocabulary;  // with 1000, the embedding is larger than a block
};

inline StepPlan plan_of(Setting const& by, PlacementTable const* placement = nullptr) {
  StepShape shape;
  shape.batch = 2;
  shape.sequence = 13;
  shape.accumulation = by.accumulation;
  shape.world = by.world;
  shape.rank = by.rank;
  shape.bucket_bytes = by.bucket;
  shape.recompute_every = by.every;
  shape.prefetch = by.prefetch;
  shape.replicas = by.replicas;
  shape.channels = by.channels;
  shape.weight_lag = by.weight_lag;
  shape.workspace_bytes = 1000;
  MicroBatch const micro{shape.batch, shape.sequence};
  Gpt2Options deep = tiny;
  deep.layers = 4;
  deep.vocabulary = by.vocabulary;
  RecipeTable table = recipe(by.sharding, by.precision, by.offload, by.recompute, by.reduction);
  if (placement) table.placement = *placement;
  return make_plan(by.tied_model ? TiedModel{}.units(micro) : Gpt2(deep).units(micro), table, shape);
}

/// Returns `entry`, one operation of a schedule, as one line of text, in the format in which the programs
/// print it.
inline std::string text(StepPlan const& plan, Entry const& entry) {
  return to_string(entry, plan.unit_name(entry));
}

}  // namespace support
