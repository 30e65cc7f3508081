// SPDX-License-Identifier: Apache-2.0
// A second translation unit that includes the whole library. If a header defines a symbol that is not inline,
// linking the two units fails.
#include "second.hpp"

#include <tessera/tessera.hpp>

std::size_t bytes_of_a_half() { return tessera::size_of(tessera::dtype_of<tessera::half>); }
