// SPDX-License-Identifier: Apache-2.0
// A plan in bytes: by category and tier, what fits, and what to do when it does not.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
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

/// The bytes of memory that one rank plans, on the device and on the host.
inline std::int64_t rank_bytes(StepPlan const& plan) {
  return plan.arena_bytes[static_cast<std::size_t>(Tier::device)] +
         plan.arena_bytes[static_cast<std::size_t>(Tier::host)];
}

/// The bytes of host memory that all ranks of one process plan together. Ranks differ only under the root
/// optimizer, whose root holds the most. `root`: the bytes of rank 0, where they are known.
inline std::int64_t process_bytes(UnitLister const& units, RecipeTable const& recipe, StepShape shape,
                                  std::optional<std::int64_t> root = std::nullopt) {
  std::int64_t sum = 0;
  int const kinds = recipe.placement.optimizer == Sharding::root && shape.world > 1 ? 2 : 1;
  for (int kind = 0; kind < kinds; ++kind) {
    shape.rank = kind;
    std::int64_t const bytes =
        kind == 0 && root ? *root
                          : rank_bytes(make_plan(units({shape.batch, shape.sequence}), recipe, shape, false));
    sum += bytes * (kinds == 1 ? shape.world : kind == 0 ? 1 : shape.world - 1);
  }
  return sum;
}

/// Searches plan again and again, which for a thousand layers takes long. They stop when their time is over.
class Deadline {
 public:
  explicit Deadline(double seconds)
      : end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}
  bool over() const { return Clock::now() >= end_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point end_;
};

/// What a search found.
struct Largest {
  std::int64_t value = 0;  ///< 0: nothing that fits
  bool exact = true;       ///< false: the search stopped early, and more may fit

  /// "37", "at least 65536".
  std::string text() const { return (exact ? "" : "at least ") + std::to_string(value); }
};

/// The largest `field` of a shape, up to `most`, whose `bytes_of(shape)` stay within `limit`. They must not
/// fall. `fits`: the shape itself does; else it does not.
inline Largest largest_that_fits(StepShape shape, std::int64_t StepShape::*field, bool fits,
                                 std::int64_t most, std::int64_t limit, Deadline const& deadline,
                                 std::function<std::int64_t(StepShape const&)> const& bytes_of) {
  Largest found{fits ? shape.*field : 0, true};
  if (!fits) most = std::min(most, shape.*field - 1);
  auto const goes = [&](std::int64_t value) {
    if (value > most || !found.exact) return false;
    found.exact = !deadline.over();
    shape.*field = value;
    return found.exact && bytes_of(shape) <= limit;
  };
  std::int64_t step = 1;
  for (; goes(found.value + step); step *= 2) found.value += step;
  for (; step > 0; step /= 2)
    if (goes(found.value + step)) found.value += step;
  return found;
}

/// A trainer takes up to 2^28 tokens a micro-batch.
inline constexpr std::int64_t most_tokens = std::int64_t{1} << 28;

/// The largest micro-batch of the same sequence. The search ends at 65536.
inline Largest largest_batch(StepShape const& shape, bool fits, std::int64_t limit, Deadline const& deadline,
                             std::function<std::int64_t(StepShape const&)> const& bytes_of) {
  constexpr std::int64_t end = 1 << 16;
  Largest found = largest_that_fits(shape, &StepShape::batch, fits,
                                    std::min(end, most_tokens / shape.sequence), limit, deadline, bytes_of);
  found.exact = found.exact && found.value < end;
  return found;
}

/// The longest sequence of the same micro-batch.
inline Largest longest_sequence(StepShape const& shape, bool fits, std::int64_t positions, std::int64_t limit,
                                Deadline const& deadline,
                                std::function<std::int64_t(StepShape const&)> const& bytes_of) {
  return largest_that_fits(shape, &StepShape::sequence, fits, std::min(positions, most_tokens / shape.batch),
                           limit, deadline, bytes_of);
}

/// What would fit in place of a plan that does not.
struct Advice {
  std::optional<RecipeTable> recipe;  ///< the nearest one that fits with the same batch and sequence
  bool tried_all = true;              ///< false: time was over before all recipes were tried
  Largest batch, sequence;            ///< the other and the recipe as they are
};

/// Tries, in this order, what costs the least: rebuilding activations, then sharding more, both together.
/// Takes at most about 2 s: each of its three searches may use a third of that.
inline Advice advise(UnitLister const& units, RecipeTable const& recipe, StepShape const& shape,
                     std::int64_t limit, std::int64_t positions) {
  constexpr double seconds = 2.0 / 3.0;
  Advice advice;
  Deadline const deadline(seconds);
  std::vector<std::string> const recomputes = {std::string(recipe.names.recompute), "gelu", "block"};
  for (int stage = std::max(recipe.stage, 0); stage <= 3 && !advice.recipe; ++stage) {
    if (shape.world == 1 && stage > std::max(recipe.stage, 0)) break;
    for (std::string const& recompute : recomputes) {
      advice.tried_all = advice.tried_all && !deadline.over();
      if (!advice.tried_all) break;
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
  auto const bytes_of = [&](StepShape const& other) { return process_bytes(units, recipe, other); };
  advice.batch = largest_batch(shape, false, limit, Deadline(seconds), bytes_of);
  advice.sequence = longest_sequence(shape, false, positions, limit, Deadline(seconds), bytes_of);
  return advice;
}

/// Throws Error(out_of_memory) when the ranks of this process plan more than `limit` bytes (0: what the
/// machine has free now). The text holds the bytes of one rank by category, the nearest recipe that fits, and
/// the largest batch and sequence that do, as far as they are found in 2 s.
inline void refuse_if_too_big(UnitLister const& units, StepPlan const& plan, RecipeTable const& recipe,
                              std::int64_t limit, std::int64_t positions) {
  if (limit <= 0) limit = detail::available_host_memory();
  StepShape const& shape = plan.shape;
  std::int64_t const wanted =
      process_bytes(units, recipe, shape, shape.rank == 0 ? std::optional(rank_bytes(plan)) : std::nullopt);
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
  text +=
      advice.recipe ? " nearest recipe that fits: sharding " + std::string(advice.recipe->names.sharding) +
                          ", recompute " + std::string(advice.recipe->names.recompute)
      : advice.tried_all ? std::string(" no sharding or recompute fits at this batch")
                         : std::string(" to find a recipe that fits takes longer, the program plan does it");
  auto const found = [](char const* which, Largest const& largest, char const* none) {
    return largest.value > 0 ? which + largest.text() : std::string(largest.exact ? none : "");
  };
  text += found("; largest batch that fits: ", advice.batch, "; no batch fits at this sequence");
  text += found("; longest sequence that fits: ", advice.sequence, "; no sequence fits at this batch");
  throw Error(ErrorKind::out_of_memory, text, shape.rank);
}

}  // namespace tessera::inline v0
