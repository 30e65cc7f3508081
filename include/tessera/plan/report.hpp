// SPDX-License-Identifier: Apache-2.0
// A plan in bytes: by category and tier, what fits, and what to do when it does not.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/detail/host_memory.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera::inline v0 {

/// Lists a model's units for a micro-batch; what plans are made from.
using UnitLister = std::function<std::vector<UnitSpec>(MicroBatch)>;

/// Bytes of one purpose, by tier.
struct MemoryCategory {
  std::string name;
  std::array<std::int64_t, 3> bytes{};  ///< by Tier
};

/// The bytes of one rank. The categories add up to the totals exactly.
struct MemoryReport {
  std::vector<MemoryCategory> categories;
  std::array<std::int64_t, 3> total{};  ///< by Tier
};

/// parameters, gradients, optimizer (master weights and moments), activations (everything that lives for a
/// part of a step only: activations, gathered weights, contributions on their way, exchange buffers),
/// workspace, and bookkeeping (tokens, losses, partial sums, scalars).
inline MemoryReport memory_report(StepPlan const& plan) {
  MemoryReport report;
  report.categories = {{"parameters", {}},  {"gradients", {}}, {"optimizer", {}},
                       {"activations", {}}, {"workspace", {}}, {"bookkeeping", {}}};
  auto const category = [](BufferKind kind) -> std::size_t {
    switch (kind) {
      case BufferKind::parameters:
        return 0;
      case BufferKind::contribution:
      case BufferKind::accumulator:
        return 1;
      case BufferKind::master:
      case BufferKind::moments:
        return 2;
      case BufferKind::workspace:
        return 4;
      default:
        return 5;
    }
  };
  report.total = plan.arena_bytes;
  report.categories[3].bytes = plan.arena_bytes;
  for (Buffer const& buffer : plan.train.buffers) {
    if (!buffer.persistent) continue;
    std::int64_t const bytes = round_up(buffer.bytes, arena_alignment);
    std::size_t const tier = static_cast<std::size_t>(buffer.tier);
    report.categories[category(buffer.kind)].bytes[tier] += bytes;
    report.categories[3].bytes[tier] -= bytes;
  }
  return report;
}

/// "1.50 GiB", "12.3 MiB", "640 B".
inline std::string bytes_text(std::int64_t bytes) {
  char text[32];
  double const value = static_cast<double>(bytes);
  if (value >= 1024.0 * 1024.0 * 1024.0)
    std::snprintf(text, sizeof text, "%.2f GiB", value / (1024.0 * 1024.0 * 1024.0));
  else if (value >= 1024.0 * 1024.0)
    std::snprintf(text, sizeof text, "%.1f MiB", value / (1024.0 * 1024.0));
  else
    std::snprintf(text, sizeof text, "%lld B", static_cast<long long>(bytes));
  return text;
}

/// The bytes of host memory that all ranks of one process plan together. Ranks differ only under the root
/// optimizer, whose root holds the most.
inline std::int64_t process_bytes(UnitLister const& units, RecipeTable const& recipe, StepShape shape) {
  std::int64_t sum = 0;
  int const kinds = recipe.placement.optimizer == Sharding::root && shape.world > 1 ? 2 : 1;
  for (int kind = 0; kind < kinds; ++kind) {
    shape.rank = kind;
    StepPlan const plan = make_plan(units({shape.batch, shape.sequence}), recipe, shape);
    std::int64_t const rank = plan.arena_bytes[static_cast<std::size_t>(Tier::device)] +
                              plan.arena_bytes[static_cast<std::size_t>(Tier::host)];
    sum += rank * (kinds == 1 ? shape.world : kind == 0 ? 1 : shape.world - 1);
  }
  return sum;
}

/// The largest value for which `bytes_of(value)` stays within `limit`, or 0; `bytes_of` must not fall.
inline std::int64_t largest_that_fits(std::int64_t limit, std::int64_t most,
                                      std::function<std::int64_t(std::int64_t)> const& bytes_of) {
  std::int64_t fits = 0, step = 1;
  while (fits + step <= most && bytes_of(fits + step) <= limit) {
    fits += step;
    step *= 2;
  }
  for (; step > 0; step /= 2)
    if (fits + step <= most && bytes_of(fits + step) <= limit) fits += step;
  return fits;
}

/// What would fit in place of a plan that does not.
struct Advice {
  std::optional<RecipeTable> recipe;  ///< the nearest one that fits with the same batch and sequence
  std::int64_t batch = 0;             ///< the largest micro-batch of the same recipe and sequence; 0: none
  std::int64_t sequence = 0;          ///< the largest sequence of the same recipe and batch; 0: none
};

/// Tries, in this order, what costs the least: rebuilding activations, then sharding more, both together.
inline Advice advise(UnitLister const& units, RecipeTable const& recipe, StepShape const& shape,
                     std::int64_t limit, std::int64_t positions) {
  Advice advice;
  std::vector<std::string> const recomputes = {std::string(recipe.names.recompute), "gelu", "block"};
  for (int stage = std::max(recipe.stage, 0); stage <= 3 && !advice.recipe; ++stage) {
    if (shape.world == 1 && stage > std::max(recipe.stage, 0)) break;
    for (std::string const& recompute : recomputes) {
      SlotNames names = recipe.names;
      std::string const sharding = stage == std::max(recipe.stage, 0) ? std::string(recipe.names.sharding)
                                                                      : "zs" + std::to_string(stage);
      names.sharding = sharding;
      names.recompute = recompute;
      RecipeTable const candidate = parse_recipe(names);
      if (broken_rule(candidate) || process_bytes(units, candidate, shape) > limit) continue;
      advice.recipe = candidate;
      break;
    }
  }
  advice.batch = largest_that_fits(limit, 1 << 16, [&](std::int64_t batch) {
    StepShape other = shape;
    other.batch = batch;
    return process_bytes(units, recipe, other);
  });
  advice.sequence = largest_that_fits(limit, positions, [&](std::int64_t sequence) {
    StepShape other = shape;
    other.sequence = sequence;
    return process_bytes(units, recipe, other);
  });
  return advice;
}

/// Throws Error(out_of_memory) when the ranks of this process plan more than `limit` bytes (0: what the
/// machine has free now). The text holds the bytes of one rank by category, the nearest recipe that fits, and
/// the largest batch and sequence that do.
inline void refuse_if_too_big(UnitLister const& units, StepPlan const& plan, RecipeTable const& recipe,
                              std::int64_t limit, std::int64_t positions) {
  if (limit <= 0) limit = detail::available_host_memory();
  StepShape const& shape = plan.shape;
  std::int64_t const wanted = process_bytes(units, recipe, shape);
  if (wanted <= limit) return;
  MemoryReport const report = memory_report(plan);
  std::string text = "out of memory: " + std::to_string(shape.world) +
                     (shape.world == 1 ? " rank plans " : " ranks plan ") + bytes_text(wanted) + " (" +
                     std::to_string(wanted) + " bytes) and " + bytes_text(limit) +
                     " are available; one rank:";
  for (MemoryCategory const& category : report.categories)
    text += " " + category.name + " " +
            bytes_text(category.bytes[0] + category.bytes[1] + category.bytes[2]) + ",";
  text.back() = ';';
  Advice const advice = advise(units, recipe, shape, limit, positions);
  text += advice.recipe
              ? " nearest recipe that fits: sharding " + std::string(advice.recipe->names.sharding) +
                    ", recompute " + std::string(advice.recipe->names.recompute)
              : std::string(" no sharding or recompute fits at this batch");
  text += advice.batch > 0 ? "; largest batch that fits: " + std::to_string(advice.batch)
                           : std::string("; no batch fits at this sequence");
  text += advice.sequence > 0 ? "; longest sequence that fits: " + std::to_string(advice.sequence)
                              : std::string("; no sequence fits at this batch");
  throw Error(ErrorKind::out_of_memory, text, shape.rank);
}

}  // namespace tessera::inline v0
