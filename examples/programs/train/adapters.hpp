// SPDX-License-Identifier: Apache-2.0
// Handles the LoRA adapters of the program `train`: the flags, the adapters from which training starts, and
// the outputs.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/adapter.hpp"
#include "tessera/nn/lora_options.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/policy/table.hpp"

#include "cli/command_line.hpp"
#include "cli/run_flags.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// The values of the adapter flags, and the adapter weights that are read from a folder.
struct AdapterSettings {
  std::string lora;  ///< the text of --lora; the trainer's options hold the parsed values
  /// the adapter folder to start from; empty: adapters are initialised from the seed
  std::filesystem::path from;
  std::filesystem::path save;  ///< the folder for trained adapters; empty: adapters are not saved separately
  bool merge = false;

  std::optional<AdapterWeights> weights;  ///< the weights in `from`

  std::string text() const { return weights ? weights->name() : lora; }
};

inline void add_adapter_flags(CommandLine& line, AdapterSettings& flags, LoraOptions& lora) {
  line.group("Adapters");
  add_lora_flag(line, lora, flags.lora);
  line.path(
      "--adapter", "DIR", flags.from,
      "continue to train the adapters of this folder, written by PEFT or --save-adapter; instead of --lora");
  line.path("--save-adapter", "DIR", flags.save, "write the adapters here as PEFT reads them");
  line.toggle("--merge", flags.merge, "merge the adapters into the weights that --save writes");
}

/// Throws if adapter flags contradict each other. `saved` is the path of --save, or empty. --lora can come
/// from --from, which copies the settings of one row of a result file of the program `compare`. If it does
/// not come from the command line, `lora` is cleared in two cases: the recipe trains the model's own weights,
/// or --adapter is given.
inline void check_adapter_flags(AdapterSettings const& flags, LoraOptions& lora, RecipeTable const& recipe,
                                std::filesystem::path const& saved, CommandLine const& line) {
  auto const path = [](char const* flag, std::filesystem::path const& value) {
    return std::string(flag) + " '" + files::path_text(value) + "'";
  };
  bool const adapts = recipe.adapters == AdapterKind::lora;
  if (line.on_line("--lora") == nullptr && (!adapts || !flags.from.empty())) lora = {};
  if (!flags.from.empty() && lora)
    refuse(path("--adapter", flags.from) +
           " has a rank, a scale and layers of its own, and --lora gives others; leave one of them out");
  if (!adapts && !flags.from.empty())
    refuse(path("--adapter", flags.from) + " needs --adapters lora; leave --adapters none out");
  if (!adapts && (flags.merge || !flags.save.empty()))
    refuse((flags.merge ? "--merge" : path("--save-adapter", flags.save)) +
           " needs adapters; give --lora rank=8,alpha=16,targets=NAMES or --adapter DIR");
  if (flags.merge && saved.empty())
    refuse("--merge merges the adapters into the weights of --save; give --save PATH");
  if (adapts && !flags.merge && !saved.empty())
    refuse(path("--save", saved) +
           " writes the model's weights, which adapters do not change; give --merge to merge the adapters "
           "into them, or --save-adapter DIR instead to write only the adapters");
  if (!flags.save.empty()) AdapterWriter::check(flags.save);
}

/// Opens the folder that --adapter names, and sets `lora` to the options (rank, scale, layers) of the
/// adapters in this folder. Throws if training would need dropout, which is not supported. Does nothing
/// without --adapter.
inline void open_adapter(AdapterSettings& settings, LoraOptions& lora, std::vector<UnitSpec> const& units,
                         bool trains) {
  if (settings.from.empty()) return;
  settings.weights = AdapterWeights::open(settings.from, units);
  lora = settings.weights->options();
  if (trains && settings.weights->dropout() != 0.0)
    throw Error(ErrorKind::unsupported, settings.weights->name() + "/adapter_config.json: lora_dropout is " +
                                            shortest(settings.weights->dropout()) +
                                            ", but adapters are trained without dropout here; set it to 0 in "
                                            "this file to train without dropout");
}

}  // namespace cli
}  // namespace programs
