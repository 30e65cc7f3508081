// SPDX-License-Identifier: Apache-2.0
// A second translation unit that includes the whole library. Linking fails if the library defines a symbol
// twice.
#include "second.hpp"

#include <tessera/tessera.hpp>

std::size_t bytes_of_a_half() { return tessera::size_of(tessera::dtype_of<tessera::half>); }
