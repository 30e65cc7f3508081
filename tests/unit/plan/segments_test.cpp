// SPDX-License-Identifier: Apache-2.0
// Tests step plans of models whose units (layers) consist of several segments. Covers the order of the
// entries, the communication between two segments that distribute a value differently over the ranks, the
// schedule checker, and declarations of such boundaries that contradict themselves.
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/plan/check.hpp"
#include "tessera/plan/listing.hpp"
#include "tessera/plan/program.hpp"

#include "support/runs.hpp"
#include "support/segmented_gpt2.hpp"

namespace {

using namespace support;

constexpr Boundary::Side whole{};
constexpr Boundary::Side summands{Sharding::partial, Sharding::replicated};
constexpr Boundary::Side whole_used_in_parts{Sharding::replicated, Sharding::partial};

StepPlan plan_of(SegmentedGpt2 const& model, RecipeTable const& table, int world = 1, int prefetch = 0,
                 int weight_lag = 0) {
  StepShape shape;
  shape.batch = 2;
  shape.sequence = 13;
  shape.accumulation = 2;
  shape.world = world;
  shape.prefetch = prefetch;
  shape.weight_lag = weight_lag;
  shape.workspace_bytes = 1000;
  return make_plan(model.units({shape.batch, shape.sequence}), table, shape);
}

/// Returns the entries of the first block (unit 1) for the first micro-batch, as text with one entry per
/// line.
std::string of_a_block(StepPlan const& plan, Program const& program) {
  std::string text;
  for (Entry const& entry : program.schedule.entries) {
    if (entry.unit != 1 || entry.micro_batch != 0 || entry.verb == Verb::accumulate) continue;
    text += std::string(name_of(entry.verb)) + " " + std::to_string(entry.segment);
    if (entry.verb == Verb::cross)
      text += " " + std::string(name_of(entry.move)) + " " +
              detail::words(plan, program.at(entry.at(Role::source)), entry.unit);
    text += "\n";
  }
  return text;
}

std::string refusal(std::vector<UnitSpec> const& units) {
  try {
    check_units(units);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("the lists of units in segments hold for every recipe") {
  for (SegmentedGpt2 const& model :
       {SegmentedGpt2(tiny), SegmentedGpt2(tiny, summands, whole), SegmentedGpt2(tiny, summands, summands),
        SegmentedGpt2(tiny, summands, whole_used_in_parts)})
    for (std::string_view const sharding : shardings)
      for (std::string_view const offload : offloads)
        for (std::string_view const recompute : recomputes)
          for (int const world : {1, 3})
            for (int const prefetch : {0, 1, 2}) {
              int const lag = world == 3 ? 2 - prefetch : 0;
              StepPlan const plan =
                  plan_of(model, recipe(sharding, "bf16", offload, recompute), world, prefetch, lag);
              INFO(to_string(plan.recipe), ", world ", world, ", prefetch ", prefetch);
              CHECK(mistake_in(plan, plan.train) == "");
              CHECK(mistake_in(plan, plan.evaluate) == "");
            }
}

TEST_CASE("segments run in order forward and the other way round backward and gather once") {
  StepPlan const plan = plan_of(SegmentedGpt2(tiny), recipe("zs3"), 2);
  CHECK(of_a_block(plan, plan.train) ==
        "gather 0\nforward 0\nforward 1\nrelease 0\n"
        "gather 0\nbackward_input 1\nbackward_weight 1\nbackward_input 0\nrelease 0\nbackward_weight 0\n"
        "clear_gaps 0\nreduce 0\n");
  CHECK(of_a_block(plan, plan.evaluate) == "gather 0\nforward 0\nforward 1\nrelease 0\n");
  StepPlan const gelu = plan_of(SegmentedGpt2(tiny), recipe("zs0", "fp32", "none", "gelu"));
  CHECK(of_a_block(gelu, gelu.train) ==
        "forward 0\nforward 1\nrestore 1\nbackward_input 1\nbackward_weight 1\nbackward_input 0\n"
        "backward_weight 0\nclear_gaps 0\n");
  std::vector<std::string> texts;
  for (Entry const& entry : plan.train.schedule.entries)
    if (entry.unit == 1) texts.push_back(to_string(entry, plan.unit(1).name));
  CHECK(texts[1] == "forward h.0 micro 0");
  CHECK(texts[2] == "forward h.0 segment 1 micro 0");
}

TEST_CASE("summands are summed over a boundary, and so is the gradient of what is used in parts") {
  RecipeTable const block = recipe("zs0", "bf16", "none", "block");
  StepPlan const down = plan_of(SegmentedGpt2(tiny, summands, whole), block);
  CHECK(of_a_block(down, down.train) ==
        "forward 0\ncross 0 all_reduce dropped saved residual\nforward 1\n"
        "recompute 0\ncross 0 all_reduce saved residual\nrecompute 1\n"
        "backward_input 1\nbackward_weight 1\nbackward_input 0\nbackward_weight 0\nclear_gaps 0\n");
  CHECK(of_a_block(down, down.evaluate) ==
        "forward 0\ncross 0 all_reduce dropped saved residual\nforward 1\n");
  StepPlan const both = plan_of(SegmentedGpt2(tiny, summands, whole_used_in_parts), recipe("zs0", "bf16"));
  CHECK(of_a_block(both, both.train) ==
        "forward 0\ncross 0 all_reduce saved residual\nforward 1\n"
        "backward_input 1\ncross 0 all_reduce backward d_residual\nbackward_weight 1\nbackward_input 0\n"
        "backward_weight 0\nclear_gaps 0\n");
  StepPlan const ahead =
      plan_of(SegmentedGpt2(tiny, summands, whole_used_in_parts), recipe("zs0", "bf16"), 1, 2);
  // Prefetching changes nothing within a block.
  CHECK(of_a_block(ahead, ahead.train) == of_a_block(both, both.train));
  StepPlan const up = plan_of(SegmentedGpt2(tiny, whole, whole_used_in_parts), recipe("zs0", "bf16"));
  CHECK(of_a_block(up, up.train) ==
        "forward 0\nforward 1\n"
        "backward_input 1\ncross 0 all_reduce backward d_residual\nbackward_weight 1\nbackward_input 0\n"
        "backward_weight 0\nclear_gaps 0\n");
  // The residual between the segments has 2 x 13 x 33 elements of 2 bytes: 1716 bytes. The all-reduce of its
  // gradient must overlap with the weight gradients of segment 1.
  std::string const lines = listing(both, both.train);
  CHECK(lines.find("cross            1716 B      all_reduce among tensor saved residual; after 1\n") !=
        std::string::npos);
  CHECK(lines.find("cross            1716 B      all_reduce among tensor backward d_residual; after ") !=
        std::string::npos);
  auto const& entries = both.train.schedule.entries;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    if (entries[index].verb != Verb::cross) continue;
    CHECK(entries[index].lane == Lane::communication);
    bool const adjacent = entries[index + 1].verb == Verb::backward_weight;
    if (adjacent) CHECK(entries[index + 1].waits.empty());
    CHECK(entries[index + (adjacent ? 2 : 1)].waits == std::vector<int>{static_cast<int>(index)});
  }
}

TEST_CASE("a boundary that contradicts itself is refused with the way out") {
  std::vector<UnitSpec> const good = SegmentedGpt2(tiny).units({2, 13});
  CHECK(refusal(good) == "");
  auto const with = [&](auto const& change) {
    std::vector<UnitSpec> units = good;
    change(units[1], units[1].boundaries[0]);
    return refusal(units);
  };
  CHECK(
      with([](UnitSpec&, Boundary& at) { at.activation = 99; }) ==
      "model: unit 'h.0' has boundary 0 without an activation; name one that segment 0 saves and that is not "
      "cheap to recompute");
  CHECK(with([](UnitSpec& unit, Boundary& at) {
          // A tensor that segment 1, not segment 0, saves.
          at.activation = static_cast<int>(unit.saved.size()) - 1;
        }) == with([](UnitSpec&, Boundary& at) { at.activation = -1; }));
  CHECK(with([](UnitSpec& unit, Boundary& at) {
          unit.backward[static_cast<std::size_t>(at.gradient)].shape = {2, 13, 34};
        }) ==
        "model: unit 'h.0' has boundary 0 without a gradient of 'residual'; name a backward tensor of the "
        "same shape in segment 1");
  CHECK(with([](UnitSpec&, Boundary& at) {
          at.before = {Sharding::partial, Sharding::partial};
        }) ==
        "model: unit 'h.0' has boundary 0 where 'residual' is partial and its gradient partial; a partial "
        "value must have a replicated gradient, and a replicated value a replicated or partial one");
  CHECK(with([](UnitSpec&, Boundary& at) {
          at.after.value = Sharding::sharded;
        }).find("is sharded and its gradient replicated") != std::string::npos);
  CHECK(with([](UnitSpec&, Boundary& at) { at.after = summands; }) ==
        "model: unit 'h.0' has boundary 0 that changes 'residual' from replicated to partial; a boundary can "
        "only sum partial values");
  CHECK(with([](UnitSpec&, Boundary& at) { at.before = whole_used_in_parts; }) ==
        "model: unit 'h.0' has boundary 0 that changes the gradient of 'residual' from replicated to "
        "partial; a boundary can only sum partial values");
  CHECK(with([](UnitSpec& unit, Boundary&) { unit.saved.back().segment = 2; }) ==
        "model: unit 'h.0' has activation 'activation' of segment 2, but the unit has only 2 segments; a "
        "boundary begins a segment");
}
