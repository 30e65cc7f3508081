// SPDX-License-Identifier: Apache-2.0
// A program of somebody else's that picks its recipe at run time, from the installed library of compiled
// recipes.
#include <cstdio>

#include <tessera/comm/environment.hpp>
#include <tessera/train/any_trainer.hpp>
#include <tessera/train/gpt2_family.hpp>

namespace ts = tessera;

int main() {
  ts::AnyModel const model =
      ts::any_model({.layers = 1, .heads = 2, .channels = 16, .positions = 16, .vocabulary = 32});
  for (ts::RecipeTable const& recipe : ts::registered_recipes()) {
    auto const trainer =
        ts::make_trainer(model, recipe, ts::comm::from_environment(), {.batch = 1, .sequence = 16});
    trainer->settle();
    if (trainer->peak_bytes(ts::Tier::device) <= 0) return 1;
  }
  std::printf("%zu recipes\n", ts::registered_recipes().size());
  return ts::registered_recipes().empty() ? 1 : 0;
}
