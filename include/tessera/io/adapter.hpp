// SPDX-License-Identifier: Apache-2.0
// Reads and writes LoRA adapters in the layout of PEFT, a folder with adapter_config.json and
// adapter_model.safetensors. Merges adapters into the weights of their layers.
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

/// Reads a LoRA adapter, whose tensors may be F32, F16, BF16 or F64. The tensors and adapter_config.json
/// define which layers have an adapter. adapter_config.json also gives the ranks, which the tensors must
/// match, and the scales.
class AdapterWeights {
 public:
  /// Opens a folder and checks its contents against `units`, the units of the model without adapters. Throws
  /// Error(data) that says what to do. It names the file and the key, or the first three tensors that are
  /// missing, have another shape or belong to no layer of the model.
  static AdapterWeights open(std::filesystem::path const& folder, std::vector<UnitSpec> const& units);

  /// Returns the path, for messages.
  std::string const& name() const;
  /// Returns the options of each layer, for TrainerOptions::lora.
  LoraOptions const& options() const;
  /// Returns the dropout probability that PEFT would apply in training. It is not applied here.
  double dropout() const;
  /// Reads elements of a parameter such as "h.0.attn.c_attn.lora_A.weight". Several threads may call it.
  void read(std::string const& parameter, std::int64_t offset, std::span<float> out) const;

 private:
  struct State;

  std::shared_ptr<State const> state_;
};

/// Returns a source for a model with adapters. The model's own weights come from `weights`, the adapters from
/// `adapter`. Parameters without a source get their initial values from the seed, as in a new trainer.
/// `units` include the adapters.
ParameterSource source_with_adapters(std::vector<UnitSpec> units, ParameterSource weights,
                                     std::optional<AdapterWeights> adapter, std::uint64_t seed);

/// Writes the adapters of a model in PEFT's format, in fp32. Creates the folder if it does not exist; other
/// files in it stay. Pass `sink()` to a trainer's `collect_pieces` or `collect`, then call `commit()`, both
/// on rank 0. Throws Error(failed) with the path and the reason.
class AdapterWriter {
 public:
  /// `units` include the adapters. `prefix` precedes the names of layers in the model's own files,
  /// "transformer."; `base` is the path or the name of the model that the adapter belongs to.
  AdapterWriter(std::filesystem::path const& folder, std::vector<UnitSpec> const& units,
                LoraOptions const& lora, std::string const& prefix, std::string const& base);
  AdapterWriter(AdapterWriter const&) = delete;
  ~AdapterWriter();

  ParameterSink sink();
  void commit();
  /// Throws Error(failed) unless the folder can be written now. Creates nothing.
  static void check(std::filesystem::path const& folder);

 private:
  std::string prefix_;
  std::optional<SafetensorsWriter> weights_;
  std::optional<AtomicFile> config_;
};

/// Returns a sink that adds each adapter to the weight of its layer, w + scale * (b a), and passes only the
/// model's own parameters to `sink`. For `collect` and `collect_pieces`, which deliver a layer's adapter
/// before its weight. Keeps one layer's adapter in memory.
ParameterSink merging(std::vector<UnitSpec> const& units, ParameterSink sink);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/adapter_definitions.hpp"
#endif
