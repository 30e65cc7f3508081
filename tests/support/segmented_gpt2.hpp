// SPDX-License-Identifier: Apache-2.0
// Provides SegmentedGpt2, a GPT-2 whose blocks and output head each consist of two segments. A segment is a
// part of a unit (layer) with its own forward and backward. A block is split after attention, the output head
// before the classifier. The split must not change any bit of the results.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/gpt2.hpp"

namespace support {

using namespace tessera;

/// A model that computes exactly what a Gpt2 of equal sizes computes. Both models have the same parameters
/// with the same names and initial values, and the same operations in the same order.
class SegmentedGpt2 {
 public:
  /// The two segments of a block meet at one value, the residual after attention. `before` says how the first
  /// segment leaves this value distributed over ranks. `after` says how the second segment needs it
  /// distributed.
  explicit SegmentedGpt2(Gpt2Options const& sizes, Boundary::Side before = {}, Boundary::Side after = {})
      : sizes_(sizes),
        columns_(round_up(sizes.vocabulary, 8)),
        embedding_(
            embedding_unit_,
            {"wte.weight", {sizes.vocabulary, sizes.channels}, Init::normal(0.02), true, true, {}, columns_},
            ParameterSpec{"wpe.weight", {sizes.positions, sizes.channels}, Init::normal(0.02), true},
            /*tied=*/true),
        block_(block_unit_, sizes, before, after),
        head_(head_unit_, sizes, columns_, embedding_) {}

  std::int64_t vocabulary() const { return sizes_.vocabulary; }
  std::int64_t positions() const { return sizes_.positions; }
  std::vector<UnitSpec> units(MicroBatch shape) const {
    std::vector<UnitSpec> units{embedding_unit_.at(shape, "embedding")};
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
      std::string const name = "h." + std::to_string(layer);
      units.push_back(block_unit_.at(shape, name, name + "."));
    }
    units.push_back(head_unit_.at(shape, "head"));
    return units;
  }

  template <class Place, class T>
  void forward(int unit, int segment, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.forward(segment, pass); });
  }
  template <class Place, class T>
  void recompute(int unit, int segment, Pass<Place, T>& pass) const {
    if (unit != 0 && unit <= sizes_.layers && segment == 1) block_.mlp.recompute(pass);
  }
  template <class Place, class T>
  void backward_input(int unit, int segment, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.backward_input(segment, pass); });
  }
  template <class Place, class T>
  void backward_weight(int unit, int segment, Pass<Place, T>& pass) const {
    with_layers(unit, [&](auto const& layers) { layers.backward_weight(segment, pass); });
  }

 private:
  struct Embedding : nn::Embedding {
    using nn::Embedding::Embedding;
    void forward(int, auto& pass) const { nn::Embedding::forward(pass); }
    void backward_input(int, auto&) const {}
    void backward_weight(int, auto& pass) const { nn::Embedding::backward_weight(pass); }
  };

  struct Block {
    nn::LayerNorm ln_1;
    nn::CausalAttention attention;
    nn::Backward d_ln_1;
    nn::Saved middle;
    // The gradient of `middle`. Backward of the second segment writes it, and backward of the first segment
    // reads it.
    nn::Backward d_middle;
    nn::LayerNorm ln_2;
    nn::Mlp mlp;
    nn::Backward d_ln_2;

    Block(nn::Unit& unit, Gpt2Options const& sizes, Boundary::Side before, Boundary::Side after)
        : ln_1(unit, "ln_1", sizes.channels),
          attention(unit, "attn", sizes.channels, sizes.heads, Init::normal(0.02), residual(sizes)),
          d_ln_1(unit.backward("d_ln_1", nn::per_token(sizes.channels))),
          middle(unit.saved("residual", nn::per_token(sizes.channels))),
          d_middle(unit.boundary(middle, before, after)),
          ln_2(unit, "ln_2", sizes.channels),
          mlp(unit, "mlp", sizes.channels, 4 * sizes.channels, Activation::gelu, Init::normal(0.02),
              residual(sizes)),
          d_ln_2(unit.backward("d_ln_2", nn::per_token(sizes.channels))) {
      unit.output = nn::per_token(sizes.channels);
    }
    static Init residual(Gpt2Options const& sizes) {
      return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(sizes.layers)));
    }

    void forward(int segment, auto& pass) const {
      if (segment == 0)
        attention.forward(pass, ln_1.forward(pass, pass.input), pass.input, pass[middle]);
      else
        mlp.forward(pass, ln_2.forward(pass, pass[middle]), pass[middle], pass.output);
    }
    void backward_input(int segment, auto& pass) const {
      if (segment == 1) {
        mlp.backward_input(pass, pass.output_gradient, pass[d_ln_2]);
        ln_2.backward_input(pass, pass[d_ln_2], pass[middle], pass.output_gradient, pass[d_middle]);
      } else {
        attention.backward_input(pass, pass[d_middle], pass[d_ln_1]);
        ln_1.backward_input(pass, pass[d_ln_1], pass.input, pass[d_middle], pass.input_gradient);
      }
    }
    void backward_weight(int segment, auto& pass) const {
      if (segment == 1) {
        mlp.backward_weight(pass, pass[ln_2.y], pass.output_gradient);
        ln_2.backward_weight(pass);
      } else {
        attention.backward_weight(pass, pass[ln_1.y], pass[d_middle]);
        ln_1.backward_weight(pass);
      }
    }
  };

  struct Head {
    nn::LayerNorm ln_f;
    nn::Backward d_norm;
    nn::Classifier classifier;

    Head(nn::Unit& unit, Gpt2Options const& sizes, std::int64_t columns, nn::Embedding const& embedding)
        : ln_f(unit, "ln_f", sizes.channels),
          d_norm(unit.boundary(ln_f.y)),
          classifier(unit, nn::Linear(unit.borrow(0, embedding.tokens)), sizes.vocabulary, columns) {}

    void forward(int segment, auto& pass) const {
      if (segment == 0)
        ln_f.forward(pass, pass.input);
      else
        classifier.forward(pass, pass[ln_f.y]);
    }
    void backward_input(int segment, auto& pass) const {
      if (segment == 1)
        classifier.backward_input(pass, pass[d_norm]);
      else
        ln_f.backward_input(pass, pass[d_norm], pass.input, {}, pass.input_gradient);
    }
    void backward_weight(int segment, auto& pass) const {
      if (segment == 1)
        classifier.backward_weight(pass, pass[ln_f.y]);
      else
        ln_f.backward_weight(pass);
    }
  };

  template <class F>
  void with_layers(int unit, F const& work) const {
    if (unit == 0)
      work(embedding_);
    else if (unit > sizes_.layers)
      work(head_);
    else
      work(block_);
  }

  Gpt2Options sizes_;
  std::int64_t columns_;
  nn::Unit embedding_unit_, block_unit_, head_unit_;
  Embedding embedding_;
  Block block_;
  Head head_;
};

static_assert(Model<SegmentedGpt2>);

}  // namespace support
