// SPDX-License-Identifier: Apache-2.0
// Tests the verbs of a schedule. A verb is the operation of an entry, for example `gather`. The tests check
// how often each verb occurs with each sharding, and how an entry is printed.
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/plan/program.hpp"

#include "support/step_plans.hpp"

namespace {

using namespace support;

/// Returns how many times each verb runs in a training step.
std::map<Verb, int> verbs(StepPlan const& plan) {
  std::map<Verb, int> count;
  for (Instance const& instance : instances_of(plan.train.schedule)) ++count[instance.entry.verb];
  return count;
}

/// Returns the counts with the names of the verbs as keys, so that a failed check prints these names.
std::map<std::string, int> named(std::map<Verb, int> const& count) {
  std::map<std::string, int> names;
  for (auto const& [verb, times] : count) names[std::string(name_of(verb))] = times;
  return names;
}

}  // namespace

TEST_CASE("each of the library's shardings has its verbs and no others") {
  constexpr int layers = 4, units = layers + 2;
  for (std::string_view const sharding : {"dp", "zs0", "zs1", "zs2", "zs3"})
    for (std::string_view const reduction : {"ordered", "fast"})
      for (std::string_view const offload : {"none", "cpu_optimizer"})
        for (int const accumulation : {1, 3}) {
          bool const sharded = sharding == "zs2" || sharding == "zs3";
          bool const offloaded = offload != "none";
          bool const each =
              // Whether every micro-batch gradient is sent.
              reduction == "ordered" || sharded || sharding == "dp";
          auto const count = verbs(plan_of({.sharding = sharding,
                                            .offload = offload,
                                            .reduction = reduction,
                                            .world = 4,
                                            .accumulation = accumulation}));
          std::map<Verb, int> want;
          bool const gathered = reduction == "ordered" && sharding == "zs0";
          bool const sends_weights = sharding == "dp" || sharding == "zs1" || sharding == "zs2";
          want[Verb::forward] = want[Verb::backward_input] = want[Verb::backward_weight] =
              units * accumulation;
          want[Verb::sum_losses] = accumulation;
          want[Verb::clear_gaps] = units * accumulation;
          // With zs3, forward gathers the weights of each unit, and the weights of the embedding again for
          // the output head. Backward gathers the weights of each block.
          if (sharding == "zs3")
            want[Verb::gather] = want[Verb::release] = (units + 1 + layers) * accumulation;
          want[Verb::reduce] = (each ? units * accumulation : units) + (gathered ? units : 0);
          if (each || accumulation > 1) want[Verb::accumulate] = units * accumulation;
          want[Verb::norm] = want[Verb::exchange] = want[Verb::decide] = 1;
          if (offloaded) want[Verb::fetch] = units;
          if (offloaded) want[Verb::copy_scalars] = 1;
          // The bucket size is 0, so a transfer moves only one flat group (buffer of parameters). An update
          // that follows or precedes a transfer updates one unit. If the schedule has no such transfers, one
          // update covers all units.
          want[Verb::update] = offloaded || sends_weights ? units : 1;
          if (offloaded || sends_weights) want[Verb::write_back] = units * (offloaded + sends_weights);
          INFO(std::string(sharding), " ", std::string(reduction), " ", std::string(offload), " ",
               accumulation);
          CHECK(named(count) == named(want));
        }
}

TEST_CASE("checks print lists and counts") {
  CHECK(doctest::toString(std::map<std::string, int>{{"norm", 6}, {"update", 5}}) ==
        doctest::String("{norm: 6, update: 5}"));
  CHECK(doctest::toString(std::vector<int>{1, 2}) == doctest::String("[1, 2]"));
}

TEST_CASE("a gradient in host memory is not read once more for its norm") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"})
      for (int const world : {1, 4})
        for (int const accumulation : {1, 3}) {
          INFO(std::string(sharding), " ", std::string(reduction), " world ", world, " accumulation ",
               accumulation);
          StepPlan const plan = plan_of({.sharding = sharding,
                                         .offload = "cpu_full",
                                         .reduction = reduction,
                                         .world = world,
                                         .accumulation = accumulation});
          std::vector<int> norm_count(plan.units.size(), 0);
          for (Entry const& entry : plan.train.schedule.entries) {
            bool in_accumulate = false;
            for (int const buffer : entry.writes())
              in_accumulate |= entry.verb == Verb::accumulate && plan.train.at(buffer).tier == Tier::host &&
                               plan.train.at(buffer).kind == BufferKind::partials;
            if (entry.verb == Verb::norm) CHECK(plan.train.at(entry.at(Role::gradient)).tier == Tier::device);
            if (entry.verb != Verb::norm && !in_accumulate) continue;
            CHECK(entry.micro_batch == accumulation - 1);
            for (Item const& item : entry.items) {
              ++norm_count[static_cast<std::size_t>(item.of.unit)];
              CHECK(item.part == plan.norm_part(item.of));
            }
          }
          CHECK(norm_count == std::vector<int>(plan.units.size(), 1));
        }
}

TEST_CASE("recomputation rebuilds what it says") {
  auto const rebuilt = [](std::string_view recompute, int every) {
    StepPlan const plan = plan_of({.recompute = recompute, .every = every});
    std::string order;
    for (Entry const& entry : plan.train.schedule.entries) {
      if (entry.verb == Verb::recompute || entry.verb == Verb::restore)
        order += "r" + std::to_string(entry.unit) + " ";
      if (entry.verb == Verb::backward_input) order += "b" + std::to_string(entry.unit) + " ";
    }
    return order;
  };
  CHECK(rebuilt("none", 1) == "b5 b4 b3 b2 b1 b0 ");
  CHECK(rebuilt("gelu", 1) == "b5 r4 b4 r3 b3 r2 b2 r1 b1 b0 ");
  CHECK(rebuilt("block", 3) == "b5 r4 b4 r3 b3 r2 b2 r1 b1 b0 ");
  CHECK(rebuilt("every", 1) == "b5 r4 b4 r3 b3 r2 b2 r1 b1 b0 ");
  CHECK(rebuilt("every", 2) == "b5 r3 r4 b4 b3 r1 r2 b2 b1 b0 ");
  CHECK(rebuilt("every", 3) == "b5 r4 b4 r1 r2 r3 b3 b2 b1 b0 ");
  CHECK(rebuilt("every", 9) == "b5 r1 r2 r3 r4 b4 b3 b2 b1 b0 ");
}

TEST_CASE("two buffers of one name and other sizes are refused") {
  StepPlan plan = plan_of({.world = 2});
  Buffer buffer = plan.train.at(plan.train.find(BufferKind::weights, 1));
  CHECK(plan.train.add(buffer) == plan.train.find(BufferKind::weights, 1));
  auto const refused = [&](auto const& change) {
    Buffer other = buffer;
    change(other);
    CHECK_THROWS_WITH_AS(
        (void)plan.train.add(other),
        "plan: a list has two buffers with the same name but different sizes: weights of unit 1", Error);
  };
  refused([](Buffer& other) { other.bytes += 1; });
  refused([](Buffer& other) { other.type = DType::bf16; });
  refused([](Buffer& other) { other.tier = Tier::host; });
  refused([](Buffer& other) { other.range.end -= 64; });
  // A gathered copy of the weights needs its own buffer, so add() must not refuse it.
  buffer.copy = {Verb::gather, 0};
  int const before = static_cast<int>(plan.train.buffers.size());
  CHECK(plan.train.add(buffer) == before);
}

TEST_CASE("entries read as lines") {
  StepPlan const plan = plan_of({.world = 2});
  auto const& entries = plan.train.schedule.entries;
  CHECK(text(plan, entries.front()) == "forward embedding micro 0");
  CHECK(text(plan, entries.back()) == "update embedding+5");
  for (int kind = 0; kind <= static_cast<int>(BufferKind::workspace); ++kind)
    CHECK(name_of(static_cast<BufferKind>(kind)) != "");
  for (std::size_t lane = 0; lane < lane_count; ++lane) CHECK(name_of(static_cast<Lane>(lane)) != "?");
  for (int verb = 0; verb <= static_cast<int>(Verb::clear_gaps); ++verb)
    CHECK(name_of(static_cast<Verb>(verb)) != "");
  for (int move = 0; move <= static_cast<int>(Move::receive); ++move)
    CHECK(name_of(static_cast<Move>(move)) != "");
}
