// SPDX-License-Identifier: Apache-2.0
// Compiles, for half on a GPU, the training engine and the operations that models call.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cuda, half)
TESSERA_ENGINE(Cuda, half)

}  // namespace v0
}  // namespace tessera
