// SPDX-License-Identifier: Apache-2.0
// The weights of a model as Hugging Face keeps them: safetensors in, safetensors out. Parameters have the
// file's names and shapes.
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

/// The files that ModelWeights::open reads of a path, as far as they can be told without checking them: the
/// file, an index and its parts, or what a folder holds of these. Throws Error(data) for the pointer that Git
/// LFS keeps in place of an index.
std::vector<std::filesystem::path> weights_files(std::filesystem::path const& path);

/// The weights of a model to read: a `.safetensors` file, a `model.safetensors.index.json` with its parts, or
/// a folder that holds either; or a file of llm.c. F32, F16, BF16 and F64 are read. What else a file may
/// hold, and a prefix of its names, say the family's WeightNames; `lm_head.weight` of a tied head must equal
/// the matrix that it is tied to bit by bit.
class ModelWeights {
 public:
  /// Opens and checks everything against a model's units: one pass over the file. Throws Error(data) with
  /// the sizes of both models and the first three tensors that are missing, extra, of another shape or type,
  /// and how many more; or names the first value that is not finite.
  static ModelWeights open(std::filesystem::path const& path, std::vector<UnitSpec> const& units,
                           WeightNames const& names = {});

  /// The path, for messages.
  std::string const& name() const noexcept;

  /// Hands out the weights to `fill` of a trainer whose model has the units that were given to `open`. Keeps
  /// the files open; may be called from several threads.
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
