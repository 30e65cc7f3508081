// SPDX-License-Identifier: Apache-2.0
// Tests the memory layout and the bytes of step plans: sharding, offload to the host, and errors that suggest
// changes.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/detail/host_memory.hpp"
#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/listing.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/plan/support.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;

UnitLister lister(Gpt2Options const& options) {
  return [model = Gpt2(options)](MicroBatch shape) { return model.units(shape); };
}

StepShape sizes_of(int world, int accumulation = 1, std::int64_t batch = 2, std::int64_t sequence = 64) {
  StepShape shape;
  shape.batch = batch;
  shape.sequence = sequence;
  shape.accumulation = accumulation;
  shape.world = world;
  shape.workspace_bytes = 1 << 16;
  return shape;
}

StepPlan plan_of(Gpt2Options const& model, RecipeTable const& table, StepShape const& shape) {
  return make_plan(lister(model)({shape.batch, shape.sequence}), table, shape);
}

std::int64_t state_bytes(StepPlan const& plan, char const* name, Tier tier = Tier::device) {
  for (MemoryCategory const& category : memory_report(plan).categories)
    if (category.name == name) return category.bytes[static_cast<std::size_t>(tier)];
  FAIL("no category ", name);
  return 0;
}

std::int64_t all_state(StepPlan const& plan) {
  return state_bytes(plan, "parameters") + state_bytes(plan, "gradients") + state_bytes(plan, "optimizer");
}

/// Returns the message with which a plan that needs more than `limit` is refused, "" if it is not refused.
/// The searches for advice have an hour, so that the message is the same on slow machines.
std::string refused(UnitLister const& units, RecipeTable const& table, StepShape const& shape,
                    MemoryLimit const& limit, std::int64_t positions, double search_seconds = 3600.0) {
  StepPlan const plan = make_plan(units({shape.batch, shape.sequence}), table, shape);
  try {
    refuse_if_too_big(units, plan, table, limit, positions, search_seconds);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
    return error.what();
  }
  return "";
}

Gpt2Options const small{.layers = 4, .heads = 4, .channels = 256, .positions = 128, .vocabulary = 4096};
Gpt2Options const xl{.layers = 48, .heads = 25, .channels = 1600};

}  // namespace

TEST_CASE("the named GPT-2 sizes have their published parameter counts") {
  auto const count = [](Gpt2Options const& options) { return parameter_count(Gpt2(options).units({1, 1})); };
  CHECK(count({}) == 124'439'808);
  CHECK(count({.layers = 24, .heads = 16, .channels = 1024}) == 354'823'168);
  CHECK(count({.layers = 36, .heads = 20, .channels = 1280}) == 774'030'080);
  CHECK(count(xl) == 1'557'611'200);
}

TEST_CASE("a unit lies in a trainable and a frozen group that shard at multiples of 4096") {
  for (auto const& units :
       {Gpt2(tiny).units({1, 8}), Gpt2(Gpt2Options{}).units({1, 8}), TiedModel{}.units({1, 8})})
    for (UnitSpec const& unit : units) {
      UnitLayout const alone = layout_of(unit, 1);
      auto const has = [&](bool trainable) {
        return std::any_of(unit.parameters.begin(), unit.parameters.end(),
                           [&](ParameterSpec const& spec) { return spec.trainable == trainable; });
      };
      REQUIRE(alone.flats.size() == static_cast<std::size_t>(has(true) + has(false)));
      for (int const world : {1, 2, 3, 4, 7, 8, 64}) {
        UnitLayout const all = layout_of(unit, world);
        INFO(unit.name, " over ", world);
        // The positions of the parameters must not depend on the number of ranks.
        CHECK(all.parameters == alone.parameters);
        CHECK(all.flat_of == alone.flat_of);
        for (std::size_t group = 0; group < all.flats.size(); ++group) {
          FlatLayout const& layout = all.flats[group];
          CHECK(layout.trainable == (group == 0 && has(true)));
          CHECK(layout.decayed == alone.flats[group].decayed);
          CHECK(layout.undecayed == alone.flats[group].undecayed);
          CHECK(layout.elements == alone.flats[group].elements);
          // The shards of the ranks cover the padded buffer in the order of the ranks, without gaps.
          CHECK(layout.shard % shard_alignment == 0);
          CHECK(layout.padded == layout.shard * world);
          CHECK(layout.padded >= layout.elements);
          CHECK(layout.padded - layout.elements < world * shard_alignment);
          CHECK(layout.shard_of(0).begin == 0);
          for (int rank = 1; rank < world; ++rank)
            CHECK(layout.shard_of(rank).begin == layout.shard_of(rank - 1).end);
          CHECK(layout.shard_of(world - 1).end == layout.padded);
          // First come all parameters with weight decay, directly after them all parameters without it.
          CHECK(layout.decayed.begin == 0);
          CHECK(layout.undecayed.begin == layout.decayed.end);
          CHECK(layout.undecayed.end == layout.elements);
          std::vector<Range> covered = layout.gaps;
          for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
            ParameterSpec const& spec = unit.parameters[index];
            if (all.flat_of[index] != static_cast<int>(group)) continue;
            Range const lies = all.parameters[index];
            CHECK(spec.trainable == layout.trainable);
            CHECK(lies.size() == spec.shape.elements());
            CHECK(lies.begin % parameter_alignment == 0);
            CHECK(intersect(lies, spec.decay ? layout.decayed : layout.undecayed) == lies);
            covered.push_back(lies);
          }
          // Parameters and gaps together cover the whole buffer without overlap.
          std::sort(covered.begin(), covered.end(), [](Range a, Range b) { return a.begin < b.begin; });
          std::int64_t at = 0;
          for (Range const& piece : covered) {
            CHECK(piece.begin == at);
            at = piece.end;
          }
          CHECK(at == layout.padded);
          // pieces() divides a shard between parameters. All pieces must contain each element once, in order.
          std::vector<std::int64_t> next(unit.parameters.size(), 0);
          bool in_order = true;
          for (int rank = 0; rank < world; ++rank)
            for (Piece const& piece : pieces(all, static_cast<int>(group), layout.shard_of(rank))) {
              auto const index = static_cast<std::size_t>(piece.parameter);
              in_order &= piece.logical.begin == next[index] && piece.flat.size() == piece.logical.size() &&
                          piece.flat.begin - piece.logical.begin == all.parameters[index].begin &&
                          intersect(piece.flat, layout.shard_of(rank)) == piece.flat;
              next[index] = piece.logical.end;
            }
          CHECK(in_order);
          for (std::size_t index = 0; index < unit.parameters.size(); ++index)
            CHECK(next[index] == (all.flat_of[index] == static_cast<int>(group)
                                      ? unit.parameters[index].shape.elements()
                                      : 0));
        }
      }
    }
}

TEST_CASE("a defective unit list is refused by name") {
  auto const text = [](std::vector<UnitSpec> const& units) {
    try {
      check_units(units);
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::config);
      return std::string(error.what());
    }
    return std::string("nothing");
  };
  auto units = TiedModel{}.units({1, 4});
  CHECK(text(units) == "nothing");
  CHECK(text({}).find("no units") != std::string::npos);
  units[TiedModel::plain].parameters[0].name = "table";
  CHECK(text(units).find("'table' is declared twice") != std::string::npos);
  units = TiedModel{}.units({1, 4});
  units[TiedModel::memory].borrows[0].parameter = 9;
  CHECK(text(units).find("unit 'memory' borrows parameter 9 of unit 0, which does not exist") !=
        std::string::npos);
  units = TiedModel{}.units({1, 4});
  units[TiedModel::memory].borrows[0].unit = TiedModel::plain;
  CHECK(text(units).find("does not come before it") != std::string::npos);
  units = TiedModel{}.units({1, 4});
  units[TiedModel::plain].parameters[2].shape = {3, 0};
  CHECK(text(units).find("'plain.up.weight' of shape [3, 0]") != std::string::npos);
}

TEST_CASE("the categories of a plan add up to its arenas") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "fp16", "bf16", "fp64"})
      for (std::string_view const offload : {"none", "cpu_optimizer"})
        for (int const world : {1, 3})
          for (int const rank : {0, world - 1}) {
            StepShape shape = sizes_of(world, 2);
            shape.rank = rank;
            StepPlan const plan = plan_of(tiny, recipe(sharding, precision, offload), shape);
            MemoryReport const report = memory_report(plan);
            for (std::size_t tier = 0; tier < tier_count; ++tier) {
              std::int64_t sum = 0;
              for (MemoryCategory const& category : report.categories) {
                CHECK(category.bytes[tier] >= 0);
                sum += category.bytes[tier];
              }
              CHECK(sum == report.total[tier]);
              CHECK(report.total[tier] == plan.arena_bytes[tier]);
            }
            CHECK(plan.arena_bytes[static_cast<std::size_t>(Tier::nvme)] == 0);
          }
}

TEST_CASE("state shrinks with the stage as ZeRO promises") {
  auto const plan = [](std::string_view sharding, std::string_view precision = "fp32", int accumulation = 1) {
    return plan_of(small, recipe(sharding, precision), sizes_of(4, accumulation));
  };
  auto const quarter = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) == doctest::Approx(static_cast<double>(whole) / 4).epsilon(0.05);
  };
  for (std::string_view const precision : {"fp32", "bf16"}) {
    StepPlan const zs0 = plan("zs0", precision, 2), zs1 = plan("zs1", precision, 2),
                   zs2 = plan("zs2", precision, 2), zs3 = plan("zs3", precision, 2);
    CHECK(quarter(state_bytes(zs1, "optimizer"), state_bytes(zs0, "optimizer")));
    CHECK(state_bytes(zs1, "parameters") == state_bytes(zs0, "parameters"));
    CHECK(state_bytes(zs1, "gradients") == state_bytes(zs0, "gradients"));
    CHECK(quarter(state_bytes(zs2, "gradients"), state_bytes(zs0, "gradients")));
    CHECK(state_bytes(zs2, "parameters") == state_bytes(zs0, "parameters"));
    CHECK(quarter(state_bytes(zs3, "parameters"), state_bytes(zs0, "parameters")));
    CHECK(quarter(all_state(zs3), all_state(zs0)));
    CHECK(all_state(zs1) < all_state(zs0));
    CHECK(all_state(zs2) < all_state(zs1));
    CHECK(all_state(zs3) < all_state(zs2));
  }
  // fp32 without sharding: values, gradient and two moments use 16 bytes per parameter, the rest below 2 %.
  std::int64_t const count = parameter_count(Gpt2(small).units({1, 1}));
  CHECK(static_cast<double>(all_state(plan("zs0"))) ==
        doctest::Approx(16.0 * static_cast<double>(count)).epsilon(0.02));
  // With `dp`, rank 0 has the optimizer state of all parameters, and the other ranks have none.
  StepShape shape = sizes_of(4);
  CHECK(state_bytes(plan_of(small, recipe("dp"), shape), "optimizer") ==
        state_bytes(plan("zs0"), "optimizer"));
  shape.rank = 1;
  CHECK(state_bytes(plan_of(small, recipe("dp"), shape), "optimizer") == 0);
}

TEST_CASE("offload moves the optimizer to the host and nothing else") {
  for (std::string_view const sharding : shardings) {
    StepPlan const here = plan_of(small, recipe(sharding, "bf16"), sizes_of(4));
    StepPlan const there = plan_of(small, recipe(sharding, "bf16", "cpu_optimizer"), sizes_of(4));
    CHECK(state_bytes(there, "optimizer") == 0);
    CHECK(state_bytes(there, "optimizer", Tier::host) == state_bytes(here, "optimizer"));
    CHECK(state_bytes(there, "parameters") == state_bytes(here, "parameters"));
    CHECK(state_bytes(there, "gradients") == state_bytes(here, "gradients"));
    CHECK(there.arena_bytes[0] < here.arena_bytes[0]);
    CHECK(here.arena_bytes[1] == 0);
  }
}

TEST_CASE("an optimizer of 8-bit moments with a scale for each block of 256 plans what it lists") {
  std::vector<OptimizerState> const states{{"exp_avg", DType::u8},
                                           {"exp_avg.scale", DType::f32, 256},
                                           {"exp_avg_sq", DType::u8},
                                           {"exp_avg_sq.scale", DType::f32, 256}};
  MicroBatch const micro{2, 64};
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer"})
      for (int const rank : {0, 3}) {
        RecipeTable const table = recipe(sharding, "fp32", offload);
        StepShape shape = sizes_of(4);
        shape.rank = rank;
        StepPlan const plan = make_plan(Gpt2(small).units(micro), table, shape, true, states);
        INFO(std::string(sharding), " ", std::string(offload), " rank ", rank);
        bool const owns = sharding != "dp" || rank == 0;
        std::int64_t want = 0, master = 0;
        for (Flat const of : plan.trainable()) {
          bool const split = sharding == "zs1" || sharding == "zs2" || sharding == "zs3";
          std::int64_t const elements = !owns ? 0 : split ? plan.flat(of).shard : plan.flat(of).padded;
          want += 2 * elements + 2 * round_up(elements / 256 * 4, arena_alignment);
          master += offload == "none" ? 0 : 4 * elements;
          for (int state = 0; state < 4; ++state) {
            Buffer const& buffer = plan.train.at(plan.train.find(BufferKind::moment, of, state));
            CHECK(buffer.bytes == (state % 2 == 0 ? elements : elements / 64));
            CHECK(buffer.at(buffer.range.begin + 4096) == (state % 2 == 0 ? 4096 : 64));
            CHECK(buffer.tier == table.placement.moments.tier);
          }
        }
        CHECK(state_bytes(plan, "optimizer", table.placement.moments.tier) == want + master);
        CHECK(mistake_in(plan, plan.train) == "");
      }
  auto const refused = [&](OptimizerState const& state) {
    try {
      (void)make_plan(Gpt2(small).units(micro), recipe("zs0"), sizes_of(1), true, {state});
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::config);
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused({"scale", DType::f32, 4096}) == "");
  CHECK(refused({"scale", DType::f32, 300}) ==
        "optimizer: state 'scale' has one value of fp32 for each block of 300 elements; a block must divide "
        "4096, and the values for that many elements must take a multiple of 4 bytes");
  for (OptimizerState const& state : {OptimizerState{"scale", DType::f32, 0},
                                      {"scale", DType::f32, -1},
                                      {"scale", DType::f32, 8192},
                                      {"scale", DType::u8, 2048}})
    CHECK(refused(state) != "");
}

TEST_CASE("recomputation saves activations and stretches save more or less") {
  Gpt2Options deep = small;
  deep.layers = 12;
  StepShape shape = sizes_of(1, 1, 8, 128);
  auto const activations = [&](char const* recompute, int every = 1) {
    shape.recompute_every = every;
    return state_bytes(plan_of(deep, recipe("zs0", "fp32", "none", recompute), shape), "activations");
  };
  CHECK(activations("gelu") < activations("none"));
  CHECK(activations("block") < activations("gelu"));
  CHECK(activations("every", 1) == activations("block"));
  CHECK(activations("every", 2) != activations("block"));
}

TEST_CASE("huge models are planned in milliseconds without touching memory") {
  Gpt2Options wide{.layers = 8, .heads = 16, .channels = 1024, .positions = 8192};
  for (Gpt2Options const& model : {xl, wide})
    for (std::string_view const sharding : {"zs0", "zs3"}) {
      auto const start = std::chrono::steady_clock::now();
      StepPlan const plan = plan_of(model, recipe(sharding, "bf16"), sizes_of(8, 4, 8, 1024));
      double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      INFO("seconds: ", seconds, ", bytes: ", plan.arena_bytes[0]);
      CHECK(seconds < 2.0);  // milliseconds in an optimized build, more with sanitizers or on busy machines
      CHECK(plan.arena_bytes[0] > std::int64_t{1} << 30);
    }
}

TEST_CASE("a plan that does not fit is refused with bytes and suggestions that fit") {
  RecipeTable const table = recipe("zs0");
  StepShape const shape = sizes_of(4, 1, 8, 96);
  UnitLister const units = lister(small);
  std::int64_t const host_bytes = footprint(units, table, shape).host;
  CHECK(refused(units, table, shape, {.host = host_bytes}, small.positions) == "");

  int with_recipe = 0, with_batch = 0;
  for (double const part : {0.95, 0.8, 0.6, 0.4, 0.2, 0.01}) {
    std::int64_t const limit = static_cast<std::int64_t>(static_cast<double>(host_bytes) * part);
    std::string const text = refused(units, table, shape, {.host = limit}, small.positions);
    INFO(text);
    CHECK(text.find("(" + std::to_string(host_bytes) + " bytes)") != std::string::npos);
    CHECK(text.find('\n') == std::string::npos);
    for (char const* category : {"parameters ", "gradients ", "optimizer ", "activations ", "workspace "})
      CHECK(text.find(category) != std::string::npos);
    auto const after = [&](std::string const& words) {
      auto const at = text.find(words);
      return at == std::string::npos
                 ? std::string()
                 : text.substr(at + words.size(),
                               text.find_first_of(",;", at + words.size()) - at - words.size());
    };
    std::string const sharding = after("nearest recipe that fits: sharding "),
                      recompute = after(", recompute ");
    CHECK(sharding.empty() ==
          (text.find("with this offload nothing fits") != std::string::npos ||
           text.find("no combination of offload, sharding and recompute fits") != std::string::npos));
    if (!sharding.empty()) {
      ++with_recipe;
      CHECK(footprint(units, recipe(sharding, "fp32", "none", recompute), shape).host <= limit);
    }
    std::string const batch = after("largest batch that fits: "),
                      sequence = after("longest sequence that fits: ");
    StepShape other = shape;
    if (!batch.empty()) {
      ++with_batch;
      other.batch = std::atoll(batch.c_str());
      CHECK(other.batch >= 1);
      CHECK(other.batch < shape.batch);
      CHECK(footprint(units, table, other).host <= limit);
      ++other.batch;
      CHECK(footprint(units, table, other).host > limit);
    } else {
      CHECK(text.find("no batch fits") != std::string::npos);
      other.batch = 1;
      CHECK(footprint(units, table, other).host > limit);
    }
    other = shape;
    if (!sequence.empty()) {
      other.sequence = std::atoll(sequence.c_str());
      CHECK(other.sequence < shape.sequence);
      CHECK(footprint(units, table, other).host <= limit);
      ++other.sequence;
      CHECK(footprint(units, table, other).host > limit);
    } else {
      CHECK(text.find("no sequence fits") != std::string::npos);
    }
  }
  CHECK(with_recipe >= 2);
  CHECK(with_batch >= 1);
}

TEST_CASE("a refusal without time for a search gives the bytes and no advice") {
  std::string const text = refused(lister(small), recipe("zs0"), sizes_of(4, 1, 8, 96),
                                   {.host = std::int64_t{100} << 20}, small.positions, 0.0);
  INFO(text);
  CHECK(text.find("parameters ") != std::string::npos);
  CHECK(text.ends_with("; the search for a recipe that fits takes too long here; run the program plan"));
}

TEST_CASE("where no recipe, batch or sequence alone fits, both are searched for the leanest recipe") {
  Gpt2Options const model{.layers = 6, .heads = 6, .channels = 384, .positions = 1024, .vocabulary = 256};
  RecipeTable const table = recipe("zs0"), lean = recipe("zs3", "fp32", "none", "block");
  StepShape const shape = sizes_of(4, 1, 32, 512);
  UnitLister const units = lister(model);
  auto const lean_bytes = [&](std::int64_t batch, std::int64_t sequence) {
    return footprint(units, lean, sizes_of(4, 1, batch, sequence)).host;
  };
  auto const refused_at = [&](std::int64_t limit) {
    return refused(units, table, shape, {.host = limit}, model.positions);
  };
  std::string const ends = "; no batch fits at this sequence; no sequence fits at this batch; ";
  std::string text = refused_at(lean_bytes(2, 512));
  INFO(text);
  CHECK(text.find("no combination of offload, sharding and recompute fits at this batch" + ends +
                  "sharding zs3 with recompute block fits up to batch 2") != std::string::npos);
  text = refused_at(lean_bytes(1, 128));
  INFO(text);
  CHECK(text.find(ends + "sharding zs3 with recompute block fits at batch 1 up to sequence 128") !=
        std::string::npos);
  CHECK(refused_at(1000).find(
            "sharding zs3 with recompute block does not fit at batch 1 and sequence 1 either") !=
        std::string::npos);
  // If one change suffices, the error must not suggest two changes together.
  CHECK(refused_at(lean_bytes(32, 512)).find(" with recompute ") == std::string::npos);
}

TEST_CASE("where no sharding fits, the nearest offload that does is named with its flags") {
  UnitLister const units = lister(small);
  StepShape shape = sizes_of(1, 1, 1, 8);
  auto const refused_at = [&](MemoryLimit const& limit) {
    return refused(units, recipe("zs0"), shape, limit, small.positions);
  };
  std::string text;
  INFO(text);
  auto const bytes = [&](std::string_view offload, std::string_view recompute = "none") {
    return footprint(units, recipe("zs0", "fp32", offload, recompute), shape);
  };
  // On the CPU, device memory is host memory, so an offload to the host saves nothing.
  text = refused_at({.host = bytes("nvme_optimizer", "block").host});
  CHECK(text.find("but offload nvme_optimizer fits with sharding zs0 and recompute block (programs: "
                  "--offload nvme_optimizer --nvme-path FOLDER)") != std::string::npos);
  text = refused_at({.host = bytes("nvme").host});
  CHECK(text.find("--offload nvme --nvme-path FOLDER)") != std::string::npos);
  text = refused_at({.host = bytes("nvme").host, .nvme = 1000});
  CHECK(text.find("no combination of offload, sharding and recompute fits at this batch; ") !=
        std::string::npos);
  // This device has its own memory, so an offload to the host reduces the bytes on the device.
  shape.own_memory = true;
  for (std::string_view const offload : {"cpu_optimizer", "cpu_full"}) {
    std::string const found = refused_at({.device = bytes(offload).device});
    INFO(found);
    CHECK(found.find("(programs: --offload " + std::string(offload) + ")") != std::string::npos);
  }
  text = refused_at({.device = bytes("cpu_full").device, .host = bytes("nvme").host});
  CHECK(text.find("--offload nvme") != std::string::npos);
}

TEST_CASE("the page cache of a container does not count as taken") {
  file_support::TemporaryFolder const folder;
  auto const write = file_support::write;
  auto const available = [&] { return tessera::host_memory::available_host_memory(folder.path().string()); };
  std::int64_t const free = available();
  CHECK(free > 1 << 20);
  write(folder / "memory.max", "1000000\n");
  write(folder / "memory.current", "900000\n");
  CHECK(available() == 100000);
  write(folder / "memory.stat", "anon 1\ninactive_file 300000\nactive_file 5\n");
  CHECK(available() == 400000);
  write(folder / "memory.stat", "inactive_file 2000000\n");
  CHECK(available() == 1000000);
  write(folder / "memory.max", "max\n");
  CHECK(available() > 1000000);
  write(folder / "memory/memory.limit_in_bytes", "500000\n");
  write(folder / "memory/memory.usage_in_bytes", "490000\n");
  write(folder / "memory/memory.stat", "inactive_file 1\ntotal_inactive_file 90000\n");
  CHECK(available() == 100000);
}

TEST_CASE("a plan for its bytes alone has the bytes of the whole plan") {
  for (std::string_view const sharding : {"dp", "zs0", "zs2", "zs3"})
    for (std::string_view const recompute : {"none", "block"})
      for (int const accumulation : {1, 2, 5}) {
        RecipeTable const table = recipe(sharding, "fp16", "cpu_optimizer", recompute);
        StepShape const shape = sizes_of(4, accumulation);
        StepPlan const plan = plan_of(tiny, table, shape);
        auto const units = lister(tiny)({shape.batch, shape.sequence});
        CHECK(make_plan(units, table, shape, false).arena_bytes == plan.arena_bytes);
      }
}

TEST_CASE("a device with memory of its own has to hold one rank, and the host what is offloaded") {
  StepShape shape = sizes_of(3);
  RecipeTable const table = recipe("dp", "fp32", "cpu_optimizer");
  UnitLister const units = lister(tiny);
  Footprint const shared = footprint(units, table, shape);
  std::int64_t const together = shared.host;
  shape.own_memory = true;
  Footprint const separate = footprint(units, table, shape);
  CHECK(shared.device == separate.device);
  StepPlan const plan = plan_of(tiny, table, shape);
  CHECK(separate.device == plan.arena_bytes[0]);
  CHECK(separate.total == together);
  CHECK(separate.host > 0);
  CHECK(separate.host <= together - separate.device);
  auto const refused_at = [&](MemoryLimit const& limit) {
    return refused(units, table, shape, limit, tiny.positions);
  };
  CHECK(refused_at({separate.device, separate.host}) == "");
  CHECK(refused_at({separate.device - 1, separate.host}).find("a rank plans ") != std::string::npos);
  CHECK(refused_at({separate.device - 1, separate.host}).find(" on its device and ") != std::string::npos);
  CHECK(refused_at({separate.device, separate.host - 1}).find("3 ranks plan ") != std::string::npos);
  CHECK(refused_at({separate.device, separate.host - 1}).find(" of host memory and ") != std::string::npos);
}

TEST_CASE("the bytes of a process count the root of dp once") {
  StepShape shape = sizes_of(3);
  RecipeTable const table = recipe("dp");
  auto const rank_bytes = [&](int rank) {
    shape.rank = rank;
    StepPlan const plan = plan_of(tiny, table, shape);
    return plan.arena_bytes[0] + plan.arena_bytes[1];
  };
  CHECK(footprint(lister(tiny), table, shape).host == rank_bytes(0) + rank_bytes(1) + rank_bytes(2));
  CHECK(rank_bytes(0) > rank_bytes(1));
}

TEST_CASE("the bytes of a process count each owner of flat groups") {
  StepShape shape = sizes_of(4);
  RecipeTable table = recipe("dp");
  for (int const owners : {0, 2, 3}) {
    table.placement.owners = owners;
    std::int64_t sum = 0, most = 0, optimizer = 0;
    for (shape.rank = 0; shape.rank < 4; ++shape.rank) {
      StepPlan const plan = plan_of(tiny, table, shape);
      sum += plan.arena_bytes[0] + plan.arena_bytes[1];
      most = std::max(most, plan.arena_bytes[0]);
      optimizer += state_bytes(plan, "optimizer");
      bool const owns = owners == 0 || shape.rank < owners;
      CHECK((state_bytes(plan, "optimizer") > 0) == owns);
    }
    CHECK(footprint(lister(tiny), table, shape).total == sum);
    CHECK(footprint(lister(tiny), table, shape).device == most);
    shape.rank = 0;
    CHECK(optimizer == state_bytes(plan_of(tiny, recipe("dp"), shape), "optimizer"));
  }
}

TEST_CASE("a gather and a broadcast go to and from the owner of their flat group") {
  RecipeTable table = recipe("dp", "bf16");
  table.placement.owners = 0;
  StepPlan const plan = plan_of(tiny, table, sizes_of(3));
  std::string const text = listing(plan, plan.train);
  for (Flat const of : plan.trainable()) {
    int const owner = plan.flat(of).number % 3;
    CHECK(plan.owner(of) == owner);
    CHECK(plan.norm_ranges()[static_cast<std::size_t>(plan.flat(of).trainable_index)].by.first == owner);
    for (Entry const& entry : plan.train.schedule.entries)
      for (Item const& item : entry.items)
        if (item.of == of && (entry.move == Move::gather || entry.move == Move::broadcast))
          CHECK(item.root == owner);
  }
  CHECK(text.find("gather to rank 2 micro-batch gradient") != std::string::npos);
  CHECK(text.find("broadcast from rank 0 weights") != std::string::npos);
}

TEST_CASE("what this build cannot run is said with the way out") {
  CHECK_FALSE(unsupported_reason(recipe("zs3", "fp16", "cpu_optimizer")));
  CHECK_FALSE(unsupported_reason(recipe("zs3", "fp16", "cpu_full")));
  CHECK_FALSE(unsupported_reason(recipe("zs3", "fp16", "nvme")));
  auto const reason = [](auto&& change) {
    RecipeTable table = recipe("zs1", "bf16");
    change(table);
    return unsupported_reason(table).value_or("");
  };
  CHECK(reason([](RecipeTable&) {}).empty());
  CHECK(reason([](RecipeTable& table) { table.types.wire = DType::f32; }).find("precision bf16") !=
        std::string::npos);
  CHECK(reason([](RecipeTable& table) { table.placement.parameters.over = Sharding::sharded; }).empty());
  CHECK(reason([](RecipeTable& table) {
          table.placement.gradients.tier = Tier::nvme;
        }).find("offload none keeps the accumulated gradient on a disk, so every") == 0);
  CHECK(reason([](RecipeTable& table) {
          table.placement.master.over = Sharding::partial;
        }).find("sharding zs1 keeps a state partial (one summand on each rank)") != std::string::npos);
}

TEST_CASE("bytes read well") {
  CHECK(bytes_text(640) == "640 B");
  CHECK(bytes_text(std::int64_t{123} << 17) == "15.4 MiB");
  CHECK(bytes_text(std::int64_t{3} << 29) == "1.50 GiB");
}
