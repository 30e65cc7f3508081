// SPDX-License-Identifier: Apache-2.0
// A DeepSpeed configuration as flags: what `train`, `compare` and `plan` take by --config.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/nn/unit.hpp"

#include "cli/command_line.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// What the command line itself says: the values of a flag, or null.
using OnLine = std::function<Names const*(std::string const& flag)>;

/// A configuration, understood.
struct DeepSpeedRun {
  std::vector<FileSetting> settings;  ///< flags of `train`, with the key that says so
  std::vector<std::string> notes;     ///< keys that do something else, or nothing, and why
  bool prints_settings = false;       ///< dump_state

  // What depends on the model.
  bool decays = false;                           ///< there is weight decay
  std::optional<std::int64_t> persistence;       ///< of stage 3: stage3_param_persistence_threshold
  std::int64_t persistent_elements = INT64_MAX;  ///< stage3_model_persistence_threshold
};

/// Reads a configuration in JSON or Hjson. `name` is the file's name for messages. Missing keys get
/// DeepSpeed's defaults, and the value "auto" takes its value from the flags. Throws one Error(config) that
/// lists every unusable key with the nearest known key or a remedy.
DeepSpeedRun read_deepspeed(std::string_view text, std::string const& name, OnLine const& on_line);

/// What a configuration means for this model otherwise than in DeepSpeed, a line each.
Names deepspeed_differences(DeepSpeedRun const& run, std::vector<UnitSpec> const& units);

}  // namespace cli
}  // namespace programs
