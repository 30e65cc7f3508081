// SPDX-License-Identifier: Apache-2.0
// Times training steps of any trainer, for the benchmarks of recipes (combinations of policies).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include <benchmark/benchmark.h>

#include "tessera/comm/run.hpp"
#include "tessera/core/place.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/nn/gpt2_options.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/ticket.hpp"

namespace steps {

namespace ts = tessera;

/// The model and batch size of a measured step.
struct Load {
  std::int64_t batch, sequence;
  ts::Gpt2Options model;
};
inline constexpr Load tiny{
    4, 128, {.layers = 4, .heads = 4, .channels = 128, .positions = 1024, .vocabulary = 256}};

/// Returns a batch of pseudo-random tokens from a linear congruential generator. The time of a step does not
/// depend on the tokens.
inline ts::Batch make_batch(Load const& load, int rank) {
  ts::Batch batch;
  batch.batch = load.batch;
  batch.sequence = load.sequence;
  std::int64_t const count = load.batch * load.sequence;
  auto word = static_cast<std::uint32_t>(rank + 1);
  for (std::int64_t i = 0; i <= count; ++i) {
    word = word * 1664525u + 1013904223u;
    auto const token = static_cast<std::int32_t>((word >> 8) % load.model.vocabulary);
    if (i < count) batch.tokens.push_back(token);
    if (i > 0) batch.targets.push_back(token);
  }
  return batch;
}

/// Times training steps of the ranks that `run(ranks, fn)` starts. `make(comm, options)` returns a pointer to
/// the trainer of a rank. The time is rank 0's, from the batch to the report of the step. On a GPU, CUDA
/// events measure it.
template <class Run, class Make>
void measure(benchmark::State& state, Load const& load, int ranks, Run const& run, Make const& make) {
  double comm_bytes = 0.0, device_bytes = 0.0, host_bytes = 0.0;
  std::atomic<bool> go_on = true;
  run(ranks, [&](ts::comm::Comm const& comm) {
    ts::TrainerOptions options;
    options.batch = load.batch;
    options.sequence = load.sequence;
    options.clip = 1.0;
    options.nvme_directory = std::filesystem::temp_directory_path().string();
    auto const trainer = make(comm, options);
    ts::Batch const batch = make_batch(load, comm.rank());
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
      return static_cast<double>(trainer->plan().arena_bytes[static_cast<std::size_t>(tier)]);
    };
    device_bytes = planned(ts::Tier::device);
    host_bytes = planned(ts::Tier::host);
  });
  double const tokens = static_cast<double>(state.iterations() * load.batch * load.sequence * ranks);
  state.counters["tok/s"] = benchmark::Counter(tokens, benchmark::Counter::kIsRate);
  state.counters["comm_bytes"] = comm_bytes;
  state.counters["device_bytes"] = device_bytes;
  state.counters["host_bytes"] = host_bytes;
}

}  // namespace steps
