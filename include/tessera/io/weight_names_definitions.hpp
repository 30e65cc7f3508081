// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/weight_names.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tessera/io/weight_names.hpp"

namespace tessera {
inline namespace v0 {

TESSERA_INLINE bool WeightNames::is_buffer(std::string_view name) const {
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

TESSERA_INLINE WeightNames gpt2_weight_names() {
  return {
      .prefix = "transformer.",
      .buffers = {"h.*.attn.bias", "h.*.attn.masked_bias"},
      .tied_to = "wte.weight",
      .layers = "h.",
      .extents = {
          {"channels", "wte.weight", 1}, {"positions", "wpe.weight", 0}, {"vocabulary", "wte.weight", 0}}};
}

TESSERA_INLINE WeightNames opt_weight_names() {
  std::string const tokens = "model.decoder.embed_tokens.weight";
  return {.base = "model.",
          .tied_to = tokens,
          .layers = "model.decoder.layers.",
          .extents = {{"channels", tokens, 1},
                      {"hidden", "model.decoder.layers.0.fc1.weight", 0},
                      {"vocabulary", tokens, 0}}};
}

TESSERA_INLINE WeightNames llama_weight_names() {
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
