// SPDX-License-Identifier: Apache-2.0
// Compiles, for double on the CPU, the training engine and the operations that models call.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cpu, double)
TESSERA_ENGINE(Cpu, double)

}  // namespace v0
}  // namespace tessera
