// SPDX-License-Identifier: Apache-2.0
// Tests LoRA adapters on a GPU. The losses must be close to the losses on the CPU. The results must be
// bit-identical for every choice of CUDA-graph capture, offload and recomputation.
#include <cmath>
#include <cstddef>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "device/skip.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;

RecipeTable with_adapters(std::string_view device, std::string_view precision, std::string_view capture = "",
                          std::string_view offload = "none", std::string_view recompute = "none") {
  SlotNames names;
  names.device = device;
  names.precision = precision;
  names.capture = capture;
  names.offload = offload;
  names.recompute = recompute;
  names.reduction = "ordered";
  names.adapters = "lora";
  if (precision == "fp64") names.attention = "reference";
  return parse_recipe(names);
}

Outcome trained(RecipeTable const& table, Run const& run) {
  return train(
      run,
      [&](comm::Comm comm, TrainerOptions const& options) {
        return make_trainer(any_model(tiny), table, comm, options);
      },
      [&](int ranks, auto const& fn) { run_ranks(table, ranks, fn); });
}

}  // namespace

TEST_CASE("adapters train on a GPU as on the CPU, alike under every capture offload and recomputation") {
  TESSERA_NEEDS_GPU();
  Run run;
  run.steps = 6;
  run.batch = 2;
  run.split = {1, 2};
  run.options.clip = 0.5;
  run.options.learning_rate = 1e-2;
  run.options.lora = {.rank = 3, .alpha = 5.0, .targets = "all-linear"};
  for (std::string_view const precision : {"fp64", "fp32", "bf16", "fp16"}) {
    INFO(std::string(precision));
    Outcome const want = trained(with_adapters("cuda", precision, "graph"), run);
    Outcome const cpu = trained(with_adapters("cpu", precision), run);
    REQUIRE(want.losses.size() == cpu.losses.size());
    double const limit = precision == "fp64" ? 1e-9 : precision == "fp32" ? 1e-4 : 5e-2;
    for (std::size_t step = 0; step < want.losses.size(); ++step)
      CHECK(std::fabs(want.losses[step] - cpu.losses[step]) < limit);
    for (std::string_view const capture : {"eager", "graph"})
      for (std::string_view const offload : offloads)
        CHECK(trained(with_adapters("cuda", precision, capture, offload), run) == want);
    for (std::string_view const recompute : recomputes)
      CHECK(trained(with_adapters("cuda", precision, "graph", "none", recompute), run) == want);
  }
}
