// SPDX-License-Identifier: Apache-2.0
// Tests the layers of decoders that are newer than GPT-2. A model of two blocks uses all of these layers, and
// its gradients are compared with numerical derivatives.
#include "tessera/nn/decoder_layers.hpp"

#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/transformer.hpp"
#include "tessera/testing/gradients.hpp"

namespace {

using namespace tessera;

/// A model with a table of position embeddings and two blocks. The first block has biases, LayerNorm and
/// ReLU. The second block has RMSNorm, rotary positions, grouped-query attention and a gated MLP.
class TwoBlocks {
  static constexpr std::int64_t channels = 12, words = 17, length = 13;
  static constexpr Init wide = Init::normal(0.3);

 public:
  std::int64_t vocabulary() const { return words; }
  std::int64_t positions() const { return length; }

  std::vector<UnitSpec> units(MicroBatch shape) const {
    return {units_[0].at(shape, "embedding"), units_[1].at(shape, "plain", "plain."),
            units_[2].at(shape, "gated", "gated."), units_[3].at(shape, "head")};
  }
  void forward(int unit, auto& pass) const {
    if (unit == 0) embedding_.forward(pass);
    if (unit == 1) plain_.forward(pass);
    if (unit == 2) gated_.forward(pass);
    if (unit == 3) head_.forward(pass, norm_.forward(pass, pass.input));
  }
  void recompute(int unit, auto& pass) const {
    if (unit == 1) plain_.recompute(pass);
    if (unit == 2) gated_.recompute(pass);
  }
  void backward_input(int unit, auto& pass) const {
    if (unit == 1) plain_.backward_input(pass);
    if (unit == 2) gated_.backward_input(pass);
    if (unit == 3) {
      head_.backward_input(pass, pass[d_norm_]);
      norm_.backward_input(pass, pass[d_norm_], pass.input, {}, pass.input_gradient);
    }
  }
  void backward_weight(int unit, auto& pass) const {
    if (unit == 0) embedding_.backward_weight(pass);
    if (unit == 1) plain_.backward_weight(pass);
    if (unit == 2) gated_.backward_weight(pass);
    if (unit == 3) {
      head_.backward_weight(pass, pass[norm_.y]);
      norm_.backward_weight(pass);
    }
  }

 private:
  struct Sizes {
    std::int64_t channels = TwoBlocks::channels;
  };
  struct Plain {
    using Norm = nn::LayerNorm;
    using Attention = nn::ProjectedAttention;
    using Mlp = nn::Mlp;
    Sizes sizes;

    Norm norm_1(nn::Unit& unit) const { return {unit, "input_norm", channels}; }
    Attention attention(nn::Unit& unit) const {
      return {unit,
              "self_attn",
              {.channels = channels,
               .heads = 3,
               .bias = true,
               .init = wide,
               .residual_init = wide,
               .out = "out_proj"}};
    }
    Norm norm_2(nn::Unit& unit) const { return {unit, "post_norm", channels}; }
    Mlp mlp(nn::Unit& unit) const {
      return {unit, "fc1", "fc2", channels, 20, Activation::relu, wide, wide, /*transposed=*/true};
    }
  };
  struct Gated {
    using Norm = nn::RmsNorm;
    using Attention = nn::ProjectedAttention;
    using Mlp = nn::GatedMlp;
    Sizes sizes;

    Norm norm_1(nn::Unit& unit) const { return {unit, "input_norm", channels}; }
    Attention attention(nn::Unit& unit) const {
      return {unit,
              "self_attn",
              {.channels = channels,
               .heads = 4,
               .key_heads = 2,
               .head = 6,
               .init = wide,
               .residual_init = wide,
               .rotary_theta = 100.0,
               .rotary_scaling = ops::Llama3Scaling{4.0, 1.0, 2.0, 40.0}}};
    }
    Norm norm_2(nn::Unit& unit) const { return {unit, "post_norm", channels}; }
    Mlp mlp(nn::Unit& unit) const { return {unit, "mlp", channels, 20, wide, wide}; }
  };

  nn::Unit units_[4];
  nn::Embedding embedding_{units_[0],
                           {"embed_tokens.weight", {words, channels}, wide, true},
                           ParameterSpec{"embed_positions.weight", {length + 2, channels}, wide, true},
                           /*tied=*/false,
                           {.first_position = 2}};
  nn::TransformerBlock<Plain> plain_{units_[1], {}};
  nn::TransformerBlock<Gated> gated_{units_[2], {}};
  nn::RmsNorm norm_{units_[3], "norm", channels};
  nn::Classifier head_{
      units_[3],
      nn::Linear(units_[3], "lm_head", channels, words, {.init = wide, .bias = false, .transposed = true}),
      words, words};
  nn::Backward d_norm_{units_[3].backward("d_norm", nn::per_token(channels))};
};

}  // namespace

TEST_CASE("every gradient of the layers of decoders is the slope of the loss") {
  testing::GradientReport const report = testing::check_gradients(TwoBlocks(), {2, 11});
  INFO(report);
  CHECK(report.right());
  CHECK(report.differences.size() == 2 + 16 + 9 + 2);
}
