// SPDX-License-Identifier: Apache-2.0
// Provides LLaMA for trainers whose recipe is chosen at run time. Compiled in tessera::recipes.
#pragma once

#include "tessera/nn/llama_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// Makes a LLaMA of any sizes. Throws Error(config) for invalid sizes.
AnyModel any_model(LlamaOptions const& sizes);

/// Returns LLaMA's entry in the list of model families.
ModelFamily llama_family();

}  // namespace v0
}  // namespace tessera
