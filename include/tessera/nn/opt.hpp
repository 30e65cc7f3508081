// SPDX-License-Identifier: Apache-2.0
// Provides the model OPT: learned positions (position 0 is the third row of their table), pre-LayerNorm
// blocks, ReLU, biases, and a head tied to the token embedding.
#pragma once

#include "tessera/nn/decoder_layers.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/nn/opt_options.hpp"
#include "tessera/nn/transformer.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// The layers of OPT, with the parameter names and shapes of Hugging Face.
struct OptLayers {
  using Options = OptOptions;
  using Norm = LayerNorm;
  using Attention = ProjectedAttention;
  using Mlp = nn::Mlp;
  static constexpr char name[] = "Opt", blocks[] = "layers", prefix[] = "model.decoder.";

  Options sizes;

  /// Returns the layer of token and position embeddings. The row of the padding token gets a gradient only
  /// from the tied head, not from input tokens, as with padding_idx in PyTorch.
  Embedding embedding(Unit& unit) const {
    return {unit,
            token_table("model.decoder.embed_tokens.weight", sizes.vocabulary, sizes.channels, normal),
            ParameterSpec{
                "model.decoder.embed_positions.weight", {sizes.positions + 2, sizes.channels}, normal, true},
            /*tied=*/true,
            {.first_position = 2, .padding_token = sizes.padding_token}};
  }
  Norm norm_1(Unit& unit) const { return {unit, "self_attn_layer_norm", sizes.channels}; }
  Attention attention(Unit& unit) const {
    return {unit,
            "self_attn",
            {.channels = sizes.channels,
             .heads = sizes.heads,
             .bias = true,
             .init = normal,
             .residual_init = normal,
             .out = "out_proj"}};
  }
  Norm norm_2(Unit& unit) const { return {unit, "final_layer_norm", sizes.channels}; }
  Mlp mlp(Unit& unit) const {
    return {unit, "fc1", "fc2", sizes.channels, sizes.hidden, Activation::relu, normal, normal, true};
  }
  Norm last_norm(Unit& unit) const { return {unit, "model.decoder.final_layer_norm", sizes.channels}; }
  Linear head(Unit& unit, Embedding const& embedding) const {
    return Linear(unit.borrow(0, embedding.tokens));
  }

 private:
  static constexpr Init normal = Init::normal(0.02);
};

}  // namespace nn

/// The model OPT. Its units are `embedding`, `layers.0` .. `layers.{L-1}` and `head`. The constructor throws
/// Error(config) for invalid sizes.
class Opt : public nn::Transformer<nn::OptLayers> {
 public:
  using Transformer::Transformer;
  Opt() = default;
  /// Catches arguments that are not an OptOptions, so that the compiler's message is short. The compiler
  /// prints the line of this deleted constructor, with the comment that says what to do. Without this
  /// constructor, it would list every constructor. Each model declares this constructor itself, because g++
  /// does not print this line if the constructor is inherited.
  template <class Fields = Options>
  // clang-format off
  explicit Opt(...) = delete;  // tessera: a field is misspelt or has another type. Write OptOptions{...}, and the compiler names the field. See docs/models.md.
  // clang-format on
};

static_assert(Model<Opt>);

}  // namespace v0
}  // namespace tessera
