// SPDX-License-Identifier: Apache-2.0
// Provides ceiling_of, which returns the peak FLOP/s of the devices that a recipe uses. This rate is the
// denominator of the model FLOP utilization (MFU).
#pragma once

#include <cstddef>
#include <functional>
#include <optional>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/device_probe.hpp"

#include "machine/peaks.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The type of a function that returns the measured FLOP/s of matrix products on the device in the precision
/// of a recipe, or nullopt if this rate is unknown.
using ProductRate = std::function<std::optional<double>(RecipeTable const&)>;

struct Ceiling {
  double flops;  ///< FLOP/s of one device
  char const* from;
};

/// Returns the peak rate of the data sheet or, if there is none, the measured rate. Returns nullopt on the
/// CPU, and if the devices of the ranks are different models.
inline std::optional<Ceiling> ceiling_of(RecipeTable const& recipe, int ranks, DeviceFacts const& device,
                                         ProductRate const& measured = &product_rate) {
  auto const used = static_cast<std::size_t>(ranks);
  if (device.models.size() < used) return std::nullopt;
  for (std::size_t rank = 1; rank < used; ++rank)
    if (device.models[rank] != device.models[0]) return std::nullopt;
  if (auto const peak = peak_flops(device.models[0], recipe.precision)) return Ceiling{*peak, "documented"};
  if (auto const rate = measured(recipe)) return Ceiling{*rate, "measured"};
  return std::nullopt;
}

}  // namespace cli
}  // namespace programs
