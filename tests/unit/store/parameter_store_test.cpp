// SPDX-License-Identifier: Apache-2.0
// Tests ParameterStore, which keeps the training state of one rank, without a model. Weights are set and read
// back with every placement. The verbs (operations) gather, reduce, accumulate, norm, exchange and update
// must treat the state as the placement table of the plan says.
#include "tessera/store/parameter_store.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/store/weights.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;

/// The ParameterStore of one rank, and the plan, the memory and the context that the store needs.
struct Fixture {
  Fixture(RecipeTable const& table, comm::Transport& transport, int accumulation = 1,
          std::vector<UnitSpec> const& units = TiedModel{}.units({1, 4}), std::int64_t bucket_bytes = 0)
      : plan(make_plan(units, table, shape(transport, accumulation, bucket_bytes))),
        memory(plan),
        context(1,
                {memory.train(plan.train.find(BufferKind::workspace, -1)), Context<Cpu>::workspace_bytes(1)}),
        rule(rule_of(table, plan)),
        store(plan, memory, context, transport, rule),
        weights(plan, memory, context, transport) {}

  static StepShape shape(comm::Transport& transport, int accumulation, std::int64_t bucket_bytes) {
    StepShape shape;
    shape.batch = 1;
    shape.sequence = 4;
    shape.accumulation = accumulation;
    shape.world = transport.world();
    shape.rank = transport.rank();
    shape.bucket_bytes = bucket_bytes;
    shape.workspace_bytes = static_cast<std::int64_t>(Context<Cpu>::workspace_bytes(1));
    return shape;
  }
  static StepRule rule_of(RecipeTable const& table, StepPlan const& plan) {
    StepRule rule;
    rule.loss_scale = table.loss_scale;
    rule.tokens = plan.shape.global_batch() * plan.shape.sequence;
    return rule;
  }

  template <class T>
  T* buffer(BufferKind kind, int unit, int index = 0) {
    return reinterpret_cast<T*>(memory.train(plan.train.find(kind, unit, index)));
  }

  StepPlan plan;
  StepMemory<Cpu> memory;
  Context<Cpu> context;
  StepRule rule;
  ParameterStore<Cpu, float> store;
  WeightAccess<Cpu> weights;
};

float value_of(int unit, int parameter, std::int64_t element) {
  return static_cast<float>(1000 * unit + 100 * parameter) + static_cast<float>(element) * 0.125f;
}

void fill(Fixture& fixture) {
  fixture.weights.fill([](int unit, int parameter, std::int64_t offset, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i)
      out[i] = value_of(unit, parameter, offset + static_cast<std::int64_t>(i));
  });
}

/// Returns the value at `element` of unit `unit`'s gradient for micro-batch number `micro`. All values are
/// small integers, so their sums are exact in any order.
float micro_gradient_of(int micro, int unit, std::int64_t element) {
  return static_cast<float>((micro + 1) * (unit + 2)) * static_cast<float>(element % 7 - 3);
}

/// Runs the entries with these verbs for all micro-batches. A model would compute gradients in the entries
/// backward_weight. Here this function writes micro_gradient_of() to the unit's gradient buffer instead.
void run_backward(Fixture& fixture, std::initializer_list<Verb> verbs = {Verb::reduce, Verb::accumulate}) {
  for (Instance const& instance : instances_of(fixture.plan.train.schedule)) {
    Entry const& entry = instance.entry;
    if (entry.verb == Verb::backward_weight) {
      if (fixture.plan.layout(entry.unit).flats.empty()) continue;
      FlatLayout const& layout = fixture.plan.flat(entry.unit);
      float* const to = fixture.buffer<float>(BufferKind::micro_gradient, entry.unit);
      std::fill(to, to + layout.padded, 0.0f);
      int const micro = instance.micro_batch * fixture.plan.shape.world + fixture.plan.shape.rank;
      for (std::int64_t i = 0; i < layout.undecayed.end; ++i) to[i] = micro_gradient_of(micro, entry.unit, i);
    }
    if (std::find(verbs.begin(), verbs.end(), entry.verb) != verbs.end())
      fixture.store.run(fixture.plan.train, entry, instance.micro_batch);
  }
}

/// Runs all entries of the training schedule that have one of these verbs.
void run(Fixture& fixture, std::initializer_list<Verb> verbs) {
  for (Instance const& instance : instances_of(fixture.plan.train.schedule))
    if (std::find(verbs.begin(), verbs.end(), instance.entry.verb) != verbs.end())
      fixture.store.run(fixture.plan.train, instance.entry, instance.micro_batch);
}

/// Returns a pointer to this rank's part of the gradient of a unit. The pointer is shifted, so that its index
/// is the position in the whole flat group (flat buffer of parameters), not in the part.
float* gradient_of(Fixture& fixture, int unit) {
  int const buffer = fixture.plan.train.find(fixture.plan.table.gradient.kind, unit);
  return reinterpret_cast<float*>(fixture.memory.train(buffer)) - fixture.plan.train.at(buffer).range.begin;
}

}  // namespace

TEST_CASE("weights come out in the order of names as they went in") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer"})
      for (int const ranks : {1, 2, 5})
        tessera::run(ranks, [&](comm::Comm comm) {
          Fixture fixture(recipe(sharding, "fp32", offload), comm.transport());
          fill(fixture);
          std::vector<std::string> names;
          bool right = true;
          fixture.weights.collect_pieces(whole_parameters([&](ParameterSpec const& spec,
                                                              std::span<float const> values) {
            names.push_back(spec.name);
            right &= static_cast<std::int64_t>(values.size()) == spec.shape.elements();
            for (int unit = 0; unit < fixture.plan.units_count(); ++unit)
              for (std::size_t p = 0; p < fixture.plan.unit(unit).parameters.size(); ++p)
                if (fixture.plan.unit(unit).parameters[p].name == spec.name)
                  for (std::size_t i = 0; i < values.size(); ++i)
                    right &= values[i] == value_of(unit, static_cast<int>(p), static_cast<std::int64_t>(i));
          }));
          CHECK(right);
          CHECK(names.size() == (comm.is_root() ? 17u : 0u));  // only rank 0 receives the weights
          CHECK(std::is_sorted(names.begin(), names.end()));
        });
}

TEST_CASE("weights go in and come out in pieces if a parameter is larger than a piece") {
  // The token table has more elements than one call of `fill` can set.
  std::vector<UnitSpec> const units =
      Gpt2({.layers = 1, .heads = 1, .channels = 384, .positions = 8, .vocabulary = 3001}).units({1, 4});
  for (std::string_view const sharding : shardings)
    for (int const ranks : {1, 3})
      tessera::run(ranks, [&](comm::Comm comm) {
        Fixture fixture(recipe(sharding), comm.transport(), 1, units);
        fill(fixture);
        std::int64_t elements = 0, begun = 0;
        int pieces_of_table = 0;
        std::string name;
        bool right = true;
        fixture.weights.collect_pieces([&](ParameterSpec const& spec, std::span<float const> values) {
          if (spec.name != name) begun = 0;
          name = spec.name;
          pieces_of_table += name == "wte.weight";
          right &= static_cast<std::int64_t>(values.size()) <= checkpoint_chunk;
          for (int unit = 0; unit < fixture.plan.units_count(); ++unit)
            for (std::size_t p = 0; p < units[static_cast<std::size_t>(unit)].parameters.size(); ++p)
              if (units[static_cast<std::size_t>(unit)].parameters[p].name == name)
                for (std::size_t i = 0; i < values.size(); ++i)
                  right &=
                      values[i] == value_of(unit, static_cast<int>(p), begun + static_cast<std::int64_t>(i));
          begun += static_cast<std::int64_t>(values.size());
          elements += static_cast<std::int64_t>(values.size());
        });
        CHECK(right);
        CHECK(elements == (comm.is_root() ? parameter_count(units) : 0));
        CHECK((pieces_of_table > 2) == comm.is_root());
      });
}

TEST_CASE("a gathered unit has full weights and its padding stays zero") {
  tessera::run(3, [](comm::Comm comm) {
    Fixture fixture(recipe("zs3"), comm.transport());
    fill(fixture);
    for (Entry const& entry : fixture.plan.train.schedule.entries) {
      if (entry.verb != Verb::gather) continue;
      std::byte* const gathered = fixture.memory.train(entry.at(Role::target));
      fixture.store.run(fixture.plan.train, entry, entry.micro_batch);
      Flat const of = entry.items.front().of;
      FlatLayout const& layout = fixture.plan.flat(of);
      std::vector<float> want(static_cast<std::size_t>(layout.padded), 0.0f);
      UnitLayout const& unit = fixture.plan.layout(entry.unit);
      for (std::size_t p = 0; p < unit.parameters.size(); ++p)
        for (std::int64_t i = unit.parameters[p].begin; i < unit.parameters[p].end; ++i)
          if (unit.flat_of[p] == of.group)
            want[static_cast<std::size_t>(i)] =
                value_of(entry.unit, static_cast<int>(p), i - unit.parameters[p].begin);
      auto const* const got = reinterpret_cast<float const*>(gathered);
      CHECK(std::equal(want.begin(), want.end(), got));
    }
  });
}

TEST_CASE("the micro-batches of all ranks are accumulated where the gradient is needed") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"})
      for (int const ranks : {1, 3})
        for (int const accumulation : {1, 2, 4})
          tessera::run(ranks, [&](comm::Comm comm) {
            Fixture fixture(recipe(sharding, "fp32", "none", "none", reduction), comm.transport(),
                            accumulation);
            fill(fixture);
            fixture.store.begin_step(1e-3);
            run_backward(fixture);
            INFO(std::string(sharding), " ", std::string(reduction), " ranks ", ranks, " accumulation ",
                 accumulation);
            double squares = 0.0;
            for (Flat const of : fixture.plan.trainable()) {
              int const unit = of.unit;
              FlatLayout const& layout = fixture.plan.flat(of);
              // `part` is the range of the flat group that this rank updates. If every rank has the full
              // gradient, `part` is the whole flat group.
              bool const all = sharding == "zs0" || ranks == 1;
              Range const part = all ? Range{0, layout.padded} : fixture.plan.updated(unit);
              float const* const from = gradient_of(fixture, unit);
              bool right = true;
              for (std::int64_t i = 0; i < layout.padded; ++i) {
                float want = 0.0f;
                if (i < layout.undecayed.end)
                  for (int micro = 0; micro < ranks * accumulation; ++micro)
                    want += micro_gradient_of(micro, unit, i);
                squares += static_cast<double>(want) * static_cast<double>(want);
                if (part.begin <= i && i < part.end) right &= from[i] == want;
              }
              CHECK(right);
            }
            for (int micro = 0; micro < accumulation; ++micro) {
              fixture.store.loss_slot(micro)->loss = 1.5;
              fixture.store.loss_slot(micro)->valid_tokens = 4;
            }
            run(fixture, {Verb::norm, Verb::exchange, Verb::decide});
            StepState const& state = fixture.store.state();
            CHECK(state.norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-7));
            CHECK(state.valid_tokens == 4 * ranks * accumulation);
            CHECK(state.loss == 1.5 / 4);
            CHECK(state.bad_unit == -1);
          });
}

TEST_CASE("an update reaches every parameter of every group, with weight decay where it has some") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full"})
      for (auto const& [ranks, bucket] : {std::pair(1, std::int64_t{0}), std::pair(3, std::int64_t{0}),
                                          std::pair(3, std::int64_t{1} << 40)})
        tessera::run(ranks, [&, ranks = ranks, bucket = bucket](comm::Comm comm) {
          // The units are so large that each rank has a part of every flat group.
          Fixture fixture(recipe(sharding, "fp32", offload), comm.transport(), 2,
                          TiedModel(300).units({1, 4}), bucket);
          fill(fixture);
          fixture.store.begin_step(0.25);
          for (int const micro : {0, 1}) *fixture.store.loss_slot(micro) = {1.5, 4};
          run_backward(fixture, {Verb::reduce, Verb::accumulate, Verb::norm, Verb::exchange, Verb::decide,
                                 Verb::copy_scalars, Verb::fetch, Verb::update, Verb::write_back});
          StepState const state = fixture.store.state();
          auto const gradient_at = [&](int unit, std::int64_t element) {
            float sum = 0.0f;
            for (int micro = 0; micro < 2 * ranks; ++micro) sum += micro_gradient_of(micro, unit, element);
            return sum;
          };
          INFO(std::string(sharding), " ", std::string(offload), " ranks ", ranks, " bucket ", bucket);
          double squares = 0.0;
          for (Flat const of : fixture.plan.trainable())
            for (std::int64_t i = 0; i < fixture.plan.flat(of).undecayed.end; ++i)
              squares += std::pow(static_cast<double>(gradient_at(of.unit, i)), 2);
          CHECK(state.norm == doctest::Approx(std::sqrt(squares)).epsilon(1e-7));
          auto const want = [&](int unit, std::size_t parameter, std::int64_t element) {
            ParameterSpec const& spec = fixture.plan.unit(unit).parameters[parameter];
            std::int64_t const at = fixture.plan.layout(unit).parameters[parameter].begin + element;
            float weight = value_of(unit, static_cast<int>(parameter), element), first = 0.0f, second = 0.0f;
            if (spec.trainable)
              tessera::detail::adamw_formula(gradient_at(unit, at), weight, first, second,
                                             state.factors[spec.decay ? 0 : 1]);
            return weight;
          };
          fixture.weights.collect_pieces(
              whole_parameters([&](ParameterSpec const& spec, std::span<float const> values) {
                bool right = true;
                for (int unit = 0; unit < fixture.plan.units_count(); ++unit)
                  for (std::size_t p = 0; p < fixture.plan.unit(unit).parameters.size(); ++p)
                    if (fixture.plan.unit(unit).parameters[p].name == spec.name)
                      for (std::size_t i = 0; i < values.size(); ++i)
                        right &= values[i] == want(unit, p, static_cast<std::int64_t>(i));
                INFO(spec.name);
                CHECK(right);
              }));
          bool right = true;  // whether all stored weights are right
          for (Flat const of : fixture.plan.flats()) {
            int const weights = fixture.plan.train.find(BufferKind::weights, of);
            Range const here = fixture.plan.train.at(weights).range;
            auto const* const values = reinterpret_cast<float const*>(fixture.memory.train(weights));
            for (Piece const& piece : fixture.plan.pieces(of, here))
              for (std::int64_t i = 0; i < piece.flat.size(); ++i)
                right &= values[piece.flat.begin - here.begin + i] ==
                         want(of.unit, static_cast<std::size_t>(piece.parameter), piece.logical.begin + i);
          }
          CHECK(right);
        });
}

TEST_CASE("a value that is not finite is found on any rank and named") {
  for (std::string_view const sharding : shardings)
    tessera::run(3, [&](comm::Comm comm) {
      Fixture fixture(recipe(sharding), comm.transport());
      fill(fixture);
      fixture.store.begin_step(1e-3);
      run_backward(fixture);
      Range const lies = fixture.plan.layout(TiedModel::plain)
                             .parameters[static_cast<std::size_t>(TiedModel{}.up(TiedModel::plain).index)];
      int const plain = TiedModel::plain;
      for (auto const& [unit, element] : {std::pair{0, std::int64_t{3}}, std::pair{plain, lies.begin + 17},
                                          std::pair{plain, lies.end - 1}}) {
        Range const part = fixture.plan.norm_part(unit);
        if (element < part.begin || element >= part.end) continue;
        gradient_of(fixture, unit)[element] = std::nanf("");
      }
      run(fixture, {Verb::norm, Verb::exchange, Verb::decide});
      // Two units have a NaN. Backward reaches the unit `plain` before unit 0, so the unit `plain` must be
      // reported.
      CHECK(fixture.store.state().bad_unit == TiedModel::plain);
      CHECK(fixture.store.state().bad_element == lies.begin + 17);
      CHECK(fixture.plan.name_at(fixture.store.state().bad_unit, fixture.store.state().bad_element) ==
            "plain.up.weight");
      CHECK(fixture.plan.name_at(TiedModel::plain, fixture.plan.flat(TiedModel::plain).padded - 1) ==
            "plain");
      CHECK(fixture.plan.name_at(-1, 0) == "");
    });
}

TEST_CASE("a verb that is no work on state is refused where it has no move") {
  tessera::run(1, [](comm::Comm comm) {
    Fixture fixture(recipe("zs0"), comm.transport());
    for (Entry entry : fixture.plan.train.schedule.entries) {
      if (entry.verb != Verb::update) continue;
      entry.verb = Verb::write_back;
      CHECK_THROWS_WITH_AS(fixture.store.run(fixture.plan.train, entry, 0),
                           "a schedule has an entry with the verb write_back, which the store cannot run",
                           Error);
    }
  });
}

TEST_CASE("planned bytes are handed out to the byte") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer"})
      tessera::run(2, [&](comm::Comm comm) {
        Fixture fixture(recipe(sharding, "fp32", offload), comm.transport(), 2);
        for (Tier const tier : {Tier::device, Tier::host, Tier::nvme})
          CHECK(fixture.memory.high_water(tier) == fixture.plan.arena_bytes[static_cast<std::size_t>(tier)]);
      });
}

TEST_CASE("an arena refuses what the plan did not hold") {
  HostArena arena(1000);
  CHECK(arena.bytes() == HostMemory::granularity);
  CHECK(arena.high_water() == 0);
  CHECK(arena.view(256, 100) == arena.base() + 256);
  CHECK(arena.high_water() == 512);
  CHECK_THROWS_AS(arena.view(4000, 200), Error);
  CHECK_THROWS_AS(arena.view(-1, 2), Error);
  CHECK(arena.high_water() == 512);
  HostArena const none(0);
  CHECK(none.base() == nullptr);
}

TEST_CASE("a rank that forms its weights for longer than the timeout is alive") {
  using namespace std::chrono_literals;
  tessera::run(2,
               [](comm::Comm comm) {
                 Fixture fixture(recipe("dp"), comm.transport());
                 fixture.weights.fill([&](int, int parameter, std::int64_t, std::span<float> out) {
                   std::fill(out.begin(), out.end(), 0.0f);
                   // Rank 0 sleeps for 600 ms in each of 5 calls, 3 s in total. The timeout of the other
                   // ranks is 2 s.
                   if (comm.is_root() && parameter == 0) std::this_thread::sleep_for(600ms);
                 });
                 comm.transport().barrier({"test"});
               },
               {.timeout = 2s});
}
