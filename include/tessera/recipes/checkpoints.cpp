// SPDX-License-Identifier: Apache-2.0
// Compiles the functions that save and load checkpoints, for programs that link tessera::recipes.
#define TESSERA_RECIPES_LINKED
#include "tessera/checkpoint/async_definitions.hpp"
#include "tessera/checkpoint/checkpoint_definitions.hpp"
#include "tessera/checkpoint/info_definitions.hpp"
