// SPDX-License-Identifier: Apache-2.0
// Checkpoints for programs that link tessera::recipes.
#define TESSERA_RECIPES_LINKED
#include "tessera/train/async_checkpoint_definitions.hpp"
#include "tessera/train/checkpoint_definitions.hpp"
#include "tessera/train/checkpoint_info_definitions.hpp"
