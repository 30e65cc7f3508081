// SPDX-License-Identifier: Apache-2.0
// Tests how tensor parallelism splits parameters and activations over the ranks of a tensor group. A model
// declares the full shape of each tensor and how the tensor is split. local_shape() returns the shape on each
// rank, or throws an error that says why the tensor cannot be split.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/decoder_layers.hpp"
#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/layout.hpp"

namespace {

using namespace tessera;

constexpr MicroBatch micro{2, 64};

/// Returns the local shape of every tensor of GPT-2's embedding, first block and output head, if `ranks`
/// ranks share each tensor. The keys are the names of the tensors.
std::map<std::string, Shape> shapes_of(int ranks) {
  std::map<std::string, Shape> shapes;
  auto const units = Gpt2(Gpt2Options{.layers = 1}).units(micro);
  for (UnitSpec const& unit : units) {
    for (ParameterSpec const& spec : unit.parameters) shapes[spec.name] = local_shape(spec, ranks);
    for (auto const* list : {&unit.saved, &unit.backward})
      for (ActivationSpec const& spec : *list)
        shapes[unit.name + ": " + spec.name] = local_shape(spec, ranks);
    shapes[unit.name + ": output"] = local_shape("output", unit.output, unit.output_split, ranks);
  }
  return shapes;
}

std::string refusal(auto const& work) {
  try {
    work();
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the shapes of one rank of a tensor group follow from GPT-2's whole ones") {
  std::map<std::string, Shape> const whole = shapes_of(1);
  for (std::int64_t const n : {2, 4}) {
    std::map<std::string, Shape> want = whole;
    for (auto const& [name, shape] :
         std::map<std::string, Shape>{{"wte.weight", {50264 / n, 768}},
                                      {"h.0.attn.c_attn.weight", {768, 2304 / n}},
                                      {"h.0.attn.c_attn.bias", {2304 / n}},
                                      {"h.0.attn.c_proj.weight", {768 / n, 768}},
                                      {"h.0.mlp.c_fc.weight", {768, 3072 / n}},
                                      {"h.0.mlp.c_fc.bias", {3072 / n}},
                                      {"h.0.mlp.c_proj.weight", {3072 / n, 768}},
                                      {"h.0: qkv", {2, 64, 2304 / n}},
                                      {"h.0: attention", {2, 64, 768 / n}},
                                      {"h.0: attention.logsumexp", {2, 12 / n, 64}},
                                      {"h.0: d_attention", {2, 64, 768 / n}},
                                      {"h.0: d_qkv", {2, 64, 2304 / n}},
                                      {"h.0: d_qkv.partials", {2, 2304 / n}},
                                      {"h.0: fc", {2, 64, 3072 / n}},
                                      {"h.0: activation", {2, 64, 3072 / n}},
                                      {"h.0: d_fc", {2, 64, 3072 / n}},
                                      {"h.0: d_fc.partials", {1, 3072 / n}},
                                      {"head: logits", {2, 64, 50264 / n}}}) {
      REQUIRE(want.contains(name));
      want[name] = shape;
    }
    for (auto const& shape_of : shapes_of(static_cast<int>(n))) {
      INFO(shape_of.first, " over ", n);
      CHECK(to_string(shape_of.second) == to_string(want[shape_of.first]));
    }
  }
  CHECK(to_string(whole.at("h.0.attn.c_attn.weight")) == "[768, 2304]");
}

TEST_CASE("heads that share keys split with their keys, and a gated MLP by its width") {
  nn::Unit unit;
  nn::ProjectedAttention const attention(
      unit, "attn", {.channels = 64, .heads = 8, .key_heads = 2, .head = 16, .bias = true});
  nn::GatedMlp const mlp(unit, "mlp", 64, 96, Init::zeros(), Init::zeros());
  UnitSpec const spec = unit.at(micro, "block");
  auto const local = [&](nn::Weight weight, int ranks) {
    return to_string(local_shape(spec.parameters[static_cast<std::size_t>(weight.index)], ranks));
  };
  auto const shape_of = [&](nn::Saved saved, int ranks) {
    return to_string(local_shape(spec.saved[static_cast<std::size_t>(saved.index)], ranks));
  };
  CHECK(local(attention.query.weight, 2) == "[64, 64]");
  CHECK(local(attention.query.bias, 2) == "[64]");
  CHECK(local(attention.key.weight, 2) == "[16, 64]");
  CHECK(local(attention.proj.weight, 2) == "[64, 64]");
  // Every rank has the full bias. The bias is added once, after the partial results of all ranks are added.
  CHECK(local(attention.proj.bias, 2) == "[64]");
  CHECK(shape_of(attention.values, 2) == "[2, 64, 16]");
  CHECK(shape_of(attention.mixed, 2) == "[2, 64, 64]");
  CHECK(local(mlp.gate.weight, 3) == "[32, 64]");
  CHECK(local(mlp.down.weight, 3) == "[64, 32]");
  CHECK(shape_of(mlp.post, 3) == "[2, 64, 32]");
  CHECK(local(attention.query.weight, 4) == "[32, 64]");
  CHECK(
      refusal([&] { (void)local(attention.key.weight, 4); }) ==
      "model: 'attn.k_proj.weight' is split by heads, but 4 ranks cannot divide 2 of them equally; choose a "
      "tensor group of a size that divides 2");
}

TEST_CASE("a tensor group that cannot share a tensor evenly is refused with the number") {
  // 8 ranks could divide the 768 channels of the queries, keys and values, but they cannot divide the 12
  // heads.
  auto const units = Gpt2(Gpt2Options{.layers = 1}).units(micro);
  CHECK(refusal([&] { (void)local_shape(units[1].parameters[2], 8); }) ==
        "model: 'h.0.attn.c_attn.weight' is split by heads, but 8 ranks cannot divide 12 of them equally; "
        "choose "
        "a tensor group of a size that divides 12");
  CHECK(refusal([&] { (void)local_shape(units[1].parameters[2], 3); }) == "");
  CHECK(
      refusal([&] { (void)local_shape(units[0].parameters[0], 3); }) ==
      "model: 'wte.weight' is split by vocabulary, but 3 ranks cannot divide 50264 of them equally; choose a "
      "tensor group of a size that divides 50264");
}

TEST_CASE("splits of other kinds and sections divide alike") {
  using Kind = Split::Kind;
  CHECK(local_shape("x", {4, 64, 32}, {Kind::sequence, 1}, 8) == Shape{4, 8, 32});
  CHECK(local_shape("x", {8, 16, 32}, {Kind::experts, 0}, 4) == Shape{2, 16, 32});
  // The last dimension of this tensor consists of two sections, gate and up. Each section is split
  // separately.
  CHECK(local_shape("x", {16, 90}, {Kind::hidden, 1, 2}, 3) == Shape{16, 30});
  CHECK(refusal([] { (void)local_shape("x", {16, 90}, {Kind::hidden, 1, 2}, 2); }) != "");
  CHECK(local_shape("x", {16, 90}, {}, 7) == Shape{16, 90});
}

TEST_CASE("a split that does not fit its tensor is refused") {
  auto const with = [](Split const& split, bool output) {
    auto units = Gpt2(Gpt2Options{.layers = 1}).units(micro);
    (output ? units[1].output_split : units[1].saved[0].split) = split;
    return refusal([&] { check_units(units); });
  };
  CHECK(with({Split::Kind::sequence, 1}, true) == "");
  CHECK(with({Split::Kind::sequence, 3}, false) ==
        "model: unit 'h.0' has activation 'ln_1' of shape [2, 64, 768]; its split along dim 3 into 1 "
        "sections of "
        "grains of 1 does not fit");
  for (Split const& split : {Split{Split::Kind::heads, -1},
                             {Split::Kind::heads, 2, 5},
                             {Split::Kind::heads, 2, 0},
                             {Split::Kind::heads, 2, 1, 0},
                             {Split::Kind::heads, 2, 3, 100}}) {
    CHECK(with(split, true) != "");
    CHECK(with(split, false) != "");
  }
}
