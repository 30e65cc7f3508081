// SPDX-License-Identifier: Apache-2.0
// Converts a DeepSpeed configuration, the value of --config, to flags of the programs `train`, `compare` and
// `plan`.
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

/// Returns the values that the command line or a file of flags gives a flag; null if neither gives it.
using OnLine = std::function<Names const*(std::string const& flag)>;

/// The result of reading a DeepSpeed configuration: the flags that it sets, and notes for the user.
struct DeepSpeedRun {
  std::vector<FileSetting> settings;  ///< flags of the program `train`, each with the key that sets it
  /// one note for each key that has no effect here, or another effect than in DeepSpeed
  std::vector<std::string> notes;
  bool prints_settings = false;  ///< the value of the key dump_state

  // Settings whose effect depends on the model:
  bool decays = false;  ///< whether weight decay is on
  /// the key stage3_param_persistence_threshold, in stage 3 only
  std::optional<std::int64_t> persistence;
  std::int64_t persistent_elements = INT64_MAX;  ///< the key stage3_model_persistence_threshold
};

/// Returns the flags of a configuration in JSON or Hjson. `name` is the file's name for messages. `on_line`
/// returns the values of flags, which override the file. A missing key has DeepSpeed's default. A key with
/// the value "auto" sets no flag. Throws one Error(config) that lists every key with an unusable name or
/// value, each with the nearest known key or a remedy.
DeepSpeedRun read_deepspeed(std::string_view text, std::string const& name, OnLine const& on_line);

/// Returns one line for each setting that has another effect here than in DeepSpeed on this model. `units`
/// are the model's layers and their parameters.
Names deepspeed_differences(DeepSpeedRun const& run, std::vector<UnitSpec> const& units);

}  // namespace cli
}  // namespace programs
