// SPDX-License-Identifier: Apache-2.0
// Lists the combinations of policies, models and shapes that the benchmarks of recipes measure. The list is
// made from the choices of the slots and from the families of models, so a new policy or a new family is
// measured without a change here.
//
// The list has every combination of sharding, precision, offload, recomputation and model family. Each other
// value, such as Reduction<Fast> or 2 replicas, is combined at least once with each sharding, each precision
// and each offload. The name of a benchmark has the segments
//   step/<sharding>/<precision>/<offload>[/recompute:<name>][/model:<family>][/<other>:<value>]/<ranks>:<n>
// A segment in brackets is missing if it has its default value.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"
#include "tessera/nn/gpt2_options.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/model_family.hpp"
#include "tessera/train/options.hpp"

#include "left_out.hpp"

namespace recipe_rows {

namespace ts = tessera;

/// The sizes of the model and the batch of one rank in a measured step.
struct Load {
  std::int64_t batch, sequence;
  ts::Gpt2Options model;
};
/// The load of a CPU, with 0.9 million parameters.
inline constexpr Load tiny{
    4, 128, {.layers = 4, .heads = 4, .channels = 128, .positions = 1024, .vocabulary = 256}};
/// The load of a GPU, with 35 million parameters: 2048 tokens per GPU and the channels of GPT-2 124M. With
/// smaller sizes, the launches of kernels would dominate the time.
inline constexpr Load small{
    4, 512, {.layers = 4, .heads = 12, .channels = 768, .positions = 1024, .vocabulary = 8192}};

/// The machine and the build that run the benchmarks. An empty reason means that nothing is missing.
struct Machine {
  using Missing = std::optional<std::string>(ts::RecipeTable const&);

  ts::Device device = ts::Device::cpu;
  std::vector<int> ranks = {1, 4};  ///< the numbers of ranks to measure, in ascending order
  int devices = 4;                  ///< the largest number of ranks that the machine has devices for
  Missing* missing = &ts::unavailable_reason;  ///< why the build cannot run a legal recipe
  std::string no_device = {};                  ///< why no recipe can run on the device
  std::string folder = {};                     ///< where files with training state are created
  std::string no_folder = {};                  ///< why no files can be created there
  std::optional<ts::MemoryLimit> memory = {};  ///< the bytes that a run may plan

  std::string_view unit() const { return device == ts::Device::cpu ? "ranks" : "gpus"; }
};

/// One benchmark. `left_out` is the reason why the benchmark cannot run, or empty if it can run.
struct Row {
  left_out::Parts name;
  ts::RecipeTable recipe;
  ts::ModelFamily const* family = nullptr;
  int ranks = 1, accumulation = 1, replicas = 1;
  std::string left_out = {};
};

/// Returns the model of a family that has the sizes of `load`. Sizes that GPT-2 does not have get their
/// defaults. Throws Error(usage) if a size has no default.
inline ts::AnyModel model_of(ts::ModelFamily const& family, Load const& load) {
  ts::Gpt2Options const& sizes = load.model;
  ts::ModelSpec spec{{}, sizes.positions, sizes.vocabulary};
  std::pair<std::string_view, std::int64_t> const known[] = {{"layers", sizes.layers},
                                                             {"heads", sizes.heads},
                                                             {"channels", sizes.channels},
                                                             {"hidden", 4 * sizes.channels}};
  for (ts::ModelKey const& key : family.keys) {
    auto const* const found = std::find_if(std::begin(known), std::end(known),
                                           [&](auto const& one) { return one.first == key.name; });
    if (found == std::end(known) && !key.standard)
      throw ts::Error(ts::ErrorKind::usage, "the benchmark has no value for the size " + key.name +
                                                " of the model family " + family.name +
                                                "; add one to recipe_rows::model_of");
    double const value = found != std::end(known) ? static_cast<double>(found->second) : key.standard(spec);
    spec.numbers.push_back({key.name, value});
  }
  return family.make(spec);
}

/// Returns the options of the trainer of a row.
inline ts::TrainerOptions options_of(Row const& row, Load const& load, std::string const& folder) {
  ts::TrainerOptions options;
  options.batch = load.batch;
  options.sequence = load.sequence;
  options.accumulation = row.accumulation;
  options.replicas = row.replicas;
  options.clip = 1.0;
  options.nvme_directory = folder;
  if (row.recipe.adapters == ts::AdapterKind::lora)
    options.lora = {.rank = 8, .alpha = 16.0, .targets = "all-linear"};
  return options;
}

/// Returns why a row cannot run: its recipe breaks a rule, or the build or the machine lacks something that
/// the row needs. Returns an empty text if the row can run. Does not check the free memory.
inline std::string reason_against(Machine const& machine, Row const& row) {
  auto const gpus = [](int count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); };
  if (auto const rule = ts::broken_rule(row.recipe)) return std::string(*rule);
  if (auto const reason = machine.missing(row.recipe)) return *reason;
  if (!machine.no_device.empty()) return machine.no_device;
  if (row.ranks > machine.devices)
    return "a run on " + gpus(row.ranks) + " is impossible, because this machine has " +
           gpus(machine.devices);
  if (row.ranks % row.replicas != 0)
    return std::to_string(row.replicas) + " replicas need " + gpus(row.replicas) + ", and this machine has " +
           gpus(machine.devices);
  return ts::uses_files(row.recipe.placement) ? machine.no_folder : "";
}

namespace detail {

/// Returns why the machine lacks memory for a row; empty if it has enough. Adapters are planned by the
/// trainer itself, so a row with adapters is not checked here.
inline std::string memory_obstacle(Machine const& machine, Row const& row, ts::AnyModel const& model,
                                   Load const& load) {
  if (!machine.memory || row.recipe.adapters != ts::AdapterKind::none) return "";
  ts::TrainerOptions const options = options_of(row, load, machine.folder);
  ts::Footprint const needed =
      ts::footprint(model.units(), row.recipe, ts::step_shape(row.recipe, options, 0, row.ranks));
  if (needed.within(*machine.memory)) return "";
  bool const device = needed.device > machine.memory->device, host = needed.host > machine.memory->host;
  std::int64_t const limit = device ? machine.memory->device
                             : host ? machine.memory->host
                                    : machine.memory->nvme;
  return std::string("too little free memory: this machine has ") + ts::bytes_text(limit) +
         (device ? " on a GPU"
          : host ? " on the host"
                 : " on the disk of TMPDIR");
}

/// Every combination of sharding, precision and offload on the device, with the defaults of other slots.
inline std::vector<ts::RecipeTable> base_recipes(ts::Device device) {
  std::vector<ts::RecipeTable> recipes;
  for (std::string_view const sharding : ts::choice_names<ts::slot::sharding>())
    for (std::string_view const precision : ts::choice_names<ts::slot::precision>())
      for (std::string_view const offload : ts::choice_names<ts::slot::offload>())
        recipes.push_back(ts::parse_recipe({.device = ts::name_of(device),
                                            .sharding = sharding,
                                            .precision = precision,
                                            .offload = offload}));
  return recipes;
}

/// Makes rows and their names.
class Rows {
 public:
  explicit Rows(Machine const& machine)
      : machine_(machine), families_(ts::model_families()), bases_(base_recipes(machine.device)) {
    for (int const ranks : machine.ranks)
      if (ranks <= machine.devices) most_ = ranks;
  }

  /// Adds every combination of sharding, precision, offload, recomputation and family. Combinations with the
  /// default recomputation and the first family have a row for each number of ranks, other combinations only
  /// for the largest number of ranks of this machine.
  void add_product() {
    for (ts::ModelFamily const* const family : families_)
      for (std::string_view const recompute : ts::choice_names<ts::slot::recompute>())
        for (ts::RecipeTable const& base : bases_) {
          Row row{{}, base, family};
          ts::choose<ts::slot::recompute>(row.recipe, recompute);
          if (family == families_.front() && row.recipe == base)
            for (int const ranks : machine_.ranks) add(row, "", ranks);
          else
            add(row, "", most_);
        }
  }

  /// Adds rows for one value that is not in the product, such as "reduction:fast". `change(row)` sets the
  /// value and returns false if the value is already the default of the row. The rows combine the value with
  /// each sharding, each precision and each offload. The function always adds the row with the most
  /// combinations that are still missing. It prefers rows that can run, so it adds a refused row only for
  /// combinations that no row that can run has.
  template <class Change>
  void add_value(std::string const& segment, Change const& change) {
    std::set<std::string_view> open;  // choices that need a row; no name is in two of the three slots
    std::vector<Row> rows;
    for (ts::RecipeTable const& base : bases_) {
      Row row{{}, base, families_.front()};
      if (!change(row)) continue;
      row.left_out = refusal(row.recipe);
      rows.push_back(row);
      for (std::string_view const name : of_base(row)) open.insert(name);
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](Row const& a, Row const& b) { return a.left_out.empty() && !b.left_out.empty(); });
    auto const gain = [&](Row const& row) {
      auto const names = of_base(row);
      auto const fresh = std::count_if(names.begin(), names.end(),
                                       [&](std::string_view const name) { return open.count(name) > 0; });
      return fresh == 0 ? 0 : fresh + (row.left_out.empty() ? static_cast<std::ptrdiff_t>(names.size()) : 0);
    };
    while (!open.empty()) {
      auto const best = std::max_element(rows.begin(), rows.end(),
                                         [&](Row const& a, Row const& b) { return gain(a) < gain(b); });
      for (std::string_view const name : of_base(*best)) open.erase(name);
      add(*best, segment, most_);
    }
  }

  /// Adds rows for each choice of a slot that is not in the product.
  template <class Slot>
  void add_slot() {
    if (std::is_same_v<Slot, ts::slot::device> || std::is_same_v<Slot, ts::slot::sharding> ||
        std::is_same_v<Slot, ts::slot::precision> || std::is_same_v<Slot, ts::slot::offload> ||
        std::is_same_v<Slot, ts::slot::recompute>)
      return;
    std::string title(Slot::title);
    std::replace(title.begin(), title.end(), ' ', '_');
    for (std::string_view const name : ts::choice_names<Slot>())
      add_value("/" + title + ":" + std::string(name), [name](Row& row) {
        ts::RecipeTable const base = row.recipe;
        ts::choose<Slot>(row.recipe, name);
        return !(row.recipe == base);
      });
  }

  std::vector<Row> take() { return std::move(rows_); }

 private:
  /// Returns why the recipe is illegal or not part of the build; empty if it can run on some machine. The
  /// choice of rows must not depend on the machine.
  std::string refusal(ts::RecipeTable const& recipe) const {
    if (auto const rule = ts::broken_rule(recipe)) return std::string(*rule);
    return machine_.missing(recipe).value_or("");
  }
  static std::array<std::string_view, 3> of_base(Row const& row) {
    ts::SlotNames const& names = row.recipe.names;
    return {names.sharding, names.precision, names.offload};
  }

  void add(Row row, std::string const& segment, int ranks) {
    ts::SlotNames const& names = row.recipe.names;
    auto const slash = [](std::string_view text) { return "/" + std::string(text); };
    row.ranks = ranks;
    bool const standard = names.recompute == ts::slot::recompute::standard(row.recipe);
    row.name = {"step",
                slash(names.sharding),
                slash(names.precision),
                slash(names.offload),
                standard ? "" : "/recompute:" + std::string(names.recompute),
                row.family == families_.front() ? "" : "/model:" + row.family->name,
                segment,
                slash(machine_.unit()) + ":" + std::to_string(ranks)};
    row.left_out = reason_against(machine_, row);
    rows_.push_back(std::move(row));
  }

  Machine const& machine_;
  std::vector<ts::ModelFamily const*> families_;
  std::vector<ts::RecipeTable> bases_;
  int most_ = 1;
  std::vector<Row> rows_;
};

}  // namespace detail

/// Returns all rows of the machine, also the ones that cannot run there. `load` has the sizes of the models.
inline std::vector<Row> make_rows(Machine const& machine, Load const& load) {
  detail::Rows rows(machine);
  rows.add_product();
  ts::for_each_slot([&]<class Slot>(Slot) { rows.add_slot<Slot>(); });
  rows.add_value("/accumulation:4", [](Row& row) { return row.accumulation = 4; });
  rows.add_value("/replicas:2", [](Row& row) { return row.replicas = 2; });
  std::vector<Row> made = rows.take();
  if (!machine.memory) return made;
  for (ts::ModelFamily const* const family : ts::model_families()) {
    ts::AnyModel model;
    std::string no_model;
    try {
      model = model_of(*family, load);
    } catch (ts::Error const& error) {
      no_model = error.what();
    }
    for (Row& row : made)
      if (row.family == family && row.left_out.empty())
        row.left_out = model ? detail::memory_obstacle(machine, row, model, load) : no_model;
  }
  return made;
}

/// Returns the parts of this machine and of this build that a device needs. `ranks` are the numbers of ranks
/// to measure.
inline Machine this_machine(ts::Device device, std::vector<int> ranks) {
  Machine machine;
  machine.device = device;
  machine.ranks = std::move(ranks);
  machine.devices = device == ts::Device::cpu ? machine.ranks.back()
                                              : static_cast<int>(ts::device_facts(device).models.size());
  try {
    ts::need_device(device);
  } catch (ts::Error const& error) {
    machine.no_device = error.what();
    machine.devices = machine.ranks.back();
    return machine;
  }
  char const* const given = std::getenv("TMPDIR");
  machine.folder = given && *given ? given : "/tmp";
  try {
    ts::check_writable(machine.folder + "/tessera-benchmark");
  } catch (ts::Error const& error) {
    machine.no_folder = "state on NVMe needs a folder for its files, which TMPDIR names: ";
    machine.no_folder += error.what();
  }
  machine.memory = ts::memory_limit(device, options_of(Row(), tiny, machine.folder));
  return machine;
}

/// Prints which rows are left out, and why, to the standard error stream. Returns the rows that can run.
inline std::vector<Row> runnable(std::string const& program, std::vector<Row> rows) {
  left_out::List list;
  for (Row const& row : rows)
    if (!row.left_out.empty()) list.add(row.name, row.left_out);
  list.print(program, rows.size() - list.count());
  std::erase_if(rows, [](Row const& row) { return !row.left_out.empty(); });
  return rows;
}

}  // namespace recipe_rows
