// SPDX-License-Identifier: Apache-2.0
// Tests models whose units (layers) are split into segments. They must train to the same bits as the models
// with whole units, for every sharding and number of ranks.
#include <memory>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/testing/gradients.hpp"
#include "tessera/train/divergence.hpp"
#include "tessera/train/engine.hpp"
#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "support/segmented_gpt2.hpp"

namespace {

using namespace support;

/// Trains `model` with the recipe `table` and returns the results. Also checks that the peak of the memory in
/// use equals the planned memory.
template <class T, class M>
Outcome run_with(M const& model, RecipeTable const& table, Run const& run) {
  struct Checked : Engine<Cpu, T> {
    using Engine<Cpu, T>::Engine;
    ~Checked() {
      for (Tier const tier : {Tier::device, Tier::host})
        CHECK(this->peak_bytes(tier) == this->plan().arena_bytes[static_cast<std::size_t>(tier)]);
    }
  };
  return train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
    return std::make_unique<Checked>(tessera::detail::erase<Cpu, T>(std::make_shared<M const>(model)),
                                     CheckedRecipe(table), options, comm);
  });
}

/// A segmented model with a mistake that a user could make: its backward_input has no parameter for the
/// number of the segment, so it always computes segment 0.
struct Forgetful : SegmentedGpt2 {
  using SegmentedGpt2::SegmentedGpt2;
  template <class Place, class T>
  void backward_input(int unit, Pass<Place, T>& pass) const {
    SegmentedGpt2::backward_input(unit, 0, pass);
  }
};

template <class T>
void same_as_in_one_piece(std::string_view precision) {
  Gpt2 const whole(tiny);
  SegmentedGpt2 const parted(tiny);
  Run alone;
  alone.options.learning_rate = 1e-2;
  alone.options.weight_decay = 0.1;
  alone.options.clip = 0.5;
  alone.split = {1, 12};
  RecipeTable const reference = recipe("zs0", precision);
  Outcome const want = run_with<T>(whole, reference, alone);
  REQUIRE(want.losses.size() == 3);
  for (int const ranks : {1, 2, 3, 4})
    for (std::string_view const sharding : {"zs0", "zs1", "zs2", "zs3"})
      for (std::string_view const recompute : {"none", "block"})
        for (int const prefetch : {0, 1}) {
          Run run = alone;
          run.split = {ranks, 12 / ranks};
          run.options.prefetch = prefetch;
          INFO(std::string(sharding), ", ranks ", ranks, ", recompute ", std::string(recompute),
               ", prefetch ", prefetch);
          RecipeTable const table = recipe(sharding, precision, "none", recompute);
          bool const same = run_with<T>(parted, table, run) == want;
          CHECK(same);
          if (same) continue;
          StepTrace of_whole, of_parted;
          alone.trace = &of_whole;
          run.trace = &of_parted;
          (void)run_with<T>(whole, reference, alone);
          (void)run_with<T>(parted, table, run);
          FAIL(first_divergence(of_whole, of_parted).value_or("no tensor of any step"));
        }
  Run run = alone;
  run.split = {2, 6};
  run.options.recompute_every = 3;
  CHECK(run_with<T>(parted, recipe("zs3", precision, "cpu_optimizer", "every"), run) == want);
  CHECK(run_with<T>(parted, recipe("zs2", precision, "cpu_full", "gelu"), run) == want);
}

}  // namespace

TEST_CASE("units of two segments train to the bits of units of one in fp32") {
  same_as_in_one_piece<float>("fp32");
}
TEST_CASE("units of two segments train to the bits of units of one in bf16") {
  same_as_in_one_piece<bfloat16>("bf16");
}

TEST_CASE("what engines cannot do with segments is refused before anything is allocated") {
  Run run;
  auto const refusal = [&](auto const& model) {
    try {
      (void)run_with<float>(model, recipe("zs0"), run);
    } catch (Error const& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refusal(SegmentedGpt2(tiny, {Sharding::partial}, {})) ==
        "model: unit 'h.0' passes 'residual' through a boundary with different sides, which needs tensor "
        "parallelism; this is not part of this build, make both sides replicated");
  std::string const forgotten =
      "model: unit 'h.0' has 2 segments, but backward_input has no segment argument; write "
      "backward_input(int unit, int segment, Pass<Place, T>& pass)";
  CHECK(refusal(Forgetful(tiny)) == forgotten);
  CHECK_THROWS_WITH((void)tessera::testing::check_gradients(Forgetful(tiny), {1, 4}), forgotten.c_str());
}

TEST_CASE("the check of gradients knows segments") {
  Gpt2Options const small{.layers = 1, .heads = 2, .channels = 6, .positions = 4, .vocabulary = 9};
  auto const report = tessera::testing::check_gradients(SegmentedGpt2(small), {1, 4});
  INFO(report);
  CHECK(report.right());
}
