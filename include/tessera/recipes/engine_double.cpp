// SPDX-License-Identifier: Apache-2.0
// Compiles the training engine for double on the CPU, and the operations that models call there.
#include "tessera/recipes/engine.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_OPERATIONS(, Cpu, double)
TESSERA_ENGINE(Cpu, double)

}  // namespace v0
}  // namespace tessera
