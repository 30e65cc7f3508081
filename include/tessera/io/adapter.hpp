// SPDX-License-Identifier: Apache-2.0
// Reads and writes LoRA adapters in the layout of PEFT: a folder with the files adapter_config.json and
// adapter_model.safetensors. Also merges adapters into the weights of their layers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/safetensors.hpp"
#include "tessera/nn/lora_options.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

/// Reads a LoRA adapter from a folder in PEFT's layout. Its tensors may be F32, F16, BF16 or F64. A layer has
/// an adapter if adapter_model.safetensors holds tensors for the layer. adapter_config.json must select each
/// of these layers. adapter_config.json gives the rank and the scale of each layer, and the shapes of the
/// tensors must match the rank.
class AdapterWeights {
 public:
  /// Opens the adapter in `folder` and checks it. `units` are the units of the model without adapters. Throws
  /// Error(data) with advice to the user. For a fault in adapter_config.json, the error message names the
  /// file and the key. For faults of tensors, the message names up to three tensors that are missing, up to
  /// three with a wrong shape, and up to three that belong to no layer of the model.
  static AdapterWeights open(std::filesystem::path const& folder, std::vector<UnitSpec> const& units);

  /// Returns the path of the folder, for messages.
  std::string const& name() const;
  /// Returns the rank and alpha of each layer with an adapter. A trainer gets them as TrainerOptions::lora.
  LoraOptions const& options() const;
  /// Returns the dropout probability in adapter_config.json. PEFT applies dropout in training; Tessera does
  /// not.
  double dropout() const;
  /// Reads out.size() elements of the parameter `parameter`, starting at element `offset`, as fp32. An
  /// example of a name is "h.0.attn.c_attn.lora_A.weight". Several threads may call it.
  void read(std::string const& parameter, std::int64_t offset, std::span<float> out) const;

 private:
  struct State;

  std::shared_ptr<State const> state_;
};

/// Returns a function that fills the parameters of a model with adapters. `units` are the units of this
/// model, including the adapters. The model's own parameters come from `weights`, the adapters' parameters
/// from `adapter`. If `weights` or `adapter` is empty, its parameters get initial values from `seed`, as in a
/// new trainer.
ParameterSource source_with_adapters(std::vector<UnitSpec> units, ParameterSource weights,
                                     std::optional<AdapterWeights> adapter, std::uint64_t seed);

/// Writes the adapters of a model in PEFT's format, in fp32. Creates the folder if it does not exist, and
/// keeps the files that the folder already holds. On rank 0, pass `sink()` to the trainer's `collect_pieces`
/// or `collect`, and then call `commit()`. Throws Error(failed) with the path and the reason.
class AdapterWriter {
 public:
  /// `units` are the units of the model with adapters. `prefix` is the text before the names of layers in the
  /// model's own files, for example "transformer.". `base` is the path or the name of the model that the
  /// adapter belongs to.
  AdapterWriter(std::filesystem::path const& folder, std::vector<UnitSpec> const& units,
                LoraOptions const& lora, std::string const& prefix, std::string const& base);
  AdapterWriter(AdapterWriter const&) = delete;
  ~AdapterWriter();

  ParameterSink sink();
  void commit();
  /// Throws Error(failed) if the folder cannot be written now. Creates nothing.
  static void check(std::filesystem::path const& folder);

 private:
  std::string prefix_;
  std::optional<SafetensorsWriter> weights_;
  std::optional<AtomicFile> config_;
};

/// Returns a sink that merges the adapters. It adds scale * (B A) to the weight of each layer with an
/// adapter, where A is the parameter lora_A and B is lora_B. It passes only the model's own parameters on to
/// `sink`. Use it with `collect` or `collect_pieces`. They pass the parameters in the order of their names,
/// so the adapter of a layer comes before the layer's weight. Keeps the adapter of one layer in memory.
ParameterSink merging(std::vector<UnitSpec> const& units, ParameterSink sink);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/adapter_definitions.hpp"
#endif
