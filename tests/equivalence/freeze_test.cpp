// SPDX-License-Identifier: Apache-2.0
// Tests training with frozen parameters. For each precision, the results must have the same bits for every
// sharding, offload and number of ranks. Frozen values must not change. Trained values must be the same as if
// the gradients of the frozen parameters were computed and then ignored.
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <regex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/runs.hpp"

namespace {

using namespace support;

std::function<bool(std::string_view)> match(char const* pattern) {
  return [expression = std::regex(pattern)](std::string_view name) {
    return std::regex_search(name.begin(), name.end(), expression);
  };
}

Run run_of(char const* pattern) {
  Run run;
  run.options.learning_rate = 1e-2;
  run.options.weight_decay = 0.1;
  run.options.clip = 0.5;
  run.options.freeze = match(pattern);
  return run;
}

Outcome run_with(RecipeTable const& table, Run const& run) {
  return train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
    return make_trainer(any_model(tiny), table, comm, options);
  });
}

using Weights = std::map<std::string, std::vector<float>>;

/// The final values of all parameters after training on one rank, and the loss of the last step.
struct Ended {
  Weights trained, frozen;
  double loss = 0.0;
};

Ended weights_of(AnyTrainer& trainer, std::function<bool(std::string_view)> const& is_frozen) {
  Ended ended;
  trainer.collect([&](ParameterSpec const& parameter, std::span<float const> values) {
    (is_frozen(parameter.name) ? ended.frozen : ended.trained)[parameter.name].assign(values.begin(),
                                                                                      values.end());
  });
  return ended;
}

/// Trains on one rank without the option `freeze`. After each update, restores the parameters that
/// `run.options.freeze` selects.
Ended thrown_away(RecipeTable const& table, Run run) {
  auto const is_frozen = run.options.freeze;
  run.options.freeze = {};
  auto const trainer = make_trainer(any_model(tiny), table, comm::Comm(), options_of(run));
  // The saved values of the selected parameters. The key is the number of the buffer and the index of the
  // parameter in its unit.
  std::map<std::pair<int, int>, std::vector<std::byte>> saved;
  bool first = true;
  trainer->observe([&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers) {
    bool const begins = first && entry.verb == Verb::forward;
    if (!begins && entry.verb != Verb::update) return;
    for (BufferKind const kind : {BufferKind::weights, BufferKind::master})
      for (int unit = 0; unit < plan.units_count(); ++unit) {
        int const buffer = plan.train.find(kind, unit);
        for (std::size_t index = 0; buffer >= 0 && index < plan.unit(unit).parameters.size(); ++index) {
          if (!is_frozen(plan.unit(unit).parameters[index].name)) continue;
          Range const lies = plan.layout(unit).parameters[index];
          std::byte* const begin =
              buffers[static_cast<std::size_t>(buffer)] + plan.train.at(buffer).at(lies.begin);
          std::byte* const end =
              buffers[static_cast<std::size_t>(buffer)] + plan.train.at(buffer).at(lies.end);
          auto& values = saved[{buffer, static_cast<int>(index)}];
          if (begins)
            values.assign(begin, end);
          else
            std::memcpy(begin, values.data(), values.size());
        }
      }
    first = false;
  });
  double loss = 0.0;
  for (int step = 0; step < run.steps; ++step)
    loss =
        trainer->step(make_batch(step, 0, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every))
            .get()
            .loss;
  Ended ended = weights_of(*trainer, is_frozen);
  ended.loss = loss;
  return ended;
}

Ended left_out(RecipeTable const& table, Run const& run, Weights* before) {
  auto const trainer = make_trainer(any_model(tiny), table, comm::Comm(), options_of(run));
  *before = weights_of(*trainer, run.options.freeze).frozen;
  double loss = 0.0;
  for (int step = 0; step < run.steps; ++step)
    loss =
        trainer->step(make_batch(step, 0, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every))
            .get()
            .loss;
  Ended ended = weights_of(*trainer, run.options.freeze);
  ended.loss = loss;
  return ended;
}

void same_everywhere(std::string_view precision) {
  for (char const* const pattern : {"wte|h\\.0\\.", "h\\.1\\.|ln_1|bias", "^(?!ln_f)"}) {
    Run alone = run_of(pattern);
    alone.split = {1, 12};
    alone.steps = 2;
    Outcome const want = run_with(recipe("zs0", precision), alone);
    REQUIRE(want.losses.size() == 2);
    for (Spread const split : {Spread{1, 12}, Spread{2, 6}, Spread{3, 4}, Spread{4, 3}})
      for (std::string_view const sharding : shardings)
        for (std::string_view const offload : offloads) {
          Run run = alone;
          run.split = split;
          RecipeTable const table = recipe(sharding, precision, offload);
          INFO(pattern, ", ", to_string(table), ", ranks ", split.ranks);
          CHECK(run_with(table, run) == want);
        }
  }
}

}  // namespace

TEST_CASE("a frozen part changes no bit between shardings splits and offloads in fp32") {
  same_everywhere("fp32");
}
TEST_CASE("a frozen part changes no bit between shardings splits and offloads in fp16") {
  same_everywhere("fp16");
}
TEST_CASE("a frozen part changes no bit between shardings splits and offloads in bf16") {
  same_everywhere("bf16");
}

TEST_CASE("recomputation buckets hybrid sharding and overlap change no bit with frozen parameters") {
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run alone = run_of("wte|wpe|ln_2|c_proj");
    alone.split = {1, 4};
    Outcome const want = run_with(recipe("zs0", precision), alone);
    for (std::string_view const sharding : shardings) {
      for (std::string_view const recompute : recomputes) {
        Run run = alone;
        run.split = {2, 2};
        run.options.bucket_bytes = std::int64_t{1} << 20;
        run.options.prefetch = 2;
        CHECK(run_with(recipe(sharding, precision, "none", recompute), run) == want);
      }
      Run rows = alone;
      rows.split = {4, 1};
      rows.options.replicas = 2;
      CHECK(run_with(recipe(sharding, precision), rows) == want);
    }
  }
}

TEST_CASE("leaving gradients out is computing them and throwing them away") {
  for (std::string_view const precision : {"fp32", "bf16", "fp64"})
    for (char const* const pattern :
         {"wte", "wpe", "wte|wpe", "h\\.0\\.", "h\\.1\\.", "ln_", "ln_1.weight|ln_2.bias", "bias", "weight",
          "c_attn.weight|c_proj.bias", "c_fc", "^(?!ln_f)", "^(?!wte)", "^(?!wpe)",
          "^(?!h\\.1\\.ln_2.bias)"}) {
      Run run = run_of(pattern);
      // The gradient norm covers only trained parameters. With clipping, the two compared runs would
      // therefore have different clip factors.
      run.options.clip = 0.0;
      run.batch = 2;
      INFO(std::string(precision), ", ", pattern);
      Weights before;
      Ended const want = thrown_away(recipe("zs0", precision), run);
      Ended const got = left_out(recipe("zs0", precision), run, &before);
      CHECK(got.loss == want.loss);
      CHECK(got.trained == want.trained);
      CHECK(got.frozen == before);
      CHECK_FALSE(got.frozen.empty());
      if (precision != "bf16") CHECK(got.frozen == want.frozen);
    }
}

TEST_CASE("an overflow with frozen parameters is named alike under every sharding") {
  Run alone = run_of("wte|h\\.0\\.|h\\.1\\.mlp");
  alone.split = {1, 4};
  alone.steps = 4;
  alone.options.loss_scale.initial = 0x1p24;
  Outcome const want = run_with(recipe("zs0", "fp16"), alone);
  REQUIRE(want.skipped.front());
  std::string const& named = want.overflows.front();
  REQUIRE_FALSE(named.empty());
  CHECK_FALSE(alone.options.freeze(named));
  CHECK((named.starts_with("wpe") || named.starts_with("h.1.") || named.starts_with("ln_f")));
  for (std::string_view const sharding : shardings) {
    Run run = alone;
    run.split = {4, 1};
    CHECK(run_with(recipe(sharding, "fp16", "cpu_optimizer"), run) == want);
  }
}

TEST_CASE("what is planned for a frozen run is in use to the byte and falls with what is frozen") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : offloads) {
      Run run = run_of("wte|wpe|h\\.0\\.");
      run.split = {2, 1};
      std::int64_t bytes[2] = {};
      for (int const frozen : {0, 1})
        tessera::run(2, [&](comm::Comm comm) {
          TrainerOptions options = options_of(run);
          if (!frozen) options.freeze = {};
          auto const trainer =
              make_trainer(any_model(tiny), recipe(sharding, "bf16", offload), comm, options);
          for (Tier const tier : {Tier::device, Tier::host}) {
            CHECK(trainer->peak_bytes(tier) == trainer->plan().arena_bytes[static_cast<std::size_t>(tier)]);
            if (comm.is_root()) bytes[frozen] += trainer->peak_bytes(tier);
          }
        });
      CHECK(bytes[1] < bytes[0]);
    }
}

TEST_CASE("a trainer refuses names that match none or all of its parameters") {
  auto const make = [](char const* pattern) {
    Run const run = run_of(pattern);
    (void)make_trainer(any_model(tiny), recipe("zs0"), comm::Comm(), options_of(run));
  };
  CHECK_THROWS_WITH_AS(make("layers"), doctest::Contains("freeze matches none of the 28 parameters"), Error);
  CHECK_THROWS_WITH_AS(make("."), doctest::Contains("freeze leaves none of the 28 parameters"), Error);
}
