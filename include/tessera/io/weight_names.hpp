// SPDX-License-Identifier: Apache-2.0
// How the files of a family of models name weights, beyond the names that a model gives its own parameters.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

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

  bool is_buffer(std::string_view name) const {
    for (std::string_view const pattern : buffers) {
      std::size_t const star = pattern.find('*');
      if (name.substr(0, star) != pattern.substr(0, star)) continue;
      if (star == pattern.npos) return true;
      std::string_view rest = name.substr(star);
      std::size_t const digits = rest.find_first_not_of("0123456789");
      if (digits != 0 && digits != rest.npos && rest.substr(digits) == pattern.substr(star + 1)) return true;
    }
    return false;
  }
};

/// "h.3.attn.bias" and "h.3.attn.masked_bias" are buffers of old files. The four linear weights lie in x out
/// in files as they do here, so nothing is transposed.
inline WeightNames gpt2_weight_names() {
  return {
      .prefix = "transformer.",
      .buffers = {"h.*.attn.bias", "h.*.attn.masked_bias"},
      .tied_to = "wte.weight",
      .layers = "h.",
      .extents = {
          {"channels", "wte.weight", 1}, {"positions", "wpe.weight", 0}, {"vocabulary", "wte.weight", 0}}};
}

/// Files of the bare model have "decoder.embed_tokens.weight" and so on.
inline WeightNames opt_weight_names() {
  std::string const tokens = "model.decoder.embed_tokens.weight";
  return {.base = "model.",
          .tied_to = tokens,
          .layers = "model.decoder.layers.",
          .extents = {{"channels", tokens, 1},
                      {"hidden", "model.decoder.layers.0.fc1.weight", 0},
                      {"vocabulary", tokens, 0}}};
}

/// Files of the bare model have "embed_tokens.weight" and so on; old files hold the frequencies of positions.
inline WeightNames llama_weight_names() {
  std::string const tokens = "model.embed_tokens.weight";
  return {.base = "model.",
          .buffers = {"model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"},
          .tied_to = tokens,
          .layers = "model.layers.",
          .extents = {{"channels", tokens, 1},
                      {"hidden", "model.layers.0.mlp.gate_proj.weight", 0},
                      {"vocabulary", tokens, 0}}};
}

}  // namespace v0
}  // namespace tessera
