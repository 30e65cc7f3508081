// SPDX-License-Identifier: Apache-2.0
// The second translation unit of a user's program. It includes the whole library, as the first unit does. If
// a header of the library defines a symbol that is not inline, the program cannot be linked.
#include "second.hpp"

#include <tessera/tessera.hpp>

std::size_t bytes_of_a_half() { return tessera::size_of(tessera::dtype_of<tessera::half>); }
