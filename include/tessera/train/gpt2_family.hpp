// SPDX-License-Identifier: Apache-2.0
// Provides GPT-2 for trainers whose recipe is chosen at run time. Compiled in tessera::recipes.
#pragma once

#include "tessera/nn/gpt2_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// Makes a GPT-2 of any sizes. Throws Error(config) for invalid sizes.
AnyModel any_model(Gpt2Options const& sizes);

/// Returns the ModelFamily of GPT-2: its name, the sizes of its models and the function that makes a model.
ModelFamily gpt2_family();

}  // namespace v0
}  // namespace tessera
