// SPDX-License-Identifier: Apache-2.0
// Provides the model GPT-2: learned positions, pre-LayerNorm blocks, tanh GELU, and a head tied to the token
// embedding.
#pragma once

#include <cmath>
#include <cstdint>

#include "tessera/nn/gpt2_options.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/nn/transformer.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// The layers of GPT-2, with the parameter names and shapes of Hugging Face. The four linear weights of a
/// block are stored as (in,out), as in Hugging Face's Conv1D.
struct Gpt2Layers {
  using Options = Gpt2Options;
  using Norm = LayerNorm;
  using Attention = CausalAttention;
  using Mlp = nn::Mlp;
  static constexpr char name[] = "Gpt2", blocks[] = "h", prefix[] = "";

  Options sizes;

  Embedding embedding(Unit& unit) const {
    return {unit, token_table("wte.weight", sizes.vocabulary, sizes.channels, normal()),
            ParameterSpec{"wpe.weight", {sizes.positions, sizes.channels}, normal(), true},
            /*tied=*/true};
  }
  Norm norm_1(Unit& unit) const { return {unit, "ln_1", sizes.channels}; }
  Attention attention(Unit& unit) const {
    return {unit, "attn", sizes.channels, sizes.heads, normal(), residual()};
  }
  Norm norm_2(Unit& unit) const { return {unit, "ln_2", sizes.channels}; }
  Mlp mlp(Unit& unit) const {
    return {unit, "mlp", sizes.channels, 4 * sizes.channels, Activation::gelu, normal(), residual()};
  }
  Norm last_norm(Unit& unit) const { return {unit, "ln_f", sizes.channels}; }
  Linear head(Unit& unit, Embedding const& embedding) const {
    return Linear(unit.borrow(0, embedding.tokens));
  }

 private:
  // normal() and residual() return the original initialisation of GPT-2: normal values with deviation 0.02,
  // or 0.02 / sqrt(2 L) for the projections whose outputs are added to the residual stream. L is the number
  // of blocks.
  static Init normal() { return Init::normal(0.02); }
  Init residual() const { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(sizes.layers))); }
};

}  // namespace nn

/// The model GPT-2. Its units are `embedding`, `h.0` .. `h.{L-1}` and `head`. The constructor throws
/// Error(config) for invalid sizes.
class Gpt2 : public nn::Transformer<nn::Gpt2Layers> {
 public:
  using Transformer::Transformer;
  Gpt2() = default;
  /// Catches arguments that are not a Gpt2Options, so that the compiler's message is short. The compiler
  /// prints the line of this deleted constructor, with the comment that says what to do. Without this
  /// constructor, it would list every constructor. Each model declares this constructor itself, because g++
  /// does not print this line if the constructor is inherited.
  template <class Fields = Options>
  // clang-format off
  explicit Gpt2(...) = delete;  // tessera: a field is misspelt or has another type. Write Gpt2Options{...}, and the compiler names the field. See docs/models.md.
  // clang-format on
};

static_assert(Model<Gpt2>);

}  // namespace v0
}  // namespace tessera
