// SPDX-License-Identifier: Apache-2.0
// A user's program. It includes the main header of the library and prints the version.
#include <cstdio>

#include <tessera/tessera.hpp>

#include "second.hpp"

int main() {
  std::printf("tessera %s, %zu bytes\n", tessera::version, bytes_of_a_half());
  return bytes_of_a_half() == 2 ? 0 : 1;
}
