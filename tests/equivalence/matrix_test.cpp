// SPDX-License-Identifier: Apache-2.0
// Tests that training results with Reduction<Ordered> do not depend on how the work is distributed. The
// weights, losses, gradient norms and loss scales must be equal bit for bit if the global batch is equal.
// Every recipe (combination of policies) is compared with training on one rank without sharding and offload.
#include <string>
#include <utility>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/runs.hpp"

namespace {

using namespace support;

Outcome run_with(RecipeTable const& table, Run const& run) {
  return train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
    return make_trainer(any_model(tiny), table, comm, options);
  });
}

/// Trains with the recipe `a` and with the recipe `b` again, and records all values of both. Returns a
/// description of the first value that differs.
std::string culprit(RecipeTable const& a, Run run_a, RecipeTable const& b, Run run_b) {
  StepTrace trace_a, trace_b;
  run_a.trace = &trace_a;
  run_b.trace = &trace_b;
  (void)run_with(a, run_a);
  (void)run_with(b, run_b);
  return first_divergence(trace_a, trace_b).value_or("no tensor of any step");
}

void check_same(Outcome const& want, RecipeTable const& reference, Run const& alone, RecipeTable const& table,
                Run const& run) {
  Outcome const got = run_with(table, run);
  INFO(to_string(table), ", ranks ", run.split.ranks, ", accumulation ", run.split.accumulation);
  if (got == want) {
    CHECK(got == want);
    return;
  }
  CHECK(got.losses == want.losses);
  CHECK(got.norms == want.norms);
  CHECK(got.scales == want.scales);
  CHECK(got.skipped == want.skipped);
  CHECK(got.overflows == want.overflows);
  CHECK(got.evaluation == want.evaluation);
  CHECK(got.weights == want.weights);
  FAIL_CHECK("first divergence: ", culprit(reference, alone, table, run));
}

Run usual() {
  Run run;
  run.options.learning_rate = 1e-2;
  run.options.weight_decay = 0.1;
  run.options.clip = 0.5;
  return run;
}

void all_shardings_and_splits(std::string_view precision) {
  Run alone = usual();
  alone.split = {1, 6};
  RecipeTable const reference = recipe("zs0", precision);
  Outcome const want = run_with(reference, alone);
  REQUIRE(want.losses.size() == 3);
  REQUIRE(want.losses[2] < want.losses[0] + 1.0);
  for (Spread const split : {Spread{1, 6}, Spread{2, 3}, Spread{3, 2}, Spread{6, 1}})
    for (std::string_view const sharding : shardings)
      for (std::string_view const offload : offloads) {
        Run run = alone;
        run.split = split;
        check_same(want, reference, alone, recipe(sharding, precision, offload), run);
      }
  for (int const ranks : {5, 7}) {  // neither 5 nor 7 divides the channels or the vocabulary
    Run odd = alone;
    odd.split = {1, ranks};
    Outcome const of_one = run_with(reference, odd);
    for (std::string_view const sharding : shardings) {
      Run run = odd;
      run.split = {ranks, 1};
      check_same(of_one, reference, odd, recipe(sharding, precision, ranks == 5 ? "none" : "cpu_optimizer"),
                 run);
    }
  }
}

void check_options_together(std::string_view precision) {
  Run alone = usual();
  alone.split = {1, 4};
  RecipeTable const reference = recipe("zs0", precision);
  Outcome const want = run_with(reference, alone);
  for (std::string_view const sharding : shardings) {
    for (std::int64_t const bucket : {std::int64_t{0}, std::int64_t{10} << 10, std::int64_t{1} << 40})
      for (std::string_view const offload : offloads) {
        Run run = alone;
        run.split = {2, 2};
        run.options.bucket_bytes = bucket;
        check_same(want, reference, alone, recipe(sharding, precision, offload), run);
      }
    for (int const threads : {2, 3}) {
      Run run = alone;
      run.split = {2, 2};
      run.options.threads = threads;
      run.options.channels = threads - 1;
      check_same(want, reference, alone, recipe(sharding, precision), run);
    }
    for (std::string_view const recompute : recomputes) {
      Run run = alone;
      run.split = {2, 2};
      run.options.recompute_every = 2;
      check_same(want, reference, alone, recipe(sharding, precision, "none", recompute), run);
    }
  }
}

void fast_reduction(std::string_view precision) {
  Run alone = usual();
  alone.split = {1, 4};
  Outcome const want = run_with(recipe("zs0", precision), alone);
  double const tolerance = precision == "fp32" ? 1e-5 : precision == "fp16" ? 2e-3 : 2e-2;
  for (std::string_view const sharding : shardings)
    for (Spread const split : {Spread{4, 1}, Spread{2, 2}})
      for (std::string_view const offload : offloads) {
        Run run = alone;
        run.split = split;
        run.options.bucket_bytes = 20000;
        Outcome const got = run_with(recipe(sharding, precision, offload, "none", "fast"), run);
        INFO(std::string(sharding), " ", std::string(precision), " ranks ", split.ranks);
        REQUIRE(got.losses.size() == want.losses.size());
        for (std::size_t step = 0; step < want.losses.size(); ++step) {
          CHECK(got.losses[step] == doctest::Approx(want.losses[step]).epsilon(tolerance));
          CHECK(got.norms[step] == doctest::Approx(want.norms[step]).epsilon(10 * tolerance));
        }
      }
}

}  // namespace

TEST_CASE("ordered fp32 depends on no sharding split or offload") { all_shardings_and_splits("fp32"); }
TEST_CASE("ordered fp16 depends on no sharding split or offload") { all_shardings_and_splits("fp16"); }
TEST_CASE("ordered bf16 depends on no sharding split or offload") { all_shardings_and_splits("bf16"); }

TEST_CASE("placements that no policy has change no bit when ordered and stay close when fast") {
  std::uint32_t random_state = 2026;
  auto const roll = [&](std::uint32_t below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
  };
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run alone = usual();
    alone.steps = 2;
    alone.split = {1, 4};
    RecipeTable const reference = recipe("zs0", precision);
    Outcome const want = run_with(reference, alone);
    double const tolerance = precision == "fp32" ? 1e-5 : 2e-2;
    for (int round = 0; round < 60; ++round) {
      RecipeTable table = recipe("zs0", precision, "none", "none", round % 2 == 0 ? "ordered" : "fast");
      PlacementTable& rows = table.placement;
      for (Placement* row : {&rows.parameters, &rows.gradients, &rows.master, &rows.moments}) {
        // The numbers of Sharding: 0 is replicated, 1 is sharded, 2 is owned.
        row->over = static_cast<Sharding>(roll(3));
        row->tier = static_cast<Tier>(roll(row == &rows.gradients ? 2 : 3));  // gradients are never on a disk
      }
      // 0 means that each rank owns some flat groups (buffers of parameters)
      rows.owners = static_cast<int>(roll(3));
      Run run = alone;
      run.split = roll(2) == 0 ? Spread{4, 1} : Spread{2, 2};
      run.options.replicas = run.split.ranks == 4 && roll(2) == 0 ? 2 : 1;
      run.options.prefetch = static_cast<int>(roll(3));
      run.options.weight_lag = static_cast<int>(roll(3));
      std::string text;
      for (Placement const* row : {&rows.parameters, &rows.gradients, &rows.master, &rows.moments})
        text += std::string(name_of(row->over)) + " " + std::string(name_of(row->tier)) + ", ";
      INFO(text, rows.owners, " owners, ", run.split.ranks, " ranks, ", run.options.replicas, " replicas");
      if (round % 2 == 0) {
        check_same(want, reference, alone, table, run);
        continue;
      }
      Outcome const got = run_with(table, run);
      for (std::size_t step = 0; step < want.losses.size(); ++step) {
        CHECK(got.losses[step] == doctest::Approx(want.losses[step]).epsilon(tolerance));
        CHECK(got.norms[step] == doctest::Approx(want.norms[step]).epsilon(10 * tolerance));
      }
    }
  }
}

TEST_CASE("hybrid sharding in rows and columns of ranks changes no bit") {
  for (std::string_view const precision : {"fp32", "fp16", "bf16"}) {
    Run alone = usual();
    alone.split = {1, 4};
    RecipeTable const reference = recipe("zs0", precision);
    Outcome const want = run_with(reference, alone);
    for (std::string_view const sharding : shardings)
      for (int const replicas : {2, 4})
        for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full"}) {
          Run run = alone;
          run.split = {4, 1};
          run.options.replicas = replicas;
          INFO("replicas ", replicas);
          check_same(want, reference, alone, recipe(sharding, precision, offload), run);
        }
    Run six = usual();
    six.split = {6, 1};
    six.options.replicas = 3;
    Run one = usual();
    one.split = {1, 6};
    check_same(run_with(reference, one), reference, one, recipe("zs3", precision), six);
  }
}

TEST_CASE("fast sums over rows and columns stay close") {
  Run alone = usual();
  alone.split = {1, 4};
  Outcome const want = run_with(recipe("zs0"), alone);
  for (std::string_view const sharding : shardings) {
    Run run = alone;
    run.split = {4, 1};
    run.options.replicas = 2;
    Outcome const got = run_with(recipe(sharding, "fp32", "none", "none", "fast"), run);
    INFO(std::string(sharding));
    for (std::size_t step = 0; step < want.losses.size(); ++step) {
      CHECK(got.losses[step] == doctest::Approx(want.losses[step]).epsilon(1e-5));
      CHECK(got.norms[step] == doctest::Approx(want.norms[step]).epsilon(1e-4));
    }
  }
}

TEST_CASE("replicas that do not divide the world are refused") {
  Run run = usual();
  run.split = {3, 1};
  run.options.replicas = 2;
  CHECK_THROWS_WITH_AS(run_with(recipe("zs2"), run),
                       doctest::Contains("replicas is 2, which does not divide the world of 3 ranks"), Error);
}

TEST_CASE("ordered fp64 agrees over shardings too") {
  Run alone = usual();
  alone.split = {1, 4};
  RecipeTable const reference = recipe("zs0", "fp64");
  Outcome const want = run_with(reference, alone);
  for (std::string_view const sharding : shardings) {
    Run run = alone;
    run.split = {2, 2};
    check_same(want, reference, alone, recipe(sharding, "fp64"), run);
  }
}

TEST_CASE("buckets threads channels and recomputation change no bit in fp32") {
  check_options_together("fp32");
}
TEST_CASE("buckets threads channels and recomputation change no bit in fp16") {
  check_options_together("fp16");
}
TEST_CASE("buckets threads channels and recomputation change no bit in bf16") {
  check_options_together("bf16");
}

TEST_CASE("stretches of recomputation change no bit") {
  Gpt2Options deeper = tiny;
  deeper.layers = 5;
  auto const with = [&](std::string_view recompute, int every) {
    Run run = usual();
    run.options.recompute_every = every;
    return train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
      return make_trainer(any_model(deeper), recipe("zs0", "fp16", "none", recompute), comm, options);
    });
  };
  Outcome const want = with("none", 1);
  CHECK(with("block", 1) == want);
  for (int const every : {1, 2, 3, 5, 9}) CHECK(with("every", every) == want);
}

TEST_CASE("a repeated run repeats every bit and another seed does not") {
  Run run = usual();
  run.split = {3, 2};
  run.options.threads = 2;
  Outcome const first = run_with(recipe("zs2", "bf16"), run);
  CHECK(run_with(recipe("zs2", "bf16"), run) == first);
  run.options.seed = 2;
  CHECK(run_with(recipe("zs2", "bf16"), run).weights != first.weights);
}

TEST_CASE("initial weights depend on no world sharding or precision") {
  Run run = usual();
  run.steps = 0;
  std::string const want = run_with(recipe("zs0"), run).weights;
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "bf16", "fp64"}) {
      Run other = run;
      other.split = {3, 1};
      CHECK(run_with(recipe(sharding, precision, "cpu_optimizer"), other).weights == want);
    }
}

TEST_CASE("an overflow is skipped alike under every sharding and named") {
  Run alone = usual();
  alone.split = {1, 4};
  alone.steps = 8;
  alone.options.loss_scale.initial = 0x1p22;
  alone.options.loss_scale.growth_interval = 2;
  RecipeTable const reference = recipe("zs0", "fp16");
  Outcome const want = run_with(reference, alone);
  REQUIRE(want.skipped.front());
  REQUIRE_FALSE(want.overflows.front().empty());
  REQUIRE(want.scales[1] == want.scales[0] / 2);
  REQUIRE_FALSE(want.skipped.back());
  for (std::string_view const sharding : shardings)
    for (auto const& [split, offload] :
         {std::pair{Spread{2, 2}, "cpu_optimizer"}, {Spread{4, 1}, "none"}, {Spread{2, 2}, "cpu_full"}}) {
      Run run = alone;
      run.split = split;
      check_same(want, reference, alone, recipe(sharding, "fp16", offload), run);
    }
  // At this loss scale, the gradients of each step overflow. A fixed loss scale skips each of these steps and
  // does not change.
  Run fixed = alone;
  fixed.steps = 3;
  fixed.options.loss_scale.initial = 0x1p24;
  Outcome const stays = run_with(recipe("zs1", "fp16", "none", "none", "ordered", "static"), fixed);
  CHECK(stays.skipped == std::vector<bool>{true, true, true});
  CHECK(stays.scales == std::vector<double>{0x1p24, 0x1p24, 0x1p24});
}

TEST_CASE("a skipped step leaves every weight as it was") {
  Run run = usual();
  run.steps = 1;
  run.options.loss_scale.initial = 0x1p24;
  Run none = run;
  none.steps = 0;
  RecipeTable const table = recipe("zs0", "fp16");
  Outcome const after = run_with(table, run);
  REQUIRE(after.skipped.front());
  CHECK(after.weights == run_with(table, none).weights);
}

TEST_CASE("the fast reduction runs under every sharding and stays close in fp32") { fast_reduction("fp32"); }
TEST_CASE("the fast reduction runs under every sharding and stays close in fp16") { fast_reduction("fp16"); }
TEST_CASE("the fast reduction runs under every sharding and stays close in bf16") { fast_reduction("bf16"); }

TEST_CASE("the trace names the first tensor that differs") {
  auto const traced = [](StepTrace& trace, Run run, RecipeTable const& table,
                         Gpt2Options const& model = tiny) {
    run.trace = &trace;
    (void)train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
      return make_trainer(any_model(model), table, comm, options);
    });
  };
  Run run = usual();
  run.steps = 2;
  run.split = {1, 4};
  StepTrace alone, sharded, split, other_rate, other_data;
  traced(alone, run, recipe("zs0"));
  Run four = run;
  four.split = {4, 1};
  traced(sharded, four, recipe("zs3"));
  CHECK_FALSE(first_divergence(alone, sharded));
  four.split = {2, 2};
  traced(split, four, recipe("dp", "fp32", "cpu_optimizer"));
  CHECK_FALSE(first_divergence(alone, split));

  // The learning rate is doubled, so the first difference must be in the first update of the embedding.
  Run faster = run;
  faster.options.learning_rate *= 2;
  traced(other_rate, faster, recipe("zs0"));
  std::string const rate = first_divergence(alone, other_rate).value_or("");
  CHECK(rate.find("step 1, weights after the update, wte.weight, element 0: ") == 0);

  // All targets count now, so the first difference must be in the first gradient of backward.
  Run masked = run;
  masked.mask_every = 0;
  traced(other_data, masked, recipe("zs0"));
  std::string const data = first_divergence(alone, other_data).value_or("");
  CHECK(data.find("step 1, gradient of micro-batch 0, ln_f.weight, element 0: ") == 0);

  StepTrace shorter;
  run.steps = 1;
  traced(shorter, run, recipe("zs0"));
  CHECK(first_divergence(alone, shorter).value_or("") ==
        "only the first run has step 2, gradient of micro-batch 0, ln_f.weight, element 0");
}
