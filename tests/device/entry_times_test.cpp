// SPDX-License-Identifier: Apache-2.0
// Tests the times of schedule entries (operations of a step) on a GPU, with streams and with graphs. Every
// entry must be timed, in order, and timing must not change any bit of the weights.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/detail/clock.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "device/skip.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;

struct Times final : EntryTimer {
  struct Ran {
    int entry;
    std::int64_t begin, end;
  };

  std::int64_t now() noexcept override {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  void ran(int entry, std::int64_t begin, std::int64_t end) noexcept override {
    all.push_back({entry, begin, end});
  }

  std::vector<Ran> all;
};

RecipeTable on_gpu(std::string_view capture, std::string_view offload) {
  SlotNames names;
  names.device = "cuda";
  names.precision = "bf16";
  names.capture = capture;
  names.offload = offload;
  names.reduction = "ordered";
  return parse_recipe(names);
}

/// The allowed error in nanoseconds if the times of two events on different streams are compared.
constexpr std::int64_t resolution = 1000;

void check_step(std::vector<Times::Ran> const& all, Schedule const& schedule, std::int64_t before) {
  std::vector<Instance> const instances = instances_of(schedule);
  REQUIRE(all.size() == instances.size() + 1);
  Times::Ran const& step = all.back();
  CHECK(step.entry == -1);
  CHECK(step.begin >= before);                 // each step has its own begin time, even if a graph replays it
  std::array<std::int64_t, lane_count> end{};  // end of the last entry in each lane (stream)
  end.fill(step.begin - resolution);
  std::vector<std::int64_t> done(schedule.entries.size());  // for each entry: the end of its last run
  std::int64_t longest = 0;
  for (std::size_t instance = 0; instance < instances.size(); ++instance) {
    Times::Ran const& ran = all[instance];
    REQUIRE(ran.entry == instances[instance].index);
    std::int64_t& lane = end[static_cast<std::size_t>(instances[instance].entry.lane)];
    CHECK(ran.begin >= lane);
    CHECK(ran.end >= ran.begin);
    lane = ran.end;
    for (int const other : instances[instance].waits)
      CHECK(ran.begin + resolution >= done[static_cast<std::size_t>(other)]);
    done[static_cast<std::size_t>(ran.entry)] = ran.end;
    longest = std::max(longest, ran.end - ran.begin);
    CHECK(ran.end <= step.end + resolution);
  }
  CHECK(longest > 0);
}

}  // namespace

TEST_CASE("a timer hears when every entry ran on a GPU and the weights stay the same bits") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const capture : {"eager", "graph"})
    for (std::string_view const offload : {"none", "cpu_optimizer", "nvme"})
      for (int const accumulation : {1, 3}) {
        INFO(std::string(capture), " ", std::string(offload), " accumulation ", accumulation);
        RecipeTable const table = on_gpu(capture, offload);
        Run run;
        run.split = {1, accumulation};
        std::array<std::string, 2> weights;
        for (bool const timed : {false, true}) {
          auto const trainer = make_trainer(any_model(tiny), table, comm::Comm(), options_of(run));
          Times times;
          std::vector<Ticket> tickets;
          for (int step = 0; step < 6; ++step) {  // the timer times steps 2, 3 and 5
            bool const this_one = timed && step != 4 && step > 1;
            trainer->time_entries(this_one ? &times : nullptr);
            times.all.clear();
            std::int64_t const before = times.now();
            tickets.push_back(
                trainer->step(make_batch(step, 0, run.split, run.batch, run.sequence, run.vocabulary)));
            if (!this_one) continue;  // its ticket is read after the loop
            (void)tickets.back().get();
            check_step(times.all, trainer->plan().train.schedule, before);
            std::size_t const heard = times.all.size();
            (void)trainer->evaluate(make_batch(9, 0, run.split, run.batch, run.sequence, run.vocabulary));
            CHECK(times.all.size() == heard);
          }
          for (Ticket const& ticket : tickets) CHECK(ticket.get().loss > 0.0);
          weights[timed] = hash_weights(*trainer);
        }
        CHECK(weights[0] == weights[1]);
      }
}
