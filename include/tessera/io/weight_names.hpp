// SPDX-License-Identifier: Apache-2.0
// Describes the differences between the names of tensors in the files of a model family and the names of the
// parameters in Tessera's model.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// The names in the files of a model family. If all fields are empty, the names in the files are exactly the
/// names in the model.
struct WeightNames {
  std::string prefix = {};                ///< optional text before the names in a file: "transformer."
  std::string base = {};                  ///< prefix that files of a model without head omit: "model."
  std::vector<std::string> buffers = {};  ///< tensors in a file to ignore; * is a number: "h.*.attn.bias"
  std::string tied_to = {};               ///< tensor that a tied `lm_head.weight` must equal; empty: not tied
  std::string layers = {};                ///< the text before the number of a layer: "h."

  /// A size of the model, for messages. The size is called `key`, and it is the extent of dim `dim` of the
  /// tensor `tensor`.
  struct Extent {
    std::string key, tensor;
    std::size_t dim;
  };
  std::vector<Extent> extents = {};

  bool is_buffer(std::string_view name) const;
};

/// Returns the names of GPT-2's files. Old files also hold buffers such as "h.3.attn.bias" and
/// "h.3.attn.masked_bias", which are ignored. The four linear weights of a layer have the shape (in,out) in
/// the files and in the model, so nothing is transposed.
WeightNames gpt2_weight_names();

/// Returns the names of OPT's files. Files of the model without its head omit "model." and begin, for
/// example, with "decoder.embed_tokens.weight".
WeightNames opt_weight_names();

/// Returns the names of LLaMA's files. Files of the model without its head omit "model.", as in
/// "embed_tokens.weight". Old files also hold the rotary frequencies, which are ignored.
WeightNames llama_weight_names();

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weight_names_definitions.hpp"
#endif
