// SPDX-License-Identifier: Apache-2.0
// Tests the models OPT and LLaMA. Their parameter counts must be exact, and their gradients must equal
// numerical derivatives. Their training results must have the same bits for every sharding, number of ranks,
// offload and recomputation. golden_losses_test.cpp compares their losses with the losses of PyTorch.
#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/llama.hpp"
#include "tessera/nn/opt.hpp"
#include "tessera/testing/gradients.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/llama_family.hpp"
#include "tessera/train/opt_family.hpp"

#include "support/runs.hpp"

namespace {

using namespace support;

OptOptions const opt{.layers = 2,
                     .heads = 3,
                     .channels = 33,
                     .hidden = 47,
                     .positions = 21,
                     .vocabulary = 61,
                     .padding_token = -1};
LlamaOptions const llama{
    .layers = 2, .heads = 6, .key_heads = 2, .channels = 36, .hidden = 47, .positions = 21, .vocabulary = 61};

LlamaOptions tied(LlamaOptions sizes) {
  sizes.tied = true;
  sizes.padding_token = 7;
  sizes.rotary_factor = 4.0;
  sizes.rotary_positions = 16.0;
  return sizes;
}
/// Returns sizes with an embedding that is larger than a block, so that backward reduces its gradient first.
LlamaOptions with_large_embedding(LlamaOptions sizes) {
  sizes.vocabulary = 500;
  return sizes;
}
OptOptions padded(OptOptions sizes) {
  sizes.padding_token = 1;
  return sizes;
}

void expect_right(testing::GradientReport const& report, std::size_t parameters) {
  INFO(report);
  CHECK(report.right());
  CHECK(report.differences.size() == parameters);
}

/// Returns `sizes` with only one layer. The tests differentiate every parameter numerically, and a larger
/// model would need too much time.
OptOptions smallest(OptOptions sizes) {
  sizes.layers = 1;
  return sizes;
}
LlamaOptions smallest(LlamaOptions sizes) {
  sizes.layers = 1;
  return sizes;
}

Outcome outcome(AnyModel const& model, RecipeTable const& table, Spread split) {
  Run run;
  run.split = split;
  run.batch = 2;
  run.sequence = 19;
  run.vocabulary = model.vocabulary();
  run.options.learning_rate = 1e-2;
  run.options.weight_decay = 0.1;
  run.options.clip = 0.5;
  return train(run, [&](comm::Comm comm, TrainerOptions const& options) {
    return make_trainer(model, table, comm, options);
  });
}

}  // namespace

TEST_CASE("named models have exactly the parameters of the published ones") {
  std::map<std::string, std::int64_t> const published = {
      {"gpt2", 124439808},        {"gpt2-medium", 354823168},   {"gpt2-large", 774030080},
      {"gpt2-xl", 1557611200},    {"opt-125m", 125239296},      {"opt-1.3b", 1315758080},
      {"llama-2-7b", 6738415616}, {"llama-2-13b", 13015864320}, {"llama-2-70b", 68976648192}};
  std::size_t found = 0;
  for (ModelFamily const* const family : model_families())
    for (NamedModel const& named : family->models) {
      auto const expected = published.find(named.name);
      if (expected == published.end()) continue;
      CAPTURE(named.name);
      CHECK(family->make(family->spec(named)).parameters() == expected->second);
      ++found;
    }
  CHECK(found == published.size());
}

TEST_CASE("every gradient of OPT and of LLaMA is the slope of the loss") {
  expect_right(testing::check_gradients(Opt(smallest(opt)), {1, 9}), 20);
  expect_right(testing::check_gradients(Llama(smallest(llama)), {1, 9}), 12);
  LlamaOptions lookups = tied(llama);
  lookups.padding_token = -1;
  expect_right(testing::check_gradients(Llama(smallest(lookups)), {1, 9}), 11);
}

TEST_CASE("OPT and LLaMA end with the same bits however they are sharded, offloaded and recomputed") {
  for (AnyModel const& model : {any_model(padded(opt)), any_model(llama), any_model(tied(llama)),
                                any_model(with_large_embedding(tied(llama)))})
    for (std::string const precision : {"fp32", "bf16"}) {
      CAPTURE(precision);
      CAPTURE(model.parameters());
      Outcome const want = outcome(model, recipe("zs0", precision), {1, 4});
      CHECK(want.losses.back() != want.losses.front());
      for (std::string_view const sharding : shardings) {
        CAPTURE(std::string(sharding));
        CHECK(outcome(model, recipe(sharding, precision), {2, 2}) == want);
        CHECK(outcome(model, recipe(sharding, precision, "cpu_full", "block"), {4, 1}) == want);
      }
      for (std::string_view const recompute : recomputes)
        CHECK(outcome(model, recipe("zs3", precision, "cpu_optimizer", recompute), {2, 2}) == want);
    }
}

TEST_CASE("a padding token is looked up, and its row learns from the head alone") {
  AnyModel const with = any_model(padded(opt)), without = any_model(opt);
  RecipeTable const plain = recipe("zs0");
  Outcome const a = outcome(with, plain, {1, 4}), b = outcome(without, plain, {1, 4});
  CHECK(a.losses.front() == b.losses.front());
  CHECK(a.norms.front() != b.norms.front());
}

TEST_CASE("sizes that cannot be are refused") {
  auto const refusal = [](auto const& make) {
    try {
      make();
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  CHECK(refusal([] { Opt({.heads = 7}); }) ==
        "Opt: 7 heads do not divide 768 channels (768 / 7 leaves 5); choose channels as a multiple of heads");
  CHECK(refusal([] { Opt({.hidden = 0}); }) == "Opt: hidden is 0; it must be from 1 to 67108864");
  CHECK(refusal([] { Llama({.key_heads = 3}); }) ==
        "Llama: 3 key heads do not divide 32 heads; choose a number of key heads that divides the number of "
        "heads");
  CHECK(refusal([] {
          Llama({.heads = 32, .key_heads = 32, .channels = 32});
        }).find("a head has 1 channels, but needs an even number") != std::string::npos);
}
