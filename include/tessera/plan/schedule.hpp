// SPDX-License-Identifier: Apache-2.0
// The step as data: what one training step does, in order, and which buffers each entry uses for what.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/detail/sort.hpp"

namespace tessera {
inline namespace v0 {

/// What an entry is for. An entry of the verbs up to `release` computes or ends a use; of the others, one
/// with a move carries values, one without works on them. `share`, `decide` and `brief` are of no unit.
enum class Verb : std::uint8_t {
  forward,          ///< run the unit
  recompute,        ///< run the unit again, for what forward dropped
  restore,          ///< rebuild the cheap tensors that forward dropped
  backward_input,   ///< gradient of the unit's input
  backward_weight,  ///< gradients of the unit's parameters: its contribution is then complete
  release,          ///< the acquired weights may be overwritten
  acquire,          ///< bring a unit's weights to the device, whole
  reduce,           ///< bring contributions to where the gradient is summed
  fold,             ///< add contributions to the gradient, in the order of micro-batches
  norm,             ///< square sums of the gradient
  stream,           ///< bring gradient, master weights and moments to where the optimizer works
  update,           ///< AdamW
  publish,          ///< bring what was updated to where it is kept
  share,            ///< bring norm partials, losses and counts to every rank
  decide,           ///< the global norm, the clip factor and the loss scale
  brief,            ///< bring the scalars to where the optimizer works
  cross,            ///< bring an activation, or its gradient, over a boundary in its unit or of a pipeline
  sum_losses,       ///< the sum of a micro-batch's losses, and how many targets count
  add_tied,         ///< add a later borrower's gradient of a parameter to that of the first one
  clear_gaps        ///< zero the elements of a micro-batch's gradient that are of no parameter
};

inline constexpr std::size_t verb_count = static_cast<std::size_t>(Verb::clear_gaps) + 1;

constexpr std::string_view name_of(Verb verb) {
  constexpr std::string_view names[] = {
      "forward", "recompute", "restore", "backward_input", "backward_weight", "release",   "acquire",
      "reduce",  "fold",      "norm",    "stream",         "update",          "publish",   "share",
      "decide",  "brief",     "cross",   "sum_losses",     "add_tied",        "clear_gaps"};
  return names[static_cast<std::size_t>(verb)];
}

/// Whether an entry runs a unit's code.
constexpr bool computes(Verb verb) { return verb <= Verb::backward_weight; }

/// How an entry carries values: between tiers, or between ranks on the device.
enum class Move : std::uint8_t {
  none,            ///< it works on them instead
  copy,            ///< to another buffer of this rank
  all_gather,      ///< every rank's part to all ranks
  reduce_scatter,  ///< sums over ranks, a part on each
  all_reduce,      ///< sums over ranks, whole on each
  all_to_all,      ///< every rank's summand of a part to the rank of that part
  gather,          ///< every rank's values to the root
  broadcast,       ///< the root's values to all ranks
  send,            ///< to one rank, which receives
  receive          ///< from one rank, which sends
};

constexpr std::string_view name_of(Move move) {
  constexpr std::string_view names[] = {"none",       "copy",   "all_gather", "reduce_scatter", "all_reduce",
                                        "all_to_all", "gather", "broadcast",  "send",           "receive"};
  return names[static_cast<std::size_t>(move)];
}

/// The ranks among which a move goes. Ranks are a mesh: `shards` ranks in a row have a shard each, and the
/// rows are replicas of one another. One row, unless a run asks for more.
enum class Group : std::uint8_t {
  all,
  shards,    ///< those that have the other shards of this rank's copy: a row
  replicas,  ///< those that have the same shard: a column
  next,      ///< the one that has the next stage of a pipeline: plans name it, no engine has stages
  previous,  ///< the one that has the stage before
  tensor     ///< those that work on the same samples: plans name them, no engine has more than one
};

constexpr std::string_view name_of(Group group) {
  constexpr std::string_view names[] = {"all", "shards", "replicas", "next", "previous", "tensor"};
  return names[static_cast<std::size_t>(group)];
}

/// The contents of a buffer. Formats are in Buffer::type; T is the format of the weights.
enum class BufferKind : std::uint8_t {
  weights,          ///< whole unit or shard
  micro_gradient,   ///< T, whole unit: the gradient of one micro-batch
  gradient,         ///< compute type, whole unit or shard: the accumulated gradient
  tied_gradient,    ///< compute type: the gradient of a borrowed parameter, index = borrow
  master,           ///< compute type: the weights that the optimizer updates
  moment,           ///< a state of the optimizer, index = StepPlan::optimizer
  output,           ///< T: the unit's output
  output_gradient,  ///< T: gradient of the unit's output
  saved,            ///< forward to backward, index = UnitSpec::saved
  backward,         ///< backward_input to backward_weight, index = UnitSpec::backward
  scalars,          ///< StepState
  partials,         ///< this rank's norm partials, sums of losses and first bad element
  all_partials,     ///< the partials of all ranks
  norm_ranges,      ///< the range of each unit's partials
  rows,             ///< the items of norms and updates, as their operations read them; index 1: on the host
  batch,            ///< tokens and targets of the step
  losses,           ///< one loss a token
  saving,           ///< SaveStaging: bytes of a save on their way to files
  snapshot,  ///< state that a save writes while steps run; index 0: weights, then the optimizer's states
  workspace  ///< packing buffers and tiles of the device's operations
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

/// Contents are in the buffer where they rest, or in a copy that a verb makes. A route has several stops.
struct Copy {
  Verb by{};
  int stop = -1;  ///< -1: no copy, the contents rest here

  constexpr bool rests() const { return stop < 0; }
  friend constexpr bool operator==(Copy const&, Copy const&) = default;
};

/// A half-open range of elements of a flat group.
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

/// One of the flat groups in which a unit's parameters lie (UnitLayout). A unit alone: its first one.
struct Flat {
  int unit = -1;
  int group = 0;

  constexpr Flat(int of_unit = -1, int number = 0) : unit(of_unit), group(number) {}
  friend constexpr bool operator==(Flat const&, Flat const&) = default;
};

/// What an entry uses a buffer for.
enum class Role : std::uint8_t {
  source,          ///< the values that a move carries, or that a sum takes in
  target,          ///< where a move leaves them
  weights,         ///< of a flat group, of the unit or borrowed: T, whole
  input,           ///< the output of the unit before
  input_gradient,  ///< its gradient
  output,
  output_gradient,
  saved,          ///< forward to backward, index = UnitSpec::saved
  backward,       ///< backward_input to backward_weight, index = UnitSpec::backward
  gradient,       ///< of a flat group
  tied_gradient,  ///< of a parameter: what its borrowers have left; index = borrow, of the owner = parameter
  master,         ///< the weights that the optimizer updates
  moment,         ///< what the optimizer keeps, index = StepPlan::optimizer
  updated_weights,  ///< T: the updated weights, where these are not the master weights
  scalars,          ///< StepState
  partials,         ///< norm partials, sums of losses and first bad element
  rows,             ///< the items of a norm or an update, as its operation reads them
  batch,            ///< tokens and targets of the step
  losses,           ///< one loss a token
  workspace         ///< packing buffers and tiles of the device's operations
};

constexpr std::string_view name_of(Role role) {
  constexpr std::string_view names[] = {
      "source",  "target",   "weights",  "input",         "input_gradient", "output",   "output_gradient",
      "saved",   "backward", "gradient", "tied_gradient", "master",         "moment",   "updated_weights",
      "scalars", "partials", "rows",     "batch",         "losses",         "workspace"};
  return names[static_cast<std::size_t>(role)];
}

/// How an entry uses a buffer.
enum class Access : std::uint8_t { read, write, read_write };

/// One buffer of an entry, and what the entry uses it for.
struct Operand {
  Role role{};
  Access access{};
  int buffer = -1;
  int index = 0;           ///< see Role
  Flat of{};               ///< of weights and gradients: the flat group
  std::int64_t begin = 0;  ///< of a tied gradient: its first element in the buffer

  constexpr bool reads() const { return access != Access::write; }
  constexpr bool writes() const { return access != Access::read; }
};

/// The buffer of a role among some operands, or -1.
inline int buffer_of(std::vector<Operand> const& operands, Role role, int index = 0) {
  for (Operand const& operand : operands)
    if (operand.role == role && operand.index == index) return operand.buffer;
  return -1;
}

/// One flat group of an entry that moves or changes state. Scalars and sums of all ranks are of no unit.
struct Item {
  Flat of{};
  Range part{};   ///< the elements that the entry takes from this rank; empty: none
  int root = -1;  ///< of a gather or broadcast: its rank
  std::vector<Operand> operands;

  int at(Role role, int index = 0) const { return buffer_of(operands, role, index); }
  /// The buffer of which the entry takes `part`: of a move or a sum the source, else the gradient; -1: none.
  int taken() const {
    int const source = at(Role::source);
    return source >= 0 ? source : at(Role::gradient);
  }
};

/// One line of the schedule: one computation, or one call that carries, sums or updates several flat groups.
/// Everything that it does is in the entry; the code that carries it out asks no recipe.
struct Entry {
  Verb verb{};
  Move move = Move::none;
  Group group = Group::all;  ///< of a move between ranks
  int unit = -1;             ///< -1: of none, or of several
  int segment = 0;           ///< of the unit
  int micro_batch = -1;      ///< accumulation index, of its first turn; -1 after the last one
  Lane lane = Lane::compute;
  std::vector<Operand> operands;  ///< the buffers of the entry as a whole
  std::vector<Item> items;  ///< each has buffers of its own; none of a unit's code and of what is of no group
  std::vector<int> waits;   ///< entries of other lanes that must be done; each of them signals
  bool signals = false;     ///< some later entry of another lane waits for this one

  /// The buffer of a role, of the entry or of its first item; or -1.
  int at(Role role, int index = 0) const {
    int const whole = buffer_of(operands, role, index);
    return whole >= 0 || items.empty() ? whole : items.front().at(role, index);
  }
  /// The buffer that a move, a sum or an update takes its values from: of its first item.
  int taken() const { return items.empty() ? at(Role::source) : items.front().taken(); }
  /// Calls f(operand, number of its item) for each buffer that the entry touches; -1: of the entry as a
  /// whole.
  template <class F>
  void visit_operands(F&& f) const {
    for (Operand const& operand : operands) f(operand, -1);
    for (std::size_t item = 0; item < items.size(); ++item)
      for (Operand const& operand : items[item].operands) f(operand, static_cast<int>(item));
  }
  /// The buffers that it reads, and the ones that it writes.
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

/// One time that an entry runs.
struct Turn {
  Entry const& entry;
  int index = 0;                 ///< of the entry in its list
  int micro_batch = -1;          ///< this time
  std::span<int const> waits{};  ///< for what has run before
};

/// A whole step: a list of which one part, the body, runs several times over, so that its length does not
/// depend on the number of micro-batches. An entry has the same operands every time; the micro-batch that it
/// names is that of its first time. A wait is for the last time that the other entry has run. So an entry of
/// the body that waits for one that is not before it in the list waits for the time before, and the first
/// time for nothing; these are the last ones of its waits.
struct Schedule {
  std::vector<Entry> entries;
  int body_begin = 0, body_end = 0;  ///< the entries of the body
  int times = 1;                     ///< how often it runs
  int stride = 1;                    ///< how many micro-batches later it is each time

  /// How many entries run: in all, and if the body ran `most` times at most.
  std::int64_t turns() const { return turns(times); }
  std::int64_t turns(int most) const {
    return static_cast<std::int64_t>(entries.size()) +
           (std::min(times, most) - 1) * std::int64_t{body_end - body_begin};
  }
  /// The n-th of them.
  Turn turn(std::int64_t n) const { return turn(n, times); }
  Turn turn(std::int64_t n, int most) const {
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

/// How many times of the body show all there is to see. Entries touch the same buffers every time, so what
/// has to wait for an earlier time has to wait for the time before, which did so itself; and no life is
/// longer than from one time into the next, where its buffer is written again.
inline constexpr int steady_times = 2;

/// Orders entries of different lanes: an entry waits for the last writer of all it touches, for the readers
/// of all it overwrites, and, where it overwrites bytes that another buffer had before (`sharing[b]` lists
/// the buffers that overlap buffer b), for all that touched that one. It waits for nothing that an earlier
/// entry of its lane, or another of its waits, has waited for: without any one of the waits two entries would
/// be in no order. The body's waits follow from its first times: see `steady_times`.
inline void connect(Schedule& schedule, std::vector<std::vector<int>> const& sharing) {
  constexpr std::size_t lanes = lane_count;
  struct Latest {  // an entry of each lane, -1: none
    int of[lanes];

    Latest() {
      for (int& entry : of) entry = -1;
    }
    int& operator[](std::size_t lane) { return of[lane]; }
    void join(Latest const& from) {
      for (std::size_t lane = 0; lane < lanes; ++lane) of[lane] = std::max(of[lane], from.of[lane]);
    }
  };
  auto const written = std::make_unique<Latest[]>(sharing.size()),
             read = std::make_unique<Latest[]>(sharing.size());
  Latest known[lanes];  // of each lane: what is done when its next entry begins
  auto& entries = schedule.entries;
  int const turns = static_cast<int>(schedule.turns(steady_times));
  auto const entry_of = [&](int turn) -> Entry& {
    return entries[static_cast<std::size_t>(schedule.turn(turn, steady_times).index)];
  };
  auto const done = std::make_unique<Latest[]>(static_cast<std::size_t>(turns));  // when an entry is
  for (int index = 0; index < turns; ++index) {                                   // of turns, not of entries
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
    // The latest first: what it has waited for needs no wait here.
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

/// A 64-bit FNV-1a hash of verbs, moves, units, micro-batches, lanes, items, operands and repetitions:
/// ranks compare it before step 1, and rows with equal hashes run the same program. Waits are left out: they
/// follow from these and from where the buffers lie, which is not the same on all ranks where some own flat
/// groups.
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

/// One line for people and for tests: "backward_input h.3 micro 0", "reduce h.3+2 micro 0" of three flat
/// groups; of a later segment "h.3 segment 1". `unit`: the name of the entry's unit, or of its first item's.
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
