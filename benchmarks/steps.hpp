// SPDX-License-Identifier: Apache-2.0
// Times training steps of any trainer, for the benchmarks of recipes (combinations of policies).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include <benchmark/benchmark.h>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"

#include "recipe_rows.hpp"

namespace steps {

namespace ts = tessera;
using recipe_rows::Load, recipe_rows::Machine, recipe_rows::Row;

/// Returns the batch of one rank: `accumulation` micro-batches of pseudo-random tokens from a linear
/// congruential generator. The time of a step does not depend on the tokens.
inline ts::Batch make_batch(Load const& load, int accumulation, int rank) {
  ts::Batch batch;
  batch.batch = load.batch;
  batch.sequence = load.sequence;
  batch.accumulation = accumulation;
  std::int64_t const count = batch.elements();
  auto word = static_cast<std::uint32_t>(rank + 1);
  for (std::int64_t i = 0; i <= count; ++i) {
    word = word * 1664525u + 1013904223u;
    auto const token = static_cast<std::int32_t>((word >> 8) % load.model.vocabulary);
    if (i < count) batch.tokens.push_back(token);
    if (i > 0) batch.targets.push_back(token);
  }
  return batch;
}

/// Times training steps of the ranks that `run(ranks, fn)` starts. `make(comm)` returns a pointer to the
/// trainer of a rank. The time is rank 0's, from the batch to the report of the step. On a GPU, CUDA events
/// measure it. If a trainer throws a ts::Error, its text becomes the error of the benchmark.
template <class Run, class Make>
void measure(benchmark::State& state, Load const& load, int ranks, int accumulation, Run const& run,
             Make const& make) {
  double comm_bytes = 0.0, device_bytes = 0.0, host_bytes = 0.0, nvme_bytes = 0.0;
  std::atomic<bool> go_on = true;
  try {
    run(ranks, [&](ts::comm::Comm const& comm) {
      auto const trainer = make(comm);
      ts::Batch const batch = make_batch(load, accumulation, comm.rank());
      trainer->step(batch).get();
      // Only rank 0 may call Google Benchmark, so it stores the answer in `go_on`. The first barrier ensures
      // that the answer is stored before other ranks read it. The second ensures that all ranks have read it
      // before rank 0 replaces it.
      while (true) {
        if (comm.is_root()) go_on = state.KeepRunning();
        comm.transport().barrier();
        bool const again = go_on;
        comm.transport().barrier();
        if (!again) break;
        ts::StepReport const report = trainer->step(batch);
        if (!comm.is_root()) continue;
        state.SetIterationTime(report.seconds);
        comm_bytes = static_cast<double>(report.comm_bytes);
      }
      if (!comm.is_root()) return;
      // Returns the planned memory, which is exactly the peak memory.
      auto const planned = [&](ts::Tier tier) {
        return static_cast<double>(ts::bytes_on(tier, trainer->plan().arena_bytes));
      };
      device_bytes = planned(ts::Tier::device);
      host_bytes = planned(ts::Tier::host);
      nvme_bytes = planned(ts::Tier::nvme);
    });
  } catch (ts::Error const& error) {
    return state.SkipWithError(error.what());
  }
  double const tokens =
      static_cast<double>(state.iterations() * load.batch * load.sequence * accumulation * ranks);
  state.counters["tok/s"] = benchmark::Counter(tokens, benchmark::Counter::kIsRate);
  state.counters["comm_bytes"] = comm_bytes;
  state.counters["device_bytes"] = device_bytes;
  state.counters["host_bytes"] = host_bytes;
  state.counters["nvme_bytes"] = nvme_bytes;
}

/// Registers a benchmark for each combination that can run here, and prints the others with their reasons to
/// the standard error stream. The ranks of a row are threads of this process.
inline void register_rows(std::string const& program, Machine const& machine, Load const& load) {
  for (Row const& row : recipe_rows::runnable(program, recipe_rows::make_rows(machine, load)))
    benchmark::RegisterBenchmark(
        left_out::name_of(row.name).c_str(),
        [row, load, folder = machine.folder](benchmark::State& state) {
          auto const run = [&](int count, auto const& fn) { ts::run_ranks(row.recipe, count, fn); };
          measure(state, load, row.ranks, row.accumulation, run, [&](ts::comm::Comm const& comm) {
            return ts::make_trainer(recipe_rows::model_of(*row.family, load), row.recipe, comm,
                                    recipe_rows::options_of(row, load, folder));
          });
        })
        ->UseManualTime()
        ->Unit(benchmark::kMillisecond);
}

}  // namespace steps
