// SPDX-License-Identifier: Apache-2.0
// GPT-2: learned positions, pre-LayerNorm blocks, tanh GELU, a head tied to the token embedding.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/nn/gpt2_options.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/gelu.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera::inline v0 {

/// GPT-2 as units `embedding`, `h.0` .. `h.{L-1}`, `head`; parameter names and shapes are Hugging Face's, the
/// four linear weights lie in x out (Conv1D). Throws Error(config) for sizes that cannot be.
class Gpt2 {
 public:
  explicit Gpt2(Gpt2Options options = {}) : options_(options) {
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
  }

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
    std::int64_t const c = options_.channels, b = shape.batch, t = shape.sequence;
    // GPT-2's own initialisation: 0.02, and 0.02 / sqrt(2 L) for the projections that add to the residual.
    Init const normal = Init::normal(0.02);
    Init const projection = Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(options_.layers)));
    std::vector<UnitSpec> units;

    // A vocabulary of 50257 would send a GPU's products with the embedding to kernels several times slower:
    // rows of 16-bit logits have to be multiples of 16 bytes.
    std::int64_t const padded = round_up(options_.vocabulary, 8);

    UnitSpec embedding;
    embedding.name = "embedding";
    embedding.parameters = {
        {"wte.weight", {options_.vocabulary, c}, normal, true, true, {Split::Kind::dim, 0}, padded},
        {"wpe.weight", {options_.positions, c}, normal, true}};
    embedding.output = {b, t, c};
    embedding.input_gradient = false;
    embedding.backward_reads_weights = false;
    embedding.recomputable = false;
    units.push_back(embedding);

    for (std::int64_t layer = 0; layer < options_.layers; ++layer) {
      UnitSpec block;
      block.name = "h." + std::to_string(layer);
      auto const name = [&](char const* tail) { return block.name + "." + tail; };
      block.parameters = {
          {name("ln_1.weight"), {c}, Init::ones()},
          {name("ln_1.bias"), {c}},
          {name("attn.c_attn.weight"), {c, 3 * c}, normal, true, true, {Split::Kind::heads, 1}},
          {name("attn.c_attn.bias"), {3 * c}, Init::zeros(), false, true, {Split::Kind::heads, 0}},
          {name("attn.c_proj.weight"), {c, c}, projection, true, true, {Split::Kind::dim, 0}},
          {name("attn.c_proj.bias"), {c}},
          {name("ln_2.weight"), {c}, Init::ones()},
          {name("ln_2.bias"), {c}},
          {name("mlp.c_fc.weight"), {c, 4 * c}, normal, true, true, {Split::Kind::dim, 1}},
          {name("mlp.c_fc.bias"), {4 * c}, Init::zeros(), false, true, {Split::Kind::dim, 0}},
          {name("mlp.c_proj.weight"), {4 * c, c}, projection, true, true, {Split::Kind::dim, 0}},
          {name("mlp.c_proj.bias"), {c}}};
      block.output = {b, t, c};
      block.saved = {{"ln_1", {b, t, c}},         {"ln_1.mean", {b, t}, true},
                     {"ln_1.rstd", {b, t}, true}, {"qkv", {b, t, 3 * c}},
                     {"attention", {b, t, c}},    {"attention.logsumexp", {b, options_.heads, t}, true},
                     {"residual", {b, t, c}},     {"ln_2", {b, t, c}},
                     {"ln_2.mean", {b, t}, true}, {"ln_2.rstd", {b, t}, true},
                     {"fc", {b, t, 4 * c}},       {"gelu", {b, t, 4 * c}, false, true}};
      block.backward = {{"d_fc", {b, t, 4 * c}},
                        {"d_ln", {b, t, c}},
                        {"d_residual", {b, t, c}},
                        {"d_attention", {b, t, c}},
                        {"d_qkv", {b, t, 3 * c}}};
      units.push_back(block);
    }

    UnitSpec head;
    head.name = "head";
    head.parameters = {{"ln_f.weight", {c}, Init::ones()}, {"ln_f.bias", {c}}};
    head.borrows = {{0, 0}};  // wte
    head.saved = {{"ln_f", {b, t, c}},
                  {"ln_f.mean", {b, t}, true},
                  {"ln_f.rstd", {b, t}, true},
                  {"logits", {b * t, padded}}};
    head.backward = {{"d_ln", {b, t, c}}};
    head.recomputable = false;
    units.push_back(head);
    return units;
  }

  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    if (unit == 0) {
      ops::embedding_forward(pass.context(), pass.tokens, pass.weight(wte), pass.weight(wpe), pass.output);
    } else if (unit == head_unit()) {
      head_forward(pass);
    } else {
      block_forward(pass);
    }
  }

  /// Rebuilds the cheap tensors of a block: the GELU output.
  template <class Place, class T>
  void recompute(int, Pass<Place, T>& pass) const {
    ops::gelu_forward(pass.context(), pass.saved(fc), pass.saved(gelu));
  }

  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    if (unit == 0) return;  // tokens have no gradient
    if (unit == head_unit()) {
      head_backward_input(pass);
    } else {
      block_backward_input(pass);
    }
  }

  template <class Place, class T>
  void backward_weight(int unit, Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    if (unit == 0) {
      ops::embedding_backward(context, pass.tokens, pass.output_gradient, pass.partials[wte], /*fresh=*/false,
                              pass.gradient(wte), pass.gradient(wpe));
    } else if (unit == head_unit()) {
      ops::linear_transposed_backward_weight(context, rows(pass.saved(logits)), rows(pass.saved(ln_f)),
                                             pass.lent[0]);
    } else {
      ops::linear_backward_weight(context, rows(pass.saved(gelu)), rows(pass.output_gradient),
                                  pass.gradient(fcproj_weight), pass.gradient(fcproj_bias));
      ops::linear_backward_weight(context, rows(pass.saved(ln_2)), rows(pass.backward(d_fc)),
                                  pass.gradient(fc_weight), pass.gradient(fc_bias));
      ops::linear_backward_weight(context, rows(pass.saved(attention)), rows(pass.backward(d_residual)),
                                  pass.gradient(proj_weight), pass.gradient(proj_bias));
      ops::linear_backward_weight(context, rows(pass.saved(ln_1)), rows(pass.backward(d_qkv)),
                                  pass.gradient(attn_weight), pass.gradient(attn_bias));
    }
  }

 private:
  // Indices into UnitSpec::parameters, ::saved and ::backward of `units`.
  enum EmbeddingParameter { wte, wpe };
  enum BlockParameter {
    ln_1_weight,
    ln_1_bias,
    attn_weight,
    attn_bias,
    proj_weight,
    proj_bias,
    ln_2_weight,
    ln_2_bias,
    fc_weight,
    fc_bias,
    fcproj_weight,
    fcproj_bias
  };
  enum HeadParameter { ln_f_weight, ln_f_bias };
  enum BlockSaved {
    ln_1,
    ln_1_mean,
    ln_1_rstd,
    qkv,
    attention,
    logsumexp,
    residual,
    ln_2,
    ln_2_mean,
    ln_2_rstd,
    fc,
    gelu
  };
  enum HeadSaved { ln_f, ln_f_mean, ln_f_rstd, logits };
  enum BlockBackward { d_fc, d_ln, d_residual, d_attention, d_qkv };
  enum HeadBackward { d_ln_f };

  static constexpr double epsilon = 1e-5;

  int head_unit() const { return static_cast<int>(options_.layers) + 1; }

  /// (B,T,N) or (M,N) as (M,N).
  template <class T, class Place>
  static Tensor<T, Place> rows(Tensor<T, Place> tensor) {
    return tensor.reshaped({tensor.shape().rows(), tensor.shape().columns()});
  }

  template <class Place, class T>
  void block_forward(Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    int const heads = static_cast<int>(options_.heads);
    ops::layer_norm_forward(context, rows(pass.input), pass.weight(ln_1_weight), pass.weight(ln_1_bias),
                            epsilon, rows(pass.saved(ln_1)), pass.statistic(ln_1_mean),
                            pass.statistic(ln_1_rstd));
    ops::linear_forward(context, rows(pass.saved(ln_1)), pass.weight(attn_weight), pass.weight(attn_bias),
                        rows(pass.saved(qkv)));  // (BT,3C)
    ops::attention_forward(context, pass.saved(qkv), heads, pass.saved(attention), pass.statistic(logsumexp));
    ops::linear_residual_forward(context, rows(pass.saved(attention)), pass.weight(proj_weight),
                                 pass.weight(proj_bias), rows(pass.input), rows(pass.saved(residual)));
    ops::layer_norm_forward(context, rows(pass.saved(residual)), pass.weight(ln_2_weight),
                            pass.weight(ln_2_bias), epsilon, rows(pass.saved(ln_2)),
                            pass.statistic(ln_2_mean), pass.statistic(ln_2_rstd));
    ops::linear_gelu_forward(context, rows(pass.saved(ln_2)), pass.weight(fc_weight), pass.weight(fc_bias),
                             rows(pass.saved(fc)), rows(pass.saved(gelu)));  // (BT,4C)
    if (pass.output)
      ops::linear_residual_forward(context, rows(pass.saved(gelu)), pass.weight(fcproj_weight),
                                   pass.weight(fcproj_bias), rows(pass.saved(residual)), rows(pass.output));
  }

  template <class Place, class T>
  void block_backward_input(Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    int const heads = static_cast<int>(options_.heads);
    ops::linear_gelu_backward_input(context, rows(pass.output_gradient), pass.weight(fcproj_weight),
                                    rows(pass.saved(fc)), rows(pass.backward(d_fc)));  // (BT,4C)
    ops::linear_backward_input(context, rows(pass.backward(d_fc)), pass.weight(fc_weight),
                               rows(pass.backward(d_ln)));
    ops::layer_norm_backward(context, rows(pass.backward(d_ln)), rows(pass.saved(residual)),
                             pass.weight(ln_2_weight), pass.statistic(ln_2_mean), pass.statistic(ln_2_rstd),
                             rows(pass.output_gradient), rows(pass.backward(d_residual)),
                             pass.gradient(ln_2_weight), pass.gradient(ln_2_bias));
    ops::linear_backward_input(context, rows(pass.backward(d_residual)), pass.weight(proj_weight),
                               rows(pass.backward(d_attention)));
    ops::attention_backward(context, pass.backward(d_attention), pass.saved(qkv), pass.saved(attention),
                            pass.statistic(logsumexp), heads, pass.backward(d_qkv));
    ops::linear_backward_input(context, rows(pass.backward(d_qkv)), pass.weight(attn_weight),
                               rows(pass.backward(d_ln)));
    ops::layer_norm_backward(context, rows(pass.backward(d_ln)), rows(pass.input), pass.weight(ln_1_weight),
                             pass.statistic(ln_1_mean), pass.statistic(ln_1_rstd),
                             rows(pass.backward(d_residual)), rows(pass.input_gradient),
                             pass.gradient(ln_1_weight), pass.gradient(ln_1_bias));
  }

  template <class Place, class T>
  void head_forward(Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    ops::layer_norm_forward(context, rows(pass.input), pass.weight(ln_f_weight), pass.weight(ln_f_bias),
                            epsilon, rows(pass.saved(ln_f)), pass.statistic(ln_f_mean),
                            pass.statistic(ln_f_rstd));
    ops::linear_transposed_forward(context, rows(pass.saved(ln_f)), pass.borrowed[0], pass.saved(logits));
    ops::cross_entropy(context, pass.saved(logits), options_.vocabulary, flat(pass.targets), pass.losses,
                       pass.training,
                       pass.gradient_scale);  // logits become their gradient
  }

  template <class Place, class T>
  void head_backward_input(Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    ops::linear_transposed_backward_input(context, pass.saved(logits), pass.borrowed[0],
                                          rows(pass.backward(d_ln_f)));
    ops::layer_norm_backward(context, rows(pass.backward(d_ln_f)), rows(pass.input), pass.weight(ln_f_weight),
                             pass.statistic(ln_f_mean), pass.statistic(ln_f_rstd), {},
                             rows(pass.input_gradient), pass.gradient(ln_f_weight), pass.gradient(ln_f_bias));
  }

  template <class T, class Place>
  static Tensor<T, Place> flat(Tensor<T, Place> tensor) {
    return tensor.reshaped({tensor.shape().elements()});
  }

  Gpt2Options options_;
};

static_assert(Model<Gpt2>);

}  // namespace tessera::inline v0
