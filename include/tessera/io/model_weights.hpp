// SPDX-License-Identifier: Apache-2.0
// Reads and writes a model's weights in Hugging Face's safetensors files. The model's parameters have the
// same names and shapes as in the files.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/fwd.hpp"
#include "tessera/io/weight_names.hpp"
#include "tessera/nn/model.hpp"

namespace tessera {
inline namespace v0 {

/// Returns the files that ModelWeights::open reads for a path, without checking them: the file, an index and
/// its parts, or whichever of these a folder holds. Throws Error(data) if an index is a Git LFS pointer.
std::vector<std::filesystem::path> weights_files(std::filesystem::path const& path);

/// Reads a model's weights from a `.safetensors` file, a `model.safetensors.index.json` with its parts, a
/// folder that holds either, or a file of llm.c. Reads F32, F16, BF16 and F64. The WeightNames of a model
/// family define the prefix of names in a file and the other tensors that it may hold. An `lm_head.weight` of
/// a model with a tied head must equal, bit by bit, the matrix that it is tied to.
class ModelWeights {
 public:
  /// Opens the files and checks everything against a model's units in one pass. Throws Error(data) with the
  /// sizes of both models, the first three tensors that are missing, extra, or of another shape or type, and
  /// the number of others; or names the first value that is not finite.
  static ModelWeights open(std::filesystem::path const& path, std::vector<UnitSpec> const& units,
                           WeightNames const& names = {});

  /// Returns the path, for messages.
  std::string const& name() const noexcept;

  /// Returns a source for `fill` of a trainer whose model has the units that were given to `open`. Keeps the
  /// files open. Several threads may call it.
  ParameterSource source() const;

 private:
  struct State;

  explicit ModelWeights(std::shared_ptr<State const> state) : state_(std::move(state)) {}

  std::shared_ptr<State const> state_;
};

/// Writes a model's parameters in fp32 with their logical shapes and their own names; a tied head is written
/// once. ModelWeights and Hugging Face can read the file. The old file is replaced only when the new one is
/// complete. Pass `sink()` to a trainer's `collect_pieces` or `collect`, then call `commit()`, both on rank
/// 0. Throws Error(failed) with the path and the reason.
class WeightsWriter {
 public:
  WeightsWriter(std::filesystem::path const& path, std::vector<UnitSpec> const& units);
  WeightsWriter(WeightsWriter&&) = default;

  ParameterSink sink();
  void commit();

 private:
  std::shared_ptr<SafetensorsWriter> writer_;
};

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/model_weights_definitions.hpp"
#endif
