// SPDX-License-Identifier: Apache-2.0
// Tests the times of the entries (operations) of a step, which the engine reports to a timer. The test's
// timer has a clock that advances by 1 at each reading.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/nvme.hpp"
#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"

namespace {

using namespace support;

struct Ticks final : EntryTimer {
  struct Ran {
    int entry;
    std::int64_t begin, end;
  };

  std::int64_t now() noexcept override { return ticks++; }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override {
    all.push_back({entry, begin, end});
  }

  std::int64_t ticks = 0;
  std::vector<Ran> all;
};

struct Seen {
  std::vector<Ticks> steps;  // the times that rank 0 reported, one element per step
  Schedule schedule;
  std::string weights;
};

/// Trains three steps and evaluates after each step. If `timed` is true, the engine has a timer from the
/// second step on. Returns the reported times, the schedule and the hash of the weights.
Seen trained(RecipeTable const& table, bool timed) {
  Run run;
  run.split = {2, 3};
  Seen seen;
  tessera::run(run.split.ranks, [&](comm::Comm comm) {
    ErasedModel<Cpu, float> const model = detail::erase<Cpu, float>(std::make_shared<Gpt2 const>(tiny));
    Engine<Cpu, float> engine(model, CheckedRecipe(table), options_of(run), comm, open_state_file<Nvme>);
    for (int step = 0; step < run.steps; ++step) {
      Batch const batch =
          make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary, run.mask_every);
      Ticks ticks;
      if (timed && step > 0) engine.time_entries(&ticks);
      (void)engine.step(batch).get();
      std::size_t const heard = ticks.all.size();
      (void)engine.evaluate(batch);
      CHECK(ticks.all.size() == heard);  // an evaluation reports no times
      engine.time_entries(nullptr);
      if (comm.is_root()) seen.steps.push_back(ticks);
    }
    std::string const weights = hash_weights(engine);
    if (!comm.is_root()) return;
    seen.schedule = engine.plan().train.schedule;
    seen.weights = weights;
  });
  return seen;
}

}  // namespace

TEST_CASE("a timer hears of every instance of a step in order and then of the step, and changes no bit") {
  for (std::string_view const sharding : {"zs0", "zs3"})
    for (std::string_view const offload : {"none", "cpu_optimizer", "nvme"}) {
      INFO(std::string(sharding), " ", std::string(offload));
      RecipeTable const table = recipe(sharding, "fp32", offload);
      Seen const seen = trained(table, true);
      REQUIRE(seen.steps.size() == 3);
      CHECK(seen.steps[0].all.empty());
      CHECK(seen.steps[0].ticks == 0);  // without a timer, the engine does not read the clock
      std::vector<Instance> const instances = instances_of(seen.schedule);
      for (std::size_t step : {1u, 2u}) {
        auto const& all = seen.steps[step].all;
        REQUIRE(all.size() == instances.size() + 1);
        bool right = true;
        for (std::size_t instance = 0; instance < instances.size(); ++instance) {
          std::int64_t const begin = 1 + 2 * static_cast<std::int64_t>(instance);
          right = right && all[instance].entry == instances[instance].index && all[instance].begin == begin &&
                  all[instance].end == begin + 1;
        }
        CHECK(right);
        CHECK(all.back().entry == -1);
        CHECK(all.back().begin == 0);
        CHECK(all.back().end == 1 + 2 * static_cast<std::int64_t>(instances.size()));
      }
      CHECK(seen.weights == trained(table, false).weights);
    }
}
