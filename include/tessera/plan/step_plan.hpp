// SPDX-License-Identifier: Apache-2.0
// Defines StepPlan, which describes as data everything that is fixed before step 1: the shape of a step, the
// schedules with their buffers, and the part of each kind of state that a rank has.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/place.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/optim/finish.hpp"
#include "tessera/optim/states.hpp"
#include "tessera/plan/checkpoint_memory.hpp"
#include "tessera/plan/layout.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_table.hpp"
#include "tessera/policy/table.hpp"

namespace tessera {
inline namespace v0 {

/// The sizes and settings of a step. `batch` is the number of samples in a micro-batch of one rank,
/// `accumulation` the number of micro-batches of one rank in a step, and `world` the number of ranks.
struct StepShape {
  std::int64_t batch = 0;
  std::int64_t sequence = 0;
  int accumulation = 1;
  int world = 1;
  int rank = 0;
  int replicas = 1;               ///< number of copies of all shards; a divisor of `world`
  std::int64_t bucket_bytes = 0;  ///< minimum size of a bucket of micro-batch gradients; 0: one per unit
  int recompute_every = 1;        ///< number of units that Recompute<Every> recomputes together
  int prefetch = 0;               ///< units by which gathers run early and reductions run late (overlap.hpp)
  int channels = 1;    ///< 2: weights are gathered with a second communicator, parallel to other collectives
  int weight_lag = 0;  ///< units by which weight gradients run behind input gradients (overlap.hpp)
  std::int64_t workspace_bytes = 0;  ///< scratch memory of the device's operations (Context::workspace_bytes)
  bool own_memory = false;           ///< each rank has device memory that is separate from host memory
  int max_steps_in_flight = 0;  ///< steps that a loop enqueues before it reads the oldest report; 0: none
  CheckpointMemory checkpoints = CheckpointMemory::none;
  /// The number of ranks on this rank's host, which share its memory and cores; 0: all ranks.
  int host_ranks = 0;
  /// The first rank on this rank's host. The ranks of a host have consecutive numbers.
  int host_first = 0;

  /// Returns the number of ranks on this rank's host.
  constexpr int ranks_on_host() const { return host_ranks > 0 ? host_ranks : world; }
  /// Returns the number of shards of sharded state.
  constexpr int shards() const { return world / replicas; }
  /// Returns the samples of one optimizer step over all ranks: micro-batch x accumulation x ranks.
  constexpr std::int64_t global_batch() const { return batch * accumulation * world; }
};

/// One buffer of a planned step: its contents, size, and position in memory.
struct Buffer {
  BufferKind kind{};
  Copy copy{};
  int unit = -1;
  int flat = 0;   ///< for state: the number of the unit's flat group
  int index = 0;  ///< its meaning depends on the kind, see BufferKind
  int slot = 0;   ///< the number among equal buffers that micro-batches use in turn; 0 if there is one
  std::int64_t bytes = 0;
  Tier tier = Tier::device;
  bool persistent = false;  ///< true: lives during the whole run; false: from its first to its last use
  DType type = DType::f32;  ///< the format of the elements
  Sharding over = Sharding::replicated;  ///< for state: its distribution over ranks
  Range range{};                         ///< for state: the elements of this rank's part
  std::int64_t block = 1;                ///< for optimizer state: the number of elements that share a value
  int pieces = 1;            ///< the number of ranks whose values of `range` the buffer holds, in rank order
  std::int64_t offset = -1;  ///< in the arena of its tier, in bytes; -1: never used

  /// Returns the bytes of this number of elements in the buffer.
  constexpr std::int64_t bytes_of(std::int64_t elements) const {
    return elements / block * static_cast<std::int64_t>(size_of(type));
  }
  /// Returns whether this description and `other` can be one buffer: elements, bytes, format and memory are
  /// equal.
  constexpr bool fits(Buffer const& other) const {
    return bytes == other.bytes && tier == other.tier && type == other.type && over == other.over &&
           range == other.range && block == other.block && pieces == other.pieces;
  }
  /// Returns the position in the buffer, in bytes, of an element of the flat group.
  constexpr std::int64_t at(std::int64_t element) const { return bytes_of(element - range.begin); }
};

/// A schedule (list of entries), its buffers and their memory offsets.
struct Program {
  Schedule schedule;
  std::vector<Buffer> buffers;
  std::array<std::int64_t, tier_count> persistent_bytes{};  ///< by Tier: for persistent buffers
  std::array<std::int64_t, tier_count> arena_bytes{};       ///< by Tier: for persistent and other buffers

  /// Returns the index of the buffer with these properties, or -1 if there is none.
  int find(BufferKind kind, Flat of, int index = 0, Copy copy = {}, int slot = 0) const {
    std::size_t const place = static_cast<std::size_t>(of.unit + 1);
    if (place < of_unit_.size())
      for (int const buffer : of_unit_[place]) {
        Buffer const& about = at(buffer);
        if (about.kind == kind && about.flat == of.group && about.index == index && about.copy == copy &&
            about.slot == slot)
          return buffer;
      }
    return -1;
  }
  Buffer const& at(int buffer) const { return buffers[static_cast<std::size_t>(buffer)]; }
  /// Returns the bytes that this rank sends or processes in an entry.
  std::int64_t bytes_of(Entry const& entry) const {
    std::int64_t bytes = 0;
    for (Item const& item : entry.items) {
      if (item.source_buffer() < 0) continue;  // an item of Move::receive has no source
      Buffer const& source = at(item.source_buffer());
      bytes += source.bytes_of(item.part.size()) *
               (entry.move == Move::copy || entry.verb == Verb::accumulate ? source.pieces : 1);
    }
    return bytes;
  }

  /// Returns the index of the buffer that has the kind, flat group, index, copy and slot of `buffer`. If
  /// there is no such buffer, adds `buffer` and returns its index. Throws Error(failed) if the existing
  /// buffer differs from `buffer` in elements, bytes, format or memory.
  int add(Buffer const& buffer) {
    int const found = find(buffer.kind, {buffer.unit, buffer.flat}, buffer.index, buffer.copy, buffer.slot);
    if (found >= 0 && !at(found).fits(buffer))
      throw_error(ErrorKind::failed, {"plan: a list has two buffers with the same name but different sizes: ",
                                      name_of(buffer.kind), " of unit ", buffer.unit});
    if (found >= 0) return found;
    std::size_t const place = static_cast<std::size_t>(buffer.unit + 1);
    if (place >= of_unit_.size()) of_unit_.resize(place + 1);
    of_unit_[place].push_back(static_cast<int>(buffers.size()));
    buffers.push_back(buffer);
    return of_unit_[place].back();
  }

 private:
  std::vector<std::vector<int>> of_unit_;  // [u + 1]: the buffers of unit u; [0]: buffers without a unit
};

/// The bytes that one rank reads from its file for offloaded state and writes to this file.
struct FileTraffic {
  std::int64_t read = 0, written = 0;

  friend constexpr bool operator==(FileTraffic const&, FileTraffic const&) = default;
};

/// The plan of one rank: everything that is fixed before step 1.
struct StepPlan {
  std::vector<UnitSpec> units;
  std::vector<UnitLayout> layouts;
  RecipeTable recipe;  ///< its placement is already adapted to `shape.world` (at_world)
  StepShape shape;
  StepTable table;                        ///< the location of each kind of state during a step
  std::vector<OptimizerState> optimizer;  ///< the states that the optimizer keeps of each trained parameter
  Program train;
  Program evaluate;
  std::array<std::int64_t, tier_count> arena_bytes{};  ///< by Tier: enough for either program

  /// Computes the memory layout of the units' parameters for `shape`, and numbers their flat groups.
  void lay_out() {
    for (UnitSpec const& unit : units) {
      UnitLayout& layout = layouts.emplace_back(layout_of(unit, shape.shards()));
      for (FlatLayout& flat : layout.flats) {
        Flat const of(static_cast<int>(layouts.size()) - 1, static_cast<int>(&flat - layout.flats.data()));
        flat.number = static_cast<int>(flats_.size());
        flats_.push_back(of);
        if (!flat.trainable) continue;
        flat.trainable_index = static_cast<int>(trainable_.size());
        trainable_.push_back(of);
      }
    }
  }

  int units_count() const { return static_cast<int>(units.size()); }
  UnitLayout const& layout(int unit) const { return layouts[static_cast<std::size_t>(unit)]; }
  FlatLayout const& flat(Flat of) const { return layout(of.unit).flats[static_cast<std::size_t>(of.group)]; }
  /// Returns the flat group (contiguous buffer) of a parameter.
  Flat flat_of(int unit, int parameter) const {
    return {unit, layout(unit).flat_of[static_cast<std::size_t>(parameter)]};
  }
  Flat flat_of(Borrow const& what) const { return flat_of(what.unit, what.parameter); }
  ParameterSpec const& parameter(Borrow const& what) const {
    return unit(what.unit).parameters[static_cast<std::size_t>(what.parameter)];
  }
  /// Returns the range of a parameter in its flat group.
  Range elements_of(Borrow const& what) const {
    return layout(what.unit).parameters[static_cast<std::size_t>(what.parameter)];
  }
  /// flats(unit) returns the flat groups of one unit. flats() returns the flat groups of all units, in the
  /// order of the units.
  std::span<Flat const> flats(int unit) const {
    auto const count = layout(unit).flats.size();
    return {flats_.data() + (count ? flat(unit).number : 0), count};
  }
  std::vector<Flat> const& flats() const { return flats_; }
  /// Returns the flat groups that have gradients and optimizer state, in order.
  std::vector<Flat> const& trainable() const { return trainable_; }
  /// Returns the parts of parameters in a range of a flat group.
  std::vector<Piece> pieces(Flat of, Range range) const {
    return v0::pieces(layout(of.unit), of.group, range);
  }
  bool trains(Borrow const& what) const { return flat(flat_of(what.unit, what.parameter)).trainable; }
  /// Returns whether any of the unit's own or borrowed parameters needs a gradient.
  bool trains(int unit) const {
    for (FlatLayout const& own : layout(unit).flats)
      if (own.trainable) return true;
    for (Borrow const& borrow : this->unit(unit).borrows)
      if (trains(borrow)) return true;
    return false;
  }
  /// Returns the first unit that needs a parameter gradient. Backward ends in this unit.
  int lowest_trainable() const {
    int unit = 0;
    while (unit < units_count() && !trains(unit)) ++unit;
    return unit;
  }
  /// Returns whether backward needs a tensor of a unit. If only gradients of frozen parameters need the
  /// tensor, backward does not need it.
  bool needed(int unit, ActivationSpec const& activation) const {
    for (nn::Weight const of : activation.needed_for)
      if (trains(of.borrowed ? this->unit(unit).borrows[static_cast<std::size_t>(of.index)]
                             : Borrow{unit, of.index}))
        return true;
    return activation.needed_for.empty();
  }
  /// Returns the name of an entry's unit, or of its first item's unit, or an empty text if there is none.
  std::string_view unit_name(Entry const& entry) const {
    int const of = entry.unit >= 0 || entry.items.empty() ? entry.unit : entry.items.front().of.unit;
    return of < 0 ? std::string_view() : std::string_view(unit(of).name);
  }
  UnitSpec const& unit(int unit) const { return units[static_cast<std::size_t>(unit)]; }
  bool is_root() const { return shape.rank == 0; }

  PlacementTable const& placement() const { return recipe.placement; }
  /// Returns the rank that owns a flat group under Sharding::owned.
  int owner(Flat of) const { return flat(of).number % placement().owners; }
  /// Returns the elements of a flat group that this rank has under a distribution over ranks.
  Range held(Sharding over, Flat of) const {
    FlatLayout const& all = flat(of);
    switch (over) {
      case Sharding::sharded:
        return all.shard_of(shape.rank % shape.shards());
      case Sharding::owned:
        if (shape.rank != owner(of)) return {};
        break;
      case Sharding::replicated:
      case Sharding::partial:
        break;
    }
    return {0, all.padded};
  }
  /// Returns the part of a flat group's gradient whose norm this rank computes: its shard, or all elements if
  /// it owns the group.
  Range norm_part(Flat of) const {
    return held(table.gradient.placement.over == Sharding::owned ? Sharding::owned : Sharding::sharded, of);
  }
  /// Returns the ranks that compute the sums of squares for the gradient norm of a flat group: the group's
  /// owner, or the first shards() ranks, each for its shard.
  comm::ProcessGroup norm_by(Flat of) const {
    if (table.gradient.placement.over == Sharding::owned) return {owner(of), 1, 1};
    return {0, 1, shape.shards()};
  }
  /// Returns the ranks whose losses are summed: all ranks.
  comm::ProcessGroup losses_by() const { return {0, 1, shape.world}; }
  /// Returns the ranks that take part in an entry's collective together with this rank: all ranks, the ranks
  /// of this rank's replica, or the ranks that have this rank's shard. The result includes the channel
  /// (communicator) of the entry's lane. Throws Error(unsupported) for groups of tensor or pipeline
  /// parallelism, which no engine runs.
  comm::ProcessGroup ranks_of(Entry const& entry) const {
    int const shards = shape.shards(), rank = shape.rank, channel = entry.lane == Lane::gathering;
    switch (entry.group) {
      case Group::all:
        return {0, 1, shape.world, channel};
      case Group::shards:
        return {rank - rank % shards, 1, shards, channel};
      case Group::replicas:
        return {rank % shards, shards, shape.replicas, channel};
      case Group::next:
      case Group::previous:
      case Group::tensor:
        break;
    }
    std::string_view const of = unit_name(entry);
    throw_error(ErrorKind::unsupported, {"the entry ", name_of(entry.verb), of.empty() ? "" : " ", of,
                                         " of the schedule has the group ", name_of(entry.group),
                                         ", and no engine knows its ranks; use all, shards or replicas"});
  }
  /// Returns whether ranks have different parts of the contents of a state buffer.
  bool is_split(Buffer const& buffer) const { return buffer.over == Sharding::sharded && shape.shards() > 1; }
  /// Returns the first rank that has the full contents of a state buffer. The buffer must not be split over
  /// ranks (is_split).
  int first_with(Buffer const& buffer) const {
    return buffer.over == Sharding::owned ? owner({buffer.unit, buffer.flat}) : 0;
  }
  /// Returns the part of a state buffer that this rank writes to a checkpoint. All ranks together write the
  /// contents once.
  Range written(Buffer const& buffer) const {
    if (is_split(buffer)) return shape.rank < shape.shards() ? buffer.range : Range{};
    if (buffer.over == Sharding::owned) return buffer.range;
    std::int64_t const share =
        round_up((buffer.range.size() + shape.world - 1) / shape.world, shard_alignment);
    return intersect(buffer.range, {shape.rank * share, (shape.rank + 1) * share});
  }
  /// Returns, for each trainable flat group, the position of its sums of squares in the statistics of a rank.
  std::vector<NormRange> norm_ranges() const {
    std::vector<NormRange> ranges(trainable_.size());
    std::int64_t offset = 0;
    for (std::size_t index = 0; index < ranges.size(); ++index) {
      comm::ProcessGroup const by = norm_by(trainable_[index]);
      std::int64_t const blocks = flat(trainable_[index]).padded / shard_alignment / by.count;
      ranges[index] = {offset, blocks, by};
      offset += blocks;
    }
    return ranges;
  }
  /// Returns the name of the parameter that holds an element of a trainable flat group
  /// ("h.3.mlp.c_fc.weight"). If the element is padding, returns the name of the group's unit.
  /// `trainable_index` is the group's index among the trainable flat groups (FlatLayout::trainable_index).
  /// Returns an empty text if no group has this index.
  std::string name_at(std::int64_t trainable_index, std::int64_t element) const {
    for (Flat const of : trainable_) {
      if (flat(of).trainable_index != trainable_index) continue;
      for (Piece const& piece : pieces(of, {element, element + 1}))
        return parameter({of.unit, piece.parameter}).name;
      return unit(of.unit).name;
    }
    return {};
  }
  /// Returns the layout of the statistics of all ranks. The addresses in it are not set.
  StepShares statistics() const {
    std::vector<NormRange> const ranges = norm_ranges();
    std::int64_t const blocks = ranges.empty() ? 0 : ranges.back().offset + ranges.back().blocks;
    return {.bytes = share_bytes(blocks, shape.accumulation),
            .sums = share_sums_offset(blocks),
            .unit_count = static_cast<int>(ranges.size()),
            .ranks = shape.world,
            .losses_by = losses_by(),
            .accumulation = shape.accumulation};
  }
  /// Returns the part of a flat group that this rank updates.
  Range updated(Flat of) const { return held(table.working_master.placement.over, of); }
  /// Returns the kind of the buffer that has a flat group's master weights. It is `weights` if the group is
  /// frozen or if the weights are the master weights.
  BufferKind master_kind(Flat of) const {
    return flat(of).trainable ? table.master.kind : table.weights.kind;
  }
  /// Returns the size of this rank's file for state on a disk, in bytes.
  std::int64_t file_bytes() const {
    return round_up(arena_bytes[static_cast<std::size_t>(Tier::nvme)], disk_block);
  }
  /// Returns the bytes that one step reads from the file and writes to it, in whole disk blocks.
  FileTraffic file_traffic() const {
    FileTraffic sum;
    Schedule const& schedule = train.schedule;
    for (int index = 0; index < static_cast<int>(schedule.entries.size()); ++index) {
      Entry const& entry = schedule.entries[static_cast<std::size_t>(index)];
      if (entry.lane != Lane::disk) continue;
      bool const repeated = schedule.body_begin <= index && index < schedule.body_end;
      (has_addresses(train.at(entry.at(Role::target)).tier) ? sum.read : sum.written) +=
          round_up(train.bytes_of(entry), disk_block) * (repeated ? schedule.times : 1);
    }
    return sum;
  }

 private:
  std::vector<Flat> flats_, trainable_;
};

/// A function that is called after each entry of a training step has run, for comparisons and tests.
/// `buffers` has the address of each buffer of `plan.train`. The address is null for a buffer that is never
/// used or is in a file. The function must not change the buffers.
using StepObserver =
    std::function<void(StepPlan const& plan, Entry const& entry, std::span<std::byte* const> buffers)>;

}  // namespace v0
}  // namespace tessera
