// SPDX-License-Identifier: Apache-2.0
// Tests the schedules that StageGenerator (support/pipeline.hpp) generates for pipeline stages. Covers the
// order of the entries, the buffers of the micro-batches, the waits, the schedule checker, and that the sends
// of a stage match the receives of its neighbor.
#include "support/pipeline.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/listing.hpp"

#include "support/runs.hpp"
#include "support/waits.hpp"

namespace {

using namespace support;

StepPlan plan_of(Stage const& by) {
  Gpt2Options deep = tiny;
  deep.layers = 6;
  std::vector<UnitSpec> units = Gpt2(deep).units({2, 13});
  // Unties the output head, because the shared weight would belong to two stages.
  for (UnitSpec& unit : units) unit.borrows.clear();
  return StageGenerator(std::move(units), by).run();
}

/// Simulates the schedules of all stages together. An entry runs after all earlier entries of its lane
/// (stream) and after the entries for which it waits. A send and the matching receive run together, when each
/// of them is the next entry of its lane. run() returns an empty string, or the entry at which the simulation
/// hangs.
class Rehearsal {
 public:
  explicit Rehearsal(std::vector<StepPlan> const& plans) : plans_(plans) {
    for (StepPlan const& plan : plans) {
      Rank& rank = ranks_.emplace_back();
      rank.instances = instances_of(plan.train.schedule);
      rank.done.assign(rank.instances.size(), false);
      std::map<int, int> latest;  // the last instance so far of each entry
      for (int index = 0; index < static_cast<int>(rank.instances.size()); ++index) {
        Instance const& instance = rank.instances[static_cast<std::size_t>(index)];
        auto& waits = rank.waits.emplace_back();
        for (int const other : instance.waits) waits.push_back(latest.at(other));
        latest[instance.index] = index;
        rank.lanes[static_cast<std::size_t>(instance.entry.lane)].push_back(index);
      }
    }
  }

  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        for (std::size_t lane = 0; lane < lane_count; ++lane) moved |= advance(rank, lane);
      if (!mistake_.empty()) return mistake_;
    }
    for (std::size_t const lane : {communication, compute})
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        if (auto const& left = ranks_[rank].lanes[lane]; !left.empty())
          return "stage " + std::to_string(rank) + " hangs in " + text(rank, left.front());
    return "";
  }

 private:
  static constexpr auto communication = static_cast<std::size_t>(Lane::communication),
                        compute = static_cast<std::size_t>(Lane::compute);
  struct Rank {
    std::vector<Instance> instances;
    std::vector<std::vector<int>> waits;  // for each instance, the instances for which it waits
    std::vector<bool> done;
    std::array<std::deque<int>, lane_count> lanes;
  };

  Instance const& at(std::size_t rank, int instance) const {
    return ranks_[rank].instances[static_cast<std::size_t>(instance)];
  }
  std::string text(std::size_t rank, int instance) const {
    Entry entry = at(rank, instance).entry;
    entry.micro_batch = at(rank, instance).micro_batch;
    return std::string(name_of(entry.move)) + " " + to_string(entry, plans_[rank].unit(entry.unit).name);
  }
  bool ready(std::size_t rank, int instance) const {
    auto const& waits = ranks_[rank].waits[static_cast<std::size_t>(instance)];
    return std::all_of(waits.begin(), waits.end(),
                       [&](int other) { return ranks_[rank].done[static_cast<std::size_t>(other)]; });
  }
  void finish(std::size_t rank, std::size_t lane) {
    ranks_[rank].done[static_cast<std::size_t>(ranks_[rank].lanes[lane].front())] = true;
    ranks_[rank].lanes[lane].pop_front();
  }
  bool advance(std::size_t rank, std::size_t lane) {
    auto const& queue = ranks_[rank].lanes[lane];
    if (queue.empty() || !ready(rank, queue.front())) return false;
    Entry const& entry = at(rank, queue.front()).entry;
    if (entry.move == Move::receive) return false;  // a receive ends together with the matching send
    if (entry.move == Move::send) {
      std::size_t const peer = entry.group == Group::next ? rank + 1 : rank - 1;
      auto const& others = ranks_[peer].lanes[lane];
      if (others.empty() || !ready(peer, others.front())) return false;
      Entry const& other = at(peer, others.front()).entry;
      bool const back = (other.group == Group::next) != (entry.group == Group::next);
      if (other.move != Move::receive || !back) return false;
      auto const what = [&](std::size_t of, int instance) {
        Instance const& crossing = at(of, instance);
        Buffer const& buffer = plans_[of].train.at(crossing.entry.items.front().operands.front().buffer);
        return std::tuple(buffer.kind, buffer.unit, buffer.bytes, crossing.micro_batch);
      };
      if (what(rank, queue.front()) != what(peer, others.front()))
        mistake_ = text(rank, queue.front()) + " meets " + text(peer, others.front());
      finish(peer, lane);
    }
    finish(rank, lane);
    return true;
  }

  std::vector<StepPlan> const& plans_;
  std::vector<Rank> ranks_;
  std::string mistake_;
};

std::vector<StepPlan> all_stages(Stage by) {
  std::vector<StepPlan> plans;
  for (by.stage = 0; by.stage < by.stages; ++by.stage) plans.push_back(plan_of(by));
  return plans;
}

/// Returns the largest number of micro-batches that are in flight at once: their forward has begun, and their
/// backward has not ended.
int max_in_flight(StepPlan const& plan) {
  std::set<int> in_flight;
  std::size_t most = 0;
  auto const instances = instances_of(plan.train.schedule);
  std::map<int, std::size_t> last;
  for (std::size_t index = 0; index < instances.size(); ++index)
    if (instances[index].entry.verb == Verb::backward_weight) last[instances[index].micro_batch] = index;
  for (std::size_t index = 0; index < instances.size(); ++index) {
    if (instances[index].entry.verb == Verb::forward) in_flight.insert(instances[index].micro_batch);
    most = std::max(most, in_flight.size());
    if (last[instances[index].micro_batch] == index) in_flight.erase(instances[index].micro_batch);
  }
  return static_cast<int>(most);
}

}  // namespace

TEST_CASE("every stage of a pipeline has a sound list of one forward and one backward") {
  for (int const stages : {1, 2, 4})
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches)
      for (int stage = 0; stage < stages; ++stage) {
        INFO("stage ", stage, " of ", stages, ", micro-batches ", micro_batches);
        Stage const by{stages, stage, micro_batches};
        StepPlan const plan = plan_of(by);
        CHECK(mistake_in(plan, plan.train) == "");
        std::map<std::tuple<Verb, int, int>, int> runs;
        int units = 0;
        std::string order, expected;  // the order of forward (F) and backward of the stage's first unit
        for (Instance const& instance : instances_of(plan.train.schedule)) {
          units += instance.entry.verb == Verb::update;
          if (instance.entry.unit == 8 * stage / stages)
            order += instance.entry.verb == Verb::forward          ? "F"
                     : instance.entry.verb == Verb::backward_input ? "B"
                                                                   : "";
          if (computes(instance.entry.verb))
            ++runs[{instance.entry.verb, instance.entry.unit, instance.micro_batch}];
        }
        CHECK(units == 8 / stages);
        int const warm = std::min(stages - 1 - stage, micro_batches);
        expected.append(static_cast<std::size_t>(warm), 'F');
        for (int micro = warm; micro < micro_batches; ++micro) expected += "FB";
        expected.append(static_cast<std::size_t>(warm), 'B');
        CHECK(order == expected);
        CHECK(runs.size() == static_cast<std::size_t>(3 * units * micro_batches));
        CHECK(std::all_of(runs.begin(), runs.end(), [](auto const& each) { return each.second == 1; }));
        // The plan must have exactly one copy of the activations (slot) for each micro-batch in flight.
        CHECK(max_in_flight(plan) == std::min(stages - stage, micro_batches));
        int slots = 0;
        for (Buffer const& buffer : plan.train.buffers)
          if (buffer.kind == BufferKind::saved) slots = std::max(slots, buffer.slot + 1);
        CHECK(slots == max_in_flight(plan));
      }
}

TEST_CASE("a slot less than micro-batches in flight is a mistake") {
  for (int stage = 0; stage < 3; ++stage) {
    Stage by{4, stage, 9};
    by.spared_slots = 1;
    StepPlan const plan = plan_of(by);
    CHECK(mistake_in(plan, plan.train).find("of another micro-batch") != std::string::npos);
  }
}

TEST_CASE("a stage's list and bytes do not grow with its micro-batches") {
  for (int stage = 0; stage < 4; ++stage) {
    StepPlan const some = plan_of({4, stage, 12 + 3 - stage}), many = plan_of({4, stage, 120000 + 3 - stage});
    CHECK(many.train.schedule.entries.size() == some.train.schedule.entries.size());
    CHECK(many.train.arena_bytes == some.train.arena_bytes);
    CHECK(many.train.schedule.instances() > 1000000);
    CHECK(listing(many, many.train).find(" are repeated ") != std::string::npos);
  }
}

TEST_CASE("no wait of a pipeline can be left out") {
  WaitsLeftOut left_out;
  for (int const stages : {2, 4})
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches)
      for (StepPlan& plan : all_stages({stages, 0, micro_batches})) left_out.check(std::move(plan));
  CHECK(left_out.waits > 500);
  CHECK(left_out.found == left_out.waits);
}

TEST_CASE("stages that wait for each other come to the end") {
  for (int const stages : {2, 4})
    for (int micro_batches = 1; micro_batches <= 9; ++micro_batches) {
      INFO("stages ", stages, ", micro-batches ", micro_batches);
      std::vector<StepPlan> const plans = all_stages({stages, 0, micro_batches});
      CHECK(Rehearsal(plans).run() == "");
    }
  std::vector<StepPlan> const crossed = all_stages({.stages = 2, .micro_batches = 3, .sends_first = true});
  // The checker accepts the schedule of each single stage. Only the simulation of both stages together finds
  // the fault.
  for (StepPlan const& plan : crossed) CHECK(mistake_in(plan, plan.train) == "");
  CHECK(Rehearsal(crossed).run() == "stage 0 hangs in send cross h.2 micro 1");
}
