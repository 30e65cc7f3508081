// SPDX-License-Identifier: Apache-2.0
// Compiles, for float on the CPU, the training engine and the operations that models call.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cpu, float)
TESSERA_ENGINE(Cpu, float)

}  // namespace v0
}  // namespace tessera
