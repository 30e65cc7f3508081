// SPDX-License-Identifier: Apache-2.0
// Provides LLaMA for trainers whose recipe is chosen at run time. Compiled in tessera::recipes.
#pragma once

#include "tessera/nn/llama_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// Makes a LLaMA of any sizes. Throws Error(config) for invalid sizes.
AnyModel any_model(LlamaOptions const& sizes);

/// Returns the ModelFamily of LLaMA: its name, the sizes of its models and the function that makes a model.
ModelFamily llama_family();

}  // namespace v0
}  // namespace tessera
