// SPDX-License-Identifier: Apache-2.0
// What the devices of a run multiply at the most: what utilisation is measured against.
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

/// What a device multiplies a second in a recipe's precision, measured; nothing where that is not known.
using ProductRate = std::function<std::optional<double>(RecipeTable const&)>;

struct Ceiling {
  double flops;  ///< a second, of one device
  char const* from;
};

/// As documented, else as measured; nothing where the devices of the ranks differ, and for cores.
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
