// SPDX-License-Identifier: Apache-2.0
// Compiles, for float on a GPU, the training engine and the operations that models call.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cuda, float)
TESSERA_ENGINE(Cuda, float)

}  // namespace v0
}  // namespace tessera
