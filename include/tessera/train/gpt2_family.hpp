// SPDX-License-Identifier: Apache-2.0
// GPT-2 for trainers whose recipe is chosen at run time; compiled in tessera::recipes.
#pragma once

#include "tessera/nn/gpt2_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// A GPT-2 of any sizes. Throws Error(config) for those that cannot be.
AnyModel any_model(Gpt2Options const& sizes);

/// Its entry in the list of families.
ModelFamily gpt2_family();

}  // namespace v0
}  // namespace tessera
