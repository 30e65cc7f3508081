// SPDX-License-Identifier: Apache-2.0
// Compiles the training engine for double on a GPU, and the operations that models call there.
#include "tessera/cuda.cuh"
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cuda, double)
TESSERA_ENGINE(Cuda, double)

}  // namespace v0
}  // namespace tessera
