// SPDX-License-Identifier: Apache-2.0
// Tests step plans with frozen parameters. A step plan is the list of operations and buffers of a training
// step. The tests check which operations and buffers freezing removes, for chosen and for random parameters,
// and that names that match no parameter are refused.
#include "tessera/nn/freeze.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/listing.hpp"
#include "tessera/plan/report.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;
using Names = std::function<bool(std::string_view)>;

constexpr Gpt2Options deep{.layers = 4, .heads = 4, .channels = 64, .positions = 32, .vocabulary = 61};

StepShape shape_of(int world, int rank = 0) {
  StepShape shape;
  shape.batch = 2;
  shape.sequence = 13;
  shape.accumulation = 2;
  shape.world = world;
  shape.rank = rank;
  shape.prefetch = 1;
  shape.workspace_bytes = 1000;
  return shape;
}

StepPlan plan_of(RecipeTable const& table, Names const& names, StepShape const& shape = shape_of(2)) {
  return make_plan(frozen(Gpt2(deep).units({shape.batch, shape.sequence}), names), table, shape);
}

bool all_but_the_last_norm(std::string_view name) { return !name.starts_with("ln_f"); }
bool lower_half(std::string_view name) {
  return name.starts_with("wte") || name.starts_with("wpe") || name.starts_with("h.0") ||
         name.starts_with("h.1");
}

int count(Program const& program, Verb verb, int unit) {
  auto const& entries = program.schedule.entries;
  return static_cast<int>(std::count_if(entries.begin(), entries.end(), [&](Entry const& entry) {
    return entry.verb == verb && entry.unit == unit;
  }));
}

std::int64_t bytes(StepPlan const& plan, char const* name) {
  for (MemoryCategory const& category : memory_report(plan).categories)
    if (category.name == name) return category.bytes[0] + category.bytes[1];
  return -1;
}

std::string refusal(Names const& names) {
  try {
    (void)frozen(Gpt2(deep).units({1, 8}), names);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("backward ends at the lowest trained unit and nothing below it is kept") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const recompute : recomputes) {
      RecipeTable const table = recipe(sharding, "bf16", "none", recompute);
      for (auto const& trained : {std::pair{Names(all_but_the_last_norm), 5}, {Names(lower_half), 3}}) {
        int const lowest = trained.second;
        StepPlan const plan = plan_of(table, trained.first);
        INFO(std::string(sharding), " ", std::string(recompute), ", lowest ", lowest);
        CHECK(plan.lowest_trainable() == lowest);
        for (Entry const& entry : plan.train.schedule.entries) {
          if (entry.verb == Verb::forward || entry.unit < 0) continue;
          bool const brings = entry.verb == Verb::gather || entry.verb == Verb::release;
          if (!brings) CHECK(entry.unit >= lowest);
        }
        for (Entry const& entry : plan.train.schedule.entries) {
          if (entry.verb == Verb::gather) continue;
          for (Item const& item : entry.items)
            if (item.of.unit >= 0) CHECK(item.of.unit >= lowest);
        }
        for (Buffer const& buffer : plan.train.buffers) {
          bool const dropped = buffer.kind == BufferKind::saved && !buffer.copy.rests();
          if ((buffer.kind == BufferKind::saved && !dropped) || buffer.kind == BufferKind::output_gradient)
            CHECK(buffer.unit >= lowest);
          if (buffer.kind == BufferKind::micro_gradient || buffer.kind == BufferKind::tied_gradient ||
              buffer.kind == BufferKind::gradient || buffer.kind == BufferKind::moment ||
              buffer.kind == BufferKind::master)
            CHECK(buffer.unit >= lowest);
        }
        CHECK(count(plan.train, Verb::backward_input, lowest) == 2);
        CHECK(count(plan.train, Verb::backward_weight, lowest) == 2);
        CHECK(count(plan.train, Verb::backward_input, lowest - 1) == 0);
        CHECK(mistake_in(plan, plan.train) == "");
      }
    }
}

TEST_CASE("a frozen unit between trained ones passes gradients on and has none of its own") {
  StepPlan const plan =
      plan_of(recipe("zs2"), [](std::string_view name) { return name.starts_with("h.2."); });
  CHECK(plan.lowest_trainable() == 0);
  CHECK(count(plan.train, Verb::backward_input, 3) == 2);
  for (Verb const verb : {Verb::backward_weight, Verb::reduce, Verb::accumulate, Verb::norm, Verb::update})
    CHECK(count(plan.train, verb, 3) == 0);
  CHECK(plan.train.find(BufferKind::weights, 3) >= 0);
  CHECK(plan.train.find(BufferKind::moment, 3) < 0);
  // A frozen unit also needs no backward buffers whose only readers are the gradients of its parameters.
  for (Buffer const& buffer : plan.train.buffers)
    if (buffer.kind == BufferKind::backward && buffer.unit == 3)
      CHECK(plan.unit(3).backward[static_cast<std::size_t>(buffer.index)].name.find("partials") ==
            std::string::npos);
  // Without sharding, the printed schedule must not mention frozen parameters.
  CHECK(listing(plan, plan.train).find("frozen parameters") == std::string::npos);
  StepPlan const sharded =
      plan_of(recipe("zs3"), [](std::string_view name) { return name.starts_with("h.2."); });
  CHECK(listing(sharded, sharded.train).find("frozen weights to frozen gathered weights") !=
        std::string::npos);
}

TEST_CASE("a frozen table that the head borrows has a gradient from neither side") {
  for (std::string_view const precision : {"fp32", "bf16"}) {
    StepPlan const plan =
        plan_of(recipe("zs0", precision), [](std::string_view name) { return name.starts_with("wte"); });
    for (Buffer const& buffer : plan.train.buffers) CHECK(buffer.kind != BufferKind::tied_gradient);
    CHECK(plan.layout(0).flats.size() == 2);
    CHECK(plan.flat_of(0, 0) == Flat{0, 1});
    CHECK(plan.flat_of(0, 1) == Flat{0, 0});
    // The parameters of the embedding (unit 0) are in two flat groups. Group 1 is the frozen group, which
    // contains the token table. Forward of the output head (unit 5) must read only this group of the
    // embedding.
    for (Entry const& entry : plan.train.schedule.entries)
      if (entry.verb == Verb::forward && entry.unit == 5)
        for (int const buffer : entry.reads())
          if (plan.train.at(buffer).unit == 0 && plan.train.at(buffer).kind == BufferKind::weights)
            CHECK(plan.train.at(buffer).flat == 1);
  }
}

TEST_CASE("the optimizer's states are those that it lists for every trained group and no other") {
  StepPlan const plan = plan_of(recipe("zs1", "bf16"), lower_half);
  REQUIRE(plan.optimizer.size() == 2);
  CHECK(plan.optimizer[0].name == "exp_avg");
  CHECK(plan.optimizer[1].name == "exp_avg_sq");
  std::size_t found = 0;
  for (Buffer const& buffer : plan.train.buffers)
    if (buffer.kind == BufferKind::moment) {
      ++found;
      CHECK(plan.flat({buffer.unit, buffer.flat}).trainable);
      CHECK(buffer.type == plan.optimizer[static_cast<std::size_t>(buffer.index)].type);
    }
  CHECK(found == 2 * plan.trainable().size());
}

TEST_CASE("memory falls with what is frozen") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full"}) {
      RecipeTable const table = recipe(sharding, "bf16", offload);
      StepPlan const all = plan_of(table, {}), half = plan_of(table, lower_half),
                     last = plan_of(table, all_but_the_last_norm);
      INFO(std::string(sharding), " ", std::string(offload));
      for (char const* const name : {"gradients", "optimizer"}) {
        CHECK(bytes(half, name) < bytes(all, name));
        CHECK(bytes(last, name) < bytes(half, name));
      }
      CHECK(bytes(half, "activations") < bytes(all, "activations"));
      CHECK(bytes(last, "activations") < bytes(half, "activations"));
      CHECK(bytes(last, "optimizer") <= 3 * 4 * (2 * 64 + 2 * shard_alignment));
      CHECK(last.arena_bytes[0] + last.arena_bytes[1] < half.arena_bytes[0] + half.arena_bytes[1]);
    }
}

TEST_CASE("what only frozen gradients would read is not kept for backward") {
  // `matrices` selects all matrices to be frozen, so only norms and biases are trained. Weight gradients then
  // do not need the inputs of the matrix products.
  auto const matrices = [](std::string_view name) {
    return name.ends_with("weight") && name.find("ln_") == std::string_view::npos;
  };
  for (std::string_view const recompute : recomputes)
    for (std::string_view const precision : {"fp32", "bf16"}) {
      RecipeTable const table = recipe("zs2", precision, "none", recompute);
      StepShape const shape = shape_of(2);
      auto units = frozen(Gpt2(deep).units({shape.batch, shape.sequence}), matrices);
      StepPlan const plan = make_plan(units, table, shape);
      INFO(std::string(recompute), " ", std::string(precision));
      CHECK(mistake_in(plan, plan.train) == "");
      for (Entry const& entry : plan.train.schedule.entries) {
        CHECK(entry.verb !=
              // Only the activation of the MLP could be restored, and it is needed only for a frozen weight.
              Verb::restore);
        if (entry.verb != Verb::backward_input && entry.verb != Verb::backward_weight) continue;
        for (int const read : entry.reads()) {
          Buffer const& buffer = plan.train.at(read);
          if (buffer.kind != BufferKind::saved) continue;
          std::string const& name = plan.unit(buffer.unit).saved[static_cast<std::size_t>(buffer.index)].name;
          bool const operand = name == "ln_1" || name == "ln_2" || name == "ln_f" || name == "activation";
          CHECK_FALSE(operand);
        }
      }
      for (UnitSpec& unit : units)
        for (ActivationSpec& activation : unit.saved) activation.needed_for.clear();
      std::int64_t const saved = bytes(make_plan(units, table, shape), "activations") -
                                 bytes(plan, "activations"),
                         tokens = shape.batch * shape.sequence;
      // A model lists in needed_for which weights' gradients need a saved tensor. Without this list, the plan
      // saves all tensors. In each block these are two norm outputs and the activation more: (1 + 1 + 4) * 64
      // values per token. Only 3 of the 4 blocks count, since the block that is being computed needs these
      // buffers in any case.
      std::int64_t const size = precision == "fp32" ? 4 : 2;
      if (recompute == "none") CHECK(saved >= 3 * (1 + 1 + 4) * 64 * tokens * size);
      CHECK(saved >= 0);
    }
  // Now one matrix of h.2 (unit 3) and the token table are trained too. Of the inputs of matrix products,
  // only the inputs of these two matrices must be kept.
  StepPlan const one = plan_of(recipe("zs2"), [&](std::string_view name) {
    return matrices(name) && name != "h.2.mlp.c_proj.weight" && name != "wte.weight";
  });
  for (Entry const& entry : one.train.schedule.entries) {
    if (entry.verb != Verb::backward_weight) continue;
    std::multiset<std::string> operands;
    for (int const read : entry.reads())
      if (Buffer const& buffer = one.train.at(read); buffer.kind == BufferKind::saved)
        operands.insert(one.unit(buffer.unit).saved[static_cast<std::size_t>(buffer.index)].name);
    CHECK(operands.count("activation") == (entry.unit == 3));
    // The output head (unit 5) multiplies by the token table, which is trained here. Backward therefore reads
    // ln_f, the input of the head.
    CHECK(operands.count("ln_f") == (entry.unit == 5));
    CHECK(operands.count("ln_2") == 0);
  }
  auto units = Gpt2(deep).units({1, 8});
  units[1].saved[0].needed_for = {nn::Weight{12}};
  CHECK_THROWS_WITH_AS(
      make_plan(units, recipe("zs0"), shape_of(1)),
      "model: unit 'h.0' has activation 'ln_1' that is needed for a parameter which the unit does not have",
      Error);
}

TEST_CASE("every random choice of names gives a list without a mistake") {
  std::uint32_t random_state = 7;
  auto const roll = [&](std::uint32_t below) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % below;
  };
  int planned = 0;
  for (int round = 0; round < 300; ++round) {
    std::set<std::string, std::less<>> chosen;
    MicroBatch const micro{2, 13};
    auto units = round % 2 ? Gpt2(deep).units(micro) : TiedModel{}.units(micro);
    std::uint32_t const odds = 1 + roll(4);
    for (UnitSpec const& unit : units) {
      bool const whole = roll(3) == 0, none = roll(3) == 0;
      for (ParameterSpec const& parameter : unit.parameters)
        if (whole || (!none && roll(4) < odds)) chosen.insert(parameter.name);
    }
    Names const names = [&](std::string_view name) { return chosen.contains(name); };
    try {
      units = frozen(std::move(units), names);
    } catch (Error const&) {  // the random pattern matches no parameter or all parameters
      continue;
    }
    ++planned;
    int const world = 1 + static_cast<int>(roll(4));
    StepShape shape = shape_of(world, static_cast<int>(roll(static_cast<std::uint32_t>(world))));
    shape.prefetch = static_cast<int>(roll(3));
    shape.weight_lag = static_cast<int>(roll(3));
    shape.bucket_bytes = roll(2) ? 0 : 100000;
    shape.recompute_every = 1 + static_cast<int>(roll(3));
    RecipeTable const table =
        recipe(shardings[roll(static_cast<std::uint32_t>(shardings.size()))], roll(2) ? "fp32" : "bf16",
               offloads[roll(static_cast<std::uint32_t>(offloads.size()))],
               recomputes[roll(static_cast<std::uint32_t>(recomputes.size()))], roll(2) ? "ordered" : "fast");
    StepPlan const plan = make_plan(units, table, shape);
    INFO(to_string(table), ", world ", world, ", round ", round);
    CHECK(mistake_in(plan, plan.train) == "");
    CHECK(mistake_in(plan, plan.evaluate) == "");
    // Each trained flat group (flat buffer of parameters) has exactly one norm and one update. A frozen flat
    // group has none.
    std::multiset<std::pair<int, int>> updated, with_norm, want;
    for (Entry const& entry : plan.train.schedule.entries) {
      bool const in_accumulate = entry.verb == Verb::accumulate && entry.at(Role::partials) >= 0;
      for (Item const& item : entry.items) {
        if (entry.verb == Verb::update) updated.insert({item.of.unit, item.of.group});
        if (entry.verb == Verb::norm || in_accumulate) with_norm.insert({item.of.unit, item.of.group});
      }
    }
    for (Flat const of : plan.trainable()) want.insert({of.unit, of.group});
    CHECK(updated == want);
    CHECK(with_norm == want);
  }
  CHECK(planned > 150);
}

TEST_CASE("names that match nothing or everything are refused") {
  CHECK(refusal(lower_half) == "");
  CHECK(refusal({}) == "");
  CHECK(refusal([](std::string_view name) { return name == "h.9"; }) ==
        "freeze matches none of the 52 parameters of the model; their names are like 'h.0.mlp.c_proj.bias'");
  CHECK(refusal([](std::string_view) { return true; }) ==
        "freeze leaves none of the 52 parameters of the model to train; let it match fewer names");
  auto units = TiedModel{}.units({1, 8});
  for (UnitSpec& unit : units)
    for (ParameterSpec& parameter : unit.parameters) parameter.trainable = false;
  CHECK_THROWS_WITH_AS(make_plan(units, recipe("zs0"), shape_of(1)),
                       doctest::Contains("every parameter is frozen"), Error);
}

TEST_CASE("parameters are counted by whether they are trained") {
  auto const units = frozen(Gpt2(deep).units({1, 8}), all_but_the_last_norm);
  CHECK(trainable_count(units) == 2 * 64);
  CHECK(parameter_count(units) == parameter_count(Gpt2(deep).units({1, 8})));
}
