// SPDX-License-Identifier: Apache-2.0
// Converts a DeepSpeed configuration file to flags of `train`, `compare` and `plan`, for --config.
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

/// Returns the values that the command line itself gives for a flag, or null if it does not give the flag.
using OnLine = std::function<Names const*(std::string const& flag)>;

/// The flags that a DeepSpeed configuration sets, and notes for the user.
struct DeepSpeedRun {
  std::vector<FileSetting> settings;  ///< flags of `train`, each with its key
  std::vector<std::string> notes;     ///< keys that have another effect or none, and why
  bool prints_settings = false;       ///< dump_state

  // The effects of the following settings depend on the model.
  bool decays = false;                           ///< weight decay is on
  std::optional<std::int64_t> persistence;       ///< stage 3: stage3_param_persistence_threshold
  std::int64_t persistent_elements = INT64_MAX;  ///< stage3_model_persistence_threshold
};

/// Parses a configuration in JSON or Hjson. `name` is the file's name for messages. A missing key gets
/// DeepSpeed's default. A key with the value "auto" sets no flag. Throws one Error(config) that lists every
/// unusable key, each with the nearest known key or a remedy.
DeepSpeedRun read_deepspeed(std::string_view text, std::string const& name, OnLine const& on_line);

/// Returns one line for each setting that has another effect here than in DeepSpeed, for this model's layers.
Names deepspeed_differences(DeepSpeedRun const& run, std::vector<UnitSpec> const& units);

}  // namespace cli
}  // namespace programs
