// SPDX-License-Identifier: Apache-2.0
// Trained weights on their way out of a trainer.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/nn/model.hpp"

#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

/// Throws Error(diverged) that names the tensor unless all its values are finite. `then`: what follows from
/// it. The last step's loss says nothing of what its own update made of the weights.
inline void check_finite(ParameterSpec const& parameter, std::span<float const> values,
                         std::string const& then = {}) {
  for (std::size_t at = 0; at < values.size(); ++at)
    if (!std::isfinite(values[at]))
      throw Error(ErrorKind::diverged,
                  "the weights are not finite after the last step: " + parameter.name + " holds " +
                      shortest(values[at]) + " at element " + std::to_string(at) +
                      "; lower --learning-rate, or give --clip 1" + then,
                  0, parameter.name);
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
