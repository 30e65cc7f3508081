// SPDX-License-Identifier: Apache-2.0
#include "compare/box.hpp"

#include <cstddef>
#include <cstdint>

#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

/// Returns the numbers of `list` as text, separated by commas.
template <class T>
std::string numbers(std::vector<T> const& list) {
  cli::Names items;
  for (auto const& item : list) items.push_back(std::to_string(item));
  return cli::joined(items, ",");
}

/// Returns the value of the line "rows" in the box: the number of rows, as text. A row is one training
/// configuration: a model, a recipe, a batch, a sequence and a number of ranks. If `compare` trains only some
/// of the recipes, the text also says which ones.
std::string rows_text(Settings const& settings, std::size_t rows) {
  if (settings.minute)
    return std::to_string(rows) + " that fit into a minute: the stages, and two offloads; --full trains all";
  if (!settings.matrix.selection) return std::to_string(rows);
  std::size_t const all =
      rows / cli::recipe_count(settings.matrix, true) * cli::recipe_count(settings.matrix, false);
  return std::to_string(rows) + " of " + std::to_string(all) +
         ": every sharding without offload in every precision, and with each offload in one; --full trains "
         "all";
}

}  // namespace

std::string box_text(cli::CommandLine const& line, Settings const& settings, std::vector<Point> const& points,
                     TokenSource const& data, cli::Terminal const& terminal) {
  cli::Box box("compare");
  auto const origin = [&](char const* flag) { return line.origin(flag); };
  cli::Names models;
  std::vector<std::int64_t> batches, accumulations, globals;
  for (auto const& model : settings.matrix.models) models.push_back(model.name);
  for (auto const& point : points) {
    batches.push_back(point.split.batch);
    accumulations.push_back(point.split.accumulation);
    globals.push_back(point.split.global());
  }
  auto const derived = [&](char const* flag) {
    return line.given(flag) ? line.origin(flag) : settings.matrix.global_batch ? "derived" : "default";
  };
  if (settings.defaults != "own")
    box.add("defaults", settings.defaults + ", as published", origin("--defaults"));
  box.add("models", cli::joined(models, " "), origin("--models"));
  std::string const& device = settings.matrix.device;
  box.add("device",
          device + ", " + std::to_string(cli::core_count()) + " cores, ranks are threads" +
              (info_of(device_named(device)).on_cores ? "" : " with a device each"),
          origin("--device"));
  box.add("ranks", numbers(settings.matrix.ranks), origin("--ranks"));
  box.add("batch", numbers(cli::distinct(batches)), derived("--batch"));
  box.add("sequence", numbers(settings.matrix.sequences), origin("--sequence"));
  box.add("accumulation", numbers(cli::distinct(accumulations)), derived("--accumulation"));
  box.add("global batch", numbers(cli::distinct(globals)),
          settings.matrix.global_batch ? origin("--global-batch") : "derived");
  // If no flag selects rows or steps, settings.minute is true, and the program chose rows that fit into one
  // minute. The box then shows only the values in these rows, each value once.
  auto const list_of = [&]<class Slot>(Slot) {
    cli::Names names;
    for (auto const& point : points) names.emplace_back(point.recipe.names.*Slot::field);
    return cli::joined(settings.minute ? cli::distinct(names) : settings.matrix.slots.of<Slot>(), ",");
  };
  auto const slot_origin = [&](char const* flag, bool by_strategies) {
    return settings.minute                      ? "derived"
           : by_strategies && !line.given(flag) ? origin("--strategies")
                                                : origin(flag);
  };
  box.add("stages", list_of(slot::sharding{}), slot_origin("--stages", settings.matrix.stages_given));
  box.add("precisions", list_of(slot::precision{}), slot_origin("--precisions", false));
  box.add("offloads", list_of(slot::offload{}), slot_origin("--offloads", settings.matrix.offloads_given));
  if (!settings.trainer.nvme_directory.empty())
    box.add("nvme path", files::path_text(settings.trainer.nvme_directory), origin("--nvme-path"));
  if (settings.plans)
    box.add("product plans", files::path_text(settings.product_plans), origin("--product-plans"));
  if (settings.epochs > 0)
    box.add("epochs",
            std::to_string(settings.epochs) + ", whose first " + std::to_string(settings.warmup) +
                " steps warm up",
            origin("--epochs"));
  else
    box.add(
        "steps",
        std::to_string(settings.warmup) + " to warm up, " + std::to_string(settings.steps) + " timed",
        settings.minute ? "derived" : origin(line.origin("--steps") == "default" ? "--warmup" : "--steps"));
  if (settings.repeat > 1) box.add("repeats", std::to_string(settings.repeat), origin("--repeat"));
  if (settings.min_time > 0.0)
    box.add("least time", cli::shortest(settings.min_time) + " s", origin("--min-time"));
  box.add("learning rate",
          cli::shortest(settings.trainer.learning_rate) + ", clip " + cli::shortest(settings.trainer.clip),
          origin(line.given("--learning-rate") ? "--learning-rate" : "--clip"));
  box.add("data", data.description() + ", " + name_of(settings.data.order), origin("--data"));
  box.add("samples", cli::samples_text(data, settings.data, points.front().sequence, settings.samples),
          origin(line.given("--samples") ? "--samples" : "--samples-are"));
  if (!settings.init.empty()) box.add("weights", files::path_text(settings.init), origin("--init"));
  for (auto const& model : settings.matrix.models)
    if (settings.init.empty() && !model.hub.empty())
      box.add("weights", model.name + ": random, nothing was downloaded", "derived");
  box.add("vocabulary", std::to_string(points.front().model.sizes.vocabulary),
          settings.data.vocabulary > 0 ? origin("--vocabulary")
          : points.front().model.named ? "model"
                                       : "data");
  for (auto const& model : settings.matrix.models)
    if (!model.not_applied.empty())
      box.add("not applied", model.name + ": " + model.not_applied, "config.json");
  if (!settings.freeze.empty()) box.add("frozen", settings.freeze, origin("--freeze"));
  if (!settings.lora.empty()) box.add("adapters", settings.lora, origin("--lora"));
  box.add("rows", rows_text(settings, points.size()), settings.full ? origin("--full") : "derived");
  return box.text(terminal.width);
}

cli::Json settings_json(Settings const& settings, TokenSource const& data) {
  TrainerOptions const& trainer = settings.trainer;
  cli::Json all = {
      {"steps", settings.steps},
      {"warmup", settings.warmup},
      {"repeat", settings.repeat},
      {"min_time_s", settings.min_time},
      {"data", data.description()},
      {"data_paths", settings.data.paths},
      {"tokenizer", cli::or_null(settings.data.tokenizer)},
      {"samples_are", cli::name_of(settings.data.samples_are)},
      {"field", cli::reads_fields(settings.data) ? cli::Json(settings.data.field) : cli::Json(nullptr)},
      {"separator", settings.data.separator < 0 ? cli::Json(nullptr) : cli::Json(settings.data.separator)},
      {"epochs", settings.epochs > 0 ? cli::Json(settings.epochs) : cli::Json(nullptr)},
      {"samples", settings.samples > 0 ? cli::Json(settings.samples) : cli::Json(nullptr)},
      {"vocabulary", settings.data.vocabulary > 0 ? cli::Json(settings.data.vocabulary) : cli::Json(nullptr)},
      {"order", name_of(settings.data.order)}};
  cli::add_option_values(all, OptionGroup::optimizer, trainer, cli::warmup_in_compare);
  cli::add_option_values(all, OptionGroup::loss_scale, trainer);
  all["freeze"] = cli::or_null(settings.freeze);
  all["lora"] = cli::or_null(settings.lora);
  cli::add_option_values(all, OptionGroup::machine, trainer);
  return all;
}

}  // namespace compare
}  // namespace programs
