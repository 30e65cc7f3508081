// SPDX-License-Identifier: Apache-2.0
// Provides the function that freezes parameters by name, so that they are not trained.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

/// Returns `units` with every parameter frozen whose name satisfies `freeze`. Parameters that the model
/// itself froze stay frozen. If `freeze` is empty, returns the units unchanged. Throws Error(config) if no
/// name satisfies `freeze`, or if no parameter is left to train.
inline std::vector<UnitSpec> frozen(std::vector<UnitSpec> units,
                                    std::function<bool(std::string_view name)> const& freeze) {
  if (!freeze) return units;
  std::int64_t count = 0, named = 0, trained = 0;
  std::string example;
  for (UnitSpec& unit : units)
    for (ParameterSpec& parameter : unit.parameters) {
      bool const meant = freeze(parameter.name);
      if (meant) parameter.trainable = false;
      ++count;
      named += meant;
      trained += parameter.trainable;
      if (example.empty() || unit.name == "h.0") example = parameter.name;
    }
  if (named == 0)
    throw_error(ErrorKind::config, {"freeze matches none of the ", count,
                                    " parameters of the model; their names are like '", example, "'"});
  if (trained == 0)
    throw_error(ErrorKind::config, {"freeze leaves none of the ", count,
                                    " parameters of the model to train; let it match fewer names"});
  return units;
}

}  // namespace v0
}  // namespace tessera
