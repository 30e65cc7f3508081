// SPDX-License-Identifier: Apache-2.0
// How the files of a family of models name weights, beyond the names that a model gives its own parameters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

/// All of it may be empty: then a file has the model's names and no others.
struct WeightNames {
  std::string prefix = {};                ///< may stand before names: "transformer."
  std::string base = {};                  ///< files of the bare model leave it out of names: "model."
  std::vector<std::string> buffers = {};  ///< no parameters, passed over; * is a number: "h.*.attn.bias"
  std::string tied_to = {};  ///< what a `lm_head.weight` that the model does not list has to equal
  std::string layers = {};   ///< what stands before the number of a layer: "h."

  /// A number of the model that a file tells: the extent of a tensor. For messages.
  struct Extent {
    std::string key, tensor;
    std::size_t dim;
  };
  std::vector<Extent> extents = {};

  bool is_buffer(std::string_view name) const;
};

/// "h.3.attn.bias" and "h.3.attn.masked_bias" are buffers of old files. The four linear weights lie in x out
/// in files as they do here, so nothing is transposed.
WeightNames gpt2_weight_names();

/// Files of the bare model have "decoder.embed_tokens.weight" and so on.
WeightNames opt_weight_names();

/// Files of the bare model have "embed_tokens.weight" and so on; old files hold the frequencies of positions.
WeightNames llama_weight_names();

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weight_names_definitions.hpp"
#endif
