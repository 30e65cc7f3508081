// SPDX-License-Identifier: Apache-2.0
// Provides layers: LayerNorm, Linear, attention, MLP, embedding and classifier. The constructor of a layer
// adds the layer's parameters and saved tensors to the list of a unit (such as a transformer block). The
// functions of a layer compute the forward and the backward pass. They only enqueue work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/config.hpp"
#include "tessera/nn/adapter.hpp"
#include "tessera/nn/unit.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// Returns a function that gives the shape (sums,R,channels) for a micro-batch. R is the number of blocks of
/// rows for which a norm writes partial sums.
inline ShapeOf norm_partials(std::int64_t sums, std::int64_t channels) {
  return [sums, channels](MicroBatch of) {
    return Shape{sums, ops::layer_norm_partial_rows(of.tokens()), channels};
  };
}

/// The layer y = LayerNorm(x). Forward saves y for the backward pass as the tensor `name` of the unit.
struct LayerNorm {
  double epsilon;
  Weight gamma, beta;
  Saved y;  // (B,T,C)
  SavedStatistic mean, rstd;
  BackwardStatistic partials;

  LayerNorm(Unit& unit, std::string const& name, std::int64_t channels, double variance_epsilon = 1e-5)
      : epsilon(variance_epsilon),
        gamma(unit.parameter({name + ".weight", {channels}, Init::ones()})),
        beta(unit.parameter({name + ".bias", {channels}})),
        y(unit.saved(name, per_token(channels))),
        mean(unit.saved_statistic(name + ".mean", per_token(1))),
        rstd(unit.saved_statistic(name + ".rstd", per_token(1))),
        partials(unit.backward_statistic(name + ".partials", norm_partials(2, channels),
                                         /*upper_bound=*/true, {gamma, beta})) {}

  template <class Place, class T>
  Tensor<T, Place> const& forward(Pass<Place, T>& pass, ops::In<T, Place> x) const {
    ops::layer_norm_forward(pass.context(), x, pass[gamma], pass[beta], epsilon, pass[y], pass[mean],
                            pass[rstd]);
    return pass[y];
  }
  /// Computes dx, the gradient of x. If residual_gradient is not empty, adds it to dx. If dx is empty, does
  /// not compute dx. If `partials` is not empty, writes sums over blocks of rows to it. From these sums,
  /// backward_weight computes the gradients of the norm's parameters. `sums` are as in
  /// ops::layer_norm_backward_input.
  template <class Place, class T>
  void backward_input(Pass<Place, T>& pass, ops::In<T, Place> dy, ops::In<T, Place> x,
                      ops::In<T, Place> residual_gradient, ops::Out<T, Place> dx,
                      ops::NormSums<compute_t<T>, Place> const& sums = {}) const {
    ops::layer_norm_backward_input(pass.context(), dy, x, pass[gamma], pass[mean], pass[rstd],
                                   residual_gradient, dx, pass[partials], sums);
  }
  void backward_weight(auto& pass) const {
    ops::layer_norm_backward_weight(pass.context(), pass[partials], pass.tokens.shape().elements(),
                                    pass.gradient(gamma), pass.gradient(beta));
  }
};

/// The initial values, the storage order and the tensor-parallel split of a Linear's parameters.
struct LinearSpec {
  Init init = Init::normal(0.02);
  bool bias = true;
  bool transposed = false;  ///< the weight is stored (out,in), as in PyTorch, instead of (in,out)
  Split split{};            ///< of the weight; a split of the outputs also splits the bias

  Split bias_split() const {
    return split.dim == (transposed ? 0 : 1) ? Split{split.kind, 0, split.sections, split.grain} : Split{};
  }
};

/// The layer y = x w + b. It saves no tensors for the backward pass, because the neighbouring layers save x
/// and y.
struct Linear {
  Weight weight, bias;
  bool transposed;

  Linear(Unit& unit, std::string const& name, std::int64_t in, std::int64_t out, LinearSpec const& with = {})
      : weight(unit.parameter({name + ".weight", with.transposed ? Shape{out, in} : Shape{in, out}, with.init,
                               true, true, with.split, 0, with.transposed ? 1 : 0})),
        bias(with.bias
                 ? unit.parameter({name + ".bias", {out}, Init::zeros(), false, true, with.bias_split()})
                 : Weight{}),
        transposed(with.transposed) {}
  /// Creates the layer y = x w^T, without bias. `table` specifies the weight, which is stored (out,in), for
  /// example as a token embedding table is.
  Linear(Unit& unit, ParameterSpec const& table) : weight(unit.parameter(table)), transposed(true) {}
  /// Creates the layer y = x w^T, without bias. Another unit owns the weight (a tied head).
  explicit Linear(Weight borrowed) : weight(borrowed), transposed(true) {}

  /// Computes y. `with` has further options, such as a residual that is added to y. If y is empty, this
  /// function does not compute y. A recomputation passes an empty y if it does not need the output.
  template <class Place, class T>
  void forward(Pass<Place, T>& pass, ops::In<T, Place> x, ops::Out<T, Place> y,
               ops::LinearOptions<T, Place> with = {}) const {
    with.transposed = transposed;
    with.bias = pass[bias];
    if (Adapter const* const adapter = pass.adapter(weight))
      return pass.adapting->forward(pass, *adapter, x, y, with);
    if (!y) return;
    ops::linear(pass.context(), x, pass[weight], y, with);
  }
  template <class Place, class T>
  void backward_input(Pass<Place, T>& pass, ops::In<T, Place> dy, ops::Out<T, Place> dx,
                      ops::LinearInputOptions<T, Place> with = {}) const {
    with.transposed = transposed;
    if (Adapter const* const adapter = pass.adapter(weight))
      return pass.adapting->backward_input(pass, *adapter, dy, dx, with);
    ops::linear_backward_input(pass.context(), dy, pass[weight], dx, with);
  }
  /// Computes the gradients of the weight and the bias. `partials` are sums of dy over blocks of rows, from
  /// which the bias gradient is computed. The function backward_input of this layer or of a neighbouring
  /// layer has written these sums. If `partials` is empty, the bias gradient is computed from dy itself.
  template <class Place, class T>
  void backward_weight(Pass<Place, T>& pass, ops::In<T, Place> x, ops::In<T, Place> dy,
                       ops::In<compute_t<T>, Place> partials = {}) const {
    ops::LinearWeightOptions<T, Place> const with{
        .transposed = transposed, .dbias = pass.gradient(bias), .partials = partials};
    if (Adapter const* const adapter = pass.adapter(weight))
      pass.adapting->backward_weight(pass, *adapter, x, dy);
    if (weight.borrowed)
      ops::linear_backward_weight(pass.context(), x, dy, pass.tied_gradient(weight), with);
    else
      ops::linear_backward_weight(pass.context(), x, dy, pass.gradient(weight), with);
  }
};

/// The layer y = causal multi-head attention over x, followed by the output projection `proj`, plus a
/// residual.
struct CausalAttention {
  static constexpr bool takes_row_sums = true;  ///< backward_weight has the parameter `sums`
  int heads;
  Linear qkv, proj;
  Saved packed, mixed;  // queries, keys and values (B,T,3C); result of the attention (B,T,C)
  SavedStatistic logsumexp;
  Backward d_mixed, d_packed;
  BackwardStatistic partials;  // sums of d_packed over blocks of rows

  CausalAttention(Unit& unit, std::string const& name, std::int64_t channels, std::int64_t head_count,
                  Init const& init, Init const& residual_init)
      : heads(static_cast<int>(head_count)),
        qkv(unit, name + ".c_attn", channels, 3 * channels,
            {.init = init, .split = by_head(1, channels, head_count, 3)}),
        proj(unit, name + ".c_proj", channels, channels,
             {.init = residual_init, .split = by_head(0, channels, head_count)}),
        packed(unit.saved("qkv", per_token(3 * channels), false, by_head(2, channels, head_count, 3))),
        mixed(unit.saved("attention", per_token(channels), false, by_head(2, channels, head_count))),
        logsumexp(unit.saved_statistic("attention.logsumexp", per_head(head_count),
                                       by_head(1, head_count, head_count))),
        d_mixed(unit.backward("d_attention", per_token(channels), by_head(2, channels, head_count))),
        d_packed(unit.backward("d_qkv", per_token(3 * channels), by_head(2, channels, head_count, 3))),
        partials(unit.backward_statistic(
            "d_qkv.partials",
            [channels](MicroBatch of) {
              return Shape{ops::attention_partial_rows(of.batch, of.sequence), 3 * channels};
            },
            /*upper_bound=*/true, {qkv.bias}, by_head(1, channels, head_count, 3))) {}

  /// Returns a tensor-parallel split of dimension `dim` by heads. The dimension has `sections` consecutive
  /// parts (3 for qkv). Each part has `extent` elements, which belong to `count` heads.
  static constexpr Split by_head(int dim, std::int64_t extent, std::int64_t count, int sections = 1) {
    return {Split::Kind::heads, dim, sections, count > 0 ? extent / count : 0};
  }

  /// Tells the unit that the saved tensor x is needed only for the gradients of this layer's weights.
  void reads(Unit& unit, Saved x) const { unit.needed_for(x, {qkv.weight}); }
  void forward(auto& pass, auto x, auto residual, auto y) const {
    qkv.forward(pass, x, pass[packed]);
    ops::attention_forward(pass.context(), pass[packed], heads, pass[mixed], pass[logsumexp]);
    proj.forward(pass, pass[mixed], y, {.residual = residual});
  }
  void backward_input(auto& pass, auto dy, auto dx) const {
    proj.backward_input(pass, dy, pass[d_mixed]);
    ops::attention_backward(pass.context(), pass[d_mixed], pass[packed], pass[mixed], pass[logsumexp], heads,
                            pass[d_packed], pass[partials]);
    qkv.backward_input(pass, pass[d_packed], dx);
  }
  /// Computes the gradients of all weights and biases. `sums` are sums of dy over blocks of rows, from which
  /// `proj` computes the gradient of its bias. If `sums` is empty, `proj` uses dy itself.
  template <class Place, class T>
  void backward_weight(Pass<Place, T>& pass, ops::In<T, Place> x, ops::In<T, Place> dy,
                       ops::In<compute_t<T>, Place> sums = {}) const {
    proj.backward_weight(pass, pass[mixed], dy, sums);
    qkv.backward_weight(pass, x, pass[d_packed], pass[partials]);
  }
};

/// The MLP of a block: y = activation(x w + b) w' + b', plus a residual. w and b belong to `fc`, w' and b' to
/// `proj`.
struct Mlp {
  static constexpr bool takes_row_sums = true;  ///< backward_weight has the parameter `sums`
  Activation activation;
  Linear fc, proj;
  Saved pre, post;  // (B,T,hidden); `post` = activation(`pre`), so it can be recomputed from `pre`
  Backward d_pre;
  BackwardStatistic partials;  // sums of d_pre over blocks of rows

  /// Creates an MLP whose two linear layers have the names of GPT-2 (c_fc and c_proj) and weights stored
  /// (in,out).
  Mlp(Unit& unit, std::string const& name, std::int64_t channels, std::int64_t hidden, Activation form,
      Init const& init, Init const& residual_init)
      : Mlp(unit, name + ".c_fc", name + ".c_proj", channels, hidden, form, init, residual_init, false) {}

  Mlp(Unit& unit, std::string const& first, std::string const& second, std::int64_t channels,
      std::int64_t hidden, Activation form, Init const& init, Init const& residual_init, bool transposed)
      : activation(form),
        fc(unit, first, channels, hidden,
           {.init = init, .transposed = transposed, .split = {Split::Kind::hidden, transposed ? 0 : 1}}),
        proj(unit, second, hidden, channels,
             {.init = residual_init,
              .transposed = transposed,
              .split = {Split::Kind::hidden, transposed ? 1 : 0}}),
        pre(unit.saved("fc", per_token(hidden), /*cheap_to_recompute=*/false, {Split::Kind::hidden, 2})),
        post(unit.saved("activation", per_token(hidden), /*cheap_to_recompute=*/true,
                        {Split::Kind::hidden, 2})),
        d_pre(unit.backward("d_fc", per_token(hidden), {Split::Kind::hidden, 2})),
        partials(unit.backward_statistic("d_fc.partials",
                                         [hidden](MicroBatch of) {
                                           return Shape{ops::linear_partial_rows(of.tokens()), hidden};
                                         },
                                         /*upper_bound=*/true, {fc.bias}, {Split::Kind::hidden, 1})) {
    unit.needed_for(post, {proj.weight});
  }

  void reads(Unit& unit, Saved x) const { unit.needed_for(x, {fc.weight}); }
  void forward(auto& pass, auto x, auto residual, auto y) const {
    fc.forward(pass, x, pass[post], {.activation = activation, .pre = pass[pre]});
    proj.forward(pass, pass[post], y, {.residual = residual});
  }
  void recompute(auto& pass) const { ops::activate(pass.context(), activation, pass[pre], pass[post]); }
  void backward_input(auto& pass, auto dy, auto dx) const {
    proj.backward_input(pass, dy, pass[d_pre],
                        {.activation = activation, .pre = pass[pre], .partials = pass[partials]});
    fc.backward_input(pass, pass[d_pre], dx);
  }
  /// Computes the gradients of all weights and biases. `sums` is as in CausalAttention::backward_weight.
  template <class Place, class T>
  void backward_weight(Pass<Place, T>& pass, ops::In<T, Place> x, ops::In<T, Place> dy,
                       ops::In<compute_t<T>, Place> sums = {}) const {
    proj.backward_weight(pass, pass[post], dy, sums);
    fc.backward_weight(pass, x, pass[d_pre], pass[partials]);
  }
};

/// The embedding layer, for the first unit of a model: y = token table[token] + position table[position].
struct Embedding {
  ops::EmbeddingOptions options;
  Weight tokens, positions;
  BackwardStatistic sums;

  /// `tied` says whether a later unit, such as the head, also uses the token table. In the backward pass, the
  /// later unit stores its gradient of a tied table in the buffer Pass::partial_gradient first. Then the
  /// embedding adds its own gradient to this buffer. If the table is not tied, the embedding sums its
  /// gradient in a separate buffer, `sums`.
  Embedding(Unit& unit, ParameterSpec const& token_table, std::optional<ParameterSpec> const& position_table,
            bool tied, ops::EmbeddingOptions const& with = {})
      : options(with),
        tokens(unit.parameter(token_table)),
        positions(position_table ? unit.parameter(*position_table) : Weight{}),
        sums(tied ? BackwardStatistic{}
                  : unit.backward_statistic(
                        "sums", [shape = token_table.in_memory()](MicroBatch) { return shape; },
                        /*upper_bound=*/false, {tokens}, token_table.split)) {
    unit.output = per_token(token_table.shape.columns());
    unit.input_gradient = unit.backward_reads_weights = unit.recomputable = false;
  }

  void forward(auto& pass) const {
    ops::embedding_forward(pass.context(), pass.tokens, pass[tokens], pass[positions], pass.output, options);
  }
  void recompute(auto&) const {}
  void backward_input(auto&) const {}  // tokens have no gradient
  void backward_weight(auto& pass) const {
    bool const fresh = sums.index >= 0;
    ops::embedding_backward(pass.context(), pass.tokens, pass.output_gradient,
                            fresh ? pass[sums] : pass.partial_gradient(tokens), fresh, pass.gradient(tokens),
                            pass.gradient(positions), options);
  }
};

/// The end of a model's last unit: computes logits = x w (+ b) and one loss per token. In training, the
/// gradient of the logits overwrites the logits.
struct Classifier {
  Linear projection;
  std::int64_t vocabulary;
  Saved logits;  // (B,T,columns); columns from `vocabulary` on are padding

  Classifier(Unit& unit, Linear const& linear, std::int64_t words, std::int64_t columns)
      : projection(linear),
        vocabulary(words),
        logits(unit.saved("logits", per_token(columns), false, {Split::Kind::vocabulary, 2})) {
    unit.recomputable = false;
  }

  void forward(auto& pass, auto x) const {
    projection.forward(pass, x, pass[logits]);
    ops::cross_entropy(pass.context(), pass[logits], vocabulary, pass.targets, pass.losses, pass.training,
                       pass.gradient_scale);
  }
  template <class Place, class T>
  void backward_input(Pass<Place, T>& pass, ops::Out<T, Place> dx,
                      ops::LinearInputOptions<T, Place> const& with = {}) const {
    projection.backward_input(pass, pass[logits], dx, with);
  }
  void backward_weight(auto& pass, auto x) const { projection.backward_weight(pass, x, pass[logits]); }
};

}  // namespace nn
}  // namespace v0
}  // namespace tessera
