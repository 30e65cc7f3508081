// SPDX-License-Identifier: Apache-2.0
// Provides the layers of decoders newer than GPT-2: RMSNorm, attention with separate projections for queries,
// keys and values, and the gated MLP. In the attention, several query heads can share a key head and a value
// head, and positions can be rotary. Weights are stored (out,in), as in PyTorch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tessera/nn/layers.hpp"
#include "tessera/ops/rms_norm.hpp"
#include "tessera/ops/rotary.hpp"
#include "tessera/ops/swiglu.hpp"

namespace tessera {
inline namespace v0 {
namespace nn {

/// The layer y = RMSNorm(x). Forward saves y for the backward pass as the tensor `name` of the unit.
struct RmsNorm {
  double epsilon;
  Weight gamma;
  Saved y;  // (B,T,C)
  SavedStatistic rstd;
  BackwardStatistic partials;

  RmsNorm(Unit& unit, std::string const& name, std::int64_t channels, double square_epsilon = 1e-6)
      : epsilon(square_epsilon),
        gamma(unit.parameter({name + ".weight", {channels}, Init::ones()})),
        y(unit.saved(name, per_token(channels))),
        rstd(unit.saved_statistic(name + ".rstd", per_token(1))),
        partials(unit.backward_statistic(name + ".partials", norm_partials(1, channels),
                                         /*upper_bound=*/true, {gamma})) {}

  template <class Place, class T>
  Tensor<T, Place> const& forward(Pass<Place, T>& pass, ops::In<T, Place> x) const {
    ops::rms_norm_forward(pass.context(), x, pass[gamma], epsilon, pass[y], pass[rstd]);
    return pass[y];
  }
  /// Computes dx, the gradient of x. If residual_gradient is not empty, adds it to dx. If dx is empty, does
  /// not compute dx. If `partials` is not empty, writes sums over blocks of rows to it. From these sums,
  /// backward_weight computes the gradients of the norm's parameters.
  template <class P>
  void backward_input(P& pass, typename P::ConstValue dy, typename P::ConstValue x,
                      typename P::ConstValue residual_gradient, typename P::Value dx) const {
    ops::rms_norm_backward_input(pass.context(), dy, x, pass[gamma], pass[rstd], residual_gradient, dx,
                                 pass[partials]);
  }
  void backward_weight(auto& pass) const {
    ops::rms_norm_backward_weight(pass.context(), pass[partials], pass.tokens.shape().elements(),
                                  pass.gradient(gamma));
  }
};

/// The options of a ProjectedAttention: its sizes, initial values and rotary positions, and the names of its
/// projections.
struct AttentionSpec {
  std::int64_t channels = 0;
  std::int64_t heads = 0;
  std::int64_t key_heads = 0;  ///< number of key heads, a divisor of `heads`; 0: same as `heads`
  std::int64_t head = 0;       ///< channels per head; 0: channels / heads
  bool bias = false;
  Init init = Init::normal(0.02), residual_init = Init::normal(0.02);
  double rotary_theta = 0.0;  ///< base of the rotary frequencies; 0: no rotary positions
  std::optional<ops::Llama3Scaling> rotary_scaling{};
  std::string query = "q_proj", key = "k_proj", value = "v_proj", out = "o_proj";
};

/// The layer y = causal multi-head attention over x, followed by the output projection `proj`, plus a
/// residual. The rotary positions rotate queries and keys in place, so only the rotated values are saved.
struct ProjectedAttention {
  static constexpr bool takes_row_sums = true;  ///< backward_weight has the parameter `sums`
  int heads;
  ops::RotaryFrequencies frequencies;  // `pairs` is 0 if there are no rotary positions
  Linear query, key, value, proj;
  // `queries` and `mixed` are (B,T,heads*D), `keys` and `values` are (B,T,key_heads*D). `mixed` is the result
  // of the attention before the projection `proj`.
  Saved queries, keys, values, mixed;
  SavedStatistic logsumexp;
  Backward d_mixed, d_queries, d_keys, d_values;

  ProjectedAttention(Unit& unit, std::string const& name, AttentionSpec const& with)
      : ProjectedAttention(unit, name + ".", with, (with.head ? with.head : with.channels / with.heads)) {}

  void reads(Unit& unit, Saved x) const { unit.needed_for(x, {query.weight, key.weight, value.weight}); }
  template <class Place, class T>
  void forward(Pass<Place, T>& pass, ops::In<T, Place> x, ops::In<T, Place> residual,
               ops::Out<T, Place> y) const {
    query.forward(pass, x, pass[queries]);
    key.forward(pass, x, pass[keys]);
    value.forward(pass, x, pass[values]);
    rotate(pass, pass[queries], pass[keys], false);
    ops::attention_forward(pass.context(),
                           ops::HeadColumns<T, Place>(pass[queries], pass[keys], pass[values]), heads,
                           pass[mixed], pass[logsumexp]);
    proj.forward(pass, pass[mixed], y, {.residual = residual});
  }
  template <class Place, class T>
  void backward_input(Pass<Place, T>& pass, ops::In<T, Place> dy, ops::Out<T, Place> dx) const {
    proj.backward_input(pass, dy, pass[d_mixed]);
    ops::attention_backward(pass.context(), pass[d_mixed],
                            ops::HeadColumns<T, Place>(pass[queries], pass[keys], pass[values]), pass[mixed],
                            pass[logsumexp], heads,
                            ops::HeadColumns<T, Place>(pass[d_queries], pass[d_keys], pass[d_values]));
    rotate(pass, pass[d_queries], pass[d_keys], true);
    query.backward_input(pass, pass[d_queries], dx);
    key.backward_input(pass, pass[d_keys], dx, {.residual = dx});
    value.backward_input(pass, pass[d_values], dx, {.residual = dx});
  }
  /// Computes the gradients of all weights and biases. `sums` are sums of dy over blocks of rows, from which
  /// `proj` computes the gradient of its bias. If `sums` is empty, `proj` uses dy itself.
  template <class Place, class T>
  void backward_weight(Pass<Place, T>& pass, ops::In<T, Place> x, ops::In<T, Place> dy,
                       ops::In<compute_t<T>, Place> sums = {}) const {
    proj.backward_weight(pass, pass[mixed], dy, sums);
    query.backward_weight(pass, x, pass[d_queries]);
    key.backward_weight(pass, x, pass[d_keys]);
    value.backward_weight(pass, x, pass[d_values]);
  }

 private:
  ProjectedAttention(Unit& unit, std::string const& prefix, AttentionSpec const& with, std::int64_t head)
      : heads(static_cast<int>(with.heads)),
        frequencies(frequencies_of(with, head)),
        query(unit, prefix + with.query, with.channels, with.heads * head, into_heads(with, head)),
        key(unit, prefix + with.key, with.channels, key_heads(with) * head, into_heads(with, head)),
        value(unit, prefix + with.value, with.channels, key_heads(with) * head, into_heads(with, head)),
        proj(unit, prefix + with.out, with.heads * head, with.channels,
             {.init = with.residual_init, .bias = with.bias, .transposed = true, .split = of_heads(1, head)}),
        queries(unit.saved("queries", per_token(with.heads * head), false, of_heads(2, head))),
        keys(unit.saved("keys", per_token(key_heads(with) * head), false, of_heads(2, head))),
        values(unit.saved("values", per_token(key_heads(with) * head), false, of_heads(2, head))),
        mixed(unit.saved("attention", per_token(with.heads * head), false, of_heads(2, head))),
        logsumexp(unit.saved_statistic("attention.logsumexp", per_head(with.heads), of_heads(1, 1))),
        d_mixed(unit.backward("d_attention", per_token(with.heads * head), of_heads(2, head))),
        d_queries(unit.backward("d_queries", per_token(with.heads * head), of_heads(2, head))),
        d_keys(unit.backward("d_keys", per_token(key_heads(with) * head), of_heads(2, head))),
        d_values(unit.backward("d_values", per_token(key_heads(with) * head), of_heads(2, head))) {}

  static ops::RotaryFrequencies frequencies_of(AttentionSpec const& with, std::int64_t head) {
    if (with.rotary_theta <= 0.0) return {};
    auto const plain = ops::rotary_frequencies(head, with.rotary_theta);
    return with.rotary_scaling ? ops::scaled(plain, *with.rotary_scaling) : plain;
  }
  static std::int64_t key_heads(AttentionSpec const& with) {
    return with.key_heads ? with.key_heads : with.heads;
  }
  static Split of_heads(int dim, std::int64_t channels_of_one) {
    return {Split::Kind::heads, dim, 1, channels_of_one};
  }
  static LinearSpec into_heads(AttentionSpec const& with, std::int64_t head) {
    return {.init = with.init, .bias = with.bias, .transposed = true, .split = of_heads(0, head)};
  }
  template <class Place, class T>
  void rotate(Pass<Place, T>& pass, Tensor<T, Place> of_queries, Tensor<T, Place> of_keys, bool back) const {
    if (frequencies.pairs == 0) return;
    for (Tensor<T, Place> const& rows : {of_queries, of_keys})
      ops::rotary(pass.context(), rows, rows, frequencies, {.transposed = back});
  }
};

/// The gated MLP y = (silu(x g) * (x u)) w, plus a residual. The product * is elementwise. g, u and w are the
/// weights of `gate`, `up` and `down`. There are no biases.
struct GatedMlp {
  Linear gate, up, down;
  Saved gates, ups, post;  // (B,T,hidden); `post` can be recomputed from `gates` and `ups`
  Backward d_gates, d_ups;

  GatedMlp(Unit& unit, std::string const& name, std::int64_t channels, std::int64_t hidden, Init const& init,
           Init const& residual_init)
      : gate(unit, name + ".gate_proj", channels, hidden, into_hidden(init)),
        up(unit, name + ".up_proj", channels, hidden, into_hidden(init)),
        down(unit, name + ".down_proj", hidden, channels,
             {.init = residual_init, .bias = false, .transposed = true, .split = {Split::Kind::hidden, 1}}),
        gates(unit.saved("gate", per_token(hidden), false, {Split::Kind::hidden, 2})),
        ups(unit.saved("up", per_token(hidden), false, {Split::Kind::hidden, 2})),
        post(unit.saved("activation", per_token(hidden), /*cheap_to_recompute=*/true,
                        {Split::Kind::hidden, 2})),
        d_gates(unit.backward("d_gate", per_token(hidden), {Split::Kind::hidden, 2})),
        d_ups(unit.backward("d_up", per_token(hidden), {Split::Kind::hidden, 2})) {
    unit.needed_for(post, {down.weight});
  }

  void reads(Unit& unit, Saved x) const { unit.needed_for(x, {gate.weight, up.weight}); }
  void forward(auto& pass, auto x, auto residual, auto y) const {
    gate.forward(pass, x, pass[gates]);
    up.forward(pass, x, pass[ups]);
    recompute(pass);
    down.forward(pass, pass[post], y, {.residual = residual});
  }
  void recompute(auto& pass) const {
    ops::swiglu_forward(pass.context(), pass[gates], pass[ups], pass[post]);
  }
  void backward_input(auto& pass, auto dy, auto dx) const {
    // d_gates first receives the gradient of `post`. swiglu_backward reads this gradient and overwrites it
    // with the gradient of `gates`.
    down.backward_input(pass, dy, pass[d_gates]);
    ops::swiglu_backward(pass.context(), pass[gates], pass[ups], pass[d_gates], pass[d_gates], pass[d_ups]);
    gate.backward_input(pass, pass[d_gates], dx);
    up.backward_input(pass, pass[d_ups], dx, {.residual = dx});
  }
  void backward_weight(auto& pass, auto x, auto dy) const {
    down.backward_weight(pass, pass[post], dy);
    gate.backward_weight(pass, x, pass[d_gates]);
    up.backward_weight(pass, x, pass[d_ups]);
  }

 private:
  static LinearSpec into_hidden(Init const& init) {
    return {.init = init, .bias = false, .transposed = true, .split = {Split::Kind::hidden, 0}};
  }
};

}  // namespace nn
}  // namespace v0
}  // namespace tessera
