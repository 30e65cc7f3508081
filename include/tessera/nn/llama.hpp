// SPDX-License-Identifier: Apache-2.0
// Provides the model LLaMA: rotary positions, pre-RMSNorm blocks, key and value heads that several query
// heads share, SwiGLU, no biases, and a head that is separate or tied to the token embedding.
#pragma once

#include <optional>

#include "tessera/nn/decoder_layers.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/llama_options.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/nn/transformer.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// The layers of LLaMA, with the parameter names and shapes of Hugging Face.
struct LlamaLayers {
  using Options = LlamaOptions;
  using Norm = RmsNorm;
  using Attention = ProjectedAttention;
  using Mlp = GatedMlp;
  static constexpr char name[] = "Llama", blocks[] = "layers", prefix[] = "model.";

  Options sizes;

  Embedding embedding(Unit& unit) const {
    return {unit,
            token_table("model.embed_tokens.weight", sizes.vocabulary, sizes.channels, normal),
            std::nullopt,
            /*tied=*/sizes.tied,
            {.padding_token = sizes.padding_token}};
  }
  Norm norm_1(Unit& unit) const { return {unit, "input_layernorm", sizes.channels, sizes.norm_epsilon}; }
  Attention attention(Unit& unit) const {
    AttentionSpec spec{.channels = sizes.channels,
                       .heads = sizes.heads,
                       .key_heads = sizes.key_heads,
                       .init = normal,
                       .residual_init = normal,
                       .rotary_theta = sizes.rotary_theta};
    if (sizes.rotary_factor > 0.0)
      spec.rotary_scaling = {sizes.rotary_factor, sizes.rotary_low_frequency, sizes.rotary_high_frequency,
                             sizes.rotary_positions};
    return {unit, "self_attn", spec};
  }
  Norm norm_2(Unit& unit) const {
    return {unit, "post_attention_layernorm", sizes.channels, sizes.norm_epsilon};
  }
  Mlp mlp(Unit& unit) const { return {unit, "mlp", sizes.channels, sizes.hidden, normal, normal}; }
  Norm last_norm(Unit& unit) const { return {unit, "model.norm", sizes.channels, sizes.norm_epsilon}; }
  Linear head(Unit& unit, Embedding const& embedding) const {
    if (sizes.tied) return Linear(unit.borrow(0, embedding.tokens));
    return Linear(unit, token_table("lm_head.weight", sizes.vocabulary, sizes.channels, normal));
  }

 private:
  static constexpr Init normal = Init::normal(0.02);
};

}  // namespace nn

/// The model LLaMA. Its units are `embedding`, `layers.0` .. `layers.{L-1}` and `head`. The constructor
/// throws Error(config) for invalid sizes.
class Llama : public nn::Transformer<nn::LlamaLayers> {
 public:
  using Transformer::Transformer;
  Llama() = default;
  /// Catches arguments that are not a LlamaOptions, so that the compiler's message is short. The compiler
  /// prints the line of this deleted constructor, with the comment that says what to do. Without this
  /// constructor, it would list every constructor. Each model declares this constructor itself, because g++
  /// does not print this line if the constructor is inherited.
  template <class Fields = Options>
  // clang-format off
  explicit Llama(...) = delete;  // tessera: a field is misspelt or has another type. Write LlamaOptions{...}, and the compiler names the field. See docs/models.md.
  // clang-format on
};

static_assert(Model<Llama>);

}  // namespace v0
}  // namespace tessera
