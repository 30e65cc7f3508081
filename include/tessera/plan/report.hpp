// SPDX-License-Identifier: Apache-2.0
// Reports how many bytes of memory the plan of a training step needs, by category. If a plan does not fit
// into memory, throws an error that suggests policies and sizes that fit.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/clock.hpp"
#include "tessera/detail/function_ref.hpp"
#include "tessera/nn/freeze.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/plan/support.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/policy/rules.hpp"

namespace tessera {
inline namespace v0 {

/// A function that returns the list of a model's units for a micro-batch of this shape.
using UnitLister = std::function<std::vector<UnitSpec>(MicroBatch)>;

/// Returns a function that calls `units` and freezes the parameters that `freeze` selects (nn/freeze.hpp).
/// The returned function throws the errors of `frozen`.
inline UnitLister freezing(UnitLister units, std::function<bool(std::string_view name)> freeze) {
  if (!freeze) return units;
  return [units = std::move(units), freeze = std::move(freeze)](MicroBatch shape) {
    return frozen(units(shape), freeze);
  };
}

/// The bytes of one category, such as gradients, in each kind of memory.
struct MemoryCategory {
  std::string name;
  std::array<std::int64_t, tier_count> bytes{};  ///< by Tier
};

/// The planned bytes of one rank. The bytes of the categories add up to the totals exactly.
struct MemoryReport {
  std::vector<MemoryCategory> categories;
  std::array<std::int64_t, tier_count> total{};  ///< by Tier
};

/// Returns the bytes of memory that a step plan needs, by category:
/// - parameters, and gradients;
/// - optimizer: master weights and moments;
/// - activations: all buffers that live for only a part of a step, such as activations, gathered weights,
///   copies of micro-batch gradients, and exchange buffers;
/// - workspace: scratch memory of the device's operations;
/// - bookkeeping: tokens, losses, partial sums and scalars;
/// - staging of saves, and a snapshot for saves during steps, if the plan reserves memory for them.
inline MemoryReport memory_report(StepPlan const& plan) {
  MemoryReport report;
  for (char const* const name :
       {"parameters", "gradients", "optimizer", "activations", "workspace", "bookkeeping"})
    report.categories.push_back({name, {}});
  if (plan.shape.checkpoints >= CheckpointMemory::staging) report.categories.push_back({"staging", {}});
  if (plan.shape.checkpoints == CheckpointMemory::snapshot) report.categories.push_back({"snapshot", {}});
  auto const category = [](BufferKind kind) -> std::size_t {
    switch (kind) {
      case BufferKind::weights:
        return 0;
      case BufferKind::micro_gradient:
      case BufferKind::gradient:
        return 1;
      case BufferKind::master:
      case BufferKind::moment:
        return 2;
      case BufferKind::workspace:
        return 4;
      case BufferKind::saving:
        return 6;
      case BufferKind::snapshot:
        return 7;
      case BufferKind::tied_gradient:
      case BufferKind::output:
      case BufferKind::output_gradient:
      case BufferKind::saved:
      case BufferKind::backward:
      case BufferKind::scalars:
      case BufferKind::partials:
      case BufferKind::all_partials:
      case BufferKind::norm_ranges:
      case BufferKind::rows:
      case BufferKind::batch:
      case BufferKind::losses:
        break;
    }
    return 5;
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

/// Formats bytes: "1.50 GiB", "12.3 MiB", "640 B".
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

/// The largest number of bytes that may be planned in each kind of memory. The CPU, as a device, uses host
/// memory.
struct MemoryLimit {
  static constexpr std::int64_t none = std::numeric_limits<std::int64_t>::max();
  std::int64_t device = none;  ///< for each rank, on its device
  std::int64_t host = none;    ///< for all ranks of one host together
  std::int64_t nvme = none;    ///< for all ranks of one host together, in files
};

/// The bytes that all ranks of one host plan in each kind of memory.
struct Footprint {
  std::int64_t device = 0;  ///< of the rank that needs most, on its device
  std::int64_t host = 0;    ///< of all ranks together; includes devices that use host memory
  std::int64_t nvme = 0;    ///< of all ranks together, in files
  std::int64_t total = 0;   ///< of all ranks together, on devices and on the host

  bool within(MemoryLimit const& limit) const {
    return device <= limit.device && host <= limit.host && nvme <= limit.nvme;
  }
  /// Returns the largest ratio of planned bytes to limit over the kinds of memory. The ratio is above 1 if
  /// and only if the bytes exceed a limit.
  double share_of(MemoryLimit const& limit) const {
    auto const share = [](std::int64_t bytes, std::int64_t most) {
      return static_cast<double>(bytes) / static_cast<double>(std::max<std::int64_t>(most, 1));
    };
    double const most =
        std::max({share(device, limit.device), share(host, limit.host), share(nvme, limit.nvme)});
    return within(limit) ? std::min(most, 1.0) : std::max(most, std::nextafter(1.0, 2.0));
  }
};

/// Returns the bytes that all ranks on the host of rank `shape.rank` together need. All ranks have equal
/// plans unless some ranks own groups of parameters (Sharding::owned). So this function makes the plan of
/// each owner and the plan of one of the other ranks. `known` is the plan of one rank if the caller already
/// has it, otherwise null.
inline Footprint footprint(UnitLister const& units, RecipeTable const& recipe, StepShape shape,
                           StepPlan const* known = nullptr) {
  Footprint sum;
  auto const add = [&](StepPlan const& plan, std::int64_t ranks) {
    std::int64_t const on_device = bytes_on(Tier::device, plan.arena_bytes);
    std::int64_t const on_host = bytes_on(Tier::host, plan.arena_bytes);
    sum.device = std::max(sum.device, on_device);
    sum.host += ranks * (shape.own_memory ? on_host : on_device + on_host);
    sum.nvme += ranks * bytes_on(Tier::nvme, plan.arena_bytes);
    sum.total += ranks * (on_device + on_host);
  };
  auto const plan_of = [&](int rank) {
    shape.rank = rank;
    return make_plan(units({shape.batch, shape.sequence}), recipe, shape, false);
  };
  PlacementTable const rows = at_world(recipe.placement, shape.world);
  int const owners = rows.uses(Sharding::owned) ? rows.owners : 0;
  // The ranks of a host have consecutive numbers. Ranks below `owners` have different plans. All further
  // ranks have equal plans.
  int const first = std::clamp(shape.host_first, 0, shape.world - shape.ranks_on_host());
  int const end = std::min(first + shape.ranks_on_host(), shape.world);
  for (int rank = first; rank < end; ++rank) {
    int const alike = rank < owners ? 1 : end - rank;
    if (known && (rank == known->shape.rank || (rank >= owners && known->shape.rank >= owners)))
      add(*known, alike);
    else
      add(plan_of(rank), alike);
    if (rank >= owners) break;
  }
  return sum;
}

/// A time limit for a search. A search makes many plans, which needs much time for models with a thousand
/// layers. The search stops when over() is true.
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

/// The largest value that a search found to fit.
struct Largest {
  std::int64_t value = 0;  ///< 0: nothing fits
  bool exact = true;       ///< false: the search stopped early, and a larger value may fit

  /// Returns "37", or "at least 65536" if the value is not exact.
  std::string text() const { return sentence({exact ? "" : "at least ", value}); }
};

/// A function that returns the fraction of the available memory that a step of this shape needs. A shape fits
/// if the fraction is at most 1. The function must be monotone: if a shape does not fit, no larger shape
/// fits. Infinity means that the shape does not fit and that the fraction is unknown.
using ShareFunction = detail::FunctionRef<double(StepShape const&)>;

/// Returns the largest value of `field`, up to `most`, with which a shape fits into memory. `share` is the
/// fraction of the memory for the current value of `field`. Uses the secant method: the next candidate is the
/// value at which the line through the last two fractions reaches 1. Two kinds of candidates are chosen
/// without this line: every third candidate, and each candidate for which the line does not exist. As long as
/// every tried value fits, such a candidate is twice the largest tried value. Afterwards such a candidate is
/// the middle between the largest value that fits and the smallest value that does not fit.
inline Largest largest_that_fits(StepShape shape, std::int64_t StepShape::*field, double share,
                                 std::int64_t most, Deadline const& deadline, ShareFunction const& share_of) {
  struct Tried {
    double value, share;
  };
  bool const fits = share <= 1.0;
  std::int64_t low = fits ? shape.*field : 0, high = fits ? most + 1 : std::min(most + 1, shape.*field);
  Tried before{}, last{static_cast<double>(shape.*field), share};
  for (int attempt = 1; high - low > 1; ++attempt) {
    if (deadline.over()) return {low, false};
    // The candidate without the secant method: double until a value does not fit, then bisect.
    std::int64_t next = high > most ? 2 * low + 1 : low + (high - low) / 2;
    double const slope = (last.share - before.share) / (last.value - before.value);
    if (attempt > 1 && attempt % 3 != 0 && std::isfinite(slope) && slope > 0.0)
      next = static_cast<std::int64_t>(
          std::clamp(last.value + (1.0 - last.share) / slope, 0.0, static_cast<double>(high)));
    shape.*field = std::clamp(next, low + 1, high - 1);
    before = std::exchange(last, {static_cast<double>(shape.*field), share_of(shape)});
    (last.share <= 1.0 ? low : high) = shape.*field;
  }
  return {low, true};
}

/// The largest number of tokens in a micro-batch that a trainer accepts.
inline constexpr std::int64_t max_tokens = std::int64_t{1} << 28;

/// Returns the largest micro-batch, in samples, that fits at the sequence length of `shape`. `share` is the
/// fraction of the memory that `shape` needs. Searches up to 65536 samples.
inline Largest largest_batch(StepShape const& shape, double share, Deadline const& deadline,
                             ShareFunction const& share_of) {
  constexpr std::int64_t end = 1 << 16;
  Largest found = largest_that_fits(shape, &StepShape::batch, share,
                                    std::min(end, max_tokens / shape.sequence), deadline, share_of);
  found.exact = found.exact && found.value < end;
  return found;
}

/// Returns the longest sequence, in tokens and up to `positions`, that fits at the micro-batch of `shape`.
/// `share` is the fraction of the memory that `shape` needs.
inline Largest longest_sequence(StepShape const& shape, double share, std::int64_t positions,
                                Deadline const& deadline, ShareFunction const& share_of) {
  return largest_that_fits(shape, &StepShape::sequence, share, std::min(positions, max_tokens / shape.batch),
                           deadline, share_of);
}

/// Suggestions for a plan that does not fit into memory.
struct Advice {
  std::optional<RecipeTable> recipe;  ///< the nearest recipe that fits with this batch and sequence; its
                                      ///< offload differs only if no other change is enough
  bool tried_all = true;              ///< false: time ran out before all recipes were tried
  Largest batch, sequence;            ///< the largest batch, and the longest sequence, of the given recipe
  /// Set only if `recipe`, `batch` and `sequence` have no result: the recipe that needs the least memory, its
  /// largest batch at this sequence, and, if no batch fits, its longest sequence at batch 1.
  std::optional<RecipeTable> leanest;
  Largest leanest_batch, leanest_sequence;
};

namespace detail {

inline constexpr std::string_view stage_names[] = {"zs0", "zs1", "zs2", "zs3"};

}  // namespace detail

/// Returns the variant of a recipe that needs the least memory with the recipe's own offload. It has the
/// highest ZeRO stage and Recompute<Block>, as far as the rules between policies allow.
inline RecipeTable leanest_recipe(RecipeTable const& recipe, int world) {
  int const own_stage = std::max(recipe.stage, 0);
  for (int stage = world == 1 ? own_stage : 3; stage >= own_stage; --stage)
    for (std::string_view const recompute : {std::string_view("block"), recipe.names.recompute}) {
      RecipeTable candidate = recipe;
      if (stage != own_stage) detail::describe_known<slot::sharding>(candidate, detail::stage_names[stage]);
      if (recompute != recipe.names.recompute) detail::describe_known<slot::recompute>(candidate, recompute);
      if (!broken_rule(candidate)) return candidate;
    }
  return recipe;
}

/// Returns the smallest change that makes a plan fit. First tries more recomputation at the recipe's ZeRO
/// stage, then more recomputation at each higher stage. Then tries all of these combinations with each
/// offload. Also finds the largest batch and the longest sequence. If nothing fits, tries the recipe that
/// needs the least memory with a smaller batch or sequence. Needs at most about `seconds`. Each of the
/// searches for a recipe, a batch and a sequence may use a third of this time. The search with the recipe
/// that needs the least memory uses the remaining time.
inline Advice advise(UnitLister const& units, RecipeTable const& recipe, StepShape const& shape,
                     MemoryLimit const& limit, std::int64_t positions, double seconds) {
  double const third = seconds / 3.0;
  Advice advice;
  Deadline const deadline(third), end(seconds);
  int const own_stage = std::max(recipe.stage, 0), last_stage = shape.world == 1 ? own_stage : 3;
  auto const try_with = [&](std::string_view offload, int stage, std::string_view recompute) {
    // Change only three slots. The other slots can have a user's own policies, which cannot be found by their
    // names.
    RecipeTable candidate = recipe;
    if (stage != own_stage) detail::describe_known<slot::sharding>(candidate, detail::stage_names[stage]);
    if (recompute != recipe.names.recompute) detail::describe_known<slot::recompute>(candidate, recompute);
    if (offload != recipe.names.offload) detail::describe_known<slot::offload>(candidate, offload);
    if (!broken_rule(candidate) && !unsupported_reason(candidate) &&
        footprint(units, candidate, shape).within(limit))
      advice.recipe = candidate;
  };
  for (std::string_view const offload :
       {recipe.names.offload, std::string_view("cpu_optimizer"), std::string_view("cpu_full"),
        std::string_view("nvme_optimizer"), std::string_view("infinity"), std::string_view("nvme")})
    for (int stage = own_stage; stage <= last_stage; ++stage)
      for (std::string_view const recompute :
           {recipe.names.recompute, std::string_view("gelu"), std::string_view("block")}) {
        advice.tried_all = advice.tried_all && (advice.recipe || !deadline.over());
        if (!advice.recipe && advice.tried_all) try_with(offload, stage, recompute);
      }
  constexpr double too_big = std::numeric_limits<double>::infinity();
  auto const share_of = [&](StepShape const& other) {
    return footprint(units, recipe, other).share_of(limit);
  };
  advice.batch = largest_batch(shape, too_big, Deadline(third), share_of);
  advice.sequence = longest_sequence(shape, too_big, positions, Deadline(third), share_of);
  if (advice.recipe || advice.batch.value > 0 || advice.sequence.value > 0) return advice;
  advice.leanest = leanest_recipe(recipe, shape.world);
  auto const leanest_share = [&](StepShape const& other) {
    return footprint(units, *advice.leanest, other).share_of(limit);
  };
  advice.leanest_batch = largest_batch(shape, too_big, end, leanest_share);
  if (advice.leanest_batch.value > 0) return advice;
  StepShape single = shape;
  single.batch = 1;
  advice.leanest_sequence = longest_sequence(single, too_big, positions, end, leanest_share);
  return advice;
}

/// Throws Error(out_of_memory) if the ranks on this host need more memory than `limit`. The message has
/// the bytes of one rank by category, the nearest recipe that fits, and the largest batch and sequence that
/// fit. If nothing fits, the message has the largest batch or sequence of the recipe that needs the least
/// memory. The message leaves out results that are not found in about `search_seconds`.
inline void refuse_if_too_big(UnitLister const& units, StepPlan const& plan, RecipeTable const& recipe,
                              MemoryLimit const& limit, std::int64_t positions, double search_seconds = 2.0) {
  StepShape const& shape = plan.shape;
  Footprint const needed = footprint(units, recipe, shape, &plan);
  if (needed.within(limit)) return;
  MemoryReport const report = memory_report(plan);
  bool const on_device = needed.device > limit.device, on_host = !on_device && needed.host > limit.host;
  std::int64_t const bytes = on_device ? needed.device : on_host ? needed.host : needed.nvme;
  int const here = shape.ranks_on_host();
  std::string const who =
      on_device ? "a rank plans " : sentence({here, here == 1 ? " rank plans " : " ranks plan "});
  std::string text = sentence({"out of memory: ", who, bytes_text(bytes), " (", bytes, " bytes)",
                               on_device          ? " on its device"
                               : !on_host         ? " in files"
                               : shape.own_memory ? " of host memory"
                                                  : "",
                               " and ",
                               bytes_text(on_device ? limit.device
                                          : on_host ? limit.host
                                                    : limit.nvme),
                               " are available; memory of one rank:"});
  for (MemoryCategory const& category : report.categories) {
    std::int64_t const all = std::accumulate(category.bytes.begin(), category.bytes.end(), std::int64_t{0});
    text += sentence({" ", category.name, " ", bytes_text(all), ","});
  }
  text.back() = ';';
  Advice const advice = advise(units, recipe, shape, limit, positions, search_seconds);
  if (advice.recipe && advice.recipe->names.offload != recipe.names.offload) {
    SlotNames const& names = advice.recipe->names;
    text += sentence({" with this offload nothing fits at this batch, but offload ", names.offload,
                      " fits with sharding ", names.sharding, " and recompute ", names.recompute,
                      " (programs: --offload ", names.offload,
                      uses_files(advice.recipe->placement) ? " --nvme-path FOLDER)" : ")"});
  } else if (advice.recipe) {
    text += sentence({" nearest recipe that fits: sharding ", advice.recipe->names.sharding, ", recompute ",
                      advice.recipe->names.recompute});
  } else {
    text += advice.tried_all ? " no combination of offload, sharding and recompute fits at this batch"
                             : " the search for a recipe that fits takes too long here; run the program plan";
  }
  auto const add = [&](char const* which, Largest const& largest, char const* none) {
    if (largest.value > 0)
      text += sentence({which, largest.text()});
    else if (largest.exact)
      text += none;
  };
  add("; largest batch that fits: ", advice.batch, "; no batch fits at this sequence");
  add("; longest sequence that fits: ", advice.sequence, "; no sequence fits at this batch");
  if (advice.leanest) {
    Largest const &batch = advice.leanest_batch, &longest = advice.leanest_sequence;
    if (batch.value > 0 || longest.value > 0 || longest.exact)
      text += sentence({"; sharding ", advice.leanest->names.sharding, " with recompute ",
                        advice.leanest->names.recompute});
    if (batch.value > 0)
      add(" fits up to batch ", batch, "");
    else
      add(" fits at batch 1 up to sequence ", longest, " does not fit at batch 1 and sequence 1 either");
  }
  throw Error(ErrorKind::out_of_memory, text, shape.rank);
}

}  // namespace v0
}  // namespace tessera
