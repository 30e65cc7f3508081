// SPDX-License-Identifier: Apache-2.0
// The engine in half on a GPU, and what models call there.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cuda, half)
TESSERA_ENGINE(Cuda, half)

}  // namespace v0
}  // namespace tessera
