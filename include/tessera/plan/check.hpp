// SPDX-License-Identifier: Apache-2.0
// Checks a planned step for data races between lanes (CUDA streams) and other errors. Shares no code with the
// planner: it derives the order of the step's entries (computations and transfers) only from the waits in the
// entries.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Checks one program, which is a list of entries (computations and transfers) with their buffers. Visits
/// every run of every entry in order. A run is one execution of an entry. One part of the list, the body,
/// repeats for each micro-batch, so an entry of the body has several runs. The number of a run is its
/// position in the step (Schedule::instance). Keeps a vector clock for each lane. For each byte, keeps the
/// last run that wrote it and the later runs that read it.
class ProgramCheck {
 public:
  ProgramCheck(StepPlan const& plan, Program const& program) : plan_(plan), program_(program) {}

  std::string run() {
    cut_bytes();
    ended_.resize(program_.schedule.entries.size());
    accumulated_.resize(program_.buffers.size());
    for (index_ = 0; index_ < program_.schedule.instances(); ++index_) {
      std::string mistake = begin(instance(index_));
      if (mistake.empty()) mistake = touch(at(index_));
      if (mistake.empty()) mistake = sum(at(index_));
      if (mistake.empty()) mistake = tiers(at(index_));
      if (!mistake.empty()) return mistake;
      now_[lane_of(index_)] = started_;
      ended_[static_cast<std::size_t>(instance(index_).index)] = {index_, started_};
    }
    return not_updated();
  }

 private:
  /// A vector clock. It has one element for each lane: the number of the lane's last run that has ended; -1:
  /// none.
  using Clock = std::array<std::int64_t, lane_count>;
  /// The last run so far of one entry, and the vector clock at the end of this run.
  struct End {
    std::int64_t instance = -1;
    Clock clock{};
  };

  /// A range of bytes in which no buffer begins or ends, and the last runs of entries that wrote and read it.
  struct Piece {
    int buffer = -1;            ///< the buffer whose values it holds
    std::int64_t writer = -1;   ///< the last run that wrote it; -1: none
    Clock readers{};            ///< by lane: the last run that read it since the last write
    std::int64_t touched = -1;  ///< the last run of an entry that read or wrote it
    /// The item (flat group) for which `touched` read or wrote it; -1: several items, or the whole entry.
    int item = -1;
  };

  Instance instance(std::int64_t index) const { return program_.schedule.instance(index); }
  Entry const& at(std::int64_t index) const { return instance(index).entry; }
  std::size_t lane_of(std::int64_t index) const { return static_cast<std::size_t>(at(index).lane); }
  std::string name(std::int64_t index) const {
    Entry entry = at(index);
    entry.micro_batch = instance(index).micro_batch;
    return std::to_string(instance(index).index) + " (" + to_string(entry, plan_.unit_name(entry)) + ")";
  }
  std::string name_of_buffer(int buffer) const {
    Buffer const& about = program_.at(buffer);
    return v0::name_of(about.kind, about.copy) +
           (about.unit < 0 ? std::string() : " of " + plan_.unit(about.unit).name);
  }

  /// Cuts each kind of memory into pieces at each address at which a buffer begins or ends.
  void cut_bytes() {
    std::array<std::vector<std::int64_t>, tier_count> cuts;
    for (Buffer const& buffer : program_.buffers)
      if (buffer.offset >= 0 && buffer.bytes > 0) {
        auto& tier = cuts[static_cast<std::size_t>(buffer.tier)];
        tier.insert(tier.end(), {buffer.offset, buffer.offset + buffer.bytes});
      }
    int pieces = 0;
    for (auto& tier : cuts) {
      std::sort(tier.begin(), tier.end());
      tier.erase(std::unique(tier.begin(), tier.end()), tier.end());
    }
    std::array<int, tier_count> first{};
    for (std::size_t tier = 0; tier < cuts.size(); ++tier) {
      first[tier] = pieces;
      pieces += static_cast<int>(cuts[tier].size());
    }
    Piece empty;
    empty.readers.fill(-1);
    pieces_.assign(static_cast<std::size_t>(pieces), empty);
    for (Buffer const& buffer : program_.buffers) {
      auto const& tier = cuts[static_cast<std::size_t>(buffer.tier)];
      auto const index = [&](std::int64_t offset) {
        return first[static_cast<std::size_t>(buffer.tier)] +
               static_cast<int>(std::lower_bound(tier.begin(), tier.end(), offset) - tier.begin());
      };
      bool const placed = buffer.offset >= 0 && buffer.bytes > 0;
      of_buffer_.emplace_back(placed ? index(buffer.offset) : 0,
                              placed ? index(buffer.offset + buffer.bytes) : 0);
    }
    for (Clock& clock : now_) clock.fill(-1);
  }

  /// Checks that an entry is well-formed and that its waits are valid. Sets `started_` to the vector clock at
  /// the start of this run of the entry. Returns an error message, or an empty string.
  std::string begin(Instance const& instance) {
    std::size_t const own = lane_of(index_);
    auto const& entries = program_.schedule.entries;
    Entry const& entry = instance.entry;
    if (entry.items.size() > 1 && entry.move == Move::copy)
      return name(index_) + " copies several flat groups; each copy must be a separate entry";
    bool const in_a_channel = entry.lane == Lane::communication || entry.lane == Lane::gathering;
    if (entry.move > Move::copy && !in_a_channel)
      return name(index_) + " is a move between ranks in the lane " + std::string(v0::name_of(entry.lane));
    for (Item const& item : entry.items)
      for (Operand const& operand : item.operands)
        if (Buffer const& about = program_.at(operand.buffer); Flat(about.unit, about.flat) != item.of)
          return name(index_) + " touches " + name_of_buffer(operand.buffer) +
                 ", which belongs to another flat group";
    started_ = now_[own];
    for (int const other : instance.waits) {
      auto const place = static_cast<std::size_t>(other);
      if (other < 0 || place >= entries.size() || ended_[place].instance < 0)
        return name(index_) + " waits for a later entry";
      if (!entries[place].signals) return name(index_) + " waits for an entry that never signals";
      for (std::size_t lane = 0; lane < lane_count; ++lane)
        started_[lane] = std::max(started_[lane], ended_[place].clock[lane]);
    }
    started_[own] = index_;  // later entries of this lane start after this run
    return {};
  }
  /// Returns whether run `other` has certainly ended before the current run starts.
  bool before(std::int64_t other) const {
    std::size_t const lane = lane_of(other);
    return other < 0 || lane == lane_of(index_) || started_[lane] >= other;
  }

  /// Returns whether an entry may read values that were in a buffer before the step began.
  static bool lasts(Entry const& entry, Buffer const& about) {
    BufferKind const kind = about.kind;
    if (entry.verb == Verb::write_back || !about.copy.rests()) return false;
    if (kind == BufferKind::scalars) return entry.verb != Verb::update && entry.verb != Verb::copy_scalars;
    return kind == BufferKind::weights || kind == BufferKind::master || kind == BufferKind::moment ||
           kind == BufferKind::batch || kind == BufferKind::norm_ranges || kind == BufferKind::rows;
  }
  /// Returns whether the last writer of a buffer can have produced the values that the entry expects there.
  /// The writer must belong to the same unit, and its verb must produce such values.
  bool made_by(Entry const& writer, Entry const& entry, Operand const& operand) const {
    using Kind = BufferKind;
    Buffer const& read = program_.at(operand.buffer);
    auto const one_of = [&](std::initializer_list<Verb> verbs) {
      bool of_unit = writer.unit == read.unit;
      for (Item const& item : writer.items) of_unit |= item.of.unit == read.unit;
      return of_unit && std::find(verbs.begin(), verbs.end(), writer.verb) != verbs.end();
    };
    if (entry.verb == Verb::write_back) return one_of({Verb::update, Verb::write_back});
    if (operand.role == Role::tied_gradient || entry.verb == Verb::add_tied)
      return writer.verb == Verb::backward_weight || writer.verb == Verb::add_tied;
    // Several verbs write partials and saved tensors.
    bool const in_steps = read.kind == Kind::partials || read.kind == Kind::saved;
    if (!read.copy.rests() && !in_steps) return one_of({read.copy.by});
    switch (read.kind) {
      case Kind::output:
        return one_of({Verb::forward, Verb::cross});
      case Kind::saved:
        return one_of({Verb::forward, Verb::recompute, Verb::restore, Verb::cross});
      case Kind::output_gradient:
        return one_of({Verb::cross}) || (writer.verb == Verb::backward_input && writer.unit == read.unit + 1);
      case Kind::backward:
        return one_of({Verb::backward_input, Verb::cross});
      case Kind::micro_gradient:  // before the reduction, the buffer has only this rank's summand
        return one_of({Verb::accumulate, Verb::reduce, Verb::fetch}) ||
               (one_of({Verb::backward_weight, Verb::clear_gaps}) &&
                (plan_.shape.world == 1 || entry.verb == Verb::reduce || entry.verb == Verb::accumulate));
      case Kind::gradient:
        return one_of({Verb::accumulate, Verb::reduce, Verb::fetch});
      case Kind::losses:
        return writer.verb == Verb::forward;
      case Kind::scalars:
        return one_of({Verb::decide});
      default:
        return true;
    }
  }
  /// Checks that an entry reads or writes files only if it is a copy in the disk lane. Checks that this copy
  /// is between a file and host memory, in whole disk blocks. Returns an error message, or an empty string.
  std::string tiers(Entry const& entry) {
    bool on_disk = false;
    entry.visit_operands(
        [&](Operand const& operand, int) { on_disk |= !has_addresses(program_.at(operand.buffer).tier); });
    if (on_disk != (entry.lane == Lane::disk))
      return name(index_) +
             (on_disk ? " touches a file outside the disk lane" : " is in the disk lane but touches no file");
    if (!on_disk) return {};
    int const source = entry.at(Role::source), target = entry.at(Role::target);
    bool const copies = entry.move == Move::copy && source >= 0 && target >= 0 && entry.operands.empty() &&
                        entry.items.front().operands.size() == 2;
    if (!copies || in_host_memory(program_.at(source).tier) == in_host_memory(program_.at(target).tier))
      return name(index_) + " touches a file but is not a copy between a file and host memory";
    Range const part = entry.items.front().part;
    for (int const buffer : {source, target}) {
      Buffer const& about = program_.at(buffer);
      std::int64_t const begin = about.offset + about.at(part.begin);
      bool const to_the_end = part.end == about.range.end;  // the buffer's padding completes its last block
      if (part.size() > 0 &&
          (begin % disk_block != 0 || (!to_the_end && program_.bytes_of(entry) % disk_block != 0)))
        return name(index_) + " reads or writes a part of a block of " + name_of_buffer(buffer);
    }
    return {};
  }
  /// Returns an error message if the program has an update but does not write some trained state. Otherwise
  /// returns an empty string.
  std::string not_updated() const {
    auto const& entries = program_.schedule.entries;
    if (std::none_of(entries.begin(), entries.end(),
                     [](Entry const& entry) { return entry.verb == Verb::update; }))
      return {};
    for (int buffer = 0; buffer < static_cast<int>(program_.buffers.size()); ++buffer) {
      Buffer const& about = program_.at(buffer);
      bool const updated_state = about.kind == BufferKind::weights || about.kind == BufferKind::master ||
                                 about.kind == BufferKind::moment;
      if (!updated_state || !plan_.flat({about.unit, about.flat}).trainable) continue;
      for (int p = first(buffer); p < last(buffer); ++p)
        if (pieces_[static_cast<std::size_t>(p)].writer < 0)
          return name_of_buffer(buffer) + " was not updated in the step";
    }
    return {};
  }
  /// Checks that gradients are accumulated in the order of micro-batches, and that a sum is complete before
  /// another entry reads it. Returns an error message, or an empty string.
  std::string sum(Entry const& entry) {
    std::string mistake;
    entry.visit_operands([&](Operand const& operand, int) {
      if (!mistake.empty()) return;
      int& accumulated = accumulated_[static_cast<std::size_t>(operand.buffer)];
      if (entry.verb == Verb::accumulate && operand.role == Role::gradient) {
        if (instance(index_).micro_batch != accumulated)
          mistake =
              name(index_) + " comes after " + std::to_string(accumulated) + " micro-batches of its sum";
        ++accumulated;
      } else if (entry.verb != Verb::accumulate && operand.reads() && accumulated > 0 &&
                 accumulated < plan_.shape.accumulation)
        mistake = name(index_) + " reads " + name_of_buffer(operand.buffer) + " after " +
                  std::to_string(accumulated) + " of " + std::to_string(plan_.shape.accumulation) +
                  " micro-batches";
    });
    return mistake;
  }

  std::string touch(Entry const& entry) {
    std::string mistake;
    for (Item const& item : entry.items)
      if ((entry.move == Move::all_reduce || entry.move == Move::broadcast) &&
          item.at(Role::source) != item.at(Role::target))
        return name(index_) + " is an " + std::string(name_of(entry.move)) +
               " to another buffer; this move must work in place";
    auto const each_piece = [&](auto const& check, Operand const& operand, int item) {
      Buffer const& about = program_.at(operand.buffer);
      if (mistake.empty() && about.bytes > 0 && about.offset < 0)
        mistake = name(index_) + " touches " + name_of_buffer(operand.buffer) + ", which has no memory";
      for (int p = first(operand.buffer); p < last(operand.buffer) && mistake.empty(); ++p)
        mistake = check(pieces_[static_cast<std::size_t>(p)], operand, item);
    };
    entry.visit_operands([&](Operand const& operand, int item) {
      if (operand.reads()) each_piece([&](auto&... of) { return read(entry, of...); }, operand, item);
    });
    entry.visit_operands([&](Operand const& operand, int item) {
      if (operand.writes()) each_piece([&](auto&... of) { return write(of...); }, operand, item);
    });
    return mistake;
  }
  std::string read(Entry const& entry, Piece& piece, Operand const& operand, int item) {
    int const buffer = operand.buffer;
    bool const is_persistent = program_.at(buffer).persistent;
    piece.item = piece.touched == index_ && piece.item != item ? -1 : item;
    piece.touched = index_;
    if (piece.writer < 0 && is_persistent && lasts(entry, program_.at(buffer))) return {};
    if (piece.writer < 0)
      return name(index_) + " reads " + name_of_buffer(buffer) + ", which was never written";
    if (piece.buffer != buffer)
      return name(index_) + " reads " + name_of_buffer(buffer) + ", which " + name(piece.writer) +
             " overwrote with " + name_of_buffer(piece.buffer);
    if (!before(piece.writer))
      return name(index_) + " reads " + name_of_buffer(buffer) + " and does not wait for " +
             name(piece.writer);
    if (!is_persistent && entry.micro_batch >= 0 &&
        instance(piece.writer).micro_batch != instance(index_).micro_batch)
      return name(index_) + " reads " + name_of_buffer(buffer) + " of another micro-batch, written by " +
             name(piece.writer);
    if (!made_by(at(piece.writer), entry, operand))
      return name(index_) + " reads " + name_of_buffer(buffer) + ", last written by " + name(piece.writer);
    piece.readers[lane_of(index_)] = index_;
    return {};
  }
  /// Checks a write to a piece of memory. Returns an error message, or an empty string. Items of one entry
  /// run in any order, so an item must not write bytes that another item of the entry reads or writes.
  std::string write(Piece& piece, Operand const& operand, int item) {
    int const buffer = operand.buffer;
    if (piece.touched == index_ && piece.item != item)
      return name(index_) + " writes " + name_of_buffer(buffer) + ", which another of its items touches";
    piece.touched = index_;
    piece.item = item;
    if (piece.writer >= 0 && piece.writer != index_ && !before(piece.writer))
      return name(index_) + " writes " + name_of_buffer(buffer) + " and does not wait for " +
             name(piece.writer);
    for (std::int64_t const reader : piece.readers)
      if (reader >= 0 && reader != index_ && !before(reader))
        return name(index_) + " writes " + name_of_buffer(buffer) + " and does not wait for " + name(reader) +
               ", which reads it";
    piece.buffer = buffer;
    piece.writer = index_;
    piece.readers.fill(-1);
    return {};
  }
  int first(int buffer) const { return of_buffer_[static_cast<std::size_t>(buffer)].first; }
  int last(int buffer) const { return of_buffer_[static_cast<std::size_t>(buffer)].second; }

  StepPlan const& plan_;
  Program const& program_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<int, int>> of_buffer_;  // by buffer: its pieces [first, second)
  std::array<Clock, lane_count> now_{};         // by lane: its clock
  std::vector<End> ended_;                      // by entry: its last instance so far
  std::vector<int> accumulated_;                // by buffer: the number of micro-batches in its sum
  Clock started_{};
  std::int64_t index_ = 0;
};

}  // namespace detail

/// Checks that a program gives the same result for every possible timing of its lanes (CUDA streams). Returns
/// an empty string, or a message about the first error. Checks that:
/// - two entries that touch the same byte, of which at least one writes it, are ordered by lanes and waits;
/// - an entry reads only bytes that were last written as part of the same buffer, by an entry of the right
///   unit whose verb produces such values, and in the same micro-batch unless the buffer is persistent;
/// - only state that lasts from step to step is read before this step writes it;
/// - a sum contains every micro-batch once, added in order, before another entry reads it;
/// - moves that work in place (all_reduce, broadcast) have the same source and target;
/// - files are read and written in whole blocks, to and from host memory;
/// - a step updates all trained weights and their optimizer state.
/// The time is proportional to the number of instances. Meant for tests and for authors of schedules.
inline std::string mistake_in(StepPlan const& plan, Program const& program) {
  return detail::ProgramCheck(plan, program).run();
}

}  // namespace v0
}  // namespace tessera
