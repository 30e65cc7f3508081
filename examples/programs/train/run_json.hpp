// SPDX-License-Identifier: Apache-2.0
// Defines the lines of JSON that the program `train` writes to its log.
#pragma once

#include <algorithm>
#include <string>

#include "cli/values.hpp"
#include "machine/machine.hpp"
#include "results/results.hpp"
#include "train/settings.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Returns all settings of a training run as a JSON object for the first line of the log.
inline Json config_json(Settings const& settings) {
  ModelSpec const& sizes = settings.model.sizes;
  TrainerOptions const& options = settings.options;
  Json config = Json::object();
  config["model"] = settings.model.name;
  for (ModelKey const& key : settings.model.family->keys)
    config[key.name] = key.real ? Json(sizes.number(key.name)) : Json(sizes.integer(key.name));
  config["positions"] = sizes.positions;
  config["vocabulary"] = sizes.vocabulary;
  config["params"] = parameter_count(settings.units());
  config["trainable_params"] = trainable_count(settings.units());
  config["freeze"] = or_null(settings.freeze);
  config["lora"] = or_null(settings.adapters.lora);
  config["adapter"] = or_null(settings.adapters.from.string());
  config["stage"] =
      settings.recipe.stage < 0 ? Json(settings.recipe.names.sharding) : Json(settings.recipe.stage);
  for_each_slot([&]<class Slot>(Slot) {
    std::string key(Slot::title);
    std::replace(key.begin(), key.end(), ' ', '_');
    config[key] = std::string(settings.recipe.names.*Slot::field);
  });
  config["world"] = settings.relation.ranks;
  config["batch"] = settings.relation.batch;
  config["sequence"] = options.sequence;
  config["accumulation"] = settings.relation.accumulation;
  config["global_batch"] = settings.relation.global();
  config["data"] = or_null(settings.data_text);
  config["samples_are"] = name_of(settings.data.samples_are);
  config["samples"] = settings.samples > 0 ? Json(settings.samples) : Json(nullptr);
  config["epochs"] = settings.epochs > 0 ? Json(settings.epochs) : Json(nullptr);
  config["order"] = tessera::name_of(settings.data.order);
  config["validation"] = settings.validation ? Json(settings.validation->description()) : Json(nullptr);
  config["validate_every"] = settings.validate_every;
  config["steps"] = settings.steps;
  config["min_time_s"] = settings.min_time;
  add_option_values(config, OptionGroup::optimizer, options);
  add_option_values(config, OptionGroup::loss_scale, options);
  config["init"] = settings.init.empty() ? Json(nullptr) : Json(settings.init.string());
  config["save"] = settings.save.empty() ? Json(nullptr) : Json(settings.save.string());
  config["save_adapter"] = or_null(settings.adapters.save.string());
  config["merge"] = settings.adapters.merge;
  config["checkpoint"] = or_null(settings.checkpoints.folder.string());
  config["checkpoint_every"] = settings.checkpoints.every;
  config["trace"] = or_null(settings.trace.file.string());
  config["profile"] = settings.trace.profile;
  config["trace_steps"] = settings.trace.requested() ? Json(settings.trace.steps) : Json(nullptr);
  config["product_plans"] = or_null(product_plans_text(settings.recipe.device, settings.plans != nullptr));
  add_option_values(config, OptionGroup::machine, options);
  return config;
}

/// Returns the figures of an epoch as a line of the log.
inline Json epoch_json(results::EpochLogRow const& epoch) {
  return {{"epoch", epoch.epoch},
          {"steps", epoch.steps},
          {"samples", epoch.samples},
          {"seconds", epoch.seconds},
          {"samples_per_sec", epoch.samples_per_sec},
          {"loss", epoch.loss},
          {"loss_with_padding", epoch.loss_with_padding}};
}

}  // namespace cli
}  // namespace programs
