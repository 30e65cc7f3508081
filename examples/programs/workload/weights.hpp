// SPDX-License-Identifier: Apache-2.0
// Checks that trained weights are finite before they are saved.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/nn/model.hpp"

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Checks blocks of weights for values that are not finite. The loss of the last step cannot show such
/// values, because it is computed before the last update.
class FiniteWeights {
 public:
  /// Checks `values`, the next block of the tensor `parameter`. Throws Error(diverged) if a value is not
  /// finite. The message names the tensor and the element, and ends with the text `then`.
  void check(ParameterSpec const& parameter, std::span<float const> values, std::string const& then = {}) {
    if (name_ != parameter.name) {
      name_ = parameter.name;
      before_ = 0;
    }
    for (std::size_t at = 0; at < values.size(); ++at)
      if (!std::isfinite(values[at]))
        throw Error(ErrorKind::diverged,
                    "the weights are not finite after the last step: " + parameter.name + " holds " +
                        shortest(values[at]) + " at element " + std::to_string(before_ + at) +
                        "; lower --learning-rate, or give --clip 1" + then,
                    0, parameter.name);
    before_ += values.size();
  }

 private:
  std::string name_;
  std::size_t before_ = 0;  // number of elements of this tensor in earlier blocks
};

}  // namespace cli
}  // namespace programs
