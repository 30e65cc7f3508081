// SPDX-License-Identifier: Apache-2.0
// Converts a DeepSpeed configuration to flags for --config of `train`, `compare` and `plan`.
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

/// Returns the values of a flag on the command line itself, or null.
using OnLine = std::function<Names const*(std::string const& flag)>;

/// A parsed configuration.
struct DeepSpeedRun {
  std::vector<FileSetting> settings;  ///< flags of `train`, each with its key
  std::vector<std::string> notes;     ///< keys that have another effect or none, and why
  bool prints_settings = false;       ///< dump_state

  // The following depend on the model.
  bool decays = false;                           ///< weight decay is on
  std::optional<std::int64_t> persistence;       ///< stage 3: stage3_param_persistence_threshold
  std::int64_t persistent_elements = INT64_MAX;  ///< stage3_model_persistence_threshold
};

/// Reads a configuration in JSON or Hjson. `name` is the file's name for messages. Missing keys get
/// DeepSpeed's defaults, and the value "auto" takes its value from the flags. Throws one Error(config) that
/// lists every unusable key with the nearest known key or a remedy.
DeepSpeedRun read_deepspeed(std::string_view text, std::string const& name, OnLine const& on_line);

/// Returns one line for each difference between this configuration here and in DeepSpeed for this model.
Names deepspeed_differences(DeepSpeedRun const& run, std::vector<UnitSpec> const& units);

}  // namespace cli
}  // namespace programs
