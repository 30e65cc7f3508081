// SPDX-License-Identifier: Apache-2.0
// Tests how ranks on GPUs stop training together. The request of a rank to stop is sent with the statistics
// of the step, even if the step is a captured graph.
#include "tessera/loop/training_loop.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "device/runs.hpp"
#include "device/skip.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;
using test::on_gpu;

Run run_of(int ranks) {
  Run run;
  run.batch = 2;
  run.split = {ranks, 1};
  return run;
}

/// Returns the batch that the rank `rank` trains on in step `index`.
Batch batch_of(Run const& run, std::int64_t index, int rank = 0) {
  return make_batch(index, rank, run.split, run.batch, run.sequence, run.vocabulary);
}

}  // namespace

TEST_CASE("a wish to stop reaches a captured graph and is in the report of its step alone") {
  TESSERA_NEEDS_GPU();
  Run const run = run_of(1);
  for (std::string_view const capture : {"graph", "eager"}) {
    auto const trainer =
        make_trainer(any_model(tiny), on_gpu("bf16", capture), comm::Comm(), options_of(run));
    std::vector<Ticket> tickets;
    for (int step = 0; step < 9; ++step) tickets.push_back(trainer->step(batch_of(run, step), step % 4 == 2));
    for (int step = 0; step < 9; ++step)
      CHECK(tickets[static_cast<std::size_t>(step)].get().stop == (step % 4 == 2));
  }
}

TEST_CASE("two GPUs end after the same step, whenever one of them hears of the stop") {
  TESSERA_NEEDS_GPUS(2);
  Run const run = run_of(2);
  RecipeTable const table = on_gpu("bf16", "graph", "none", "none", "zs2");
  constexpr int runs = 200;
  std::vector<std::array<std::int64_t, 2>> done(runs), requested(runs);
  run_ranks(table, 2, [&](comm::Comm& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
    for (std::size_t at = 0; at < runs; ++at) {
      Batch batch;
      auto const end = std::chrono::steady_clock::now() + std::chrono::microseconds(100 + 97 * at);
      requested[at][rank] = std::numeric_limits<std::int64_t>::max();
      TrainingLoop loop(
          *trainer, comm,
          {.batch = [&](std::int64_t step) { return batch = batch_of(run, step % 64, comm.rank()); },
           .stop =
               [&](std::int64_t step) {
                 bool const stop = rank == at % 2 && std::chrono::steady_clock::now() >= end;
                 if (stop) requested[at][rank] = std::min(requested[at][rank], step);
                 return stop;
               }});
      done[at][rank] = loop.run();
    }
  });
  for (std::size_t at = 0; at < runs; ++at) {
    std::int64_t const heard = std::min(requested[at][0], requested[at][1]);
    CHECK(done[at][0] == done[at][1]);
    CHECK(done[at][0] >= heard);
    CHECK(done[at][0] <= heard + 1 + info_of(Device::cuda).max_steps_in_flight);
  }
}
