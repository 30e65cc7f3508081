// SPDX-License-Identifier: Apache-2.0
// The engine in float on the CPU, and what models call there.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cpu, float)
TESSERA_ENGINE(Cpu, float)

}  // namespace v0
}  // namespace tessera
