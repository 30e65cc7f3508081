// SPDX-License-Identifier: Apache-2.0
// Measures a training step of a GPT-2 with 35 million parameters on 1, 2 and 4 GPUs, as far as the machine
// has them, for every registered recipe (combination of policies). Benchmark names:
// step/<sharding>/<precision>/<offload>/gpus:<n>. Recipes with fp32 are also measured in tf32 and in the
// formats that split fp32 into bf16 parts. The time is the first GPU's, measured with CUDA events from the
// batch of a step to its report. tok/s is over all GPUs. device_bytes, host_bytes and comm_bytes are the
// planned bytes of one GPU.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "cuda_benchmark.cuh"
#include "steps.hpp"

namespace {

namespace ts = tessera;

/// 2048 tokens per GPU and the channels of GPT-2 124M. With smaller sizes, the launches of kernels would
/// dominate the time.
constexpr steps::Load load{
    4, 512, {.layers = 4, .heads = 12, .channels = 768, .positions = 1024, .vocabulary = 8192}};

void step(benchmark::State& state, ts::RecipeTable const& recipe, int ranks) {
  gpu::guarded(state, [&] {
    auto const run = [&](int count, auto const& fn) { ts::run_ranks(recipe, count, fn); };
    steps::measure(state, load, ranks, run,
                   [&](ts::comm::Comm const& comm, ts::TrainerOptions const& options) {
                     return ts::make_trainer(ts::any_model(load.model), recipe, comm, options);
                   });
  });
}

void register_all() {
  for (int const ranks : ts::default_ranks(ts::Device::cuda))
    for (ts::RecipeTable const& registered : ts::registered_recipes()) {
      ts::SlotNames const& names = registered.names;
      std::vector<std::string_view> precisions = {names.precision};
      if (names.precision == "fp32")  // fp32 training may use these formats in matrix products
        precisions.insert(precisions.end(), {"tf32", "bf16x6", "bf16x3"});
      for (std::string_view const precision : precisions) {
        ts::RecipeTable const recipe = ts::parse_recipe({.device = ts::Cuda::name,
                                                         .sharding = names.sharding,
                                                         .precision = precision,
                                                         .offload = names.offload});
        if (ts::broken_rule(recipe) || ts::unavailable_reason(recipe)) continue;
        std::string const name = "step/" + std::string(names.sharding) + "/" + std::string(precision) + "/" +
                                 std::string(names.offload) + "/gpus:" + std::to_string(ranks);
        benchmark::RegisterBenchmark(name.c_str(),
                                     [recipe, ranks](benchmark::State& state) { step(state, recipe, ranks); })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  return gpu::run(argc, argv);
}
