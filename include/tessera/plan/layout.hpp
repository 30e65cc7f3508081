// SPDX-License-Identifier: Apache-2.0
// Lays out a unit's parameters in contiguous buffers (flat groups), cuts these buffers into shards, and
// checks the model's units and the optimizer's states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/sort.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/optim/states.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// Shards begin at multiples of this many elements. The gradient norm is computed in blocks of this many
/// elements.
inline constexpr std::int64_t shard_alignment = 4096;
/// Every parameter starts at a multiple of this many elements in its contiguous buffer (flat group).
inline constexpr std::int64_t parameter_alignment = 64;

/// The layout of a flat group: several parameters in one contiguous buffer, which is sharded as a whole.
/// Parameters with weight decay come first, then the others. Each parameter is aligned, and its padding rows
/// follow it. The end of the buffer is padded to whole shards. Only this padding depends on the number of
/// shards.
struct FlatLayout {
  bool trainable = true;      ///< false: frozen; it has only weights
  int number = 0;             ///< index among all flat groups of the model, in the order of the units
  int trainable_index = -1;   ///< index among the model's trainable flat groups; -1 if the group is frozen
  std::vector<Range> gaps;    ///< elements that belong to no parameter; they stay zero
  Range decayed, undecayed;   ///< the elements with weight decay, and the elements without
  std::int64_t elements = 0;  ///< number of elements without the padding at the end
  std::int64_t shard = 0;     ///< number of elements of one shard, a multiple of shard_alignment
  std::int64_t padded = 0;    ///< number of elements of all shards together

  constexpr Range shard_of(int index) const { return {index * shard, (index + 1) * shard}; }
};

/// The flat groups of a unit, and the position of each parameter in them. A unit has a group of trainable
/// parameters, a group of frozen parameters, or both groups. `parameters` and `flat_of` have one element for
/// each parameter, in the order of UnitSpec::parameters.
struct UnitLayout {
  std::vector<FlatLayout> flats;
  std::vector<Range> parameters;  ///< the elements of each parameter in its group, without padding rows
  std::vector<int> flat_of;       ///< the index in `flats` of each parameter's group
};

/// Returns the layout of a unit's flat groups for this number of shards.
inline UnitLayout layout_of(UnitSpec const& unit, int shards) {
  UnitLayout all{{}, std::vector<Range>(unit.parameters.size()), std::vector<int>(unit.parameters.size())};
  for (bool const trainable : {true, false}) {
    FlatLayout flat;
    flat.trainable = trainable;
    std::int64_t cursor = 0;
    auto const place = [&](bool decay) {
      std::int64_t const begin = cursor;
      for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
        ParameterSpec const& parameter = unit.parameters[index];
        if (parameter.trainable != trainable || parameter.decay != decay) continue;
        std::int64_t const end = cursor + parameter.shape.elements();
        std::int64_t const next = round_up(cursor + parameter.in_memory().elements(), parameter_alignment);
        all.parameters[index] = {cursor, end};
        all.flat_of[index] = static_cast<int>(all.flats.size());
        if (next > end) flat.gaps.push_back({end, next});
        cursor = next;
      }
      return Range{begin, cursor};
    };
    flat.decayed = place(true);
    flat.undecayed = place(false);
    if (cursor == 0) continue;
    flat.elements = cursor;
    flat.shard = round_up((cursor + shards - 1) / shards, shard_alignment);
    flat.padded = flat.shard * shards;
    if (flat.padded > cursor) flat.gaps.push_back({cursor, flat.padded});
    all.flats.push_back(std::move(flat));
  }
  return all;
}

/// A part of one parameter: its range in the row-major parameter without padding, and its range in the flat
/// group.
struct Piece {
  int parameter = 0;
  Range logical;
  Range flat;
};

/// Returns the parts of parameters in the elements `range` of the flat group with the number `group` of a
/// unit. The parts are in the order of the unit's parameters and leave out padding. All code that sets,
/// collects or names parameter values uses this function.
inline std::vector<Piece> pieces(UnitLayout const& unit, int group, Range range) {
  std::vector<Piece> list;
  for (std::size_t index = 0; index < unit.parameters.size(); ++index) {
    if (unit.flat_of[index] != group) continue;
    Range const extent = unit.parameters[index], part = intersect(extent, range);
    if (part.size() > 0)
      list.push_back({static_cast<int>(index), {part.begin - extent.begin, part.end - extent.begin}, part});
  }
  return list;
}

namespace detail {

/// Returns a message about the first error in a unit's boundaries and activations, or an empty string. A
/// boundary is the border between two segments of a unit (nn/model.hpp).
inline std::string mistake_in_boundaries(UnitSpec const& unit) {
  for (int segment = 0; segment + 1 < unit.segments(); ++segment) {
    Boundary const& at = unit.boundary(segment);
    auto const mistake = [&](std::initializer_list<Word> words) {
      return sentence({"has boundary ", segment, sentence(words)});
    };
    auto const find = [](std::vector<ActivationSpec> const& list, int index, int by) {
      ActivationSpec const* const found = index >= 0 && index < static_cast<int>(list.size())
                                              ? &list[static_cast<std::size_t>(index)]
                                              : nullptr;
      return found && found->segment == by ? found : nullptr;
    };
    ActivationSpec const* const value = find(unit.saved, at.activation, segment);
    ActivationSpec const* const gradient = find(unit.backward, at.gradient, segment + 1);
    if (!value || value->cheap_to_recompute)
      return mistake({" without an activation; name one that segment ", segment,
                      " saves and that is not cheap to recompute"});
    if (!gradient || gradient->shape != value->shape || gradient->statistic != value->statistic)
      return mistake({" without a gradient of '", value->name,
                      "'; name a backward tensor of the same shape in segment ", segment + 1});
    for (Boundary::Side const& side : {at.before, at.after}) {
      bool const partial = side.value == Sharding::partial;
      if ((!partial && side.value != Sharding::replicated) ||
          (side.gradient != Sharding::replicated && (partial || side.gradient != Sharding::partial)))
        return mistake({" where '", value->name, "' is ", name_of(side.value), " and its gradient ",
                        name_of(side.gradient),
                        "; a partial value must have a replicated gradient, and a replicated value a "
                        "replicated or partial one"});
    }
    // A boundary can change partial values to replicated values, by a sum. It cannot change replicated values
    // to partial values. Gradients cross the boundary backwards, from `after` to `before`.
    if (at.after.value == Sharding::partial && at.before.value != Sharding::partial)
      return mistake({" that changes '", value->name,
                      "' from replicated to partial; a boundary can only sum partial values"});
    if (at.before.gradient == Sharding::partial && at.after.gradient != Sharding::partial)
      return mistake({" that changes the gradient of '", value->name,
                      "' from replicated to partial; a boundary can only sum partial values"});
  }
  for (auto const* list : {&unit.saved, &unit.backward})
    for (ActivationSpec const& activation : *list) {
      for (nn::Weight const of : activation.needed_for)
        if (of.index < 0 ||
            of.index >= static_cast<int>(of.borrowed ? unit.borrows.size() : unit.parameters.size()))
          return sentence({"has activation '", activation.name,
                           "' that is needed for a parameter which the unit does not have"});
      if (activation.segment < 0 || activation.segment >= unit.segments())
        return sentence({"has activation '", activation.name, "' of segment ", activation.segment,
                         ", but the unit has only ", unit.segments(),
                         " segments; a boundary begins a segment"});
    }
  return {};
}

}  // namespace detail

/// Returns the shape of one rank's part of a tensor that tensor parallelism splits over `ranks` ranks. `name`
/// is the tensor's name for error messages, and `split` says along which dimension it is split. Throws
/// Error(config) with the tensor's name if the ranks cannot have equal parts.
inline Shape local_shape(std::string const& name, Shape const& full_shape, Split const& split, int ranks) {
  if (split.kind == Split::Kind::none) return full_shape;
  constexpr char const* names[] = {"", "heads", "hidden", "vocabulary", "experts", "sequence"};
  std::int64_t const parts = full_shape[split.dim] / split.sections / split.grain;
  if (ranks < 1 || parts % ranks != 0)
    throw_error(ErrorKind::config,
                {"model: '", name, "' is split by ", names[static_cast<int>(split.kind)], ", but ", ranks,
                 " ranks cannot divide ", parts,
                 " of them equally; choose a tensor group of a size that divides ", parts});
  return full_shape.with(split.dim, full_shape[split.dim] / ranks);
}
inline Shape local_shape(ParameterSpec const& spec, int ranks) {
  return local_shape(spec.name, spec.in_memory(), spec.split, ranks);
}
inline Shape local_shape(ActivationSpec const& spec, int ranks) {
  return local_shape(spec.name, spec.shape, spec.split, ranks);
}

/// Checks a model's list of units: parameter names are unique, borrowed parameters belong to earlier units,
/// extents are positive, no tensor has more than 2^44 elements, splits divide their dimensions, and
/// boundaries name matching tensors. Throws Error(config) with the name of the unit or parameter.
inline void check_units(std::vector<UnitSpec> const& units) {
  auto const fail = [](UnitSpec const& unit, std::initializer_list<Word> what) {
    throw_error(ErrorKind::config, {"model: unit '", unit.name, "' ", sentence(what)}, -1, unit.name);
  };
  if (units.empty())
    throw Error(ErrorKind::config, "model: it has no units; return at least one from units()");
  auto const check = [&](UnitSpec const& unit, char const* what, std::string const& name, Shape const& shape,
                         Split const& split = {}) {
    double elements = 1.0;
    bool positive = true;
    for (int dim = 0; dim < shape.dims(); ++dim) {
      positive &= shape[dim] >= 1;
      elements *= static_cast<double>(shape[dim]);
    }
    auto const refuse_shape = [&](std::initializer_list<Word> rule) {
      fail(unit, {"has ", what, " '", name, "' of shape ", to_string(shape), "; ", sentence(rule)});
    };
    if (!positive) refuse_shape({"every extent must be at least 1"});
    if (elements > 0x1p44) refuse_shape({"a tensor may have up to 2^44 elements"});
    if (split.kind != Split::Kind::none &&
        (split.dim < 0 || split.dim >= shape.dims() || split.sections < 1 || split.grain < 1 ||
         shape[split.dim] % (split.sections * split.grain) != 0))
      refuse_shape({"its split along dim ", split.dim, " into ", split.sections, " sections of grains of ",
                    split.grain, " does not fit"});
  };
  std::vector<Borrow> all;  // unit and index of every parameter
  for (UnitSpec const& unit : units) {
    check(unit, "tensor", "output", unit.output, unit.output_split);
    for (auto const* list : {&unit.saved, &unit.backward})
      for (ActivationSpec const& activation : *list)
        check(unit, "activation", activation.name, activation.shape, activation.split);
    if (std::string const mistake = detail::mistake_in_boundaries(unit); !mistake.empty())
      fail(unit, {mistake});
    for (ParameterSpec const& parameter : unit.parameters) {
      check(unit, "parameter", parameter.name, parameter.shape);
      check(unit, "parameter", parameter.name, parameter.in_memory(), parameter.split);
      if (parameter.padded_rows &&
          (parameter.shape.dims() != 2 || parameter.padded_rows < parameter.shape[0]))
        fail(unit, {"has parameter '", parameter.name, "' of shape ", to_string(parameter.shape), " with ",
                    parameter.padded_rows,
                    " padded rows; only a matrix can have padded rows, and at least as many as its rows"});
      Borrow const here{static_cast<int>(&unit - units.data()),
                        static_cast<int>(&parameter - unit.parameters.data())};
      all.push_back(here);
    }
    for (Borrow const& borrow : unit.borrows) {
      bool const exists =
          borrow.unit >= 0 && borrow.unit < static_cast<int>(units.size()) && borrow.parameter >= 0 &&
          borrow.parameter < static_cast<int>(units[static_cast<std::size_t>(borrow.unit)].parameters.size());
      if (!exists)
        fail(unit,
             {"borrows parameter ", borrow.parameter, " of unit ", borrow.unit, ", which does not exist"});
      if (&units[static_cast<std::size_t>(borrow.unit)] >= &unit)
        fail(unit, {"borrows from unit ", borrow.unit,
                    ", which does not come before it; let the earlier unit own a tied parameter"});
    }
  }
  auto const name = [&](std::size_t index) -> std::string const& {
    Borrow const& of = all[index];
    return units[static_cast<std::size_t>(of.unit)].parameters[static_cast<std::size_t>(of.parameter)].name;
  };
  auto const order =
      detail::sorted_indices(all.size(), [&](std::size_t a, std::size_t b) { return name(a) < name(b); });
  for (std::size_t next = 1; next < order.size(); ++next)
    if (name(order[next - 1]) == name(order[next]))
      throw_error(ErrorKind::config,
                  {"model: parameter '", name(order[next]), "' is declared twice; names must be unique"});
}

/// Checks the optimizer's states. A state has one value for each block of `block` elements. The block must
/// divide shard_alignment. The values for shard_alignment elements must have a multiple of 4 bytes, because
/// state is copied 4 bytes at a time. Throws Error(config) with the state's name.
inline void check_states(std::vector<OptimizerState> const& states) {
  for (OptimizerState const& state : states)
    if (state.block < 1 || shard_alignment % state.block != 0 ||
        shard_alignment / state.block * static_cast<std::int64_t>(size_of(state.type)) % 4 != 0)
      throw_error(ErrorKind::config,
                  {"optimizer: state '", state.name, "' has one value of ", name_of(state.type),
                   " for each block of ", state.block, " elements; a block must divide ", shard_alignment,
                   ", and the values for that many elements must take a multiple of 4 bytes"});
}

}  // namespace v0
}  // namespace tessera
