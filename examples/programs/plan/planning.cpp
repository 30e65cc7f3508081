// SPDX-License-Identifier: Apache-2.0
// Plans the memory of rows of the result table, which are recipes with a model, a batch and a sequence.
// Searches for the largest batch and the longest sequence that fit into the memory limits.
#include "plan/planning.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <exception>
#include <limits>
#include <utility>

#include "tessera/plan/listing.hpp"
#include "tessera/train/any_trainer.hpp"

#include "cli/run_flags.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

std::string hexadecimal(std::uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

/// The longest sequence that --sequence accepts.
constexpr std::int64_t max_sequence = 1 << 20;

StepPlan plan_of(Point const& point, TrainerOptions const& options) {
  StepShape const shape = step_shape(point.recipe, cli::options_of(point, options), 0, point.world());
  UnitLister const units = cli::trained_units(point.model.built.units(), point.recipe, options);
  return make_plan(units({shape.batch, shape.sequence}), point.recipe, shape);
}

void add_plan(Planned& row, Point const& point, TrainerOptions const& options, MemoryLimit const& limit) {
  row.params = row.trainable = point.model.parameters;
  UnitLister units;
  if (point.model.built) {
    units = cli::trained_units(point.model.built.units(), point.recipe, options);
    row.params = parameter_count(units({1, 1}));
    row.trainable = trainable_count(units({1, 1}));
  }
  if (point.refusal) {
    row.status = "refused";
    row.reason = *point.refusal;
    return;
  }
  StepPlan const plan = plan_of(point, options);
  StepShape const& shape = plan.shape;
  row.memory = memory_report(plan);
  row.schedule_hash = hexadecimal(hash_of(plan.train.schedule));
  row.footprint = footprint(units, point.recipe, shape, &plan);
  row.status = row.footprint.within(limit) ? "fits" : "oom";
  if (!row.fits()) {
    Footprint const& all = row.footprint;
    char const* const ranks = shape.world == 1 ? "one rank plans " : "all ranks plan ";
    auto const over = [&](char const* who, std::int64_t bytes, char const* where, std::int64_t most) {
      row.reason = who + bytes_text(bytes) + where + ", the limit is " + bytes_text(most);
    };
    if (all.device > limit.device)
      over("a rank plans ", all.device, " on its device", limit.device);
    else if (all.host > limit.host)
      over(ranks, all.host, " of host memory", limit.host);
    else
      over(ranks, all.nvme, " on NVMe", limit.nvme);
  }
}

void add_largest(Planned& row, TrainerOptions const& options, MemoryLimit const& limit, double search_time) {
  Point const& point = row.point;
  StepShape const shape = step_shape(point.recipe, cli::options_of(point, options), 0, point.world());
  UnitLister const units = cli::trained_units(point.model.built.units(), point.recipe, options);
  auto const share_with = [&](UnitLister const& list, StepShape const& other) {
    try {
      return footprint(list, point.recipe, other).share_of(limit);
    } catch (Error const&) {  // the memory plan would be too large to compute
      return std::numeric_limits<double>::infinity();
    }
  };
  auto const share_of = [&](StepShape const& other) { return share_with(units, other); };
  // A model without a given number of positions has as many positions as the sequence has tokens. The size of
  // the model changes with the sequence, so the search builds the model for each sequence.
  auto const share_as_run = [&](StepShape const& other) {
    if (point.own_positions) return share_of(other);
    cli::ModelChoice model = point.model;
    model.sizes.positions = 0;
    return share_with(
        cli::trained_units(cli::with_sizes(model, other.sequence, 0).built.units(), point.recipe, options),
        other);
  };
  double const share = row.footprint.share_of(limit);
  row.largest_batch = largest_batch(shape, share, Deadline(search_time), share_of);
  std::int64_t const positions = point.own_positions ? point.model.sizes.positions : max_sequence;
  row.longest_sequence = longest_sequence(shape, share, positions, Deadline(search_time), share_as_run);
}

}  // namespace

std::string Planned::unnamed() const {
  std::string text, rest = point.variants;  // ", recompute block, capture graph"
  while (!rest.empty()) {
    std::size_t const end = std::min(rest.find(", ", 2), rest.size());
    std::string const words = rest.substr(2, end - 2);
    std::size_t const value = words.rfind(' ');
    std::string name = words.substr(0, value) + "-" + words.substr(value + 1);
    std::replace(name.begin(), name.end(), ' ', '-');
    if (point.experiment.find("_" + name) == std::string::npos)
      text += (text.empty() ? " with " : " and ") + words;
    rest.erase(0, end);
  }
  return text;
}

Planned plan_point(Point const& point, TrainerOptions const& options, MemoryLimit const& limit) {
  Planned row;
  row.point = point;
  try {
    add_plan(row, point, options, limit);
  } catch (std::exception const& error) {
    row.status = "failed";
    row.reason = cli::in_flags(error.what());
  }
  return row;
}

void search_largest(Planned& row, TrainerOptions const& options, MemoryLimit const& limit,
                    double search_time) {
  if (!row.is_planned()) return;
  try {
    add_largest(row, options, limit, search_time);
  } catch (std::exception const& error) {
    row.status = "failed";
    row.reason = cli::in_flags(error.what());
  }
}

std::string schedule_text(Point const& point, TrainerOptions const& options) {
  StepPlan const plan = plan_of(point, options);
  std::string settings = "on " + std::string(name_of(plan.recipe.device));
  settings.append(", reduction ").append(name_of(plan.recipe.reduction));
  settings.append(", prefetch ").append(std::to_string(plan.shape.prefetch));
  settings.append(", bucket bytes ").append(std::to_string(plan.shape.bucket_bytes));
  return settings + "\n" + table_text(plan) + "\n" + listing(plan, plan.train);
}

std::string family(Point const& point) {
  SlotNames const& names = point.recipe.names;
  return point.model.name + "/" + std::string(names.precision) + "/" + std::string(names.adapters) + "/" +
         std::to_string(point.split.ranks) + "/" + std::to_string(point.split.batch) + "/" +
         std::to_string(point.split.accumulation) + "/" + std::to_string(point.sequence) + "/" +
         point.mesh.text(point.split.ranks);
}

}  // namespace planning
}  // namespace programs
