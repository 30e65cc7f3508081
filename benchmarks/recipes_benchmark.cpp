// SPDX-License-Identifier: Apache-2.0
// One benchmark for every registered recipe: an optimizer step of the tiny GPT-2 on 1 and 4 ranks. The names
// read step/<sharding>/<precision>/<offload>/ranks:<n>; time is the root's, from batch to report.
#include <cstdint>
#include <string>

#include <benchmark/benchmark.h>

#include "tessera/comm/run.hpp"
#include "tessera/train/any_trainer.hpp"

#include "context.hpp"

namespace ts = tessera;

namespace {

constexpr std::int64_t batch_size = 4, sequence = 128, vocabulary = 256;

/// Tokens of a fixed linear congruence: the time of a step does not depend on the text.
ts::Batch make_batch(int rank) {
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

void step(benchmark::State& state, ts::RecipeTable const& recipe, int ranks) {
  double comm_bytes = 0.0, device_bytes = 0.0, host_bytes = 0.0;
  ts::run(ranks, [&](ts::comm::Comm comm) {
    ts::TrainerOptions options;
    options.batch = batch_size;
    options.sequence = sequence;
    options.clip = 1.0;
    ts::Gpt2Options const model{
        .layers = 4, .heads = 4, .channels = 128, .positions = 1024, .vocabulary = vocabulary};
    auto const trainer = ts::make_trainer(model, recipe, comm, options);
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
    device_bytes = static_cast<double>(trainer->peak_bytes(ts::Tier::device));
    host_bytes = static_cast<double>(trainer->peak_bytes(ts::Tier::host));
  });
  double const tokens = static_cast<double>(state.iterations() * batch_size * sequence * ranks);
  state.counters["tok/s"] = benchmark::Counter(tokens, benchmark::Counter::kIsRate);
  state.counters["comm_bytes"] = comm_bytes;
  state.counters["device_bytes"] = device_bytes;
  state.counters["host_bytes"] = host_bytes;
}

bool register_all() {
  for (int const ranks : {1, 4})
    for (ts::RecipeTable const& recipe : ts::registered_recipes()) {
      std::string const name = "step/" + std::string(recipe.names.sharding) + "/" +
                               std::string(recipe.names.precision) + "/" + std::string(recipe.names.offload) +
                               "/ranks:" + std::to_string(ranks);
      benchmark::RegisterBenchmark(name.c_str(),
                                   [&recipe, ranks](benchmark::State& state) { step(state, recipe, ranks); })
          ->UseManualTime()
          ->Unit(benchmark::kMillisecond);
    }
  return true;
}

bool const registered = register_all();

}  // namespace
