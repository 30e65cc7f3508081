// SPDX-License-Identifier: Apache-2.0
// Builds the rows of the result tables of the programs `compare` and `plan`. A row is one model under one
// recipe with one shape (batch, ranks, accumulation and sequence). The rows are all combinations of the
// values that the flags list.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/policy/table.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/command_line.hpp"
#include "cli/slot_flags.hpp"
#include "results/published.hpp"
#include "results/results.hpp"
#include "workload/batches.hpp"
#include "workload/mesh.hpp"
#include "workload/models.hpp"

namespace programs {
using namespace tessera;
namespace cli {

inline constexpr std::int64_t default_batch = 4;

/// Returns the offloads that this build can run. The first one is "none".
inline Names built_offloads() {
  Names names;
  for (auto const& name : slot_choices<slot::offload>())
    if (!unsupported_reason(parse_recipe({.offload = name}))) names.push_back(name);
  return names;
}

/// Returns the values of a slot that occur in the registered recipes, which this build compiles. A slot is
/// one part of a recipe, such as the precision. If no flag lists values of the slot, the rows use these
/// values.
template <class Slot>
Names registered_choices() {
  Names names;
  for (RecipeTable const& recipe : registered_recipes()) names.emplace_back(recipe.names.*Slot::field);
  return distinct(names);
}

/// The values that the flags list for each part of a row. A slot is one part of a recipe, such as the
/// precision. If the list of a slot is empty, all rows have the default value of the slot.
struct MatrixFlags {
  std::vector<ModelChoice> models = {model_choice("--models", "tiny")};
  std::vector<std::int64_t> batches;  ///< empty: computed from the global batch, or `default_batch`
  std::vector<std::int64_t> sequences = {128};
  std::vector<std::int64_t> accumulations;  ///< empty: computed from the global batch, or 1
  std::optional<std::int64_t> global_batch;
  BatchNames batch_names;  ///< for messages; the program sets it after the command line is parsed

  std::string device = std::string(name_of(default_device()));
  std::vector<int> ranks = default_ranks(default_device());
  std::vector<Mesh> meshes = {Mesh{}};
  PerSlot<Names> slots;
  bool stages_given = false, offloads_given = false;
  std::string by_strategies;  ///< the flag that --strategies replaces, --stages or --offloads; empty: none
  bool selection = false;     ///< whether the rows are only the recipes for which is_selected is true

  MatrixFlags() {
    slots.of<slot::sharding>() = registered_choices<slot::sharding>();
    slots.of<slot::precision>() = registered_choices<slot::precision>();
    slots.of<slot::offload>() = built_offloads();
  }
};

/// Returns the values of a slot (a part of a recipe, such as the precision) that `items` name, without
/// repetitions. Throws Error(usage) for an unknown name.
template <class Slot>
Names slot_list(std::string const& flag, Names const& items) {
  Names names;
  for (auto const& item : items) names.push_back(slot_choice<Slot>(flag, item));
  return distinct(names);
}

namespace detail {

/// Returns whether the values of --strategies are offloads; false if they are shardings. Throws if they are a
/// mixture, or if a name is unknown.
inline bool are_offloads(std::string const& flag, Names const& items) {
  Names all = {"ddp", "zero0", "zero1", "zero2", "zero3"};
  for (Names const& more : {slot_choices<slot::sharding>(), slot_choices<slot::offload>()})
    all.insert(all.end(), more.begin(), more.end());
  std::string const *sharding = nullptr, *offload = nullptr;
  for (auto const& item : items) {
    if (slot_names<slot::offload>(item))
      offload = &item;
    else if (slot_names<slot::sharding>(item))
      sharding = &item;
    else
      choice(flag, item, all);
  }
  if (sharding && offload)
    refuse(flag + ": " + in_quotes(*sharding) + " is a sharding and " + in_quotes(*offload) +
           " an offload; give shardings to --stages and offloads to --offloads");
  return offload != nullptr;
}

}  // namespace detail

inline void add_matrix_flags(CommandLine& line, MatrixFlags& flags) {
  line.group("Matrix (lists)");
  line.custom("--device", joined(slot_choices<slot::device>(), "|"), flags.device,
              slot_flag<slot::device>().help, [&](std::string const& flag, std::string const& value) {
                flags.device = slot_choice<slot::device>(flag, value);
              });
  line.values("--models,--model", "MODEL,...", "tiny",
              joined(model_names(/*runnable_only=*/true)) +
                  ", a folder with a config.json, a file of llm.c, or " + model_forms(),
              [&](std::string const& flag, Names const& values) { flags.models = model_list(flag, values); });
  line.integer_list("--ranks,--gpus", flags.ranks, "ranks: threads of this process, or GPUs", 1, 64);
  line.integer_list("--batch,--batch-size", flags.batches,
                    "samples in a micro-batch of one rank; default: 4, or derived", 1, 1 << 20);
  line.values("--mesh", "replicate=R,shard=S...", "replicate=1",
              "R rows of ranks; each row has a copy of all shards",
              [&](std::string const& flag, Names const& values) {
                flags.meshes.clear();
                for (auto const& value : values) flags.meshes.push_back(read_mesh(flag, value));
                flags.meshes = distinct(flags.meshes);
              });
  line.integer_list("--sequence,--seq-length", flags.sequences,
                    "tokens in a sample; the default is for quick comparisons, so give your own", 1, 1 << 20);
  line.integer_list("--accumulation,--grad-accum", flags.accumulations,
                    "micro-batches of one rank in a step; default: 1, or derived", 1, max_accumulation);
  for_each_slot([&]<class Slot>(Slot) {
    if constexpr (!std::is_same_v<Slot, slot::device>) {
      Names& value = flags.slots.template of<Slot>();
      line.list(slot_flag<Slot>().several, "NAME,...",
                value.empty() ? slot_default<Slot>(flags.device) : joined(value, ","), slot_help<Slot>(),
                [&](std::string const& flag, Names const& items) {
                  value = slot_list<Slot>(flag, items);
                  flags.stages_given |= std::is_same_v<Slot, slot::sharding>;
                  flags.offloads_given |= std::is_same_v<Slot, slot::offload>;
                });
    }
  });
  line.list("--strategies", "NAME,...", "", "stages; or offloads, when all of the values are offloads",
            [&](std::string const& flag, Names const& items) {
              bool const offloads = detail::are_offloads(flag, items);
              flags.by_strategies = offloads ? "--offloads" : "--stages";
              if (line.given(flags.by_strategies))
                refuse(flag + " gives " +
                       (offloads ? "offloads, and so does --offloads" : "stages, and so does --stages") +
                       "; leave out one of them");
              if (offloads)
                flags.slots.of<slot::offload>() = slot_list<slot::offload>(flag, items);
              else
                flags.slots.of<slot::sharding>() = slot_list<slot::sharding>(flag, items);
              (offloads ? flags.offloads_given : flags.stages_given) = true;
            });
  line.custom("--global-batch", "N", "", "samples in a step over all ranks; sets batch or accumulation",
              [&](std::string const& flag, std::string const& value) {
                flags.global_batch = parse_integer(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });
}

/// A slot is one part of a recipe, such as the precision. Whether `experiment_name` already puts this slot
/// into the name of a row. If not, the name contains the value of the slot only if the rows differ in this
/// slot.
template <class Slot>
inline constexpr bool named_otherwise =
    std::is_same_v<Slot, slot::device> || std::is_same_v<Slot, slot::sharding> ||
    std::is_same_v<Slot, slot::precision> || std::is_same_v<Slot, slot::offload>;

/// One row of the matrix: a model, a shape (batch, ranks, accumulation, sequence) and a recipe.
struct Point {
  ModelChoice model;
  BatchRelation split;
  Mesh mesh;
  std::int64_t sequence = 0;
  bool own_positions = false;  ///< whether the model gives its positions; else they follow from the sequence
  RecipeTable recipe;
  std::string experiment;
  /// the policies that a flag asked for and that the name of the experiment possibly lacks, as text:
  /// ", recompute block, capture graph"
  std::string variants;
  /// why the row cannot run: the violated rule, or what this build lacks
  std::optional<std::string> refusal;
  std::size_t number = 0;  ///< the index of the row among all rows of the command

  int world() const { return static_cast<int>(split.ranks); }
  /// Returns whether the row can be planned. A row that is refused only because this build or this machine
  /// lacks its device has an exact plan.
  bool can_be_planned() const {
    return !broken_rule(recipe) && !unsupported_reason(recipe) && model.can_run();
  }
  /// Returns a heading for the rows that have this model, precision and shape. The rows under one heading
  /// differ only in sharding and offload.
  std::string group() const {
    SlotNames const& names = recipe.names;
    return model.name + ", " + std::string(names.precision) + ", " + std::to_string(split.ranks) +
           (split.ranks == 1 ? " rank" : " ranks") +
           (mesh.replicas > 1 ? " as " + mesh.text(split.ranks) : "") + ", batch " +
           std::to_string(split.batch) + ", sequence " + std::to_string(sequence) + ", accumulation " +
           std::to_string(split.accumulation) + ", global batch " + std::to_string(split.global()) + variants;
  }
};

namespace detail {

/// Returns the batch per rank if only --global-batch is given. This is the largest batch, up to the default,
/// that divides the samples of a rank for every number of ranks. With one batch for all rows, all rows have
/// the same micro-batches and end with the same weights.
inline std::int64_t common_batch(MatrixFlags const& flags) {
  for (std::int64_t batch = default_batch; batch > 1; --batch)
    if (std::all_of(flags.ranks.begin(), flags.ranks.end(),
                    [&](int ranks) { return *flags.global_batch % (batch * ranks) == 0; }))
      return batch;
  return 1;
}

/// Throws if some row cannot have this global batch. The message suggests a global batch that every row can
/// have.
inline void check_global_batch(MatrixFlags const& flags) {
  using Sizes = std::vector<std::int64_t>;
  Sizes const batches = flags.batches.empty() ? Sizes{1} : flags.batches,
              accumulations = flags.accumulations.empty() ? Sizes{1} : flags.accumulations;
  if (!flags.global_batch || flags.ranks.size() * batches.size() * accumulations.size() < 2) return;
  std::int64_t const requested = *flags.global_batch;
  std::vector<BatchRelation> relations;
  Sizes products;
  std::int64_t most = max_sequences;  // the largest global batch that every row can have
  for (int const ranks : flags.ranks)
    for (std::int64_t const batch : batches)
      for (std::int64_t const accumulation : accumulations) {
        relations.push_back(checked_relation({batch, ranks, accumulation}));
        products.push_back(relations.back().global());
        if (!flags.batches.empty()) most = std::min(most, batch * ranks * max_accumulation);
      }
  auto const list = [](char const* flag, auto const& values) {
    Names items;
    for (auto const value : values) items.push_back(std::to_string(value));
    return values.empty() ? std::string() : std::string(" x ") + flag + " " + joined(items, ",");
  };
  std::string const rows = (list("--ranks", flags.ranks) + list("--batch", flags.batches) +
                            list("--accumulation", flags.accumulations))
                               .substr(3);
  BatchNames const& names = flags.batch_names;
  auto const fail = [&](std::string const& text) {
    throw Error(ErrorKind::config, names.subject(requested) + text);
  };
  if (!flags.batches.empty() && !flags.accumulations.empty()) {
    for (BatchRelation const& relation : relations)
      if (relation.global() != requested)
        fail(" contradicts " + names.equation(relation) + " of " + rows + "; " +
             remedies_text(requested, relations, names));
    return;
  }
  std::int64_t const unit = common_unit(products);
  if (unit > 0 && requested % unit == 0) return;
  if (unit == 0 || unit > most)
    fail(" is impossible: no global batch is a multiple of all of " + rows + "; give fewer of them");
  fail(" is impossible: all of " + rows + " need a multiple of " + std::to_string(unit) +
       nearest_global_batches(requested, unit, most / unit, names));
}

/// Returns the batches and accumulations of the rows on `ranks` ranks. A list that is not given is computed
/// from the global batch.
inline std::vector<BatchRelation> relations(MatrixFlags const& flags, int ranks) {
  using Given = std::vector<std::optional<std::int64_t>>;
  auto const given = [](std::vector<std::int64_t> const& list) {
    return list.empty() ? Given{std::nullopt} : Given(list.begin(), list.end());
  };
  bool const underived = flags.global_batch && flags.batches.empty() && flags.accumulations.empty();
  std::int64_t const standard = underived ? common_batch(flags) : default_batch;
  std::vector<BatchRelation> found;
  for (auto const batch : given(flags.batches))
    for (auto const accumulation : given(flags.accumulations))
      found.push_back(
          batch_relation(flags.global_batch, ranks, batch, accumulation, standard, flags.batch_names));
  return found;
}

inline std::string name_of_point(MatrixFlags const& flags, Point const& point) {
  SlotNames const& names = point.recipe.names;
  std::string name = results::experiment_name({.sharding = std::string(names.sharding),
                                               .precision = std::string(names.precision),
                                               .gpus = point.recipe.device == Device::cuda,
                                               .world = point.split.ranks,
                                               .batch = point.split.batch,
                                               .sequence = point.sequence,
                                               .offload = std::string(names.offload),
                                               .accumulation = point.split.accumulation});
  // The name does not contain the other slots (parts of the recipe) yet. If the flags list several values of
  // such a slot, appends the value of this row, unless it is the first value of the list.
  for_each_slot([&]<class Slot>(Slot) {
    Names const& list = flags.slots.template of<Slot>();
    std::string_view const value = names.*Slot::field;
    if (named_otherwise<Slot> || list.size() < 2 || list.front() == value) return;
    std::string title(Slot::title);
    std::replace(title.begin(), title.end(), ' ', '-');
    name.append("_").append(title).append("-").append(value);
  });
  if (point.mesh.replicas > 1) name += "_mesh" + point.mesh.text(point.split.ranks);
  if (flags.models.size() > 1) name += "_" + point.model.name;
  // The name of a model is possibly the path of a folder. The name of an experiment must have no "/", because
  // it becomes the name of a folder.
  std::replace(name.begin(), name.end(), '/', '-');
  return name;
}

/// Returns the policies of a recipe in the slots that `experiment_name` does not name, as text: ", recompute
/// block, capture graph". A policy is left out if it is the default and the only value that the flags list.
inline std::string variants_of(MatrixFlags const& flags, RecipeTable const& recipe) {
  std::string text;
  for_each_slot([&]<class Slot>(Slot) {
    std::string_view const name = recipe.names.*Slot::field;
    bool const several = flags.slots.template of<Slot>().size() > 1;
    if (!named_otherwise<Slot> && (several || name != Slot::standard(recipe)))
      text += ", " + std::string(Slot::title) + " " + std::string(name);
  });
  return text;
}

/// Returns whether the recipe `row` belongs to the selection, which has fewer rows than all combinations.
/// Without offload, the selection has every sharding in every precision. With an offload, it has every
/// sharding in one precision only. This precision changes from sharding to sharding and from offload to
/// offload. So the selection has each pair of sharding and precision, each pair of sharding and offload, and
/// each pair of offload and precision.
inline bool is_selected(MatrixFlags const& flags, SlotNames const& row) {
  auto const place = [&]<class Slot>(Slot) {
    Names const& list = flags.slots.template of<Slot>();
    return std::find(list.begin(), list.end(), row.*Slot::field) - list.begin();
  };
  auto const offload = place(slot::offload{});
  auto const precisions = static_cast<std::ptrdiff_t>(flags.slots.of<slot::precision>().size());
  return offload == 0 || place(slot::precision{}) == (place(slot::sharding{}) + offload) % precisions;
}

/// Returns one recipe for each combination of the values that the flags list. If flags.selection is true,
/// returns only the recipes for which is_selected is true. Shardings vary fastest, then offloads, then the
/// other parts of the recipe. The result refers to strings of `flags`, so `flags` must outlive it.
inline std::vector<SlotNames> all_answers(MatrixFlags const& flags) {
  std::vector<SlotNames> rows(1);
  rows.front().device = flags.device;
  auto const vary = [&]<class Slot>(Slot) {
    Names const& list = flags.slots.template of<Slot>();
    if (list.empty()) return;
    std::vector<SlotNames> varied;
    for (SlotNames row : rows)
      for (auto const& name : list) {
        row.*Slot::field = name;
        varied.push_back(row);
      }
    rows = std::move(varied);
  };
  for_each_slot([&]<class Slot>(Slot slot) {
    if (!std::is_same_v<Slot, slot::offload> && !std::is_same_v<Slot, slot::sharding>) vary(slot);
  });
  vary(slot::offload{});
  vary(slot::sharding{});
  if (flags.selection) std::erase_if(rows, [&](SlotNames const& row) { return !is_selected(flags, row); });
  return rows;
}

}  // namespace detail

/// Returns the number of recipes for one model and shape. If `selection` is true, counts only the recipes for
/// which detail::is_selected is true.
inline std::size_t recipe_count(MatrixFlags flags, bool selection) {
  flags.selection = selection;
  return detail::all_answers(flags).size();
}

/// Returns all rows in the order of the table. `vocabulary` is the value of the flag --vocabulary (0: not
/// given), and `text_vocabulary` is the vocabulary of the data. `missing` returns why this build cannot run a
/// valid recipe. Throws Error(config) for an impossible batch or size.
inline std::vector<Point> make_matrix(
    MatrixFlags const& flags, std::int64_t vocabulary, std::int64_t text_vocabulary = 256,
    std::optional<std::string> (*missing)(RecipeTable const&) = &unavailable_reason) {
  std::vector<SlotNames> const answers = detail::all_answers(flags);
  std::vector<Point> points;
  Point point;
  auto const add_recipe = [&](SlotNames const& names) {
    point.recipe = parse_recipe(names);
    point.refusal.reset();
    if (auto const rule = broken_rule(point.recipe))
      point.refusal = in_flags(std::string(*rule));
    else if (auto const reason = missing(point.recipe))
      point.refusal = reason;
    else
      point.refusal = model_refusal(point.model);
    point.experiment = detail::name_of_point(flags, point);
    point.variants = detail::variants_of(flags, point.recipe);
    points.push_back(point);
  };
  detail::check_global_batch(flags);
  for (auto const& model : flags.models)
    for (int const ranks : flags.ranks)
      for (Mesh const& mesh : flags.meshes)
        for (auto const& split : detail::relations(flags, ranks))
          for (std::int64_t const sequence : flags.sequences) {
            check_mesh(mesh, ranks);
            point.model = with_sizes(model, sequence, vocabulary, text_vocabulary);
            point.split = split;
            point.mesh = mesh;
            point.sequence = sequence;
            point.own_positions = model.sizes.positions > 0;
            check_magnitude(point.model, split.batch * split.accumulation, sequence);
            check_micro_batch(split.batch, sequence);
            for (SlotNames const& names : answers) add_recipe(names);
          }
  return points;
}

/// Maps the name of each model of the rows to its published name (known_name), if the two names differ.
inline PublishedModels published_models(std::vector<Point> const& points) {
  PublishedModels models;
  for (Point const& point : points)
    if (std::string known = known_name(point.model); known != point.model.name)
      models.emplace(point.model.name, std::move(known));
  return models;
}

/// Maps each flag that was not given to the value that the program derived for it. If the value differs
/// between rows, the flag maps to "", because a list of the values would give other rows.
inline std::map<std::string, std::string> derived_flags(MatrixFlags const& flags,
                                                        std::vector<Point> const& points) {
  std::map<std::string, std::string> derived;
  auto const derive = [&](std::string const& names, auto const& value_of) {
    std::string value = value_of(points.front());
    for (Point const& point : points)
      if (value_of(point) != value) value.clear();
    derived[names.substr(0, names.find(','))] = value;
  };
  for_each_slot([&]<class Slot>(Slot) {
    if (!std::is_same_v<Slot, slot::device> && flags.slots.template of<Slot>().empty())
      derive(slot_flag<Slot>().several,
             [](Point const& point) { return std::string(point.recipe.names.*Slot::field); });
  });
  if (!flags.by_strategies.empty()) derived[flags.by_strategies] = "";
  derive("--batch", [](Point const& point) { return std::to_string(point.split.batch); });
  derive("--accumulation", [](Point const& point) { return std::to_string(point.split.accumulation); });
  return derived;
}

/// Writes the columns that identify the row `point` (model, recipe and shape) to the result row `row`.
inline void describe_point(results::Row& row, Point const& point) {
  SlotNames const& names = point.recipe.names;
  row["experiment"] = point.experiment;
  row["model"] = point.model.name;
  row["stage"] =
      point.recipe.stage < 0 ? results::Row(point.recipe.names.sharding) : results::Row(point.recipe.stage);
  for_each_slot([&]<class Slot>(Slot) {
    std::string title(Slot::title);
    std::replace(title.begin(), title.end(), ' ', '_');
    row[title] = names.*Slot::field;
  });
  row["attention"] = nullptr;  // set later to the kernel that ran
  row["attention_policy"] = names.attention;
  row["world"] = point.world();
  row["mesh"] = point.mesh.text(point.world());  // replicas x shards
  row["batch"] = point.split.batch;
  row["sequence"] = point.sequence;
  row["vocabulary"] = point.model.sizes.vocabulary;
  row["accumulation"] = point.split.accumulation;
  row["global_batch"] = point.split.global();
}

/// Returns `options` with the batch, sequence and accumulation of the row `point`.
inline TrainerOptions options_of(Point const& point, TrainerOptions options) {
  options.batch = point.split.batch;
  options.sequence = point.sequence;
  options.replicas = point.mesh.replicas;
  options.accumulation = static_cast<int>(point.split.accumulation);
  if (point.recipe.adapters == AdapterKind::none) options.lora = {};
  return options;
}

/// If --lora is given, but no flag lists values for the adapters of a recipe, trains LoRA adapters in all
/// rows.
inline void choose_adapters(MatrixFlags& flags, LoraOptions const& lora) {
  if (lora && flags.slots.of<slot::adapters>().empty()) flags.slots.of<slot::adapters>() = {"lora"};
}

/// In the published comparison of offloads, the strategy `nvme` moves only the parameters to NVMe. With the
/// defaults `offload-sweep`, the word `nvme` of --strategies therefore means the offload `nvme_parameters`.
inline void read_published_strategies(MatrixFlags& flags, std::string const& defaults) {
  if (defaults != "offload-sweep" || flags.by_strategies != "--offloads") return;
  Names& offloads = flags.slots.of<slot::offload>();
  std::replace(offloads.begin(), offloads.end(), std::string("nvme"), std::string("nvme_parameters"));
  offloads = distinct(offloads);
}

}  // namespace cli
}  // namespace programs
