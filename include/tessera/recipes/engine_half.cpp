// SPDX-License-Identifier: Apache-2.0
// The engine in half on the CPU, and what models call there.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS_16_BIT(, Cpu, half)
TESSERA_ENGINE(Cpu, half)

}  // namespace v0
}  // namespace tessera
