// SPDX-License-Identifier: Apache-2.0
// The product of all lists, in the order of the table.
#include "compare/matrix.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include "tessera/io/results.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera::inline v0 {
namespace compare {

namespace {

/// The micro-batches of one rank count. A list that was not given is derived from the global batch.
std::vector<cli::BatchRelation> relations(Settings const& settings, int ranks) {
  using Given = std::vector<std::optional<std::int64_t>>;
  auto const given = [](std::vector<std::int64_t> const& list) {
    return list.empty() ? Given{std::nullopt} : Given(list.begin(), list.end());
  };
  std::vector<cli::BatchRelation> found;
  for (auto const batch : given(settings.batches))
    for (auto const accumulation : given(settings.accumulations))
      found.push_back(cli::batch_relation(settings.global_batch, ranks, batch, accumulation, default_batch));
  return found;
}

cli::Names or_default(cli::Names const& names) { return names.empty() ? cli::Names{""} : names; }

std::string name_of_point(Settings const& settings, Point const& point) {
  SlotNames const& names = point.recipe.names;
  std::string name = results::experiment_name({.stage = point.stage(),
                                               .precision = std::string(names.precision),
                                               .world = point.split.ranks,
                                               .batch = point.split.batch,
                                               .sequence = point.sequence,
                                               .offload = std::string(names.offload),
                                               .accumulation = point.split.accumulation});
  // What the names of the field do not say is added where rows of one matrix differ in it.
  auto const add = [&](cli::Names const& list, std::string_view value, char const* tag) {
    if (list.size() > 1 && list.front() != value) name.append(tag).append(value);
  };
  add(settings.recomputes, names.recompute, "_recompute-");
  add(settings.reductions, names.reduction, "_reduction-");
  add(settings.captures, names.capture, "_capture-");
  add(settings.attentions, names.attention, "_attention-");
  if (settings.models.size() > 1) name += "_" + point.model.name;
  return name;
}

}  // namespace

std::string Point::group() const {
  SlotNames const& names = recipe.names;
  std::string text = model.name + ", " + std::string(names.precision) + ", " + std::to_string(split.ranks) +
                     (split.ranks == 1 ? " rank" : " ranks") + ", batch " + std::to_string(split.batch) +
                     ", sequence " + std::to_string(sequence) + ", accumulation " +
                     std::to_string(split.accumulation) + ", global batch " + std::to_string(split.global());
  if (names.recompute != "none") text += ", recompute " + std::string(names.recompute);
  if (names.reduction != "ordered") text += ", reduction " + std::string(names.reduction);
  if (names.capture != "eager") text += ", capture " + std::string(names.capture);
  if (names.attention != "auto") text += ", attention " + std::string(names.attention);
  return text;
}

std::vector<Point> make_matrix(Settings const& settings, std::int64_t text_vocabulary) {
  std::vector<Point> points;
  Point point;
  auto const add_recipe = [&](SlotNames const& names) {
    point.recipe = parse_recipe(names);
    point.refusal.reset();
    if (auto const rule = broken_rule(point.recipe))
      point.refusal = std::string(*rule);
    else if (auto const missing = unsupported_reason(point.recipe))
      point.refusal = missing;
    else
      point.refusal = cli::model_refusal(point.model);
    point.experiment = name_of_point(settings, point);
    points.push_back(point);
  };
  auto const add_slots = [&] {
    for (auto const& precision : settings.precisions)
      for (auto const& recompute : or_default(settings.recomputes))
        for (auto const& reduction : or_default(settings.reductions))
          for (auto const& capture : or_default(settings.captures))
            for (auto const& attention : or_default(settings.attentions))
              for (auto const& offload : settings.offloads)
                for (auto const& stage : settings.stages) {
                  SlotNames names;
                  names.sharding = stage;
                  names.precision = precision;
                  names.offload = offload;
                  names.recompute = recompute;
                  names.reduction = reduction;
                  names.capture = capture;
                  names.attention = attention;
                  add_recipe(names);
                }
  };
  for (auto const& model : settings.models)
    for (int const ranks : settings.ranks)
      for (auto const& split : relations(settings, ranks))
        for (std::int64_t const sequence : settings.sequences) {
          point.model = cli::with_sizes(model, sequence, settings.data.vocabulary, text_vocabulary);
          point.split = split;
          point.sequence = sequence;
          cli::check_magnitude(point.model, split.batch * split.accumulation, sequence);
          add_slots();
        }
  return points;
}

}  // namespace compare
}  // namespace tessera::inline v0
