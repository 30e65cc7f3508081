// SPDX-License-Identifier: Apache-2.0
// Compares the losses and gradient norms of this library with those of PyTorch. Both train the same models on
// the same tokens. The expected numbers are in this file.
//
// The numbers of GPT-2 were computed by tests/equivalence/golden_losses.py with PyTorch 2.15.0 in double
// (--type float64; with float32 they differ by less than 1e-6). The script's other flags were --learning-rate
// 1e-3 --weight-decay 0.1 --clip 0.7 --steps 20 --batch N, where N is 6 times the member `batch` of the model
// in the list `golden` below. The script computes the tokens by a formula. The initial weights were written
// by the program `train` with its default seed, 1. Its arguments were `--model
// layers=L,heads=H,channels=C,positions=64 --vocabulary V --sequence T --steps 0 --save w.safetensors`.
//
// The numbers of OPT and LLaMA were computed by transformers_losses.py --golden with transformers 5.23 in
// double. Norms and softmax are in double too, but rotary angles are fp32. The script read model folders that
// the program `train` wrote with corresponding arguments.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/run.hpp"
#include "tessera/data/batch.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"
#include "tessera/train/llama_family.hpp"
#include "tessera/train/opt_family.hpp"

using namespace tessera;

namespace {

constexpr std::size_t steps = 20;

struct Golden {
  AnyModel model;
  int sequence;
  int batch;  ///< a sixth of the global batch
  std::array<double, steps> losses;
  std::array<double, steps> norms;
  bool records = false;  ///< whether samples are records (separate texts) of several lengths
};

std::vector<Golden> const golden = {
    {.model =
         any_model(Gpt2Options{.layers = 1, .heads = 1, .channels = 8, .positions = 64, .vocabulary = 61}),
     .sequence = 5,
     .batch = 1,
     .losses = {4.1182449, 4.1104908, 4.1187519, 4.1027106, 4.1018212, 4.0994165, 4.0964868,
                4.1129638, 4.1195894, 4.1109353, 4.1082836, 4.1208509, 4.1317774, 4.1121370,
                4.0952400, 4.0796066, 4.0994422, 4.0922825, 4.1097751, 4.0793458},
     .norms = {0.674878, 0.975236, 0.912388, 0.846752, 0.902278, 0.814933, 0.918223,
               0.952996, 0.854222, 0.835124, 0.892380, 0.938677, 0.974518, 0.820006,
               0.891599, 0.797519, 0.838466, 0.792090, 0.788277, 0.775178}},
    {.model =
         any_model(Gpt2Options{.layers = 3, .heads = 5, .channels = 35, .positions = 64, .vocabulary = 97}),
     .sequence = 19,
     .batch = 3,
     .losses = {4.5730925, 4.5755103, 4.5275068, 4.5377389, 4.5038787, 4.5071828, 4.4448499,
                4.4684903, 4.4325470, 4.4410140, 4.4260296, 4.4177971, 4.3755180, 4.3992626,
                4.3499042, 4.3761888, 4.3428654, 4.3393751, 4.3187443, 4.3197414},
     .norms = {0.779409, 0.673965, 0.583482, 0.588120, 0.545121, 0.645056, 0.813812,
               0.624432, 0.748882, 0.641822, 0.833873, 0.694350, 0.771326, 0.738590,
               0.739769, 0.855427, 0.744743, 0.777799, 0.883825, 0.682963}},
    {.model =
         any_model(Gpt2Options{.layers = 2, .heads = 3, .channels = 48, .positions = 64, .vocabulary = 301}),
     .sequence = 33,
     .batch = 2,
     .losses = {5.7180830, 5.7095312, 5.7261905, 5.7268258, 5.7140185, 5.5768756, 5.5940278,
                5.6244702, 5.6352737, 5.6441998, 5.5173624, 5.5316496, 5.5516172, 5.5645272,
                5.5723516, 5.4729324, 5.4780582, 5.4914488, 5.5026980, 5.5078123},
     .norms = {0.793178, 0.760317, 0.654174, 0.636670, 0.569846, 0.947287, 0.747767,
               0.644182, 0.606101, 0.680490, 0.670990, 0.686295, 0.624259, 0.630353,
               0.643663, 0.629733, 0.645592, 0.658720, 0.645793, 0.662384}},
    {.model =
         any_model(Gpt2Options{.layers = 2, .heads = 2, .channels = 66, .positions = 64, .vocabulary = 1000}),
     .sequence = 64,
     .batch = 2,
     .losses = {6.9211788, 6.9130127, 6.8368260, 6.7330495, 6.7796050, 6.6261989, 6.6434408,
                6.6356729, 6.5245005, 6.5627494, 6.4795566, 6.4566182, 6.4684131, 6.3560350,
                6.3798253, 6.3314694, 6.2818608, 6.3037470, 6.1913830, 6.2089375},
     .norms = {0.688357, 0.690630, 0.615627, 0.702555, 0.541776, 0.641249, 0.603465,
               0.605090, 0.595950, 0.596232, 0.540786, 0.552984, 0.569602, 0.640494,
               0.514932, 0.569245, 0.545042, 0.557997, 0.581745, 0.573909}},
    {.model = any_model(OptOptions{
         .layers = 2, .heads = 3, .channels = 48, .hidden = 72, .positions = 64, .vocabulary = 301}),
     .sequence = 33,
     .batch = 2,
     .losses = {5.7203882, 5.7147184, 5.7175257, 5.7206429, 5.7157047, 5.6051971, 5.6177546,
                5.6365519, 5.6480962, 5.6545845, 5.5209791, 5.5458160, 5.5653404, 5.5800561,
                5.5898696, 5.4659375, 5.4883824, 5.5024224, 5.5132025, 5.5237584},
     .norms = {0.715774, 0.753764, 0.631788, 0.616907, 0.559050, 0.877259, 0.697822,
               0.646048, 0.612096, 0.618690, 0.727596, 0.773213, 0.689205, 0.708332,
               0.724725, 0.744496, 0.723952, 0.750331, 0.756045, 0.674677}},
    {.model = any_model(LlamaOptions{.layers = 2,
                                     .heads = 6,
                                     .key_heads = 2,
                                     .channels = 48,
                                     .hidden = 88,
                                     .positions = 64,
                                     .vocabulary = 97}),
     .sequence = 19,
     .batch = 3,
     .losses = {4.5793422, 4.5912743, 4.5139450, 4.5516341, 4.4690556, 4.4940037, 4.4000087,
                4.4380871, 4.3663326, 4.4021781, 4.3322481, 4.3481525, 4.2708070, 4.3141765,
                4.2359174, 4.2747311, 4.2024985, 4.2086759, 4.1535577, 4.1780491},
     .norms = {0.631072, 0.609611, 0.617091, 0.613986, 0.639081, 0.596048, 0.602932,
               0.573096, 0.600629, 0.618702, 0.617582, 0.592266, 0.603708, 0.597712,
               0.624835, 0.608452, 0.630337, 0.621606, 0.615882, 0.643616}},
    // These numbers were computed with --records, which makes each record (a separate text) one sample.
    {.model =
         any_model(Gpt2Options{.layers = 3, .heads = 5, .channels = 35, .positions = 64, .vocabulary = 97}),
     .sequence = 19,
     .batch = 3,
     .losses = {4.5638122, 4.5618932, 4.5428257, 4.5368673, 4.5163622, 4.5498119, 4.4378695,
                4.4557534, 4.4419094, 4.4421900, 4.4399752, 4.4412755, 4.3830199, 4.3891917,
                4.3774396, 4.3688093, 4.3779051, 4.3521052, 4.3221111, 4.3281148},
     .norms = {0.819160, 0.757279, 0.717205, 0.664608, 0.755944, 0.936671, 1.000494,
               0.893154, 0.789955, 0.751326, 0.879346, 0.989469, 0.755737, 0.835687,
               0.905015, 0.737268, 0.855002, 1.029713, 0.842508, 0.800891},
     .records = true},
};

/// Returns the tokens on which golden_losses.py trained a model. The same formula computes them.
TokenSource tokens_of(Golden const& from) {
  std::vector<std::uint32_t> tokens;
  for (std::uint32_t i = 0; i < 2000; ++i)
    tokens.push_back((i * i + 3 * (i / 7)) % static_cast<std::uint32_t>(from.model.vocabulary()));
  TokenSource source = TokenSource::from_memory(std::move(tokens), {.vocabulary = from.model.vocabulary()});
  std::vector<Record> records;
  std::int64_t first = 0;
  for (std::int64_t i = 0; from.records; ++i) {
    std::int64_t const length = 2 + (7 * i * i + i) % (2 * from.sequence);
    if (first + length > source.size()) break;
    records.push_back({first, length});
    first += length;
  }
  if (from.records) source.divide(std::move(records));
  return source;
}

struct Worst {
  double loss = 0.0;  ///< the largest absolute difference of a loss
  double norm = 0.0;  ///< the largest relative difference of a gradient norm
};

/// Trains 20 steps and returns the largest differences from the losses and gradient norms of PyTorch.
Worst against(Golden const& expected, SlotNames const& names, int ranks, int accumulation) {
  TokenSource const source = tokens_of(expected);
  Worst worst;
  run(ranks, [&](comm::Comm comm) {
    TrainerOptions options;
    options.learning_rate = 1e-3;
    options.weight_decay = 0.1;
    options.clip = 0.7;
    options.batch = expected.batch * 6 / (ranks * accumulation);
    options.sequence = expected.sequence;
    options.accumulation = accumulation;
    options.threads = 1;
    auto const trainer = make_trainer(expected.model, parse_recipe(names), comm, options);
    Loader loader(source, {.batch = static_cast<int>(options.batch),
                           .sequence = expected.sequence,
                           .accumulation = accumulation,
                           .rank = comm.rank(),
                           .world = ranks,
                           .order = Order::sequential,
                           .whole_epochs = expected.records});
    for (std::size_t step = 0; step < steps; ++step) {
      StepReport const report = trainer->step(loader.load(static_cast<std::int64_t>(step)));
      if (!comm.is_root()) continue;
      worst.loss = std::fmax(worst.loss, std::fabs(report.loss - expected.losses[step]));
      worst.norm = std::fmax(worst.norm, std::fabs(report.grad_norm / expected.norms[step] - 1.0));
      CHECK_MESSAGE(std::isfinite(report.loss), "step ", report.step);
    }
  });
  return worst;
}

void check(SlotNames const& names, int ranks, int accumulation, double loss, double norm) {
  for (Golden const& expected : golden) {
    CAPTURE(expected.model.parameters());
    CAPTURE(std::string(names.sharding));
    CAPTURE(std::string(names.precision));
    Worst const worst = against(expected, names, ranks, accumulation);
    CHECK(worst.loss < loss);
    CHECK(worst.norm < norm);
  }
}

}  // namespace

TEST_CASE("golden losses of PyTorch in fp32 under every sharding") {
  check({.sharding = "zs0"}, 1, 1, 2e-5, 1e-4);
  check({.sharding = "zs0"}, 2, 1, 2e-5, 1e-4);
  check({.sharding = "dp"}, 3, 2, 2e-5, 1e-4);
  check({.sharding = "zs1"}, 2, 3, 2e-5, 1e-4);
  check({.sharding = "zs2"}, 6, 1, 2e-5, 1e-4);
  check({.sharding = "zs3"}, 3, 1, 2e-5, 1e-4);
}

TEST_CASE("golden losses of PyTorch in fp32 with offload and recompute and fast sums") {
  check({.sharding = "zs1", .offload = "cpu_optimizer"}, 3, 2, 2e-5, 1e-4);
  check({.sharding = "zs3", .offload = "cpu_optimizer", .recompute = "block"}, 2, 3, 2e-5, 1e-4);
  check({.sharding = "zs2", .recompute = "every", .reduction = "fast"}, 2, 1, 2e-5, 1e-4);
  check({.sharding = "zs0", .recompute = "gelu", .reduction = "fast"}, 3, 2, 2e-5, 1e-4);
}

TEST_CASE("golden losses of PyTorch in double to the last digit written") {
  check({.sharding = "zs0", .precision = "fp64"}, 1, 1, 1e-7, 2e-6);
  check({.sharding = "zs3", .precision = "fp64"}, 2, 3, 1e-7, 2e-6);
}

TEST_CASE("golden losses of PyTorch hold in 16 bits within their rounding") {
  check({.sharding = "zs2", .precision = "bf16"}, 3, 1, 0.03, 0.1);
  check({.sharding = "zs3", .precision = "fp16", .offload = "cpu_optimizer"}, 2, 1, 0.01, 0.03);
}
