// SPDX-License-Identifier: Apache-2.0
// Measures the device memory that this process uses. A program that includes this file must link
// tessera::recipes.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/device_probe.hpp"

#include "machine/gpus.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns the current memory use of the first `ranks` devices; each figure is the maximum over these
/// devices. Returns nullopt on the CPU. Every rank must still have its trainer, whose memory is counted.
inline std::optional<DeviceMemoryUse> device_memory_of(Device device, int ranks) {
  std::vector<std::int64_t> allocated;
  for (int rank = 0; rank < ranks; ++rank)
    if (auto const bytes = allocated_bytes(device, rank)) allocated.push_back(*bytes);
  if (allocated.empty()) return std::nullopt;
  return device_memory_use(allocated, device_facts(device).addresses);
}

}  // namespace cli
}  // namespace programs
