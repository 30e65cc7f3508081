// SPDX-License-Identifier: Apache-2.0
// The step as data: what each sharding's list holds, and three proofs over every list: weights are read while
// they are acquired, every read was written, and what shares bytes is ordered. Each proof is shown to find a
// planted mistake.
#include <algorithm>
#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/program.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;

struct Setting {
  std::string_view sharding = "zs0", precision = "fp32", offload = "none", recompute = "none",
                   reduction = "ordered";
  int world = 1, accumulation = 1, rank = 0, every = 1;
  std::int64_t bucket = 0;
  bool tied_model = false;
};

StepPlan plan_of(Setting const& by) {
  StepShape shape;
  shape.batch = 2;
  shape.sequence = 13;
  shape.accumulation = by.accumulation;
  shape.world = by.world;
  shape.rank = by.rank;
  shape.bucket_bytes = by.bucket;
  shape.recompute_every = by.every;
  shape.workspace_bytes = 1000;
  MicroBatch const micro{shape.batch, shape.sequence};
  Gpt2Options deep = tiny;
  deep.layers = 4;
  return make_plan(by.tied_model ? TiedModel{}.units(micro) : Gpt2(deep).units(micro),
                   recipe(by.sharding, by.precision, by.offload, by.recompute, by.reduction), shape);
}

std::string text(StepPlan const& plan, Entry const& entry) {
  return to_string(entry, entry.unit < 0 ? "all" : plan.unit(entry.unit).name);
}

/// Weights are gathered at most once at a time, read only between acquire and release, and all released when
/// a micro-batch ends. Empty: proven; else the first mistake.
std::string acquisitions_are_sound(StepPlan const& plan, Program const& program) {
  std::set<int> held;  // buffers
  int micro = 0;
  for (Entry const& entry : program.schedule.entries) {
    std::string const where = text(plan, entry);
    if (entry.micro_batch != micro) {
      if (!held.empty()) return "not released before " + where;
      micro = entry.micro_batch;
    }
    if (entry.verb == Verb::acquire) {
      if (!held.insert(entry.writes.front()).second) return "acquired twice: " + where;
      continue;
    }
    for (int const buffer : entry.reads)
      if (program.at(buffer).kind == BufferKind::gathered && !held.contains(buffer))
        return "not acquired: " + where;
    for (int const buffer : entry.writes)
      if (program.at(buffer).kind == BufferKind::gathered) return "writes weights: " + where;
    bool const computes = entry.verb == Verb::forward || entry.verb == Verb::recompute ||
                          entry.verb == Verb::backward_input || entry.verb == Verb::backward_weight;
    if (computes && plan.recipe.placement.parameters == Sharding::sharded)
      for (int const buffer : entry.reads)
        if (program.at(buffer).kind == BufferKind::parameters) return "reads a shard as weights: " + where;
    if (entry.verb == Verb::release) held.erase(entry.reads.front());
  }
  return held.empty() ? "" : "not released at the end";
}

/// Every buffer that does not persist is written before it is read, within one micro-batch.
std::string reads_were_written(StepPlan const& plan, Program const& program) {
  std::set<int> written;
  int micro = 0;
  for (Entry const& entry : program.schedule.entries) {
    if (entry.micro_batch != micro) {
      written.clear();
      micro = entry.micro_batch;
    }
    for (int const buffer : entry.reads)
      if (!program.at(buffer).persistent && !written.contains(buffer))
        return text(plan, entry) + " reads " + std::string(name_of(program.at(buffer).kind)) +
               " before it is written";
    written.insert(entry.writes.begin(), entry.writes.end());
  }
  return "";
}

bool share_bytes(Buffer const& a, Buffer const& b) {
  return a.tier == b.tier && a.offset >= 0 && b.offset >= 0 && a.offset < b.offset + b.bytes &&
         b.offset < a.offset + a.bytes;
}

/// The closure of lane order and waits orders every two entries of which one writes bytes that the other
/// touches.
std::string conflicts_are_ordered(StepPlan const& plan, Program const& program) {
  constexpr std::size_t most = 1024;
  auto const& entries = program.schedule.entries;
  REQUIRE(entries.size() <= most);
  std::vector<std::bitset<most>> before(entries.size());
  std::array<int, 4> last{-1, -1, -1, -1};
  for (std::size_t i = 0; i < entries.size(); ++i) {
    auto const after = [&](int other) {
      if (other < 0) return;
      before[i] |= before[static_cast<std::size_t>(other)];
      before[i].set(static_cast<std::size_t>(other));
    };
    int& lane = last[static_cast<std::size_t>(entries[i].lane)];
    after(lane);
    lane = static_cast<int>(i);
    for (int const other : entries[i].waits) {
      if (other < 0 || other >= static_cast<int>(i))
        return text(plan, entries[i]) + " waits for a later entry";
      if (!entries[static_cast<std::size_t>(other)].signals)
        return text(plan, entries[i]) + " waits for what never signals";
      after(other);
    }
  }
  for (std::size_t i = 0; i < entries.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      if (before[i].test(j)) continue;
      auto const conflict = [&](std::vector<int> const& one, std::vector<int> const& other) {
        for (int const a : one)
          for (int const b : other)
            if (a == b || share_bytes(program.at(a), program.at(b))) return true;
        return false;
      };
      if (conflict(entries[i].writes, entries[j].writes) || conflict(entries[i].writes, entries[j].reads) ||
          conflict(entries[i].reads, entries[j].writes))
        return text(plan, entries[j]) + " and " + text(plan, entries[i]) + " are not ordered";
    }
  return "";
}

/// In every micro-batch, buffers between their first and last use share no bytes; persistent ones never do.
std::string lives_are_apart(StepPlan const& plan, Program const& program) {
  std::map<int, std::map<int, std::pair<int, int>>> lives;  // micro-batch, buffer: first and last entry
  auto const& entries = program.schedule.entries;
  int const last_micro = plan.shape.accumulation - 1;
  for (int i = 0; i < static_cast<int>(entries.size()); ++i)
    for (auto const* list :
         {&entries[static_cast<std::size_t>(i)].reads, &entries[static_cast<std::size_t>(i)].writes})
      for (int const buffer : *list) {
        int const micro = entries[static_cast<std::size_t>(i)].micro_batch;
        auto& life = lives[micro < 0 ? last_micro : micro].try_emplace(buffer, i, i).first->second;
        life.second = i;
        if (program.at(buffer).bytes > 0 && program.at(buffer).offset < 0)
          return "a used buffer has no place";
      }
  for (auto& [micro, in_micro] : lives)
    for (std::size_t other = 0; other < program.buffers.size(); ++other)
      if (program.buffers[other].persistent)
        in_micro[static_cast<int>(other)] = {0, static_cast<int>(entries.size())};
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

void check_all(Setting const& by) {
  StepPlan const plan = plan_of(by);
  INFO(std::string(by.sharding), " ", std::string(by.precision), " ", std::string(by.offload), " ",
       std::string(by.recompute), " ", std::string(by.reduction), ", world ", by.world, ", accumulation ",
       by.accumulation, ", bucket ", by.bucket, ", rank ", by.rank);
  for (Program const* program : {&plan.train, &plan.evaluate}) {
    CHECK(acquisitions_are_sound(plan, *program) == "");
    CHECK(reads_were_written(plan, *program) == "");
    CHECK(conflicts_are_ordered(plan, *program) == "");
    CHECK(lives_are_apart(plan, *program) == "");
  }
}

/// How often each verb occurs.
std::map<Verb, int> verbs(StepPlan const& plan) {
  std::map<Verb, int> count;
  for (Entry const& entry : plan.train.schedule.entries) ++count[entry.verb];
  return count;
}

/// An entry in words: verb, unit, micro-batch, and the kinds of what it touches.
using Line = std::tuple<Verb, int, int, Lane, std::vector<std::tuple<BufferKind, int, int>>>;
Line line(Program const& program, Entry const& entry) {
  Line result{entry.verb, entry.unit, entry.micro_batch, entry.lane, {}};
  for (auto const* list : {&entry.reads, &entry.writes})
    for (int const buffer : *list) {
      Buffer const& about = program.at(buffer);
      std::get<4>(result).emplace_back(about.kind, about.unit, about.index);
    }
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
  for (Verb const verb : {Verb::acquire, Verb::release})
    CHECK(acquisitions_are_sound(plan, with([&](Program& p) { p.schedule.entries.erase(first(p, verb)); })) !=
          "");
  CHECK(acquisitions_are_sound(plan, with([&](Program& p) {
                                 auto const at = first(p, Verb::acquire);
                                 std::iter_swap(at, std::next(at));
                               })) != "");
  CHECK(reads_were_written(
            plan, with([&](Program& p) { p.schedule.entries.erase(first(p, Verb::reduce)); })) != "");
  CHECK(reads_were_written(plan, with([&](Program& p) {
                             p.schedule.entries.erase(std::next(first(p, Verb::stream)));
                           })) != "");
  // Each wait is needed: without any one of them some pair is not ordered, or an earlier entry waited for it
  // too.
  int needed = 0, waits = 0;
  for (std::size_t i = 0; i < plan.train.schedule.entries.size(); ++i)
    for (std::size_t wait = 0; wait < plan.train.schedule.entries[i].waits.size(); ++wait) {
      ++waits;
      needed += conflicts_are_ordered(plan, with([&](Program& p) {
                                        auto& list = p.schedule.entries[i].waits;
                                        list.erase(list.begin() + static_cast<std::ptrdiff_t>(wait));
                                      })) != "";
    }
  CHECK(waits > 30);
  CHECK(needed * 10 > waits * 5);
  // A buffer moved onto its neighbour.
  int found = 0;
  for (Buffer const& moved : plan.train.buffers)
    if (moved.kind == BufferKind::staging && moved.bytes > 0)
      found += lives_are_apart(plan, with([&](Program& p) {
                                 p.buffers[static_cast<std::size_t>(p.find(moved.kind, moved.unit))].offset =
                                     p.at(p.find(BufferKind::contribution, moved.unit)).offset;
                               })) != "";
  CHECK(found == plan.units_count());
}

TEST_CASE("buckets change only when contributions travel") {
  for (std::string_view const sharding : shardings)
    for (int const accumulation : {1, 2}) {
      Setting by{.sharding = sharding, .precision = "fp16", .world = 4, .accumulation = accumulation};
      StepPlan const at_once = plan_of(by);
      for (std::int64_t const bucket : {std::int64_t{100000}, std::int64_t{1} << 40}) {
        by.bucket = bucket;
        StepPlan const late = plan_of(by);
        auto const lines = [](StepPlan const& plan, auto const& wanted) {
          std::vector<Line> all;
          for (Entry const& entry : plan.train.schedule.entries)
            if (wanted(entry.verb)) all.push_back(line(plan.train, entry));
          return all;
        };
        auto const travels = [](Verb verb) {
          return verb == Verb::reduce || verb == Verb::fold || verb == Verb::gather;
        };
        auto const stays = [&](Verb verb) { return !travels(verb); };
        CHECK(lines(at_once, travels) == lines(late, travels));  // in the same order among themselves
        CHECK(lines(at_once, stays) == lines(late, stays));
        CHECK(hash_of(at_once.train.schedule) != hash_of(late.train.schedule));
      }
    }
}

TEST_CASE("each sharding has its verbs and no others") {
  constexpr int layers = 4, units = layers + 2;
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"})
      for (std::string_view const offload : offloads)
        for (int const accumulation : {1, 3}) {
          PlacementTable const placement = recipe(sharding, "fp32", offload).placement;
          bool const gathers = placement.parameters == Sharding::sharded;
          bool const to_root = placement.optimizer == Sharding::root;
          bool const streams = placement.optimizer_tier != Tier::device;
          bool const each =  // every micro-batch travels
              reduction == "ordered" || placement.gradients == Sharding::sharded || to_root;
          auto const count = verbs(plan_of({.sharding = sharding,
                                            .offload = offload,
                                            .reduction = reduction,
                                            .world = 4,
                                            .accumulation = accumulation}));
          std::map<Verb, int> want;
          want[Verb::forward] = want[Verb::backward_input] = want[Verb::backward_weight] =
              units * accumulation;
          // Forward: each unit and the embedding again for the head. Backward: each block.
          if (gathers) want[Verb::acquire] = want[Verb::release] = (units + 1 + layers) * accumulation;
          want[Verb::reduce] = each ? units * accumulation : units;
          if (each || accumulation > 1) want[Verb::fold] = units * accumulation;
          if (reduction == "ordered" && placement.optimizer == Sharding::replicated)
            want[Verb::gather] = units;
          want[Verb::norm] = units + 1;
          if (streams) want[Verb::stream] = units + 1;  // and the scalars
          want[Verb::update] = units;
          if (streams || (placement.optimizer != Sharding::replicated && !gathers))
            want[Verb::publish] = units;
          INFO(std::string(sharding), " ", std::string(reduction), " ", std::string(offload), " ",
               accumulation);
          CHECK(count == want);
        }
}

TEST_CASE("recomputation rebuilds what it says") {
  auto const rebuilt = [](std::string_view recompute, int every) {
    StepPlan const plan = plan_of({.recompute = recompute, .every = every});
    std::string order;
    for (Entry const& entry : plan.train.schedule.entries) {
      if (entry.verb == Verb::recompute) order += "r" + std::to_string(entry.unit) + " ";
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

TEST_CASE("entries read as lines") {
  StepPlan const plan = plan_of({.world = 2});
  auto const& entries = plan.train.schedule.entries;
  CHECK(text(plan, entries.front()) == "forward embedding micro 0");
  CHECK(text(plan, entries.back()) == "update head");
  for (int kind = 0; kind <= static_cast<int>(BufferKind::workspace); ++kind)
    CHECK(name_of(static_cast<BufferKind>(kind)) != "");
  for (Lane lane : {Lane::compute, Lane::communication, Lane::copy, Lane::host}) CHECK(name_of(lane) != "?");
}
