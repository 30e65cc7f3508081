// SPDX-License-Identifier: Apache-2.0
// LLaMA for trainers whose recipe is chosen at run time; compiled in tessera::recipes.
#pragma once

#include "tessera/nn/llama_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// A LLaMA of any sizes. Throws Error(config) for those that cannot be.
AnyModel any_model(LlamaOptions const& sizes);

/// Its entry in the list of families.
ModelFamily llama_family();

}  // namespace v0
}  // namespace tessera
