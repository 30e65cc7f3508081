// SPDX-License-Identifier: Apache-2.0
// What the benchmarks of recipes share: the time of an optimizer step, whatever trainer takes it.
#pragma once

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

inline constexpr std::int64_t batch_size = 4, sequence = 128, vocabulary = 256;
inline constexpr ts::Gpt2Options model{
    .layers = 4, .heads = 4, .channels = 128, .positions = 1024, .vocabulary = vocabulary};

/// Tokens of a fixed linear congruence: the time of a step does not depend on the text.
inline ts::Batch make_batch(int rank) {
  ts::Batch batch;
  batch.batch = batch_size;
  batch.sequence = sequence;
  auto word = static_cast<std::uint32_t>(rank + 1);
  for (std::int64_t i = 0; i <= batch_size * sequence; ++i) {
    word = word * 1664525u + 1013904223u;
    auto const token = static_cast<std::int32_t>((word >> 8) % vocabulary);
    if (i < batch_size * sequence) batch.tokens.push_back(token);
    if (i > 0) batch.targets.push_back(token);
  }
  return batch;
}

/// Times steps of the tiny GPT-2, from the root's batch to its report. `make(comm, options)` gives a pointer
/// to a trainer on each rank.
template <class Make>
void measure(benchmark::State& state, int ranks, Make const& make) {
  double comm_bytes = 0.0, device_bytes = 0.0, host_bytes = 0.0;
  ts::run(ranks, [&](ts::comm::Comm comm) {
    ts::TrainerOptions options;
    options.batch = batch_size;
    options.sequence = sequence;
    options.clip = 1.0;
    options.nvme_directory = std::filesystem::temp_directory_path().string();
    auto const trainer = make(comm, options);
    ts::Batch const batch = make_batch(comm.rank());
    trainer->step(batch).get();
    // The root asks Google Benchmark whether to go on, and tells the others.
    while (true) {
      bool go_on = comm.is_root() && state.KeepRunning();
      comm.transport().broadcast(0, &go_on, sizeof go_on);
      if (!go_on) break;
      ts::StepReport const report = trainer->step(batch);
      if (!comm.is_root()) continue;
      state.SetIterationTime(report.seconds);
      comm_bytes = static_cast<double>(report.comm_bytes);
    }
    if (!comm.is_root()) return;
    auto const planned = [&](ts::Tier tier) {  // and used, to the byte
      return static_cast<double>(trainer->plan().arena_bytes[static_cast<std::size_t>(tier)]);
    };
    device_bytes = planned(ts::Tier::device);
    host_bytes = planned(ts::Tier::host);
  });
  double const tokens = static_cast<double>(state.iterations() * batch_size * sequence * ranks);
  state.counters["tok/s"] = benchmark::Counter(tokens, benchmark::Counter::kIsRate);
  state.counters["comm_bytes"] = comm_bytes;
  state.counters["device_bytes"] = device_bytes;
  state.counters["host_bytes"] = host_bytes;
}

}  // namespace steps
