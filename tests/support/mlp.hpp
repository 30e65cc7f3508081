// SPDX-License-Identifier: Apache-2.0
// Provides a small model family that is written as a user would write one. Its models have blocks without
// attention, and an output head that does not share its weight with the embedding. The tests use the family
// through every interface of the model registry.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"

namespace support {

struct MlpOptions {
  std::int64_t layers = 2, channels = 32, hidden = 128, positions = 64, vocabulary = 256;
};

/// A model with embeddings, layers that compute y = x + MLP(LayerNorm(x)), and an output head. It has no
/// attention, so the result at a position does not depend on the other positions.
class MlpModel {
 public:
  explicit MlpModel(MlpOptions const& sizes)
      : sizes_(sizes),
        embedding_(embedding_unit_, {"embed.weight", {sizes.vocabulary, sizes.channels}, wide, true},
                   tessera::ParameterSpec{"places.weight", {sizes.positions, sizes.channels}, wide, true},
                   /*tied=*/false),
        block_(block_unit_, sizes),
        head_(head_unit_,
              tessera::nn::Linear(head_unit_, "lm_head", sizes.channels, sizes.vocabulary,
                                  {.init = wide, .bias = false, .transposed = true}),
              sizes.vocabulary, sizes.vocabulary) {}

  std::int64_t vocabulary() const { return sizes_.vocabulary; }
  std::int64_t positions() const { return sizes_.positions; }

  std::vector<tessera::UnitSpec> units(tessera::MicroBatch shape) const {
    std::vector<tessera::UnitSpec> units{embedding_unit_.at(shape, "embedding")};
    for (std::int64_t layer = 0; layer < sizes_.layers; ++layer) {
      std::string const name = "layers." + std::to_string(layer);
      units.push_back(block_unit_.at(shape, name, name + "."));
    }
    units.push_back(head_unit_.at(shape, "head"));
    return units;
  }

  template <class Place, class T>
  void forward(int unit, tessera::Pass<Place, T>& pass) const {
    if (unit == 0) return embedding_.forward(pass);
    if (unit > sizes_.layers) return head_.forward(pass, pass.input);
    block_.mlp.forward(pass, block_.norm.forward(pass, pass.input), pass.input, pass.output);
  }
  template <class Place, class T>
  void recompute(int, tessera::Pass<Place, T>& pass) const {
    block_.mlp.recompute(pass);
  }
  template <class Place, class T>
  void backward_input(int unit, tessera::Pass<Place, T>& pass) const {
    if (unit == 0) return;
    if (unit > sizes_.layers) return head_.backward_input(pass, pass.input_gradient);
    block_.mlp.backward_input(pass, pass.output_gradient, pass[block_.d_norm]);
    block_.norm.backward_input(pass, pass[block_.d_norm], pass.input, pass.output_gradient,
                               pass.input_gradient);
  }
  template <class Place, class T>
  void backward_weight(int unit, tessera::Pass<Place, T>& pass) const {
    if (unit == 0) return embedding_.backward_weight(pass);
    if (unit > sizes_.layers) return head_.backward_weight(pass, pass.input);
    block_.mlp.backward_weight(pass, pass[block_.norm.y], pass.output_gradient);
    block_.norm.backward_weight(pass);
  }

 private:
  static constexpr tessera::Init wide = tessera::Init::normal(0.1);

  struct Block {
    tessera::nn::LayerNorm norm;
    tessera::nn::Mlp mlp;
    tessera::nn::Backward d_norm;

    Block(tessera::nn::Unit& unit, MlpOptions const& sizes)
        : norm(unit, "norm", sizes.channels),
          mlp(unit, "mlp", sizes.channels, sizes.hidden, tessera::Activation::relu, wide, wide),
          d_norm(unit.backward("d_norm", tessera::nn::per_token(sizes.channels))) {
      unit.output = tessera::nn::per_token(sizes.channels);
    }
  };

  MlpOptions sizes_;
  tessera::nn::Unit embedding_unit_, block_unit_, head_unit_;
  tessera::nn::Embedding embedding_;
  Block block_;
  tessera::nn::Classifier head_;
};

}  // namespace support
