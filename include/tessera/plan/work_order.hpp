// SPDX-License-Identifier: Apache-2.0
// Lists the computations of a micro-batch in order: forward, recomputation and backward, unit by unit and
// segment by segment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// One computation of a unit's segment: forward, recomputation or backward. It becomes one entry of the
/// schedule.
struct Work {
  Verb verb{};
  int unit = 0;
  int segment = 0;
  bool reads_weights = false;

  /// Returns whether this computation completes the unit's micro-batch gradient. Backward runs a unit's
  /// segments in reverse order, so segment 0 is the last one.
  bool completes() const { return verb == Verb::backward_weight && segment == 0; }
};

/// Decides the order of the computations of a micro-batch. Also decides which tensors forward drops and
/// backward recomputes.
class WorkOrder {
 public:
  WorkOrder(StepPlan const& plan, bool training) : plan_(plan), training_(training) {}

  /// Returns the unit in which backward ends. Earlier units save no tensors for backward.
  int lowest() const { return lowest_; }
  /// Returns whether the last unit of backward has more trained parameters than the unit before it.
  bool last_is_larger() const {
    auto const trained = [&](int unit) {
      std::int64_t elements = 0;
      for (Flat const of : plan_.flats(unit))
        if (plan_.flat(of).trainable) elements += plan_.flat(of).elements;
      return elements;
    };
    return lowest_ + 1 < plan_.units_count() && trained(lowest_) > trained(lowest_ + 1);
  }
  /// Returns whether backward recomputes the whole unit (Recompute<Block> and <Every>).
  bool rebuilt(int unit) const {
    switch (plan_.recipe.recompute) {
      case RecomputeKind::none:
      case RecomputeKind::gelu:
        return false;
      case RecomputeKind::block:
      case RecomputeKind::every:
        break;
    }
    return training_ && unit >= lowest_ && plan_.unit(unit).recomputable && !plan_.unit(unit).saved.empty();
  }
  /// Returns whether forward drops a saved tensor of a unit instead of keeping it for backward. `saved` is
  /// the index of the tensor in UnitSpec::saved.
  bool drops(int unit, std::size_t saved) const {
    if (!training_ || unit < lowest_ || rebuilt(unit)) return true;
    return plan_.recipe.recompute == RecomputeKind::gelu && plan_.unit(unit).saved[saved].cheap_to_recompute;
  }
  /// Returns the first of the units that are recomputed together with `unit`. Under Recompute<Every>, these
  /// are at most `recompute_every` units.
  int rebuilt_from(int unit) const {
    int first = unit;
    while (first > 0 && rebuilt(first - 1)) --first;
    int const length = plan_.recipe.recompute == RecomputeKind::every ? plan_.shape.recompute_every : 1;
    return first + (unit - first) / length * length;
  }
  /// Returns whether a recomputed unit is the last of the units that are recomputed together.
  bool rebuilt_last(int unit) const {
    return unit + 1 >= plan_.units_count() || !rebuilt(unit + 1) ||
           rebuilt_from(unit + 1) != rebuilt_from(unit);
  }

  /// Returns the computations of a micro-batch in order. Forward runs a unit's segments in order, backward in
  /// reverse. A unit's weights stay gathered from its first to its last segment.
  std::vector<Work> works() const {
    std::vector<Work> works;
    auto const run = [&](Verb verb, int unit) {
      for (Work work{verb, unit, 0, true}; work.segment < plan_.unit(unit).segments(); ++work.segment)
        works.push_back(work);
    };
    for (int unit = 0; unit < plan_.units_count(); ++unit) run(Verb::forward, unit);
    if (!training_) return works;
    for (int unit = plan_.units_count() - 1; unit >= lowest_; --unit) {
      if (rebuilt(unit) && rebuilt_last(unit))
        for (int again = rebuilt_from(unit); again <= unit; ++again) run(Verb::recompute, again);
      bool const reads = plan_.unit(unit).backward_reads_weights;
      int const last = plan_.unit(unit).segments() - 1;
      for (int segment = last; segment >= 0; --segment) {
        Work const restore{Verb::restore, unit, segment, segment < last && reads},
            input{Verb::backward_input, unit, segment, reads},
            weight{Verb::backward_weight, unit, segment, segment > 0 && reads};
        if (!rebuilt(unit) && drops_some(unit, segment)) works.push_back(restore);
        works.push_back(input);
        if (plan_.trains(unit)) works.push_back(weight);
      }
    }
    return works;
  }
  /// Returns the flat groups whose weights a computation reads: the groups of its unit, then the groups of
  /// borrowed parameters.
  std::vector<Flat> weights_of(Work const& work) const {
    if (!work.reads_weights) return {};
    auto const own = plan_.flats(work.unit);
    std::vector<Flat> list(own.begin(), own.end());
    for (Borrow const& borrow : plan_.unit(work.unit).borrows) {
      Flat const owner = plan_.flat_of(borrow.unit, borrow.parameter);
      if (!contains(list, owner)) list.push_back(owner);
    }
    return list;
  }

 private:
  /// Returns whether forward dropped a tensor of this segment that backward needs.
  bool drops_some(int unit, int segment) const {
    auto const& saved = plan_.unit(unit).saved;
    for (std::size_t index = 0; index < saved.size(); ++index)
      if (saved[index].segment == segment && drops(unit, index) && plan_.needed(unit, saved[index]))
        return true;
    return false;
  }

  StepPlan const& plan_;
  bool training_;
  int lowest_ = plan_.lowest_trainable();
};

}  // namespace detail

}  // namespace v0
}  // namespace tessera
