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

/// All fields may be empty; a file then has exactly the model's names.
struct WeightNames {
  std::string prefix = {};                ///< optional prefix of names: "transformer."
  std::string base = {};                  ///< prefix that files of the bare model omit: "model."
  std::vector<std::string> buffers = {};  ///< not parameters, ignored; * is a number: "h.*.attn.bias"
  std::string tied_to = {};               ///< what a `lm_head.weight` that the model does not list must equal
  std::string layers = {};                ///< what precedes the number of a layer: "h."

  /// A size of the model that a file shows: the extent of a tensor. For messages.
  struct Extent {
    std::string key, tensor;
    std::size_t dim;
  };
  std::vector<Extent> extents = {};

  bool is_buffer(std::string_view name) const;
};

/// "h.3.attn.bias" and "h.3.attn.masked_bias" are buffers of old files. The four linear weights are (in,out)
/// in files and here, so nothing is transposed.
WeightNames gpt2_weight_names();

/// Files of the bare model have "decoder.embed_tokens.weight" and so on.
WeightNames opt_weight_names();

/// Files of the bare model have "embed_tokens.weight" and so on. Old files also hold the rotary frequencies.
WeightNames llama_weight_names();

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weight_names_definitions.hpp"
#endif
