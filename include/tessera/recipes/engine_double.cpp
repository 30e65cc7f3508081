// SPDX-License-Identifier: Apache-2.0
// The engine in double on the CPU, and what models call there.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cpu, double)
TESSERA_ENGINE(Cpu, double)

}  // namespace v0
}  // namespace tessera
