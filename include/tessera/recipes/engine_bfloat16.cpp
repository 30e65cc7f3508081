// SPDX-License-Identifier: Apache-2.0
// Compiles, for bfloat16 on the CPU, the training engine and the operations that models call.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cpu, bfloat16)
TESSERA_ENGINE(Cpu, bfloat16)

}  // namespace v0
}  // namespace tessera
