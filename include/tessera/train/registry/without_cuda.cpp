// SPDX-License-Identifier: Apache-2.0
// Stands for cuda.cu in a library that was built without CUDA.
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {
namespace detail {

DeviceRecipes const* cuda_recipes() { return nullptr; }

}  // namespace detail
}  // namespace tessera::inline v0
