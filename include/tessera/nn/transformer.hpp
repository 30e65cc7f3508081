// SPDX-License-Identifier: Apache-2.0
// Provides the decoder of pre-norm blocks that GPT-2, OPT and LLaMA share. Each model defines its own layers
// and parameter names.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/row_sums.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// Returns the vocabulary size `words` rounded up to a multiple of 8. A row of 16-bit logits is then a
/// multiple of 16 bytes. Without the padding, GPT-2's 50257 words would make the matrix products on a GPU
/// several times slower.
constexpr std::int64_t padded_vocabulary(std::int64_t words) { return round_up(words, 8); }

/// Returns the specification of a token embedding table with `words` rows. The table gets as many padding
/// rows as the logits have padding columns.
inline ParameterSpec token_table(std::string name, std::int64_t words, std::int64_t channels,
                                 Init const& init) {
  return {std::move(name),         {words, channels}, init, true, true, {Split::Kind::vocabulary, 0},
          padded_vocabulary(words)};
}

/// A pre-norm block. It computes y = x + attention(norm_1(x)). Its output is y + mlp(norm_2(y)).
template <class Layers>
struct TransformerBlock {
  /// Whether norm_2 computes row sums of gradients for both attention and mlp (see output_sums).
  static constexpr bool sums_rows = std::is_same_v<typename Layers::Norm, LayerNorm> && requires {
    Layers::Attention::takes_row_sums;
    Layers::Mlp::takes_row_sums;
  };
  typename Layers::Norm norm_1;
  typename Layers::Attention attention;
  Saved middle;  // (B,T,C): the residual stream between attention and MLP
  typename Layers::Norm norm_2;
  typename Layers::Mlp mlp;
  Backward d_norm, d_middle;
  // Sums over blocks of rows: output_sums of the gradient of the block's output, and middle_sums of the
  // gradient of `middle`. The last linear layers of the MLP and of the attention compute their bias gradients
  // from these sums. norm_2 computes both sums, because its backward pass reads the first gradient and writes
  // the second.
  BackwardStatistic output_sums, middle_sums;

  TransformerBlock(Unit& unit, Layers const& layers)
      : norm_1(layers.norm_1(unit)),
        attention(layers.attention(unit)),
        middle(unit.saved("residual", per_token(layers.sizes.channels))),
        norm_2(layers.norm_2(unit)),
        mlp(layers.mlp(unit)),
        d_norm(unit.backward("d_ln", per_token(layers.sizes.channels))),
        d_middle(unit.backward("d_residual", per_token(layers.sizes.channels))) {
    unit.output = per_token(layers.sizes.channels);
    attention.reads(unit, norm_1.y);
    mlp.reads(unit, norm_2.y);
    if constexpr (sums_rows) {
      output_sums = row_sums(unit, "d_output.sums", layers.sizes.channels, mlp.proj.bias);
      middle_sums = row_sums(unit, "d_residual.sums", layers.sizes.channels, attention.proj.bias);
    }
  }

  void forward(auto& pass) const {
    attention.forward(pass, norm_1.forward(pass, pass.input), pass.input, pass[middle]);
    mlp.forward(pass, norm_2.forward(pass, pass[middle]), pass[middle], pass.output);
  }
  void recompute(auto& pass) const { mlp.recompute(pass); }
  void backward_input(auto& pass) const {
    mlp.backward_input(pass, pass.output_gradient, pass[d_norm]);
    if constexpr (sums_rows)
      norm_2.backward_input(pass, pass[d_norm], pass[middle], pass.output_gradient, pass[d_middle],
                            {pass[output_sums], pass[middle_sums]});
    else
      norm_2.backward_input(pass, pass[d_norm], pass[middle], pass.output_gradient, pass[d_middle]);
    attention.backward_input(pass, pass[d_middle], pass[d_norm]);
    norm_1.backward_input(pass, pass[d_norm], pass.input, pass[d_middle], pass.input_gradient);
  }
  template <class Place, class T>
  void backward_weight(Pass<Place, T>& pass) const {
    // `batch` may delay the sums for the gradients of biases and norms until this function ends. The delay is
    // allowed, because the layers write gradients and never read them.
    ops::RowSumBatch<Place, T> const batch(pass.context());
    if constexpr (sums_rows) {
      mlp.backward_weight(pass, pass[norm_2.y], pass.output_gradient, pass[output_sums]);
      attention.backward_weight(pass, pass[norm_1.y], pass[d_middle], pass[middle_sums]);
    } else {
      mlp.backward_weight(pass, pass[norm_2.y], pass.output_gradient);
      attention.backward_weight(pass, pass[norm_1.y], pass[d_middle]);
    }
    norm_2.backward_weight(pass);
    norm_1.backward_weight(pass);
  }

 private:
  static BackwardStatistic row_sums(Unit& unit, char const* name, std::int64_t channels, Weight bias) {
    if (bias.index < 0) return {};
    return unit.backward_statistic(name,
                                   [channels](MicroBatch of) {
                                     return Shape{ops::layer_norm_partial_rows(of.tokens()), channels};
                                   },
                                   /*upper_bound=*/true, {bias});
  }
};

/// The last unit of a model: the final norm, the logits and the losses.
template <class Layers>
struct TransformerHead {
  typename Layers::Norm norm;
  Classifier classifier;
  Backward d_norm;

  TransformerHead(Unit& unit, Layers const& layers, Embedding const& embedding)
      : norm(layers.last_norm(unit)),
        classifier(unit, layers.head(unit, embedding), layers.sizes.vocabulary,
                   padded_vocabulary(layers.sizes.vocabulary)),
        d_norm(unit.backward("d_ln", per_token(layers.sizes.channels))) {
    unit.needed_for(norm.y, {classifier.projection.weight});
  }

  void forward(auto& pass) const { classifier.forward(pass, norm.forward(pass, pass.input)); }
  void recompute(auto&) const {}
  void backward_input(auto& pass) const {
    classifier.backward_input(pass, pass[d_norm]);
    norm.backward_input(pass, pass[d_norm], pass.input, {}, pass.input_gradient);
  }
  void backward_weight(auto& pass) const {
    classifier.backward_weight(pass, pass[norm.y]);
    norm.backward_weight(pass);
  }
};

/// A model with the units `embedding`, one per block, and `head`. `Layers` describes the model: it has the
/// model's `sizes` and creates each layer. `Layers` provides the types Options, Norm, Attention and Mlp, and
/// the functions embedding, norm_1, attention, norm_2, mlp, last_norm and head. It also provides the name of
/// the model, the name of its blocks (such as "h"), and the prefix of all names in a block (such as "model.",
/// or empty).
template <class Layers>
class Transformer {
 public:
  using Options = typename Layers::Options;

  /// The constructor throws Error(config) for invalid sizes.
  explicit Transformer(Options options = {})
      : layers_{checked(std::move(options))},
        embedding_(layers_.embedding(units_->embedding)),
        block_(units_->block, layers_),
        head_(units_->head, layers_, embedding_) {}

  Options const& options() const { return layers_.sizes; }
  std::int64_t vocabulary() const { return layers_.sizes.vocabulary; }
  std::int64_t positions() const { return layers_.sizes.positions; }

  /// Returns the training FLOPs per token: 6N + 12 L C T (PaLM, appendix B). L is the number of blocks, C the
  /// number of channels, T = `sequence`, and N the number of parameters. N includes the token table only if
  /// the head uses it, because a lookup in the table needs no FLOPs.
  double flops_per_token(std::int64_t sequence) const {
    Options const& sizes = layers_.sizes;
    std::int64_t const looked_up = embedding_.sums.index < 0 ? 0 : sizes.vocabulary * sizes.channels;
    return 6.0 * static_cast<double>(parameter_count(units({1, 1})) - looked_up) +
           12.0 * static_cast<double>(sizes.layers * sizes.channels * sequence);
  }

  std::vector<UnitSpec> units(MicroBatch shape) const {
    std::vector<UnitSpec> units;
    units.push_back(units_->embedding.at(shape, "embedding"));
    for (std::int64_t layer = 0; layer < layers_.sizes.layers; ++layer) {
      std::string const name = sentence({Layers::blocks, ".", layer});
      units.push_back(units_->block.at(shape, name, sentence({Layers::prefix, name, "."})));
    }
    units.push_back(units_->head.at(shape, "head"));
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
  struct Units {
    // The tensors of the first unit, of a transformer block and of the last unit. All transformer blocks use
    // the list `block`. The names of a block's parameters begin with a prefix of their own.
    Unit embedding, block, head;
  };

  template <class F>
  void with_layers(int unit, F const& work) const {
    if (unit == 0)
      work(embedding_);
    else if (unit == static_cast<int>(layers_.sizes.layers) + 1)
      work(head_);
    else
      work(block_);
  }

  static Options checked(Options options) {
    auto const fail = [](std::initializer_list<Word> what) {
      throw_error(ErrorKind::config, {Layers::name, ": ", sentence(what)});
    };
    auto const need = [&](char const* name, std::int64_t value, std::int64_t most = 2147483647) {
      if (value < 1 || value > most) fail({name, " is ", value, "; it must be from 1 to ", most});
    };
    std::int64_t const channels = options.channels, heads = options.heads;
    need("layers", options.layers);
    need("heads", heads);
    need("channels", channels, 1 << 24);
    need("positions", options.positions);
    need("vocabulary", options.vocabulary);
    if (channels % heads != 0)
      fail({heads, " heads do not divide ", channels, " channels (", channels, " / ", heads, " leaves ",
            channels % heads, "); choose channels as a multiple of heads"});
    if constexpr (requires { options.hidden; }) need("hidden", options.hidden, 1 << 26);
    if constexpr (requires { options.key_heads; }) {
      std::int64_t const key_heads = options.key_heads;
      need("key_heads", key_heads);
      if (heads % key_heads != 0)
        fail({key_heads, " key heads do not divide ", heads,
              " heads; choose a number of key heads that divides the number of heads"});
    }
    return options;
  }

  Layers layers_;
  std::shared_ptr<Units> units_ = std::make_shared<Units>();  // never changes, so copies of a model share it
  Embedding embedding_;
  TransformerBlock<Layers> block_;
  TransformerHead<Layers> head_;
};

}  // namespace nn
}  // namespace v0
}  // namespace tessera
