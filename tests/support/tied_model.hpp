// SPDX-License-Identifier: Apache-2.0
// Provides TiedModel, a model that is written as a user would write one. TiedModel is not a transformer. Two
// of its units (layers) borrow a parameter of a third unit. It has frozen parameters, a unit without saved
// tensors, and odd sizes. Tests use it to check the engine with a model other than GPT-2.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/nn/layers.hpp"
#include "tessera/nn/model.hpp"

namespace support {

using namespace tessera;

/// A model with five units. `embedding` owns the token table. `memory` computes gelu(LN(x) table^T) and
/// multiplies the result by its own matrix. `plain` and `frozen` are feed-forward units; the norm weight and
/// the last matrix of `frozen` are frozen. `head` computes logits with the token table.
class TiedModel {
 public:
  enum Unit { embedding, memory, plain, frozen, head };
  static constexpr std::int64_t channels = 23, words = 29, length = 19;
  int throw_in_unit = -1;  ///< the number of a unit whose forward throws an error, or -1

  TiedModel() : TiedModel(37) {}
  explicit TiedModel(std::int64_t hidden)
      : places_(units_[embedding].parameter({"places", {length, channels}, wide, true})),
        embedding_(units_[embedding], {"table", {words, channels}, wide, true}, std::nullopt, /*tied=*/true),
        feeds_{Feed(units_[memory], words, &embedding_.tokens), Feed(units_[plain], hidden),
               Feed(units_[frozen], hidden)},
        head_(units_[head], nn::Linear(units_[head].borrow(embedding, embedding_.tokens)), words, words) {
    embedding_.positions = places_;
    units_[frozen].freeze(feeds_[2].norm.gamma);
    units_[frozen].freeze(feeds_[2].down.weight);
  }

  /// Returns the first matrix of the feed-forward unit number `unit`.
  nn::Weight up(int unit) const { return feed_of(unit).up.weight; }
  std::int64_t vocabulary() const { return words; }
  std::int64_t positions() const { return length; }

  std::vector<UnitSpec> units(MicroBatch shape) const {
    return {units_[embedding].at(shape, "embedding"), units_[memory].at(shape, "memory", "memory."),
            units_[plain].at(shape, "plain", "plain."), units_[frozen].at(shape, "frozen", "frozen."),
            units_[head].at(shape, "head")};
  }

  template <class Place, class T>
  void forward(int unit, Pass<Place, T>& pass) const {
    if (unit == throw_in_unit)
      throw std::runtime_error("the model of this rank throws in unit " + std::to_string(unit));
    if (unit == embedding) return embedding_.forward(pass);
    if (unit == head) return head_.forward(pass, pass.input);
    Feed const& feed = feed_of(unit);
    feed.up.forward(pass, feed.norm.forward(pass, pass.input), pass[feed.after],
                    {.activation = Activation::gelu, .pre = pass[feed.before]});
    feed.down.forward(pass, pass[feed.after], pass.output, {.residual = pass.input});
  }

  template <class Place, class T>
  void recompute(int unit, Pass<Place, T>& pass) const {
    Feed const& feed = feed_of(unit);
    ops::activate(pass.context(), Activation::gelu, pass[feed.before], pass[feed.after]);
  }

  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    if (unit == embedding) return;
    if (unit == head) return head_.backward_input(pass, pass.input_gradient);
    Feed const& feed = feed_of(unit);
    feed.down.backward_input(pass, pass.output_gradient, pass[feed.d_before],
                             {.activation = Activation::gelu, .pre = pass[feed.before]});
    feed.up.backward_input(pass, pass[feed.d_before], pass[feed.d_norm_output]);
    feed.norm.backward_input(pass, pass[feed.d_norm_output], pass.input, pass.output_gradient,
                             pass.input_gradient);
  }

  template <class Place, class T>
  void backward_weight(int unit, Pass<Place, T>& pass) const {
    if (unit == embedding) return embedding_.backward_weight(pass);
    if (unit == head) return head_.backward_weight(pass, pass.input);
    Feed const& feed = feed_of(unit);
    feed.norm.backward_weight(pass);
    feed.down.backward_weight(pass, pass[feed.after], pass.output_gradient);
    feed.up.backward_weight(pass, pass[feed.norm.y], pass[feed.d_before]);
  }

 private:
  static constexpr Init wide = Init::normal(0.3);

  /// The layers of one feed-forward unit. If the constructor gets `table`, the token table, the unit uses
  /// this table as its first matrix and has no biases.
  struct Feed {
    nn::LayerNorm norm;
    nn::Linear up, down;
    nn::Saved before, after;
    nn::Backward d_before, d_norm_output;

    Feed(nn::Unit& unit, std::int64_t hidden, nn::Weight const* table = nullptr)
        : norm(unit, "norm", channels),
          up(table ? nn::Linear(unit.borrow(embedding, *table))
                   : nn::Linear(unit, "up", channels, hidden, {.init = wide})),
          down(unit, "down", hidden, channels, {.init = wide, .bias = !table}),
          before(unit.saved("before", nn::per_token(hidden))),
          after(unit.saved("after", nn::per_token(hidden), /*cheap_to_recompute=*/true)),
          d_before(unit.backward("d_before", nn::per_token(hidden))),
          d_norm_output(unit.backward("d_norm_output", nn::per_token(channels))) {
      unit.output = nn::per_token(channels);
      unit.needed_for(norm.y, {up.weight});
      unit.needed_for(after, {down.weight});
    }
  };
  Feed const& feed_of(int unit) const { return feeds_[static_cast<std::size_t>(unit - memory)]; }

  std::array<nn::Unit, 5> units_;
  // `places` is declared before the token table, so that the table is not at offset 0 of the unit's flat
  // buffer.
  nn::Weight places_;
  nn::Embedding embedding_;
  std::array<Feed, 3> feeds_;
  nn::Classifier head_;
};

static_assert(Model<TiedModel>);

}  // namespace support
