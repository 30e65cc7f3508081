// SPDX-License-Identifier: Apache-2.0
// Reads and writes a model's weights as Hugging Face's safetensors files. The parameters of the model have
// the same names and shapes as the tensors in the files.
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

/// Returns the files that ModelWeights::open would read for `path`, without checking them. For an index file
/// (*.json), these are the index and its parts. For a folder, these are model.safetensors and
/// model.safetensors.index.json with its parts; a returned file possibly does not exist. For any other path,
/// the result is the path itself. Throws Error(data) if an index is a Git LFS pointer.
std::vector<std::filesystem::path> weights_files(std::filesystem::path const& path);

/// Reads a model's weights from a `.safetensors` file, a `model.safetensors.index.json` with its parts, a
/// folder that holds one of these, or a file of llm.c. Reads F32, F16, BF16 and F64. The WeightNames of a
/// model family define the prefix of names in a file and the other tensors that the file may hold. If the
/// model's head is tied to the token embedding, an `lm_head.weight` in the file must equal the token
/// embedding bit by bit.
class ModelWeights {
 public:
  /// Opens the files and checks everything against `units`, the units of the model. Throws Error(data) with
  /// the sizes of the model in the file and of this model. The error message names up to three tensors of
  /// each fault (missing, extra, wrong shape, wrong type), and the number of further ones. If all tensors fit
  /// but some values are not finite, the message names the first of these values.
  static ModelWeights open(std::filesystem::path const& path, std::vector<UnitSpec> const& units,
                           WeightNames const& names = {});

  /// Returns the path that was given to `open`, for messages.
  std::string const& name() const noexcept;

  /// Returns a source for the trainer's `fill`. The trainer's model must have the units that were given to
  /// `open`. The source keeps the files open. Several threads may call it.
  ParameterSource source() const;

 private:
  struct State;

  explicit ModelWeights(std::shared_ptr<State const> state) : state_(std::move(state)) {}

  std::shared_ptr<State const> state_;
};

/// Writes a model's parameters in fp32 with their logical shapes and their own names. A tied head is the
/// token embedding, so it is not written a second time. ModelWeights and Hugging Face can read the file. The
/// old file is replaced only when the new one is complete. On rank 0, pass `sink()` to the trainer's
/// `collect_pieces` or `collect`, and then call `commit()`. Throws Error(failed) with the path and the
/// reason.
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
