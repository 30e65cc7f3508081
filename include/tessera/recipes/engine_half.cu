// SPDX-License-Identifier: Apache-2.0
// Compiles the training engine for half on a GPU, and the operations that models call there.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cuda, half)
TESSERA_ENGINE(Cuda, half)

}  // namespace v0
}  // namespace tessera
