// SPDX-License-Identifier: Apache-2.0
// Tests a model family that the library does not contain. The file support/mlp_family.cpp registers the
// family. It must appear in the list of models, and training a model by its name must give the same results
// as training by its C++ type.
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <latch>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/model_family.hpp"
#include "tessera/train/trainer.hpp"

#include "support/mlp.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;

ModelFamily const& mlp() {
  std::vector<ModelFamily const*> const all = model_families();
  return **std::find_if(all.begin(), all.end(), [](ModelFamily const* one) { return one->name == "mlp"; });
}

AnyModel small() {
  ModelSpec spec = mlp().spec(mlp().models.front());
  spec.positions = 16;
  spec.vocabulary = 61;
  return mlp().make(spec);
}
MlpModel const typed({.layers = 2, .channels = 24, .hidden = 40, .positions = 16, .vocabulary = 61});

/// Trains the model by its name with make_trainer(), and by its type with Trainer. Checks that the results
/// are equal with these policies, on `ranks` ranks.
template <class... Policies>
void expect_the_same(int ranks) {
  using Typed = Trainer<MlpModel, Policies...>;
  INFO(to_string(Typed::recipe));
  Run run;
  run.split = {ranks, 2};
  run.options.learning_rate = 1e-2;
  Outcome const by_type = train(run, [](comm::Comm comm, TrainerOptions const& options) {
    return std::make_unique<Typed>(typed, comm, options);
  });
  Outcome const by_name = train(run, [](comm::Comm comm, TrainerOptions const& options) {
    return make_trainer(small(), Typed::recipe, comm, options);
  });
  CHECK(by_name == by_type);
}

std::string refusal(ModelFamily const& family) {
  try {
    (void)register_model_family(family);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a family of a user's own trains by its name as by its type") {
  expect_the_same<>(1);
  expect_the_same<ZeroStage<3>, Recompute<Gelu>>(2);
  expect_the_same<Precision<bfloat16>>(1);
  expect_the_same<ZeroStage<2>, Precision<bfloat16>, Offload<Cpu>>(2);
}

TEST_CASE("a model without its type says what its type says") {
  AnyModel const model = small();
  CHECK(model.vocabulary() == 61);
  CHECK(model.positions() == 16);
  CHECK(model.parameters() == parameter_count(typed.units({1, 1})));
  CHECK(model.flops_per_token(16) == 6.0 * static_cast<double>(model.parameters()));
  CHECK((model.functions<Cpu, bfloat16>().forward && model.functions<Cpu, double>().backward_weight));
  CHECK_FALSE(AnyModel());
}

TEST_CASE("a family that does not fit the list is refused in words") {
  ModelFamily family = mlp();
  CHECK(refusal(family) == "model family 'mlp': another family has this name; choose another");
  family.name = "other";
  CHECK(refusal(family) ==
        "model family 'other': the name of model 'mlp-small' is taken by family 'mlp'; choose another");
  family.models = {{.name = "other-small", .numbers = {1, 2}}};
  CHECK(refusal(family) ==
        "model family 'other': model 'other-small' has 2 numbers for 3 keys; give one for each, in their "
        "order");
  family.models = {};
  family.keys[0].divides = "heads";
  CHECK(refusal(family) ==
        "model family 'other': key 'layers' must be a divisor of 'heads', which is not a key of this family; "
        "name one of "
        "its keys");
  family.keys[0].divides = {};
  family.hub.model_type = "other";
  CHECK(refusal(family) ==
        "model family 'other': its hub has a model_type but no architectures; give at least the architecture "
        "to write");
  family.hub.architectures = {"Other"};
  family.hub.features = {{"act", {}}};
  CHECK(refusal(family) ==
        "model family 'other': feature 'act' of its hub has no value; give at least the value to write");
  family.name = "a,b";
  CHECK(refusal(family) ==
        "model family 'a,b': 'a,b' is not a valid name; use lowercase letters, digits, '.', '_' and '-'");
  CHECK(model_families().back()->name == "mlp");
}

TEST_CASE("threads that add families at once add each of them once") {
  constexpr int thread_count = 4, names = 1000;
  std::size_t const before = model_families().size();
  std::atomic<int> added = 0, refused = 0, unnamed = 0;
  std::latch start(thread_count);
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < thread_count; ++thread)
      threads.emplace_back([&] {
        ModelFamily family = mlp();
        family.models = {};
        start.arrive_and_wait();
        for (int name = 0; name < names; ++name) {
          family.name = "at-once-" + std::to_string(name);
          try {
            if (register_model_family(family)) ++added;
          } catch (Error const&) {
            ++refused;
          }
          for (ModelFamily const* const known : model_families()) unnamed += known->name.empty() ? 1 : 0;
        }
      });
  }
  CHECK(added == names);
  CHECK(refused == (thread_count - 1) * names);
  CHECK(unnamed == 0);
  CHECK(model_families().size() == before + names);
}
