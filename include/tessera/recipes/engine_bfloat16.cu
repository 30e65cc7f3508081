// SPDX-License-Identifier: Apache-2.0
// Compiles, for bfloat16 on a GPU, the training engine and the operations that models call.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cuda, bfloat16)
TESSERA_ENGINE(Cuda, bfloat16)

}  // namespace v0
}  // namespace tessera
