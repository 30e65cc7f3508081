// SPDX-License-Identifier: Apache-2.0
// Tests that policies that a user writes train to the same results as the built-in policies. The code of
// these user policies is in the headers of compile_pass/.
#include <string>

#include <doctest/doctest.h>

#include "compile_pass/host_accumulator.hpp"
#include "compile_pass/host_master.hpp"
#include "compile_pass/sharded_gradients.hpp"
#include "compile_pass/sharded_moments.hpp"
#include "compile_pass/spread_optimizer.hpp"
#include "compile_pass/wide_wire.hpp"
#include "support/tied_runs.hpp"

namespace {

using namespace support;

/// Trains TiedModel on 1, 2 and 4 ranks with four micro-batches per step in total, and on 3 ranks with one
/// micro-batch per rank and step. The results must have the same bits as training on one rank without
/// sharding and with the same total number of micro-batches.
template <class Format, class... Policies>
void same_at_every_world() {
  for (Spread const split : {Spread{1, 4}, Spread{2, 2}, Spread{4, 1}, Spread{3, 1}}) {
    Outcome const want = train_tied<Precision<Format>>(tied_run({1, split.ranks * split.accumulation}));
    INFO(to_string(Trainer<TiedModel, Precision<Format>, Policies...>::recipe), ", ranks ", split.ranks);
    CHECK(train_tied<Precision<Format>, Policies...>(tied_run(split)) == want);
  }
}
template <class... Policies>
void same_in_every_precision() {
  same_at_every_world<float, Policies...>();
  same_at_every_world<half, Policies...>();
  same_at_every_world<bfloat16, Policies...>();
}

}  // namespace

TEST_CASE("a user's sharding of the moments alone changes no bit") {
  static_assert(Trainer<TiedModel, ShardedMoments>::recipe.stage == -1, "rows then say its name");
  same_in_every_precision<ShardedMoments>();
  same_at_every_world<bfloat16, ShardedMoments, Offload<Cpu>>();
}

TEST_CASE("a user's sharding of the gradients under a replicated optimizer changes no bit") {
  same_in_every_precision<ShardedGradients>();
  same_at_every_world<half, ShardedGradients, Offload<Cpu>>();
}

TEST_CASE("a user's optimizer whose flat groups have owners in turn changes no bit") {
  same_in_every_precision<SpreadOptimizer>();
  same_at_every_world<bfloat16, SpreadOptimizer, Offload<Cpu>>();
}

TEST_CASE("a user's master weights on the host under moments on the device change no bit") {
  same_in_every_precision<HostMaster>();
  same_in_every_precision<HostMaster, ZeroStage<2>>();
  same_at_every_world<bfloat16, HostMaster, RootOptimizer>();
}

TEST_CASE("parameters in host memory change no bit under any sharding") {
  using Full = Offload<Cpu, AllState>;
  same_in_every_precision<Full>();
  same_in_every_precision<Full, ZeroStage<3>>();
  same_at_every_world<bfloat16, Full, ZeroStage<1>>();
  same_at_every_world<bfloat16, Full, ZeroStage<2>>();
  same_at_every_world<half, Full, RootOptimizer>();
}

TEST_CASE("a user's offload of the accumulator changes no bit") {
  Outcome const want = train_tied<>(tied_run({1, 4}));
  for (Spread const split : {Spread{1, 4}, Spread{2, 2}, Spread{4, 1}}) {
    INFO("ranks ", split.ranks);
    CHECK(train_tied<HostAccumulator>(tied_run(split)) == want);
    CHECK(train_tied<HostAccumulator, ZeroStage<2>>(tied_run(split)) == want);
  }
}

TEST_CASE("a user's wire in the format of the micro-batch gradients is the ordered reduction") {
  CHECK(train_tied<WideWire<float>, ZeroStage<1>>(tied_run({2, 2})) == train_tied<>(tied_run({1, 4})));
}

TEST_CASE("a user's policy that no engine runs is refused with the format that differs") {
  CHECK_THROWS_WITH_AS(
      (train_tied<WideWire<float>, Precision<half>>(tied_run({1, 1}))),
      doctest::Contains(
          "precision fp16 with reduction wide32 gives a combination of formats that no engine supports: "
          "activations are fp16, parameters fp16, micro-batch gradients fp16, the wire fp32"),
      Error);
}

TEST_CASE("a plan with a user's policy that is too big is refused with bytes and a way out") {
  Run run = tied_run({2, 2});
  run.options.memory_limit = 10000;
  try {
    (void)train_tied<HostAccumulator, ZeroStage<1>>(run);
    FAIL("not refused");
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
    CHECK(std::string(error.what()).find("out of memory: 2 ranks plan ") != std::string::npos);
  }
}
