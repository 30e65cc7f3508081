// SPDX-License-Identifier: Apache-2.0
// Provides OPT for trainers whose recipe is chosen at run time. Compiled in tessera::recipes.
#pragma once

#include "tessera/nn/opt_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// Makes an OPT of any sizes. Throws Error(config) for invalid sizes.
AnyModel any_model(OptOptions const& sizes);

/// Returns the ModelFamily of OPT: its name, the sizes of its models and the function that makes a model.
ModelFamily opt_family();

}  // namespace v0
}  // namespace tessera
