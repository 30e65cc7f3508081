// SPDX-License-Identifier: Apache-2.0
// Tests step plans that keep training state on a disk. Every schedule must pass the checker. Reads and writes
// of the disk must overlap with updates and with forward and backward. The planned host memory and device
// memory must not grow with the number of layers.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/store/step_memory.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"
#include "support/waits.hpp"

namespace {

using namespace support;

constexpr std::array nvme_offloads{"nvme_optimizer", "nvme", "infinity", "nvme_parameters"};

StepShape shape_of(int world, int accumulation = 1) {
  StepShape shape;
  shape.batch = 1;
  shape.sequence = 8;
  shape.accumulation = accumulation;
  shape.world = world;
  shape.prefetch = 1;
  shape.workspace_bytes = 1000;
  return shape;
}
Gpt2Options model_of(int layers, int channels = 96) {
  return {.layers = layers, .heads = 3, .channels = channels, .positions = 40, .vocabulary = 61};
}
StepPlan plan_of(RecipeTable const& table, StepShape const& shape, Gpt2Options const& model = model_of(4)) {
  return make_plan(Gpt2(model).units({shape.batch, shape.sequence}), table, shape);
}
std::int64_t bytes_on(StepPlan const& plan, Tier tier) {
  return plan.arena_bytes[static_cast<std::size_t>(tier)];
}
/// Returns the total bytes of all buffers of this rank for which `selects(buffer)` returns true.
template <class Select>
std::int64_t bytes_where(StepPlan const& plan, Select const& selects) {
  std::int64_t sum = 0;
  for (Buffer const& buffer : plan.train.buffers)
    if (buffer.offset >= 0 && selects(buffer)) sum += buffer.bytes;
  return sum;
}

std::string mistakes_in(StepPlan const& plan) {
  return mistake_in(plan, plan.train) + mistake_in(plan, plan.evaluate);
}

/// Simulates the schedule of `plan` and returns the time at which it ends. Each entry runs for cost(entry).
/// The lanes (streams) run in parallel, and an entry starts after all entries for which it waits.
template <class Cost>
std::int64_t time_of(StepPlan const& plan, Cost const& cost) {
  Schedule const& schedule = plan.train.schedule;
  std::vector<std::int64_t> ended(schedule.entries.size(), 0);
  std::array<std::int64_t, lane_count> lanes{};
  std::int64_t last = 0;
  for (Instance const& instance : instances_of(schedule)) {
    std::int64_t& lane = lanes[static_cast<std::size_t>(instance.entry.lane)];
    for (int const other : instance.waits) lane = std::max(lane, ended[static_cast<std::size_t>(other)]);
    lane += cost(instance.entry);
    ended[static_cast<std::size_t>(instance.index)] = lane;
    last = std::max(last, lane);
  }
  return last;
}

}  // namespace

TEST_CASE("every list of random placements on three tiers is sound") {
  std::uint32_t random_state = 4711;
  auto const roll = [&](int below) {
    random_state = random_state * 1664525u + 1013904223u;
    return static_cast<int>((random_state >> 8) % static_cast<std::uint32_t>(below));
  };
  int with_files = 0;
  for (int round = 0; round < 300; ++round) {
    std::array<std::string_view, 2> const precisions{"fp32", "bf16"}, reductions{"ordered", "fast"};
    RecipeTable table =
        recipe("zs0", precisions[static_cast<std::size_t>(roll(2))], "none",
               recomputes[static_cast<std::size_t>(roll(4))], reductions[static_cast<std::size_t>(roll(2))]);
    PlacementTable& rows = table.placement;
    for (Placement* row : {&rows.parameters, &rows.gradients, &rows.master, &rows.moments})
      *row = {static_cast<Sharding>(roll(3)), static_cast<Tier>(roll(row == &rows.gradients ? 2 : 3))};
    StepShape shape = shape_of(1, 1 + roll(3));
    shape.replicas = 1 + roll(2);
    shape.world = shape.replicas * (1 + roll(3));
    shape.rank = roll(shape.world);
    shape.prefetch = roll(4);
    shape.weight_lag = roll(3);
    shape.channels = 1 + roll(2);
    shape.recompute_every = 1 + roll(3);
    StepPlan const plan =
        roll(2) == 0 ? plan_of(table, shape) : make_plan(TiedModel{}.units({1, 8}), table, shape);
    INFO("round ", round);
    CHECK(mistakes_in(plan) == "");
    with_files += plan.file_bytes() > 0;
  }
  CHECK(with_files > 150);
}

TEST_CASE("a list that touches a file in another way is found") {
  for (std::string_view const offload : nvme_offloads) {
    INFO(std::string(offload));
    StepPlan const plan = plan_of(recipe("zs3", "bf16", offload), shape_of(2, 2));
    REQUIRE(mistakes_in(plan) == "");
    auto const planted = [&](auto const& change) {
      StepPlan broken = plan;
      auto& entries = broken.train.schedule.entries;
      int found = 0, planned = 0;
      for (std::size_t index = 0; index < entries.size(); ++index) {
        Entry const before = entries[index];
        if (before.lane != Lane::disk || !change(broken.train, entries[index])) continue;
        ++planned;
        found += mistake_in(broken, broken.train) != "";
        entries[index] = before;
      }
      CHECK(planned > 4);
      CHECK(found == planned);
    };
    // In this fault, an entry does not write its target, as if the entry had not run.
    planted([](Program&, Entry& entry) {
      erase_writes(entry);
      return true;
    });
    planted([](Program&, Entry& entry) {
      entry.lane = Lane::upload;
      return true;
    });
    planted([](Program&, Entry& entry) {
      entry.move = Move::all_gather;
      return true;
    });
    planted([](Program&, Entry& entry) {
      entry.items.front().part.begin += 64;
      return true;
    });
    // In this fault, an entry copies directly between the disk and the device, without host memory between
    // them.
    planted([](Program& program, Entry& entry) {
      bool const writes_file = has_addresses(program.at(entry.at(Role::source)).tier);
      int& memory = entry.items.front().operands[writes_file ? 0 : 1].buffer;
      for (int buffer = 0; buffer < static_cast<int>(program.buffers.size()); ++buffer)
        if (program.at(buffer).tier == Tier::device && program.at(buffer).persistent) memory = buffer;
      return true;
    });
  }
}

TEST_CASE("no wait of a list with files can be left out") {
  WaitsLeftOut left_out;
  for (std::string_view const sharding : {"dp", "zs0", "zs1", "zs3"})
    for (std::string_view const offload : nvme_offloads)
      for (int const prefetch : {0, 1, 2}) {
        StepShape shape = shape_of(2, 2);
        shape.prefetch = prefetch;
        left_out.check(plan_of(recipe(sharding, "bf16", offload), shape, model_of(3, 33)));
      }
  CHECK(left_out.waits > 1000);
  CHECK(left_out.found == left_out.waits);
}

TEST_CASE("reads of the next unit, an update and writes of the one before run side by side") {
  // In this simulation, the update of a unit lasts as long as the reads and writes of the unit together. If
  // updates overlap with reads and writes, all of this lasts hardly longer than only the updates, or only the
  // reads and writes.
  int const layers = 12;
  for (std::string_view const sharding : {"zs0", "zs3"}) {
    StepPlan const plan = plan_of(recipe(sharding, "fp32", "nvme_optimizer"), shape_of(2), model_of(layers));
    auto const only = [](bool disk, bool update) {
      return [=](Entry const& entry) -> std::int64_t {
        if (entry.lane == Lane::disk) return disk ? entry.items.front().part.size() : 0;
        return update && entry.verb == Verb::update ? 6 * entry.items.front().part.size() : 0;
      };
    };
    std::int64_t const disk = time_of(plan, only(true, false)), update = time_of(plan, only(false, true)),
                       both = time_of(plan, only(true, true));
    INFO(std::string(sharding), ": disk ", disk, ", updates ", update, ", both ", both);
    CHECK(disk == update);
    CHECK(both < disk + 2 * disk / layers);
  }
}

TEST_CASE("parameters are read while units compute") {
  int const layers = 12;
  for (std::string_view const sharding : {"zs0", "zs3"}) {
    StepPlan const plan = plan_of(recipe(sharding, "fp32", "nvme_parameters"), shape_of(2), model_of(layers));
    auto const only = [](bool reads, bool copies, bool units) {
      return [=](Entry const& entry) -> std::int64_t {
        if (entry.verb == Verb::gather && entry.lane == Lane::disk) return reads ? 10 : 0;
        if (entry.verb == Verb::gather) return copies ? 5 : 0;  // a copy to the device or an all-gather
        return units && (entry.verb == Verb::forward || entry.verb == Verb::backward_input) ? 10 : 0;
      };
    };
    std::int64_t const reads = time_of(plan, only(true, false, false)),
                       copies = time_of(plan, only(false, true, false)),
                       units = time_of(plan, only(false, false, true)),
                       all = time_of(plan, only(true, true, true));
    INFO(std::string(sharding), ": reads ", reads, ", copies ", copies, ", units ", units, ", all ", all);
    CHECK(all < std::max({reads, copies, units}) + 60);
  }
}

TEST_CASE("state lies once in the file and host memory does not grow with the layers") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "bf16"})
      for (std::string_view const offload : nvme_offloads)
        for (int const accumulation : {1, 2}) {
          INFO(std::string(sharding), " ", std::string(precision), " ", std::string(offload), " ",
               accumulation);
          RecipeTable const table = recipe(sharding, precision, offload);
          StepShape const shape = shape_of(4, accumulation);
          auto const passing = [&](int layers, int channels) {
            StepPlan const plan = plan_of(table, shape, model_of(layers, channels));
            CHECK(bytes_on(plan, Tier::nvme) ==
                  bytes_where(plan, [](Buffer const& buffer) { return buffer.tier == Tier::nvme; }));
            CHECK(plan.file_bytes() == bytes_on(plan, Tier::nvme));
            CHECK(bytes_where(plan, [](Buffer const& buffer) {
                    return buffer.tier == Tier::nvme && !buffer.persistent;
                  }) == 0);
            std::int64_t const on_host = bytes_where(
                plan, [](Buffer const& buffer) { return buffer.tier == Tier::host && buffer.persistent; });
            std::int64_t const sums = bytes_where(plan, [](Buffer const& buffer) {
              return buffer.tier == Tier::host && buffer.kind == BufferKind::gradient && buffer.copy.rests();
            });
            if (offload == "nvme_optimizer" || offload == "nvme")
              CHECK(on_host < sums + 100000);  // 100,000 bytes are enough for scalars and norms
            if (offload == "nvme_optimizer") CHECK(sums == 0);
            return bytes_on(plan, Tier::host) - on_host;
          };
          std::int64_t const eight = passing(8, 96), many = passing(24, 96), wide = passing(8, 192);
          CHECK(many < eight + disk_block);  // a small difference is possible, because of alignment
          CHECK(wide > 2 * eight);
        }
}

TEST_CASE("with all state elsewhere a device holds three units' parameters and gradients at most") {
  for (std::string_view const sharding : {"zs0", "zs2", "zs3"})
    for (std::string_view const offload : {"cpu_full", "nvme", "infinity", "nvme_parameters"})
      for (std::string_view const reduction : {"ordered", "fast"}) {
        INFO(std::string(sharding), " ", std::string(offload), " ", std::string(reduction));
        RecipeTable const table = recipe(sharding, "bf16", offload, "block", reduction);
        auto const on_device = [&](int layers) {
          return bytes_on(plan_of(table, shape_of(2, 2), model_of(layers)), Tier::device);
        };
        StepPlan const plan = plan_of(table, shape_of(2, 2), model_of(12));
        std::int64_t const unit = plan.flat(3).padded * 2;
        // `unit` is the number of bytes of the weights of one unit. Weights must not stay on the device, so
        // 12 additional layers may add only activations: fewer bytes than 1.2 times `unit` in total.
        CHECK(on_device(24) - on_device(12) < 12 * unit / 10);
        // Finds the first and the last entry that uses each buffer on the device. The first round does this
        // for the buffers of gathered weights, and the second round for the buffers of micro-batch gradients.
        for (bool const gradients : {false, true}) {
          std::map<int, std::pair<int, int>> lives;
          auto const& entries = plan.train.schedule.entries;
          for (int index = 0; index < static_cast<int>(entries.size()); ++index)
            entries[static_cast<std::size_t>(index)].visit_operands([&](Operand const& operand, int) {
              int const buffer = operand.buffer;
              BufferKind const kind = plan.train.at(buffer).kind;
              bool const weights = kind == BufferKind::weights && !plan.train.at(buffer).copy.rests();
              bool const sums = kind == BufferKind::micro_gradient;
              if (plan.train.at(buffer).tier != Tier::device || !(gradients ? sums : weights)) return;
              // The repeated part of the schedule has the same entries for each micro-batch, so the test
              // looks only at the entries after it, which are those of the last micro-batch.
              if (index < plan.train.schedule.body_end) return;
              lives.try_emplace(buffer, index, index).first->second.second = index;
            });
          for (int index = plan.train.schedule.body_end; index < static_cast<int>(entries.size()); ++index) {
            std::set<int> units;
            for (auto const& [buffer, life] : lives)
              if (life.first <= index && index <= life.second) units.insert(plan.train.at(buffer).unit);
            CHECK(units.size() <= 3);
          }
        }
      }
}

TEST_CASE("a step reads and writes what its recipe says") {
  // `traffic` returns the bytes that a step reads from the disk and writes to it. If the optimizer is
  // offloaded, a step reads and writes the master weights and the two moments of each trained parameter. If
  // the parameters are offloaded, forward and backward of each micro-batch read the weights.
  auto const traffic = [](std::string_view precision, std::string_view offload, int accumulation = 1) {
    StepPlan const plan = plan_of(recipe("zs3", precision, offload), shape_of(2, accumulation));
    return std::pair(plan, plan.file_traffic());
  };
  for (std::string_view const precision : {"fp32", "bf16"}) {
    std::int64_t const weight = precision == "fp32" ? 4 : 2;
    for (int const accumulation : {1, 3}) {
      auto const [plan, bytes] = traffic(precision, "nvme_optimizer", accumulation);
      std::int64_t shards = 0, read = 0;
      for (Flat const of : plan.flats()) shards += plan.flat(of).shard;
      CHECK(bytes == FileTraffic{12 * shards, 12 * shards});
      CHECK(traffic(precision, "infinity", accumulation).second == bytes);
      // Forward reads the weights of each unit once, and the weights of the embedding again for the output
      // head. Backward reads the weights of each unit except the output head.
      for (Instance const& instance : instances_of(plan.train.schedule))
        if (instance.entry.verb == Verb::gather) read += plan.flat(instance.entry.items.front().of).shard;
      auto const [own, weights] = traffic(precision, "nvme_parameters", accumulation);
      CHECK(weights == FileTraffic{weight * read, weight * shards});
      auto const [all, both] = traffic(precision, "nvme", accumulation);
      std::int64_t const separate =
          precision == "fp32" ? 0 : weight * shards;  // in fp32, the weights are the master weights
      CHECK(both == FileTraffic{weight * read + 12 * shards, 12 * shards + separate});
    }
  }
  CHECK(traffic("fp32", "cpu_full").second == FileTraffic{});
}

TEST_CASE("states that do not fill blocks of the disk are moved with what pads their last block") {
  StepShape const shape = shape_of(2);
  std::vector<OptimizerState> const states{{"exp_avg", DType::f16}, {"scale", DType::f32, 1024}};
  StepPlan const plan = make_plan(Gpt2(model_of(3)).units({shape.batch, shape.sequence}),
                                  recipe("zs3", "bf16", "nvme_optimizer"), shape, true, states);
  CHECK(mistakes_in(plan) == "");
  std::int64_t moved = 0;
  for (Flat const of : plan.trainable()) {
    std::int64_t const shard = plan.flat(of).shard, scales = shard / 1024 * 4;
    REQUIRE(scales % disk_block != 0);
    moved += 4 * shard + 2 * shard + round_up(scales, disk_block);  // master weights, moments and scales
  }
  CHECK(plan.file_traffic() == FileTraffic{moved, moved});
  CHECK(plan.file_bytes() == moved);
}

TEST_CASE("a rank uses the bytes of its arenas, also where it owns nothing") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : nvme_offloads)
      for (int rank = 0; rank < 3; ++rank) {
        INFO(std::string(sharding), " ", std::string(offload), " rank ", rank);
        StepShape shape = shape_of(3);
        shape.rank = rank;
        StepPlan const plan = plan_of(recipe(sharding, "bf16", offload), shape);
        StepMemory<Cpu> const memory(plan);
        for (Tier const tier : {Tier::device, Tier::host})
          CHECK(memory.high_water(tier) == bytes_on(plan, tier));
      }
}
