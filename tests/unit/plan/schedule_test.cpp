// SPDX-License-Identifier: Apache-2.0
// Checks properties that every schedule must have, also for placements of state that no policy has. Weights
// are read only between their gather and their release. Entries (operations of the schedule) whose buffers
// share memory do not run at the same time. A value is read from the buffer to which it was written. The
// checks must also find each planted fault and each removed wait.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/program.hpp"

#include "support/runs.hpp"
#include "support/step_plans.hpp"
#include "support/waits.hpp"

namespace {

using namespace support;

/// Whether `buffer` is a temporary copy of a unit's full weights on the device. A gather writes this copy,
/// and a release ends its use.
bool is_full(Buffer const& buffer) {
  bool const gathered = !buffer.copy.rests() && buffer.copy.by == Verb::gather;
  return buffer.kind == BufferKind::weights && gathered && buffer.tier == Tier::device &&
         buffer.over == Sharding::replicated;
}

/// Checks the gathers of weights in `program`. Weights must not be gathered twice, must be read only between
/// their gather and their release, and must be released before the next micro-batch. Returns the first
/// mistake, or an empty string.
std::string gathers_are_sound(StepPlan const& plan, Program const& program) {
  std::set<int> held;  // the buffers that contain gathered weights now
  int micro = 0;
  for (Instance const& instance : instances_of(program.schedule)) {
    Entry const& entry = instance.entry;
    std::string const where = text(plan, entry);
    if (instance.micro_batch != micro) {
      if (!held.empty()) return "not released before " + where;
      micro = instance.micro_batch;
    }
    // A gather can consist of several entries. The last of them writes the full weights.
    if (entry.verb == Verb::gather && is_full(program.at(entry.at(Role::target)))) {
      bool const goes_on = entry.at(Role::source) == entry.at(Role::target);
      if (!held.insert(entry.at(Role::target)).second && !goes_on) return "gathered twice: " + where;
      continue;
    }
    for (int const buffer : entry.reads())
      if (is_full(program.at(buffer)) && !held.contains(buffer)) return "not gathered: " + where;
    for (int const buffer : entry.writes())
      if (is_full(program.at(buffer))) return "writes weights: " + where;
    if (computes(entry.verb) && plan.recipe.placement.parameters != Placement{})
      for (int const buffer : entry.reads())
        if (program.at(buffer).kind == BufferKind::weights && program.at(buffer).copy.rests())
          return "reads a shard as weights: " + where;
    if (entry.verb == Verb::release) held.erase(entry.reads().front());
  }
  return held.empty() ? "" : "not released at the end";
}

bool share_bytes(Buffer const& a, Buffer const& b) {
  return a.tier == b.tier && a.offset >= 0 && b.offset >= 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

/// Checks that buffers that are in use at the same time do not share bytes, and that a persistent buffer
/// shares its bytes with no other buffer. Returns the first mistake, or an empty string.
std::string lifetimes_are_disjoint(StepPlan const& plan, Program const& program) {
  // First and last use of each buffer in each micro-batch.
  std::map<int, std::map<int, std::pair<int, int>>> lives;
  auto const instances = instances_of(program.schedule);
  int const last_micro = plan.shape.accumulation - 1;
  for (int i = 0; i < static_cast<int>(instances.size()); ++i)
    for (Operand const& operand : instances[static_cast<std::size_t>(i)].entry.operands) {
      int const buffer = operand.buffer;
      int const micro = instances[static_cast<std::size_t>(i)].micro_batch;
      auto& life = lives[micro < 0 ? last_micro : micro].try_emplace(buffer, i, i).first->second;
      life.second = i;
      if (program.at(buffer).bytes > 0 && program.at(buffer).offset < 0) return "a used buffer has no place";
    }
  for (auto& [micro, in_micro] : lives)
    for (std::size_t other = 0; other < program.buffers.size(); ++other)
      if (program.buffers[other].persistent)
        in_micro[static_cast<int>(other)] = {0, static_cast<int>(instances.size())};
  for (auto const& [micro, in_micro] : lives)
    for (auto a = in_micro.begin(); a != in_micro.end(); ++a)
      for (auto b = std::next(a); b != in_micro.end(); ++b)
        if (a->second.first <= b->second.second && b->second.first <= a->second.second &&
            share_bytes(program.at(a->first), program.at(b->first)))
          return std::string(name_of(program.at(a->first).kind)) + " and " +
                 std::string(name_of(program.at(b->first).kind)) + " share bytes";
  for (Buffer const& buffer : program.buffers)
    if (buffer.offset >= 0 &&
        buffer.offset + buffer.bytes > program.arena_bytes[static_cast<std::size_t>(buffer.tier)])
      return "beyond the arena";
  return "";
}

void check_all(Setting const& by, PlacementTable const* placement = nullptr) {
  StepPlan const plan = plan_of(by, placement);
  INFO(to_string(plan.recipe), ", world ", by.world, ", accumulation ", by.accumulation, ", bucket ",
       by.bucket, ", rank ", by.rank, ", prefetch ", by.prefetch, ", lag ", by.weight_lag);
  for (Program const* program : {&plan.train, &plan.evaluate}) {
    CHECK(gathers_are_sound(plan, *program) == "");
    CHECK(mistake_in(plan, *program) == "");
    CHECK(lifetimes_are_disjoint(plan, *program) == "");
  }
}

/// A random generator with a fixed seed. The call operator returns a number from 0 to below - 1, and
/// of(choices) returns one of the choices.
struct Dice {
  std::uint32_t state = 12345;
  int operator()(int below) {
    state = state * 1664525u + 1013904223u;
    return static_cast<int>((state >> 8) % static_cast<std::uint32_t>(below));
  }
  template <class T, std::size_t N>
  T of(T const (&choices)[N]) {
    return choices[(*this)(static_cast<int>(N))];
  }
};

/// Describes an entry without the numbers of its buffers, so that entries of two plans can be compared: verb,
/// move, unit, micro-batch, lane (stream), and the kind, unit and index of each of its buffers.
using Line = std::tuple<Verb, Move, int, int, Lane, std::vector<std::tuple<BufferKind, int, int>>>;
Line line(Program const& program, Entry const& entry) {
  Line result{entry.verb, entry.move, entry.unit, entry.micro_batch, entry.lane, {}};
  entry.visit_operands([&](Operand const& operand, int) {
    Buffer const& about = program.at(operand.buffer);
    std::get<5>(result).emplace_back(about.kind, about.unit, about.index);
  });
  return result;
}

}  // namespace

TEST_CASE("at world 1 every stage is the list of stage 0") {
  for (std::string_view const precision : {"fp32", "fp16"})
    for (std::string_view const offload : offloads)
      for (std::string_view const recompute : {"none", "block"})
        for (int const accumulation : {1, 3}) {
          Setting by{.precision = precision,
                     .offload = offload,
                     .recompute = recompute,
                     .accumulation = accumulation};
          StepPlan const zs0 = plan_of(by);
          for (std::string_view const sharding : shardings)
            for (std::string_view const reduction : {"ordered", "fast"}) {
              by.sharding = sharding;
              by.reduction = reduction;
              StepPlan const plan = plan_of(by);
              CHECK(hash_of(plan.train.schedule) == hash_of(zs0.train.schedule));
              CHECK(plan.arena_bytes == zs0.arena_bytes);
              auto const &a = plan.train.schedule.entries, &b = zs0.train.schedule.entries;
              REQUIRE(a.size() == b.size());
              bool same = true;
              for (std::size_t i = 0; i < a.size(); ++i)
                same &= line(plan.train, a[i]) == line(zs0.train, b[i]) && a[i].waits == b[i].waits;
              CHECK(same);
            }
        }
}

TEST_CASE("every list of GPT-2 is sound") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "bf16"})
      for (std::string_view const offload : offloads)
        for (std::string_view const reduction : {"ordered", "fast"})
          for (int const world : {1, 3})
            for (int const accumulation : {1, 2})
              check_all({.sharding = sharding,
                         .precision = precision,
                         .offload = offload,
                         .reduction = reduction,
                         .world = world,
                         .accumulation = accumulation});
}

TEST_CASE("every list is sound with recomputation buckets and on the other ranks") {
  for (std::string_view const sharding : {"dp", "zs0", "zs3"})
    for (std::int64_t const bucket : {std::int64_t{0}, std::int64_t{200000}, std::int64_t{1} << 40}) {
      for (std::string_view const recompute : recomputes)
        check_all({.sharding = sharding,
                   .precision = "fp16",
                   .offload = "cpu_optimizer",
                   .recompute = recompute,
                   .world = 2,
                   .accumulation = 2,
                   .rank = 1,
                   .every = 3,
                   .bucket = bucket});
      check_all({.sharding = sharding,
                 .precision = "bf16",
                 .recompute = "every",
                 .reduction = "fast",
                 .world = 4,
                 .accumulation = 2,
                 .rank = 3,
                 .every = 2,
                 .bucket = bucket});
    }
}

TEST_CASE("every list of a model with two borrowers is sound") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "fp16"})
      for (std::string_view const recompute : recomputes)
        check_all({.sharding = sharding,
                   .precision = precision,
                   .offload = "cpu_optimizer",
                   .recompute = recompute,
                   .world = 2,
                   .accumulation = 2,
                   .every = 2,
                   .tied_model = true});
}

TEST_CASE("every list of random placements is sound") {
  Dice dice;
  for (int round = 0; round < 400; ++round) {
    constexpr Sharding overs[] = {Sharding::replicated, Sharding::sharded, Sharding::owned};
    constexpr Tier tiers[] = {Tier::device, Tier::device, Tier::host};
    PlacementTable placement{.owners = dice(4)};
    for (Placement* row :
         {&placement.parameters, &placement.gradients, &placement.master, &placement.moments})
      *row = {dice.of(overs), dice.of(tiers)};
    constexpr std::string_view precisions[] = {"fp32", "bf16"}, reductions[] = {"ordered", "fast"},
                               recomputes[] = {"none", "gelu", "block", "every"};
    constexpr std::int64_t buckets[] = {0, 0, 100000, std::int64_t{1} << 40};
    int const replicas = dice(3) == 0 ? 2 : 1, world = replicas * (1 + dice(4));
    check_all({.precision = dice.of(precisions),
               .recompute = dice.of(recomputes),
               .reduction = dice.of(reductions),
               .world = world,
               .accumulation = 1 + dice(3),
               .rank = dice(world),
               .every = 1 + dice(3),
               .bucket = dice.of(buckets),
               .tied_model = dice(3) == 0,
               .prefetch = dice(4),
               .replicas = replicas,
               .channels = 1 + dice(2),
               .weight_lag = dice(3),
               .vocabulary = dice.of({tiny.vocabulary, std::int64_t{1000}})},
              &placement);
  }
}

TEST_CASE("every list of many micro-batches is sound and no longer than that of two") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full"})
      for (std::string_view const reduction : {"ordered", "fast"})
        for (auto const& [prefetch, lag] :
             {std::pair(0, 0), std::pair(1, 0), std::pair(3, 0), std::pair(0, 1), std::pair(1, 2)}) {
          Setting by{.sharding = sharding,
                     .precision = "bf16",
                     .offload = offload,
                     .reduction = reduction,
                     .world = 3,
                     .accumulation = 2,
                     .prefetch = prefetch,
                     .weight_lag = lag};
          StepPlan const two = plan_of(by);
          for (by.accumulation = 3; by.accumulation <= 8; ++by.accumulation) {
            check_all(by);
            StepPlan const many = plan_of(by);
            CHECK(many.train.schedule.entries.size() == two.train.schedule.entries.size());
            CHECK(hash_of(many.train.schedule) != hash_of(two.train.schedule));
            std::map<int, int> runs;  // the number of instances of each micro-batch
            int place = 0, micro = 0;
            for (Instance const& instance : instances_of(many.train.schedule)) {
              ++runs[instance.micro_batch];
              bool const follows = instance.index == place || instance.micro_batch == micro + 1;
              CHECK(follows);
              place = instance.index + 1;
              micro = instance.micro_batch;
            }
            CHECK(runs.size() == static_cast<std::size_t>(by.accumulation) + 1);
            for (int m = 1; m + 1 < by.accumulation; ++m) CHECK(runs[m] == runs[0]);
          }
        }
}

TEST_CASE("a hundred thousand micro-batches take the list of two and their tokens") {
  Setting by{.sharding = "zs3", .precision = "bf16", .offload = "cpu_full", .world = 2, .accumulation = 2};
  StepPlan const two = plan_of(by);
  for (int const accumulation : {16384, 100000}) {
    by.accumulation = accumulation;
    StepPlan const many = plan_of(by);
    Schedule const& schedule = many.train.schedule;
    CHECK(schedule.entries.size() == two.train.schedule.entries.size());
    CHECK(schedule.times == accumulation - 1);
    CHECK(schedule.instance(schedule.instances() - 1).index == static_cast<int>(schedule.entries.size()) - 1);
    CHECK(schedule.instance(schedule.instances() - 1).entry.verb == two.train.schedule.entries.back().verb);
    Instance const last = schedule.instance(std::int64_t{accumulation - 1} * schedule.body_end - 1);
    CHECK(last.index == schedule.body_end - 1);
    CHECK(last.micro_batch == accumulation - 2);
    for (std::size_t entry = 0; entry < schedule.entries.size(); ++entry) {
      bool const repeated = static_cast<int>(entry) < schedule.body_end;
      auto const& waits = schedule.entries[entry].waits;
      if (!repeated) CHECK(waits == two.train.schedule.entries[entry].waits);
      CHECK(waits.size() < lane_count);
    }
    // The offsets of buffers must not depend on the number of micro-batches.
    for (std::size_t buffer = 0; buffer < many.train.buffers.size(); ++buffer) {
      Buffer const &one = many.train.buffers[buffer], &other = two.train.buffers[buffer];
      if (one.persistent || other.offset < 0) continue;
      std::size_t const tier = static_cast<std::size_t>(one.tier);
      CHECK(one.offset - many.train.persistent_bytes[tier] ==
            other.offset - two.train.persistent_bytes[tier]);
    }
  }
}

TEST_CASE("ranks agree on every list of random placements") {
  Dice dice;
  for (int round = 0; round < 100; ++round) {
    constexpr Sharding overs[] = {Sharding::replicated, Sharding::sharded, Sharding::owned};
    PlacementTable placement{.owners = dice(4)};
    for (Placement* row :
         {&placement.parameters, &placement.gradients, &placement.master, &placement.moments})
      *row = {dice.of(overs), dice(2) == 0 ? Tier::host : Tier::device};
    Setting by{.precision = dice(2) == 0 ? "fp32" : "fp16",
               .reduction = dice(2) == 0 ? "ordered" : "fast",
               .world = 4,
               .accumulation = 1 + dice(2),
               .replicas = 1 + dice(2)};
    std::uint64_t const first = hash_of(plan_of(by, &placement).train.schedule);
    for (by.rank = 1; by.rank < by.world; ++by.rank)
      CHECK(hash_of(plan_of(by, &placement).train.schedule) == first);
  }
}

TEST_CASE("the proofs find planted mistakes") {
  Setting const by{
      .sharding = "zs3", .precision = "bf16", .offload = "cpu_optimizer", .world = 2, .accumulation = 2};
  StepPlan const plan = plan_of(by);
  auto const with = [&](auto const& change) {
    Program broken = plan.train;
    change(broken);
    return broken;
  };
  auto const first = [](Program& program, Verb verb) {
    auto& entries = program.schedule.entries;
    return std::find_if(entries.begin(), entries.end(),
                        [&](Entry const& entry) { return entry.verb == verb; });
  };
  for (Verb const verb : {Verb::gather, Verb::release})
    CHECK(gathers_are_sound(plan, with([&](Program& p) { p.schedule.entries.erase(first(p, verb)); })) != "");
  // In this fault, an entry declares no writes. For the checker, it then looks as if the entry had not run.
  for (Verb const verb : {Verb::reduce, Verb::fetch, Verb::forward, Verb::backward_input, Verb::gather})
    CHECK(mistake_in(plan, with([&](Program& p) { erase_writes(*first(p, verb)); })) != "");
  // The next faults are in entries that process several flat groups (flat buffers of parameters). An item of
  // an entry is its work on one flat group. The faults are an item that occurs twice, an item that uses the
  // buffer of another item, a wrong lane (stream), and a copy of several flat groups.
  Setting bucketed{.sharding = "zs2", .reduction = "fast", .world = 4, .bucket = std::int64_t{1} << 40};
  bucketed.replicas = 2;
  StepPlan const mesh = plan_of(bucketed);
  REQUIRE(mistake_in(mesh, mesh.train) == "");
  for (Verb const verb : {Verb::reduce, Verb::update, Verb::write_back}) {
    auto const planted = [&](auto const& change) {
      Program broken = mesh.train;
      auto& entries = broken.schedule.entries;
      auto const several = std::find_if(entries.begin(), entries.end(), [&](Entry const& entry) {
        return entry.verb == verb && entry.items.size() > 1;
      });
      REQUIRE(several != entries.end());
      change(*several);
      return mistake_in(mesh, broken);
    };
    INFO(std::string(name_of(verb)));
    CHECK(planted([](Entry& entry) {
            entry.items.push_back(entry.items.front());
          }).find("which another of its items touches") != std::string::npos);
    CHECK(planted([](Entry& entry) {
            std::swap(entry.items[0].operands.back().buffer, entry.items[1].operands.front().buffer);
          }) != "");
    CHECK(planted([](Entry& entry) { entry.lane = Lane::download; }) != "");
    CHECK(planted([](Entry& entry) { entry.move = Move::copy; }).find("copies several flat groups") !=
          std::string::npos);
  }
  // In this fault, the buffer `a` gets the offset of the buffer `b`, so the two buffers share bytes.
  int found = 0, moved = 0;
  for (std::size_t a = 0; a < plan.train.buffers.size(); ++a)
    for (std::size_t b = 0; b < plan.train.buffers.size(); ++b) {
      Buffer const &one = plan.train.buffers[a], &other = plan.train.buffers[b];
      if (one.kind != BufferKind::micro_gradient || other.kind != BufferKind::saved || other.bytes == 0)
        continue;
      ++moved;
      found += mistake_in(plan, with([&](Program& p) { p.buffers[a].offset = other.offset; })) != "";
    }
  CHECK(moved > 20);
  CHECK(found > 10);  // in the other pairs, the two buffers are not in use at the same time
}

TEST_CASE("no wait can be left out") {
  WaitsLeftOut left_out;
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full"})
      for (std::string_view const reduction : {"ordered", "fast"})
        for (auto const& [prefetch, accumulation] : {std::pair(0, 2), std::pair(1, 2), std::pair(1, 4)}) {
          left_out.check(plan_of({.sharding = sharding,
                                  .precision = "bf16",
                                  .offload = offload,
                                  .reduction = reduction,
                                  .world = 2,
                                  .accumulation = accumulation,
                                  .prefetch = prefetch,
                                  .channels = 1 + prefetch}));
          left_out.check(plan_of({.sharding = sharding,
                                  .precision = "bf16",
                                  .offload = offload,
                                  .reduction = reduction,
                                  .accumulation = accumulation,
                                  .prefetch = prefetch,
                                  .weight_lag = 1}));
        }
  CHECK(left_out.waits > 1000);
  CHECK(left_out.found == left_out.waits);
}

TEST_CASE("overlap changes when entries run and nothing else") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer"})
      for (int const world : {1, 3}) {
        Setting by{.sharding = sharding,
                   .precision = "bf16",
                   .offload = offload,
                   .world = world,
                   .accumulation = 2,
                   .prefetch = 0};
        StepPlan const plain = plan_of(by);
        auto const lines = [](StepPlan const& plan) {
          std::multiset<std::tuple<Verb, Move, int, int, int, int>> all;
          for (Entry const& entry : plan.train.schedule.entries) {
            all.insert({entry.verb, entry.move, entry.unit, entry.micro_batch, -1, -1});
            for (Item const& item : entry.items)
              all.insert({entry.verb, entry.move, item.of.unit, entry.micro_batch, item.source_buffer(),
                          item.at(Role::target)});
          }
          return all;
        };
        for (by.prefetch = 1; by.prefetch < 4; ++by.prefetch) {
          StepPlan const ahead = plan_of(by);
          CHECK(lines(ahead) == lines(plain));
          CHECK(ahead.arena_bytes[0] + ahead.arena_bytes[1] >= plain.arena_bytes[0] + plain.arena_bytes[1]);
          // With one rank and no offload, the schedule has no transfers, so prefetching changes nothing.
          bool const same = hash_of(ahead.train.schedule) == hash_of(plain.train.schedule);
          CHECK(same == (world == 1 && offload == "none"));
        }
      }
}

TEST_CASE("a large gradient of the last unit is reduced before the gradient of the unit before it") {
  for (std::string_view const sharding : {"zs0", "zs1", "zs2", "zs3"})
    for (std::string_view const reduction : {"ordered", "fast"})
      for (std::int64_t const vocabulary : {tiny.vocabulary, std::int64_t{1000}}) {
        Setting const by{.sharding = sharding, .reduction = reduction, .world = 2, .vocabulary = vocabulary};
        check_all(by);
        StepPlan const plan = plan_of(by);
        auto const first = [&](Verb verb, int unit) {
          auto const& entries = plan.train.schedule.entries;
          return std::find_if(entries.begin(), entries.end(), [&](Entry const& entry) {
            return entry.verb == verb &&
                   (entry.unit == unit || (!entry.items.empty() && entry.items.front().of.unit == unit));
          });
        };
        bool const large = vocabulary != tiny.vocabulary;
        CHECK((first(Verb::reduce, 0) < first(Verb::reduce, 1)) == large);
        CHECK((first(Verb::backward_weight, 0) < first(Verb::backward_weight, 1)) == large);
        // The first reduction follows the computation that hides it, so they use different memory.
        if (large) CHECK(first(Verb::backward_weight, 1) < first(Verb::reduce, 0));
      }
}

TEST_CASE("gradients of weights that lag run at the same time as those of inputs and nothing else changes") {
  auto const lines = [](StepPlan const& plan) {
    std::multiset<Line> all;
    for (Entry entry : plan.train.schedule.entries) {
      if (entry.lane == Lane::gradients) entry.lane = Lane::compute;
      Line of = line(plan.train, entry);
      for (auto& [kind, unit, index] : std::get<5>(of))
        if (kind == BufferKind::workspace) index = 0;
      all.insert(std::move(of));
    }
    return all;
  };
  for (std::string_view const recompute : {"none", "gelu", "block"})
    for (int const world : {1, 3})
      for (int const accumulation : {1, 2}) {
        Setting by{.precision = "bf16", .recompute = recompute, .world = world, .accumulation = accumulation};
        INFO(std::string(recompute), " ", world, " ", accumulation);
        StepPlan const sequential = plan_of(by);
        for (by.weight_lag = 1; by.weight_lag < 4; ++by.weight_lag) {
          StepPlan const concurrent = plan_of(by);
          check_all(by);
          CHECK(lines(concurrent) == lines(sequential));
          CHECK(concurrent.arena_bytes[0] > sequential.arena_bytes[0]);
          // If weight gradients lag behind, backward of the second last unit begins before the weight
          // gradients of the last unit.
          auto const& entries = concurrent.train.schedule.entries;
          int const last = concurrent.units_count() - 1;
          bool passed = false, on_own_lane = true;
          for (Entry const& entry : entries) {
            if (entry.micro_batch != 0) continue;
            bool const weights = entry.verb == Verb::backward_weight;
            bool const same_lane = weights || entry.verb == Verb::add_tied || entry.verb == Verb::clear_gaps;
            on_own_lane = on_own_lane &&
                          (same_lane == (entry.lane == Lane::gradients) || entry.verb == Verb::accumulate);
            passed = passed || (entry.verb > Verb::forward && entry.unit == last - 1);
            if (weights && entry.unit == last) CHECK(passed);
          }
          CHECK(on_own_lane);
        }
      }
}

TEST_CASE("buckets change only when micro-batch gradients are reduced") {
  for (std::string_view const sharding : shardings)
    for (int const accumulation : {1, 2}) {
      Setting by{.sharding = sharding, .precision = "fp16", .world = 4, .accumulation = accumulation};
      StepPlan const at_once = plan_of(by);
      for (std::int64_t const bucket : {std::int64_t{100000}, std::int64_t{1} << 40}) {
        by.bucket = bucket;
        StepPlan const late = plan_of(by);
        // `routes` has the list of entries for each flat group, in the order of the schedule. The entries
        // without a flat group have the key (-1, -1).
        using Route = std::vector<std::tuple<Verb, Move, int, int, int>>;
        auto const kind_of = [](StepPlan const& plan, int buffer) {
          return buffer < 0 ? -1 : static_cast<int>(plan.train.at(buffer).kind);
        };
        auto const routes = [&](StepPlan const& plan) {
          std::map<std::pair<int, int>, Route> all;
          for (Entry const& entry : plan.train.schedule.entries) {
            if (entry.items.empty()) all[{-1, -1}].push_back({entry.verb, entry.move, entry.unit, 0, 0});
            for (Item const& item : entry.items)
              all[{item.of.unit, item.of.group}].push_back({entry.verb, entry.move, entry.micro_batch,
                                                            kind_of(plan, item.source_buffer()),
                                                            kind_of(plan, item.at(Role::target))});
          }
          return all;
        };
        CHECK(routes(at_once) == routes(late));
        CHECK(hash_of(at_once.train.schedule) != hash_of(late.train.schedule));
      }
    }
}
