// SPDX-License-Identifier: Apache-2.0
// Replaces cuda.cu and device_probe.cu in a library that is built without CUDA.
#include "tessera/fwd.hpp"
#include "tessera/train/device_probe.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

struct DeviceRecipes;
DeviceRecipes const* cuda_recipes();  // declared in devices.hpp, which is not needed here
DeviceRecipes const* cuda_recipes() { return nullptr; }

}  // namespace detail

std::optional<double> product_rate(RecipeTable const&) { return std::nullopt; }
std::vector<double> device_collective_seconds(comm::Comm const&, std::span<comm::Request const>) {
  return {};
}
std::optional<std::int64_t> allocated_bytes(Device, int) { return std::nullopt; }

}  // namespace v0
}  // namespace tessera
