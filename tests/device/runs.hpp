// SPDX-License-Identifier: Apache-2.0
// Provides shared parts of the tests that train on a GPU: a recipe (combination of policies), a run, and the
// difference between two runs.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>
#include <vector>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/runs.hpp"

namespace test {

using namespace support;

/// Returns a recipe (combination of policies) that trains on the GPU. Its reductions have a fixed order, so
/// the results of two trainings can be compared bit for bit.
inline RecipeTable on_gpu(std::string_view precision, std::string_view capture = "graph",
                          std::string_view offload = "none", std::string_view recompute = "none",
                          std::string_view sharding = "zs0") {
  SlotNames names;
  names.device = "cuda";
  names.sharding = sharding;
  names.precision = precision;
  names.capture = capture;
  names.offload = offload;
  names.recompute = recompute;
  names.reduction = "ordered";
  if (precision == "fp64") names.attention = "reference";
  return parse_recipe(names);
}

inline Outcome trained(RecipeTable const& table, Run const& run, Gpt2Options const& model = tiny) {
  return train(
      run,
      [&](comm::Comm comm, TrainerOptions const& options) {
        return make_trainer(any_model(model), table, comm, options);
      },
      [&](int ranks, auto const& fn) { run_ranks(table, ranks, fn); });
}

/// Returns the largest |a[i] - b[i]| / (1 + |b[i]|) of all i, or at least 1e30 if a and b have different
/// lengths.
inline double largest_difference(std::vector<double> const& a, std::vector<double> const& b) {
  double worst = a.size() == b.size() ? 0.0 : 1e30;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    double const difference = std::fabs(a[i] - b[i]) / (1.0 + std::fabs(b[i]));
    if (!(difference <= worst)) worst = difference;
  }
  return worst;
}

}  // namespace test
