// SPDX-License-Identifier: Apache-2.0
// A user's program that chooses its recipe (combination of policies) at run time. It links the installed
// library of compiled recipes, which also provides checkpoints and weight files.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>

#include <tessera/checkpoint/checkpoint.hpp>
#include <tessera/comm/environment.hpp>
#include <tessera/io/hash.hpp>
#include <tessera/io/model_weights.hpp>
#include <tessera/train/any_trainer.hpp>
#include <tessera/train/gpt2_family.hpp>

namespace ts = tessera;

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#error "this program has to take checkpoints and files of weights from tessera::recipes"
#endif

/// Saves a trainer as a checkpoint and as a weight file, and loads both files. Returns whether the loaded
/// weights have the bits of the saved weights.
bool loads_what_it_saved(ts::AnyTrainer& trainer, ts::AnyModel const& model) {
  std::filesystem::path const folder = "with_recipes_files";
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  auto const units = model.units({1, 1});
  auto const hash = [&] {
    ts::WeightsHash weights;
    trainer.collect_pieces([&](ts::ParameterSpec const& parameter, std::span<float const> values) {
      weights.append(parameter.name, parameter.shape, values);
    });
    return weights.digest();
  };
  std::string const before = hash();
  ts::save_checkpoint(trainer, folder / "checkpoint");
  ts::WeightsWriter writer(folder / "model.safetensors", units);
  trainer.collect_pieces(writer.sink());
  writer.commit();
  auto const clear = [&] {
    trainer.fill([](int, int, std::int64_t, std::span<float> out) {
      for (float& value : out) value = 0.0f;
    });
    return hash() != before;
  };
  bool good = clear();
  trainer.fill(ts::ModelWeights::open(folder, units, ts::gpt2_weight_names()).source());
  good = good && hash() == before && clear();
  ts::resume(trainer, folder / "checkpoint");
  good = good && hash() == before;
  std::filesystem::remove_all(folder);
  return good;
}

int main() {
  ts::AnyModel const model =
      ts::any_model({.layers = 1, .heads = 2, .channels = 16, .positions = 16, .vocabulary = 32});
  for (ts::RecipeTable const& recipe : ts::registered_recipes()) {
    auto const trainer =
        ts::make_trainer(model, recipe, ts::comm::from_environment(), {.batch = 1, .sequence = 16});
    trainer->synchronize();
    if (trainer->peak_bytes(ts::Tier::device) <= 0) return 1;
    if (!loads_what_it_saved(*trainer, model)) return 1;
  }
  std::printf("%zu recipes\n", ts::registered_recipes().size());
  return ts::registered_recipes().empty() ? 1 : 0;
}
