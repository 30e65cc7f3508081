// SPDX-License-Identifier: Apache-2.0
// Trains fp32 models whose matrix products are computed in other formats. The losses must be close to the
// CPU's losses in fp32. The results must be bit-identical for every choice of ZeRO stage, offload,
// recomputation and CUDA-graph capture.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
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
using test::largest_difference;
using test::on_gpu;
using test::trained;

/// A number format in which matrix products are computed, and the allowed difference of the losses from the
/// losses in fp32.
struct Format {
  std::string_view name;
  double tolerance;
};
constexpr Format formats[] = {{"tf32", 5e-3}, {"bf16x6", 2e-5}, {"bf16x3", 2e-4}};

/// A model whose matrices have rows of a multiple of 16 bytes, as in real models. The model `tiny` also has
/// matrices with other row sizes.
constexpr Gpt2Options even{.layers = 2, .heads = 2, .channels = 64, .positions = 40, .vocabulary = 96};

Run some_run(int ranks = 1, int accumulation = 1) {
  Run run;
  run.steps = 6;
  run.batch = 2;
  run.split = {ranks, accumulation};
  run.options.clip = 0.5;
  run.options.learning_rate = 1e-2;
  return run;
}

}  // namespace

TEST_CASE("fp32 with products in another format stays near the CPU's fp32") {
  TESSERA_NEEDS_GPU();
  for (auto const& [format, tolerance] : formats)
    for (Gpt2Options const& model : {tiny, even})
      for (int const accumulation : {1, 3}) {
        INFO(std::string(format), " channels ", model.channels, " accumulation ", accumulation);
        Run run = some_run(1, accumulation);
        run.vocabulary = model.vocabulary;
        Outcome const gpu = trained(on_gpu(format), run, model);
        Outcome const cpu = trained(recipe("zs0", "fp32"), run, model);
        CHECK(largest_difference(gpu.losses, cpu.losses) < tolerance);
        CHECK(largest_difference(gpu.norms, cpu.norms) < 10 * tolerance);
        CHECK(std::fabs(gpu.evaluation - cpu.evaluation) < 10 * tolerance);
        if (model.channels == even.channels) CHECK(gpu.losses != trained(on_gpu("fp32"), run, model).losses);
      }
}

TEST_CASE("fp32 with products in another format starts from the weights of fp32") {
  TESSERA_NEEDS_GPU();
  Run run = some_run();
  run.steps = 0;
  std::string const weights = trained(recipe("zs0", "fp32"), run).weights;
  for (Format const& format : formats) CHECK(trained(on_gpu(format.name), run).weights == weights);
}

TEST_CASE("products in another format have the same bits under every capture, offload and recomputation") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run(1, 2);
  for (Format const& format : formats) {
    INFO(std::string(format.name));
    Outcome const plain = trained(on_gpu(format.name), run);
    for (std::string_view const capture : {"graph", "eager"})
      for (std::string_view const offload : offloads) {
        INFO(std::string(capture), " ", std::string(offload));
        CHECK(plain == trained(on_gpu(format.name, capture, offload), run));
      }
    for (std::string_view const recompute : {"gelu", "block", "every"})
      CHECK(plain == trained(on_gpu(format.name, "graph", "none", recompute), run));
  }
}

TEST_CASE("products in another format have the bits of one GPU on two, under every stage") {
  TESSERA_NEEDS_GPUS(2);
  for (Format const& format : formats) {
    Outcome const alone = trained(on_gpu(format.name), some_run(1, 4));
    for (std::string_view const sharding : shardings)
      for (std::string_view const offload : {"none", "cpu_optimizer"}) {
        INFO(std::string(format.name), " ", std::string(sharding), " ", std::string(offload));
        CHECK(alone == trained(on_gpu(format.name, "graph", offload, "none", sharding), some_run(2, 2)));
      }
  }
}

TEST_CASE("the arenas of products in another format hold what was planned without a GPU") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run();
  for (Format const& format : formats) {
    INFO(std::string(format.name));
    RecipeTable const table = on_gpu(format.name);
    auto const trainer = make_trainer(any_model(tiny), table, comm::Comm(), options_of(run));
    StepShape const shape = step_shape(table, options_of(run), 0, 1);
    CHECK(make_plan(any_model(tiny).units({shape.batch, shape.sequence}), table, shape).arena_bytes ==
          trainer->plan().arena_bytes);
    CHECK(trainer->peak_bytes(Tier::device) ==
          trainer->plan().arena_bytes[static_cast<std::size_t>(Tier::device)]);
  }
}
