// SPDX-License-Identifier: Apache-2.0
// Registers the model family of mlp.hpp in the model registry of a program, so that a user of the program can
// choose the models of this family by name. A program only has to link this file.
#include "tessera/train/compiled_model.hpp"
#include "tessera/train/model_family.hpp"

#include "support/mlp.hpp"

namespace ts = tessera;

namespace {

ts::AnyModel make(ts::ModelSpec const& sizes) {
  return ts::any_model(support::MlpModel({.layers = sizes.integer("layers"),
                                          .channels = sizes.integer("channels"),
                                          .hidden = sizes.integer("hidden"),
                                          .positions = sizes.positions,
                                          .vocabulary = sizes.vocabulary}));
}

double four_times(ts::ModelSpec const& before) { return 4.0 * before.number("channels"); }

bool const registered = ts::register_model_family(
    {.name = "mlp",
     .title = "MLP",
     .keys = {{.name = "layers", .max = 1000},
              {.name = "channels", .max = 65536},
              {.name = "hidden", .max = 262144, .standard = four_times}},
     .models = {{.name = "mlp-small", .numbers = {2, 24, 40}},
                {.name = "mlp-words", .numbers = {3, 48, 192}, .positions = 128, .vocabulary = 300}},
     .make = make});

}  // namespace
