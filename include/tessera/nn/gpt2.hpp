// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions, pre-LayerNorm blocks, tanh GELU, a head tied to the token embedding.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/nn/gpt2_options.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// GPT-2 as units `embedding`, `h.0` .. `h.{L-1}`, `head`; parameter names and shapes are Hugging Face's, the
/// four linear weights lie in x out (Conv1D). Throws Error(config) for sizes that cannot be.
class Gpt2 {
 public:
  explicit Gpt2(Gpt2Options options = {})
      : options_(checked(options)),
        embedding_(embedding_unit_,
                   {"wte.weight",
                    {options.vocabulary, options.channels},
                    normal(),
                    true,
                    true,
                    {Split::Kind::dim, 0},
                    padded_vocabulary()},
                   ParameterSpec{"wpe.weight", {options.positions, options.channels}, normal(), true},
                   /*lent=*/true),
        block_(block_unit_, options, normal(), residual()),
        head_(head_unit_, options, padded_vocabulary(), embedding_) {}

  Gpt2Options const& options() const { return options_; }
  std::int64_t vocabulary() const { return options_.vocabulary; }
  std::int64_t positions() const { return options_.positions; }

  /// Training FLOPs a token: 6N + 12 L C T, with N all parameters (PaLM, appendix B; the tied embedding
  /// once).
  double flops_per_token(std::int64_t sequence) const {
    return 6.0 * static_cast<double>(parameter_count(units({1, 1}))) +
           12.0 * static_cast<double>(options_.layers * options_.channels * sequence);
  }

  std::vector<UnitSpec> units(MicroBatch shape) const {
    std::vector<UnitSpec> units{embedding_unit_.at(shape, "embedding")};
    for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
      std::string const name = "h." + std::to_string(layer);
      units.push_back(block_unit_.at(shape, name, name + "."));
    }
    units.push_back(head_unit_.at(shape, "head"));
    return units;
  }

  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.forward(pass); });
  }
  template <class Place, class T>
  void recompute(int unit, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.recompute(pass); });
  }
  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.backward_input(pass); });
  }
  template <class Place, class T>
  void backward_weight(int unit, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.backward_weight(pass); });
  }

 private:
  struct Block {
    nn::LayerNorm ln_1;
    nn::CausalAttention attention;
    nn::Saved middle;  // (B,T,C): the residual stream between the halves
    nn::LayerNorm ln_2;
    nn::Mlp mlp;
    nn::Backward d_norm, d_middle;

    Block(nn::Unit& unit, Gpt2Options const& sizes, Init const& normal, Init const& residual)
        : ln_1(unit, "ln_1", sizes.channels),
          attention(unit, "attn", sizes.channels, sizes.heads, normal, residual),
          middle(unit.saved("residual", nn::per_token(sizes.channels))),
          ln_2(unit, "ln_2", sizes.channels),
          mlp(unit, "mlp", sizes.channels, 4 * sizes.channels, Activation::gelu, normal, residual),
          d_norm(unit.backward("d_ln", nn::per_token(sizes.channels))),
          d_middle(unit.backward("d_residual", nn::per_token(sizes.channels))) {
      unit.output = nn::per_token(sizes.channels);
      unit.serves(ln_1.y, {attention.qkv.weight});
      unit.serves(ln_2.y, {mlp.fc.weight});
    }

    void forward(auto& pass) const {
      attention.forward(pass, ln_1.forward(pass, pass.input), pass.input, pass[middle]);
      mlp.forward(pass, ln_2.forward(pass, pass[middle]), pass[middle], pass.output);
    }
    void recompute(auto& pass) const { mlp.recompute(pass); }
    void backward_input(auto& pass) const {
      mlp.backward_input(pass, pass.output_gradient, pass[d_norm]);
      ln_2.backward_input(pass, pass[d_norm], pass[middle], pass.output_gradient, pass[d_middle]);
      attention.backward_input(pass, pass[d_middle], pass[d_norm]);
      ln_1.backward_input(pass, pass[d_norm], pass.input, pass[d_middle], pass.input_gradient);
    }
    void backward_weight(auto& pass) const {
      mlp.backward_weight(pass, pass[ln_2.y], pass.output_gradient);
      attention.backward_weight(pass, pass[ln_1.y], pass[d_middle]);
      ln_2.backward_weight(pass);
      ln_1.backward_weight(pass);
    }
  };

  struct Head {
    nn::LayerNorm ln_f;
    nn::Classifier classifier;
    nn::Backward d_norm;

    Head(nn::Unit& unit, Gpt2Options const& sizes, std::int64_t columns, nn::Embedding const& embedding)
        : ln_f(unit, "ln_f", sizes.channels),
          classifier(unit, nn::Linear(unit.borrow(0, embedding.tokens)), sizes.vocabulary, columns),
          d_norm(unit.backward("d_ln", nn::per_token(sizes.channels))) {
      unit.serves(ln_f.y, {classifier.projection.weight});
    }

    void forward(auto& pass) const { classifier.forward(pass, ln_f.forward(pass, pass.input)); }
    void recompute(auto&) const {}
    void backward_input(auto& pass) const {
      classifier.backward_input(pass, pass[d_norm]);
      ln_f.backward_input(pass, pass[d_norm], pass.input, {}, pass.input_gradient);
    }
    void backward_weight(auto& pass) const {
      classifier.backward_weight(pass, pass[ln_f.y]);
      ln_f.backward_weight(pass);
    }
  };

  template <class F>
  void with_layers(int unit, F const& work) const {
    if (unit == 0)
      work(embedding_);
    else if (unit == static_cast<int>(options_.layers) + 1)
      work(head_);
    else
      work(block_);
  }

  // GPT-2's own initialisation: 0.02, and 0.02 / sqrt(2 L) for the projections that add to the residual.
  static Init normal() { return Init::normal(0.02); }
  Init residual() const { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers))); }
  /// A vocabulary of 50257 would send a GPU's products with the embedding to kernels several times slower:
  /// rows of 16-bit logits have to be multiples of 16 bytes.
  std::int64_t padded_vocabulary() const { return round_up(options_.vocabulary, 8); }

  static Gpt2Options checked(Gpt2Options const& options) {
    auto const need = [](char const* name, std::int64_t value, std::int64_t most = 2147483647) {
      if (value < 1 || value > most)
        throw Error(ErrorKind::config, std::string("Gpt2: ") + name + " is " + std::to_string(value) +
                                           "; it must be from 1 to " + std::to_string(most));
    };
    need("layers", options.layers);
    need("heads", options.heads);
    need("channels", options.channels, 1 << 24);
    need("positions", options.positions);
    need("vocabulary", options.vocabulary);
    if (options.channels % options.heads != 0)
      throw Error(ErrorKind::config, "Gpt2: " + std::to_string(options.heads) + " heads do not divide " +
                                         std::to_string(options.channels) + " channels (" +
                                         std::to_string(options.channels) + " / " +
                                         std::to_string(options.heads) + " leaves " +
                                         std::to_string(options.channels % options.heads) +
                                         "); choose channels as a multiple of heads");
    return options;
  }

  Gpt2Options options_;
  nn::Unit embedding_unit_, block_unit_, head_unit_;  // every block is one unit under another name
  nn::Embedding embedding_;
  Block block_;
  Head head_;
};

static_assert(Model<Gpt2>);

}  // namespace v0
}  // namespace tessera
