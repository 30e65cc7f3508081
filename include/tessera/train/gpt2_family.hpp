// SPDX-License-Identifier: Apache-2.0
// Provides GPT-2 for trainers whose recipe is chosen at run time. Compiled in tessera::recipes.
#pragma once

#include "tessera/nn/gpt2_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// Makes a GPT-2 of any sizes. Throws Error(config) for invalid sizes.
AnyModel any_model(Gpt2Options const& sizes);

/// Returns GPT-2's entry in the list of model families.
ModelFamily gpt2_family();

}  // namespace v0
}  // namespace tessera
