// SPDX-License-Identifier: Apache-2.0
// OPT for trainers whose recipe is chosen at run time; compiled in tessera::recipes.
#pragma once

#include "tessera/nn/opt_options.hpp"
#include "tessera/train/model_family.hpp"

namespace tessera {
inline namespace v0 {

/// An OPT of any sizes. Throws Error(config) for those that cannot be.
AnyModel any_model(OptOptions const& sizes);

/// Its entry in the list of families.
ModelFamily opt_family();

}  // namespace v0
}  // namespace tessera
