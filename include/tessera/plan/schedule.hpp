// SPDX-License-Identifier: Apache-2.0
// Describes a training step as data: an ordered list of entries (computations and transfers), and the buffers
// that each entry uses.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/comm/request.hpp"
#include "tessera/config.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/detail/sort.hpp"

namespace tessera {
inline namespace v0 {

/// The purpose of an entry. Verbs up to `backward_weight` call the model's functions, and `release` ends the
/// use of a unit's weights. An entry with a later verb transfers values if it has a move. Without a move, it
/// computes with values. The verb says why values are transferred, and the move says how they are
/// transferred. For example, Verb::gather brings a unit's full weights to the device by Move::all_gather,
/// Move::broadcast or Move::copy. Move::gather is a different operation, which brings the values of all ranks
/// to one rank. `exchange`, `decide` and `copy_scalars` belong to no unit.
enum class Verb : std::uint8_t {
  forward,          ///< run the unit
  recompute,        ///< run the unit again to rebuild the tensors that forward dropped
  restore,          ///< rebuild the cheap tensors that forward dropped
  backward_input,   ///< compute the gradient of the unit's input
  backward_weight,  ///< compute the gradients of the unit's parameters
  release,          ///< end the use of gathered weights: their buffer may be overwritten
  gather,           ///< bring a unit's full weights to the device
  reduce,           ///< sum or send micro-batch gradients over ranks, and bring the sums to their placement
  accumulate,       ///< add micro-batch gradients to their sum, in the order of micro-batches
  norm,             ///< compute sums of squares of the gradient
  fetch,            ///< bring gradient, master weights and moments to the memory in which the optimizer works
  update,           ///< run the optimizer on the part that this rank updates
  write_back,       ///< bring updated state back to its placement, for example by an all_gather of weights
  exchange,         ///< bring the statistics of every rank to all ranks: norm partials, losses and counts
  decide,           ///< compute the global norm, the clip factor and the loss scale
  copy_scalars,     ///< copy the step's scalars to the memory in which the optimizer works
  cross,            ///< bring an activation, or its gradient, to the next segment or pipeline stage
  sum_losses,       ///< sum a micro-batch's losses, and count its valid targets
  add_tied,         ///< add a borrower's gradient of a tied parameter to the first borrower's gradient
  clear_gaps        ///< zero the elements of a micro-batch gradient that belong to no parameter
};

inline constexpr std::size_t verb_count = static_cast<std::size_t>(Verb::clear_gaps) + 1;

constexpr std::string_view name_of(Verb verb) {
  constexpr std::string_view names[] = {
      "forward", "recompute",    "restore", "backward_input", "backward_weight", "release",    "gather",
      "reduce",  "accumulate",   "norm",    "fetch",          "update",          "write_back", "exchange",
      "decide",  "copy_scalars", "cross",   "sum_losses",     "add_tied",        "clear_gaps"};
  return names[static_cast<std::size_t>(verb)];
}

/// Returns whether entries with this verb call the model's functions.
constexpr bool computes(Verb verb) { return verb <= Verb::backward_weight; }

/// The ranks that take part in a transfer. The ranks form a table. The ranks of a row have one shard each, so
/// each row has a copy of all shards. There is one row, unless the options request more replicas.
enum class Group : std::uint8_t {
  all,
  shards,    ///< a row: ranks whose shards together form one copy of the state
  replicas,  ///< a column: ranks that have the same shard
  next,      ///< the rank of the next pipeline stage; plans may name it, but no engine runs it
  previous,  ///< the rank of the previous pipeline stage; plans may name it, but no engine runs it
  tensor     ///< the ranks that split each matrix; plans may name this group, but no engine runs it
};

constexpr std::string_view name_of(Group group) {
  constexpr std::string_view names[] = {"all", "shards", "replicas", "next", "previous", "tensor"};
  return names[static_cast<std::size_t>(group)];
}

/// The contents of a buffer. In this list, T is the number format of the weights, and the compute type is
/// compute_t<T>, the format of sums. An "index" in this list is the value of Buffer::index.
enum class BufferKind : std::uint8_t {
  weights,          ///< T: a whole flat group (all parameters of a unit, contiguous) or a shard of it
  micro_gradient,   ///< T: the micro-batch gradient of a whole flat group
  gradient,         ///< compute type: the accumulated gradient of a whole flat group or a shard
  tied_gradient,    ///< compute type: the gradient of a borrowed parameter; index into UnitSpec::borrows
  master,           ///< compute type: the weights that the optimizer updates
  moment,           ///< a state of the optimizer; index into StepPlan::optimizer
  output,           ///< T: the unit's output
  output_gradient,  ///< T: the gradient of the unit's output
  saved,            ///< a tensor that forward keeps for backward; index into UnitSpec::saved
  backward,         ///< a tensor that backward_input keeps for backward_weight; index into UnitSpec::backward
  scalars,          ///< StepState
  partials,         ///< this rank's statistics: sums of squares, sums of losses, first non-finite value
  all_partials,     ///< the partials of all ranks
  norm_ranges,      ///< the position of each trained flat group's sums of squares in the partials (NormRange)
  rows,             ///< the address tables of norm and update entries; index 1: on the host
  batch,            ///< tokens and targets of the step
  losses,           ///< one loss per token
  saving,           ///< the staging buffer of a save (SaveStaging)
  snapshot,         ///< a copy of state for a save during steps; index 0: master weights, 1 + i: moment i
  workspace         ///< scratch memory of the device's operations
};

constexpr std::string_view name_of(BufferKind kind) {
  constexpr std::string_view names[] = {"weights",
                                        "micro-batch gradient",
                                        "gradient",
                                        "tied gradient",
                                        "master weights",
                                        "moment",
                                        "output",
                                        "output gradient",
                                        "saved",
                                        "backward",
                                        "scalars",
                                        "partials",
                                        "partials of all ranks",
                                        "norm ranges",
                                        "rows",
                                        "batch",
                                        "losses",
                                        "saving",
                                        "snapshot",
                                        "workspace"};
  return names[static_cast<std::size_t>(kind)];
}

/// Says whether a buffer has the original of its contents or a copy, for example the gathered weights or the
/// fetched gradient. `by` is the verb that makes the copy. A verb that needs several transfers can make
/// several copies.
struct Copy {
  Verb by{};
  int number = -1;  ///< number among the copies that `by` makes; -1: the original, not a copy

  constexpr bool rests() const { return number < 0; }  ///< whether it is the original
  friend constexpr bool operator==(Copy const&, Copy const&) = default;
};

/// Returns a name for the contents of a buffer: "weights", "gathered weights", "fetched gradient".
inline std::string name_of(BufferKind kind, Copy const& copy) {
  auto const made = [&]() -> std::string_view {
    if (copy.rests()) return "";
    switch (copy.by) {
      case Verb::gather:
        return "gathered ";
      case Verb::reduce:
        return "received ";
      case Verb::fetch:
        return "fetched ";
      case Verb::update:
        return "updated ";
      case Verb::write_back:
        return "returning ";
      case Verb::forward:  // a tensor that forward does not keep and backward computes again
        return "dropped ";
      case Verb::recompute:
        return "rebuilt ";
      default:
        return "copied ";
    }
  };
  return std::string(made()).append(name_of(kind));
}

/// A half-open range of elements of a flat group (parameters in one contiguous buffer).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  friend constexpr bool operator==(Range const&, Range const&) = default;
};

constexpr Range intersect(Range a, Range b) {
  std::int64_t const begin = a.begin > b.begin ? a.begin : b.begin;
  std::int64_t const end = a.end < b.end ? a.end : b.end;
  return {begin, end > begin ? end : begin};
}

/// Identifies one of a unit's flat groups. A flat group is a set of parameters in one contiguous buffer
/// (UnitLayout). The default is the unit's first group.
struct Flat {
  int unit = -1;
  int group = 0;

  constexpr Flat(int of_unit = -1, int number = 0) : unit(of_unit), group(number) {}
  friend constexpr bool operator==(Flat const&, Flat const&) = default;
};

/// The purpose of a buffer in an entry. In this list, T is the number format of the weights, and an "index"
/// is the value of Operand::index.
enum class Role : std::uint8_t {
  source,          ///< the values that a transfer sends, or that a sum adds
  target,          ///< the values that a transfer writes
  weights,         ///< T: the full weights of a flat group of this unit or of a unit that owns a tied weight
  input,           ///< the output of the previous unit
  input_gradient,  ///< the gradient of `input`
  output,
  output_gradient,
  saved,            ///< a tensor that forward keeps for backward; index into UnitSpec::saved
  backward,         ///< a tensor that backward_input keeps for backward_weight; index into UnitSpec::backward
  gradient,         ///< the gradient of a flat group
  tied_gradient,    ///< a tied parameter's gradient; index of the borrow, or of the owner's parameter
  master,           ///< the weights that the optimizer updates
  moment,           ///< a state of the optimizer; index into StepPlan::optimizer
  updated_weights,  ///< T: the updated weights, if they are not the master weights
  scalars,          ///< StepState
  partials,         ///< statistics: sums of squares, sums of losses, first non-finite value
  rows,             ///< the address table of a norm or an update entry
  batch,            ///< tokens and targets of the step
  losses,           ///< one loss per token
  workspace         ///< packing buffers and tiles of the device's operations
};

constexpr std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {
      "source",  "target",   "weights",  "input",         "input_gradient", "output",   "output_gradient",
      "saved",   "backward", "gradient", "tied_gradient", "master",         "moment",   "updated_weights",
      "scalars", "partials", "rows",     "batch",         "losses",         "workspace"};
  return names[static_cast<std::size_t>(role)];
}

/// Whether an entry reads a buffer, writes it, or both.
enum class Access : std::uint8_t { read, write, read_write };

/// One buffer of an entry, with its purpose.
struct Operand {
  Role role{};
  Access access{};
  int buffer = -1;
  int index = 0;           ///< its meaning depends on the role, see Role
  Flat of{};               ///< for weights and gradients: their flat group
  std::int64_t begin = 0;  ///< for a tied gradient: its first element in the buffer

  constexpr bool reads() const { return access != Access::write; }
  constexpr bool writes() const { return access != Access::read; }
};

/// Returns the buffer of the operand with this role and index, or -1 if there is none.
inline int buffer_of(std::vector<Operand> const& operands, Role role, int index = 0) {
  for (Operand const& operand : operands)
    if (operand.role == role && operand.index == index) return operand.buffer;
  return -1;
}

/// One flat group (contiguous parameters) in an entry that transfers or changes state. `of.unit` is -1 for
/// scalars and statistics.
struct Item {
  Flat of{};
  Range part{};   ///< this rank's part of the group in this entry; may be empty
  int root = -1;  ///< the root rank of a Move::gather or Move::broadcast
  std::vector<Operand> operands;

  int at(Role role, int index = 0) const { return buffer_of(operands, role, index); }
  /// Returns the buffer to which `part` refers: the source if the item has one, otherwise the gradient.
  /// Returns -1 if the item has neither of them.
  int source_buffer() const {
    int const source = at(Role::source);
    return source >= 0 ? source : at(Role::gradient);
  }
};

/// One line of the schedule: one computation of a unit, or one call that transfers, sums or updates flat
/// groups. The entry has all information that the code which runs it needs.
struct Entry {
  Verb verb{};
  Move move = Move::none;
  Group group = Group::all;  ///< the ranks that take part in a move between ranks
  int unit = -1;             ///< the unit; -1: it belongs to no unit, or to several
  int segment = 0;           ///< the segment of the unit
  int micro_batch = -1;      ///< micro-batch of its first run; -1: it runs after the last micro-batch
  Lane lane = Lane::compute;
  std::vector<Operand> operands;  ///< the buffers of the entry as a whole
  std::vector<Item> items;        ///< the flat groups that it moves or changes, with their buffers
  std::vector<int> waits;         ///< the entries of other lanes that must end before this entry begins
  bool signals = false;           ///< true: an entry of another lane waits for this entry

  /// Returns the buffer with this role in the entry or in its first item, or -1 if there is none.
  int at(Role role, int index = 0) const {
    int const own = buffer_of(operands, role, index);
    return own >= 0 || items.empty() ? own : items.front().at(role, index);
  }
  /// Returns the buffer that a transfer, a sum or an update reads for its first item, or -1 if there is none.
  int source_buffer() const { return items.empty() ? at(Role::source) : items.front().source_buffer(); }
  /// Calls f(operand, item) for each operand of the entry. `item` is the index in `items` of the operand's
  /// item, or -1 for an operand of the entry as a whole.
  template <class F>
  void visit_operands(F&& f) const {
    for (Operand const& operand : operands) f(operand, -1);
    for (std::size_t item = 0; item < items.size(); ++item)
      for (Operand const& operand : items[item].operands) f(operand, static_cast<int>(item));
  }
  /// `reads` returns the buffers that the entry reads, `writes` the buffers that it writes.
  std::vector<int> reads() const { return touched(&Operand::reads); }
  std::vector<int> writes() const { return touched(&Operand::writes); }

 private:
  std::vector<int> touched(bool (Operand::*how)() const) const {
    std::vector<int> buffers;
    visit_operands([&](Operand const& operand, int) {
      if ((operand.*how)()) buffers.push_back(operand.buffer);
    });
    return buffers;
  }
};

/// One execution of an entry. An entry that runs for several micro-batches has one instance for each
/// micro-batch.
struct Instance {
  Entry const& entry;
  int index = 0;                 ///< the position of the entry in its list
  int micro_batch = -1;          ///< the micro-batch of this instance
  std::span<int const> waits{};  ///< the entries for which this instance waits
};

/// The list of entries of a whole step. One part of it, the body, runs several times, so the length of the
/// list does not depend on the number of micro-batches. All executions of an entry use the same buffers.
/// Entry::micro_batch is the micro-batch of its first execution.
///
/// A wait refers to the latest execution of the entry for which another entry waits. An entry of the body may
/// wait for an entry that is later in the list. This wait refers to the previous repetition of the body, so
/// it does not apply in the first repetition. In Entry::waits, the waits for a previous repetition come last.
struct Schedule {
  std::vector<Entry> entries;
  int body_begin = 0, body_end = 0;  ///< the entries of the body
  int times = 1;                     ///< the number of repetitions of the body
  int stride = 1;                    ///< the number of micro-batches from one repetition to the next

  /// Returns the number of executions of entries in a step. The form with `most` counts at most `most`
  /// repetitions of the body.
  std::int64_t instances() const { return instances(times); }
  std::int64_t instances(int most) const {
    return static_cast<std::int64_t>(entries.size()) +
           (std::min(times, most) - 1) * std::int64_t{body_end - body_begin};
  }
  /// Returns the n-th execution of an entry in a step, counted from 0. The form with `most` counts at most
  /// `most` repetitions of the body.
  Instance instance(std::int64_t n) const { return instance(n, times); }
  Instance instance(std::int64_t n, int most) const {
    int time = 0;
    if (n >= body_end && body_end > body_begin) {
      std::int64_t const size = body_end - body_begin, last = std::min(times, most) - 1;
      bool const inside = n < body_end + last * size;
      time = inside ? static_cast<int>((n - body_begin) / size) : 0;
      n -= (inside ? time : last) * size;
    }
    Entry const& entry = entries[static_cast<std::size_t>(n)];
    std::size_t waits = entry.waits.size();
    while (time == 0 && waits > 0 && entry.waits[waits - 1] >= n) --waits;
    return {entry, static_cast<int>(n), entry.micro_batch + time * stride,
            std::span<int const>{entry.waits.data(), waits}};
  }
};

/// The number of repetitions of the schedule's body that an analysis must examine. All repetitions use the
/// same buffers. So an entry that must wait for earlier repetitions needs to wait only for the previous
/// repetition, which has waited for the repetition before it. A buffer's lifetime ends at the latest in the
/// next repetition, where it is written again.
inline constexpr int steady_times = 2;

/// Adds the waits between entries of different lanes. An entry waits for
/// - the last writer of each buffer that it touches,
/// - the readers of each buffer that it overwrites,
/// - the last writer and the readers of each buffer that shares bytes with a buffer that it overwrites.
///
/// `sharing[b]` lists the buffers that overlap buffer b in memory. A wait is left out if an earlier entry of
/// the waiting entry's lane, or another wait of the entry, already implies it. The waits of the repeated body
/// are found from its first repetitions (`steady_times`).
inline void connect(Schedule& schedule, std::vector<std::vector<int>> const& sharing) {
  constexpr std::size_t lanes = lane_count;
  struct Latest {  // a vector clock: by lane, the number of the latest instance; -1: none
    int of[lanes];

    Latest() {
      for (int& entry : of) entry = -1;
    }
    int& operator[](std::size_t lane) { return of[lane]; }
    void join(Latest const& from) {
      for (std::size_t lane = 0; lane < lanes; ++lane) of[lane] = std::max(of[lane], from.of[lane]);
    }
  };
  std::vector<Latest> written(sharing.size()), read(sharing.size());
  Latest known[lanes];  // by lane: the instances that are known to have ended when its next entry begins
  auto& entries = schedule.entries;
  int const instances = static_cast<int>(schedule.instances(steady_times));
  auto const entry_of = [&](int instance) -> Entry& {
    return entries[static_cast<std::size_t>(schedule.instance(instance, steady_times).index)];
  };
  // For each instance: the instances that have certainly ended when this instance ends. All indices in `done`
  // and in Latest count instances, not entries.
  std::vector<Latest> done(static_cast<std::size_t>(instances));
  for (int index = 0; index < instances; ++index) {
    Entry& entry = entry_of(index);
    std::size_t const own = static_cast<std::size_t>(entry.lane);
    Latest needed;
    entry.visit_operands([&](Operand const& operand, int) {
      std::size_t const buffer = static_cast<std::size_t>(operand.buffer);
      needed.join(written[buffer]);
      if (!operand.writes()) return;
      needed.join(read[buffer]);
      for (int other : sharing[buffer]) {
        needed.join(written[static_cast<std::size_t>(other)]);
        needed.join(read[static_cast<std::size_t>(other)]);
      }
    });
    // Wait for the latest instance first: this may make the waits for earlier instances unnecessary.
    while (true) {
      int latest = -1;
      for (std::size_t lane = 0; lane < lanes; ++lane)
        if (lane != own && needed[lane] > known[own][lane]) latest = std::max(latest, needed[lane]);
      if (latest < 0) break;
      Entry& other = entry_of(latest);
      int const place = static_cast<int>(&other - entries.data());
      if (!detail::contains(entry.waits, place)) entry.waits.push_back(place);
      other.signals = true;
      known[own].join(done[static_cast<std::size_t>(latest)]);
    }
    known[own][own] = index;
    done[static_cast<std::size_t>(index)] = known[own];
    entry.visit_operands([&](Operand const& operand, int) {
      if (operand.reads()) read[static_cast<std::size_t>(operand.buffer)][own] = index;
    });
    entry.visit_operands([&](Operand const& operand, int) {
      if (!operand.writes()) return;
      std::size_t const buffer = static_cast<std::size_t>(operand.buffer);
      read[buffer] = written[buffer] = Latest();
      written[buffer][own] = index;
    });
  }
}

/// Returns a 64-bit FNV-1a hash of verbs, moves, units, micro-batches, lanes, items, operands and
/// repetitions. Ranks compare their hashes before step 1. Two runs whose results have equal hashes ran the
/// same schedule. The hash leaves out waits. Waits depend on the memory offsets of buffers, which can differ
/// between ranks (Sharding::owned).
inline std::uint64_t hash_of(Schedule const& schedule) {
  std::uint64_t hash = 14695981039346656037ull;
  auto const mix = [&](std::int64_t value) {
    for (int byte = 0; byte < 8; ++byte) {
      hash ^= static_cast<std::uint64_t>(value >> (8 * byte)) & 0xffu;
      hash *= 1099511628211ull;
    }
  };
  if (schedule.times > 1)
    for (int const number : {schedule.body_begin, schedule.body_end, schedule.times, schedule.stride})
      mix(number);
  for (Entry const& entry : schedule.entries) {
    mix(static_cast<std::int64_t>(entry.verb));
    mix(static_cast<std::int64_t>(entry.move));
    mix(static_cast<std::int64_t>(entry.group));
    mix(entry.unit + (std::int64_t{entry.segment} << 32));
    mix(entry.micro_batch);
    mix(static_cast<std::int64_t>(entry.lane) + (static_cast<std::int64_t>(entry.items.size()) << 8));
    for (Item const& item : entry.items)
      mix(item.of.unit + (std::int64_t{item.of.group} << 24) + (std::int64_t{item.root} << 40));
    entry.visit_operands([&](Operand const& operand, int item) {
      mix(operand.buffer + (static_cast<std::int64_t>(operand.role) << 32) +
          (static_cast<std::int64_t>(operand.access) << 40) + (std::int64_t{item} << 44));
    });
  }
  return hash;
}

/// Returns the entry as one line of text: "backward_input h.3 micro 0". An entry with three groups of
/// parameters gives "reduce h.3+2 micro 0". An entry of a later segment gives "forward h.3 segment 1 micro
/// 0". `unit` is the name of the entry's unit, or of the unit of its first item.
inline std::string to_string(Entry const& entry, std::string_view unit) {
  std::string text(name_of(entry.verb));
  if (!unit.empty()) text.append(" ").append(unit);
  if (entry.items.size() > 1) text.append("+").append(std::to_string(entry.items.size() - 1));
  if (entry.segment > 0) text.append(" segment ").append(std::to_string(entry.segment));
  if (entry.micro_batch >= 0) text.append(" micro ").append(std::to_string(entry.micro_batch));
  return text;
}

}  // namespace v0
}  // namespace tessera
