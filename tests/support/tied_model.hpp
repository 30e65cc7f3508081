// SPDX-License-Identifier: Apache-2.0
// A model as a user would write one: not a transformer, one parameter borrowed by two units, frozen
// parameters, a unit without saved tensors, odd sizes. It stays in the tests for good: whatever the engine
// promises to GPT-2 it promises to every model.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/nn/model.hpp"
#include "tessera/ops/activation.hpp"
#include "tessera/ops/attention.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/embedding.hpp"
#include "tessera/ops/layer_norm.hpp"
#include "tessera/ops/linear.hpp"

namespace support {

using namespace tessera;

/// Units: embedding (owns the token table), memory (looks up gelu(LN(x) table^T) in a matrix of its own), two
/// feed-forward units (the second one's last matrix is frozen), head (logits by the table).
struct TiedModel {
  std::int64_t channels = 23;
  std::int64_t hidden = 37;
  std::int64_t words = 29;
  std::int64_t length = 19;
  int throw_in_unit = -1;  ///< this unit's forward throws

  enum Unit { embedding, memory, plain, frozen, head };
  enum MemoryParameter { m_norm, m_bias, m_values };
  enum FeedParameter { f_norm, f_bias, f_up, f_up_bias, f_down, f_down_bias };
  enum Saved { normed, mean, rstd, before, after };
  enum Backward { d_before, d_normed, partials };

  std::int64_t vocabulary() const { return words; }
  std::int64_t positions() const { return length; }

  std::vector<UnitSpec> units(MicroBatch shape) const {
    std::int64_t const b = shape.batch, t = shape.sequence;
    Shape const sums{2, ops::layer_norm_partial_rows(b * t), channels};
    Init const wide = Init::normal(0.3);
    std::vector<UnitSpec> units(5);

    units[embedding].name = "embedding";
    units[embedding].parameters = {{"table", {words, channels}, wide, true},
                                   {"places", {length, channels}, wide, true}};
    units[embedding].output = {b, t, channels};
    units[embedding].input_gradient = false;
    units[embedding].backward_reads_weights = false;

    auto const lookup = [&](std::int64_t inner) {
      return std::vector<ActivationSpec>{{"normed", {b, t, channels}},
                                         {"mean", {b, t}, true},
                                         {"rstd", {b, t}, true},
                                         {"before", {b, t, inner}},
                                         {"after", {b, t, inner}, false, true}};
    };
    units[memory].name = "memory";
    units[memory].parameters = {{"memory.norm", {channels}, Init::ones()},
                                {"memory.bias", {channels}},
                                {"memory.values", {words, channels}, wide, true}};
    units[memory].borrows = {{embedding, 0}};
    units[memory].output = {b, t, channels};
    units[memory].saved = lookup(words);
    units[memory].backward = {
        {"d_before", {b, t, words}}, {"d_normed", {b, t, channels}}, {"partials", sums, true}};

    for (int unit : {plain, frozen}) {
      bool const learns = unit == plain;
      UnitSpec& feed = units[static_cast<std::size_t>(unit)];
      feed.name = learns ? "plain" : "frozen";
      feed.parameters = {{feed.name + ".norm", {channels}, Init::ones(), false, learns},
                         {feed.name + ".bias", {channels}},
                         {feed.name + ".up", {channels, hidden}, wide, true},
                         {feed.name + ".up_bias", {hidden}},
                         {feed.name + ".down", {hidden, channels}, wide, true, learns},
                         {feed.name + ".down_bias", {channels}}};
      feed.output = {b, t, channels};
      feed.saved = lookup(hidden);
      feed.backward = {
          {"d_before", {b, t, hidden}}, {"d_normed", {b, t, channels}}, {"partials", sums, true}};
    }

    units[head].name = "head";
    units[head].borrows = {{embedding, 0}};
    units[head].saved = {{"logits", {b * t, words}}};
    units[head].recomputable = false;
    return units;
  }

  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    if (unit == throw_in_unit)
      throw std::runtime_error("the model of this rank throws in unit " + std::to_string(unit));
    Context<Place>& context = pass.context();
    if (unit == embedding) {
      ops::embedding_forward(context, pass.tokens, pass.weight(0), pass.weight(1), pass.output);
      return;
    }
    if (unit == head) {
      ops::linear(context, rows(pass.input), pass.borrowed[0], pass.saved(0), {.transposed = true});
      ops::cross_entropy(context, pass.saved(0), pass.targets.reshaped({pass.targets.elements()}),
                         pass.losses, pass.training, pass.gradient_scale);
      return;
    }
    ops::layer_norm_forward(context, rows(pass.input), pass.weight(0), pass.weight(1), 1e-5,
                            rows(pass.saved(normed)), pass.statistic(mean), pass.statistic(rstd));
    if (unit == memory) {
      ops::linear(context, rows(pass.saved(normed)), pass.borrowed[0], rows(pass.saved(before)),
                  {.transposed = true});
      ops::activate(context, Activation::gelu, pass.saved(before), pass.saved(after));
    } else {
      ops::linear(
          context, rows(pass.saved(normed)), pass.weight(f_up), rows(pass.saved(after)),
          {.bias = pass.weight(f_up_bias), .activation = Activation::gelu, .pre = rows(pass.saved(before))});
    }
    if (!pass.output) return;
    bool const looks_up = unit == memory;
    ops::linear(context, rows(pass.saved(after)), pass.weight(looks_up ? m_values + 0 : f_down + 0),
                rows(pass.output),
                {.bias = looks_up ? Tensor<T const, Place>{} : pass.weight(f_down_bias),
                 .residual = rows(pass.input)});
  }

  template <class Place, class T>
  void recompute(int, Pass<Place, T>& pass) const {
    ops::activate(pass.context(), Activation::gelu, pass.saved(before), pass.saved(after));
  }

  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    if (unit == embedding) return;
    if (unit == head) {
      ops::linear_backward_input(context, pass.saved(0), pass.borrowed[0], rows(pass.input_gradient),
                                 {.transposed = true});
      return;
    }
    ops::linear_backward_input(
        context, rows(pass.output_gradient), pass.weight(unit == memory ? m_values + 0 : f_down + 0),
        rows(pass.backward(d_before)), {.activation = Activation::gelu, .pre = rows(pass.saved(before))});
    if (unit == memory)
      ops::linear_backward_input(context, rows(pass.backward(d_before)), pass.borrowed[0],
                                 rows(pass.backward(d_normed)), {.transposed = true});
    else
      ops::linear_backward_input(context, rows(pass.backward(d_before)), pass.weight(f_up),
                                 rows(pass.backward(d_normed)));
    ops::layer_norm_backward_input(context, rows(pass.backward(d_normed)), rows(pass.input), pass.weight(0),
                                   pass.statistic(mean), pass.statistic(rstd), rows(pass.output_gradient),
                                   rows(pass.input_gradient), pass.backward_statistic(partials));
  }

  template <class Place, class T>
  void backward_weight(int unit, Pass<Place, T>& pass) const {
    Context<Place>& context = pass.context();
    if (unit == embedding) {
      ops::embedding_backward(context, pass.tokens, pass.output_gradient, pass.partials[0], /*fresh=*/false,
                              pass.gradient(0), pass.gradient(1));
      return;
    }
    if (unit == head) {
      ops::linear_backward_weight(context, rows(pass.input), pass.saved(0), pass.lent[0],
                                  {.transposed = true});
      return;
    }
    ops::layer_norm_backward_weight(context, pass.backward_statistic(partials), pass.tokens.elements(),
                                    pass.gradient(0), pass.gradient(1));
    bool const looks_up = unit == memory;
    ops::linear_backward_weight(context, rows(pass.saved(after)), rows(pass.output_gradient),
                                pass.gradient(looks_up ? m_values + 0 : f_down + 0),
                                {.dbias = looks_up ? Tensor<T, Place>{} : pass.gradient(f_down_bias)});
    if (looks_up)
      ops::linear_backward_weight(context, rows(pass.saved(normed)), rows(pass.backward(d_before)),
                                  pass.lent[0], {.transposed = true});
    else
      ops::linear_backward_weight(context, rows(pass.saved(normed)), rows(pass.backward(d_before)),
                                  pass.gradient(f_up), {.dbias = pass.gradient(f_up_bias)});
  }

 private:
  /// (B,T,N) or (M,N) as (M,N).
  template <class T, class Place>
  static Tensor<T, Place> rows(Tensor<T, Place> tensor) {
    return tensor.reshaped({tensor.shape().rows(), tensor.shape().columns()});
  }
};

static_assert(Model<TiedModel>);

}  // namespace support
