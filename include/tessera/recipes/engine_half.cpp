// SPDX-License-Identifier: Apache-2.0
// Compiles the training engine for half on the CPU, and the operations that models call there.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cpu, half)
TESSERA_ENGINE(Cpu, half)

}  // namespace v0
}  // namespace tessera
