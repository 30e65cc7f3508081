// SPDX-License-Identifier: Apache-2.0
// Tests the class Gpt2, which describes GPT-2 as units: the embedding, the blocks and the output head. Covers
// the names and shapes of the parameters, which must be as in GPT-2's files, weight decay, tied weights, and
// sizes that are refused.
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/layout.hpp"

#include "operators/reference.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace tessera;

std::string refusal_of_model(Gpt2Options const& options) {
  try {
    Gpt2 model(options);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    return error.what();
  }
  return "";
}

/// Calls backward_input of every unit of `model` without buffers for the gradients of parameters. No call may
/// throw.
template <class M>
void backward_input_without_gradients(M const& model) {
  MicroBatch const shape{2, 3};
  auto const units = model.units(shape);
  reference::Machine machine(1);
  std::deque<std::vector<float>> memory;
  auto const tensor = [&](Shape const& of) {
    return Tensor<float>(memory.emplace_back(static_cast<std::size_t>(of.elements()), 0.5f).data(), of);
  };
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    UnitSpec const& spec = units[unit];
    Pass<Cpu, float> pass;
    std::vector<std::int32_t> const tokens(6, 1);
    pass.device = &machine.context;
    pass.tokens = pass.targets = {tokens.data(), {shape.batch, shape.sequence}};
    for (ParameterSpec const& parameter : spec.parameters)
      pass.weights.push_back(tensor(parameter.in_memory()));
    for (Borrow const& borrow : spec.borrows)
      pass.borrowed.push_back(tensor(units[static_cast<std::size_t>(borrow.unit)]
                                         .parameters[static_cast<std::size_t>(borrow.parameter)]
                                         .in_memory()));
    auto const activations = [&](auto const& specs, auto& values, auto& statistics) {
      for (ActivationSpec const& activation : specs) {
        values.push_back(activation.statistic ? Tensor<float>() : tensor(activation.shape));
        statistics.push_back(activation.statistic ? tensor(activation.shape) : Tensor<float>());
      }
    };
    activations(spec.saved, pass.saved_values, pass.saved_statistics);
    activations(spec.backward, pass.backward_values, pass.backward_statistics);
    pass.output_gradient = tensor(spec.output);
    if (unit > 0) {
      pass.input = tensor(units[unit - 1].output);
      pass.input_gradient = tensor(units[unit - 1].output);
    }
    CHECK_NOTHROW(model.backward_input(static_cast<int>(unit), pass));
  }
}

}  // namespace

TEST_CASE("GPT-2 has the names shapes and decay of its files") {
  Gpt2 const model({.layers = 2, .heads = 3, .channels = 12, .positions = 7, .vocabulary = 11});
  auto const units = model.units({2, 5});
  REQUIRE(units.size() == 4);
  std::vector<std::string> lines;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) {
      lines.push_back(parameter.name + " " + to_string(parameter.shape));
      // Every matrix has weight decay, also the embedding tables. Vectors have none.
      CHECK(parameter.decay == (parameter.shape.dims() == 2));
      CHECK(parameter.trainable);
    }
  auto const block = [](std::string const& name) {
    return std::vector<std::string>{name + ".ln_1.weight [12]",
                                    name + ".ln_1.bias [12]",
                                    name + ".attn.c_attn.weight [12, 36]",
                                    name + ".attn.c_attn.bias [36]",
                                    name + ".attn.c_proj.weight [12, 12]",
                                    name + ".attn.c_proj.bias [12]",
                                    name + ".ln_2.weight [12]",
                                    name + ".ln_2.bias [12]",
                                    name + ".mlp.c_fc.weight [12, 48]",
                                    name + ".mlp.c_fc.bias [48]",
                                    name + ".mlp.c_proj.weight [48, 12]",
                                    name + ".mlp.c_proj.bias [12]"};
  };
  std::vector<std::string> want{"wte.weight [11, 12]", "wpe.weight [7, 12]"};
  for (std::string const& name : {std::string("h.0"), std::string("h.1")})
    for (std::string const& row : block(name)) want.push_back(row);
  want.insert(want.end(), {"ln_f.weight [12]", "ln_f.bias [12]"});
  CHECK(lines == want);

  // The output head borrows parameter 0, the token table, from unit 0, the embedding. It saves the logits and
  // has no output tensor.
  REQUIRE(units.back().borrows.size() == 1);
  CHECK(units.back().borrows[0].unit == 0);
  CHECK(units.back().borrows[0].parameter == 0);
  CHECK(units.back().output.dims() == 0);
  CHECK(units[1].output == Shape{2, 5, 12});
  CHECK_NOTHROW(check_units(units));
  int cheap = 0;
  for (ActivationSpec const& saved : units[1].saved) cheap += saved.cheap_to_recompute;
  CHECK(cheap == 1);
}

TEST_CASE("projections to the residual start smaller with depth") {
  Gpt2 const model({.layers = 8, .heads = 2, .channels = 8});
  for (UnitSpec const& unit : model.units({1, 1}))
    for (ParameterSpec const& parameter : unit.parameters) {
      if (parameter.shape.dims() != 2) {
        CHECK(parameter.init.kind != Init::Kind::normal);
        continue;
      }
      bool const residual = parameter.name.find("c_proj") != std::string::npos;
      CHECK(parameter.init.deviation == doctest::Approx(residual ? 0.005 : 0.02));
    }
}

TEST_CASE("impossible sizes of GPT-2 are refused with their numbers") {
  CHECK(refusal_of_model({.heads = 5, .channels = 64}).find("5 heads do not divide 64 channels") !=
        std::string::npos);
  CHECK(refusal_of_model({.layers = 0}).find("layers is 0") != std::string::npos);
  CHECK(refusal_of_model({.positions = -3}).find("positions is -3") != std::string::npos);
  CHECK(refusal_of_model({.vocabulary = std::int64_t{1} << 40}).find("vocabulary is 1099511627776") !=
        std::string::npos);
  CHECK(refusal_of_model({}) == "");
}

TEST_CASE("the FLOPs of a token are six a parameter and attention's") {
  Gpt2 const model;
  CHECK(model.flops_per_token(1024) == 6.0 * 124439808 + 12.0 * 12 * 768 * 1024);
}

TEST_CASE("backward_input writes no gradient of a parameter") {
  backward_input_without_gradients(
      Gpt2({.layers = 1, .heads = 2, .channels = 6, .positions = 3, .vocabulary = 5}));
  backward_input_without_gradients(support::TiedModel{});
}

TEST_CASE("parameter names are unique and counts are logical") {
  std::set<std::string> names;
  auto const units = support::TiedModel{}.units({3, 4});
  std::int64_t count = 0;
  for (UnitSpec const& unit : units)
    for (ParameterSpec const& parameter : unit.parameters) {
      CHECK(names.insert(parameter.name).second);
      count += parameter.shape.elements();
    }
  CHECK(parameter_count(units) == count);
}
