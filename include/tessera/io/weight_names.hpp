// SPDX-License-Identifier: Apache-2.0
// Describes how the files of a model family name weights, where that differs from the model's own names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// All fields may be empty. The names in a file are then exactly the model's names.
struct WeightNames {
  std::string prefix = {};                ///< optional prefix of names: "transformer."
  std::string base = {};                  ///< prefix that files of the bare model omit: "model."
  std::vector<std::string> buffers = {};  ///< tensors to ignore; * is a number: "h.*.attn.bias"
  std::string tied_to = {};               ///< the tensor that a file's tied `lm_head.weight` must equal
  std::string layers = {};                ///< the prefix of a layer's number: "h."

  /// A size of the model for messages, which is the extent of dim `dim` of a tensor in the file.
  struct Extent {
    std::string key, tensor;
    std::size_t dim;
  };
  std::vector<Extent> extents = {};

  bool is_buffer(std::string_view name) const;
};

/// Returns the names of GPT-2's files. Old files also hold "h.3.attn.bias" and "h.3.attn.masked_bias", which
/// are ignored. The four linear weights of a layer are (in,out) in files and here, so nothing is transposed.
WeightNames gpt2_weight_names();

/// Returns the names of OPT's files. Files of the model without its head omit "model.":
/// "decoder.embed_tokens.weight".
WeightNames opt_weight_names();

/// Returns the names of LLaMA's files. Files of the model without its head omit "model.":
/// "embed_tokens.weight". Old files also hold the rotary frequencies, which are ignored.
WeightNames llama_weight_names();

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weight_names_definitions.hpp"
#endif
