// SPDX-License-Identifier: Apache-2.0
// Stands for cuda.cu in a library that was built without CUDA.
#include "tessera/fwd.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

struct DeviceRecipes;
DeviceRecipes const* cuda_recipes();  // as devices.hpp declares it, which is not needed here
DeviceRecipes const* cuda_recipes() { return nullptr; }

}  // namespace detail
}  // namespace v0
}  // namespace tessera
