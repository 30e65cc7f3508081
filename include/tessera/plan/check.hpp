// SPDX-License-Identifier: Apache-2.0
// A proof that a program's entries may run on lanes of their own. It shares nothing with the code that makes
// programs: no lives, no sharing, no waits are taken from there but those of the list itself.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera::inline v0 {

namespace detail {

/// Walks a list once with a clock for each lane, and remembers for every byte who touched it last.
class ProgramCheck {
 public:
  ProgramCheck(StepPlan const& plan, Program const& program) : plan_(plan), program_(program) {}

  std::string run() {
    cut_bytes();
    for (index_ = 0; index_ < count(); ++index_) {
      std::string mistake = begin(at(index_));
      if (mistake.empty()) mistake = touch(at(index_));
      if (!mistake.empty()) return mistake;
      now_[lane_of(index_)] = ended_.emplace_back(started_);
    }
    return {};
  }

 private:
  /// Of each lane the last entry that has ended, -1: none.
  using Clock = std::array<int, lane_count>;

  /// A piece of memory whose bytes the same buffers have.
  struct Piece {
    int buffer = -1;  ///< whose content it is
    int writer = -1;
    Clock readers{};  ///< since then
  };

  int count() const { return static_cast<int>(program_.schedule.entries.size()); }
  Entry const& at(int index) const { return program_.schedule.entries[static_cast<std::size_t>(index)]; }
  std::size_t lane_of(int index) const { return static_cast<std::size_t>(at(index).lane); }
  std::string name(int index) const {
    Entry const& entry = at(index);
    return std::to_string(index) + " (" +
           to_string(entry, entry.unit < 0 ? std::string_view("all") : plan_.unit(entry.unit).name) + ")";
  }
  std::string name_of_buffer(int buffer) const {
    Buffer const& about = program_.at(buffer);
    return std::string(name_of(about.kind)) +
           (about.unit < 0 ? std::string() : " of " + plan_.unit(about.unit).name);
  }

  /// Each tier's memory, cut wherever a buffer begins or ends.
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
      bool const lies = buffer.offset >= 0 && buffer.bytes > 0;
      of_buffer_.emplace_back(lies ? index(buffer.offset) : 0,
                              lies ? index(buffer.offset + buffer.bytes) : 0);
    }
    for (Clock& clock : now_) clock.fill(-1);
  }

  /// What has ended when an entry starts.
  std::string begin(Entry const& entry) {
    std::size_t const own = lane_of(index_);
    started_ = now_[own];
    for (int const other : entry.waits) {
      if (other < 0 || other >= index_) return name(index_) + " waits for a later entry";
      if (!at(other).signals) return name(index_) + " waits for what never signals";
      for (std::size_t lane = 0; lane < lane_count; ++lane)
        started_[lane] = std::max(started_[lane], ended_[static_cast<std::size_t>(other)][lane]);
    }
    started_[own] = index_;  // for those after it
    return {};
  }
  bool before(int other) const {
    std::size_t const lane = lane_of(other);
    return other < 0 || lane == lane_of(index_) || started_[lane] >= other;
  }

  std::string touch(Entry const& entry) {
    if ((entry.move == Move::all_reduce || entry.move == Move::broadcast) && entry.from != entry.to)
      return name(index_) + " is an " + std::string(name_of(entry.move)) +
             " to another buffer; it works in place";
    for (int const buffer : entry.reads) {
      bool const kept = program_.at(buffer).persistent;
      if (program_.at(buffer).bytes > 0 && program_.at(buffer).offset < 0)
        return name(index_) + " reads " + name_of_buffer(buffer) + ", which has no place";
      for (int p = first(buffer); p < last(buffer); ++p) {
        Piece& piece = pieces_[static_cast<std::size_t>(p)];
        if (piece.writer < 0 && kept) continue;  // from before the step
        if (piece.writer < 0) return name(index_) + " reads " + name_of_buffer(buffer) + ", never written";
        if (piece.buffer != buffer)
          return name(index_) + " reads " + name_of_buffer(buffer) + ", which " + name(piece.writer) +
                 " overwrote with " + name_of_buffer(piece.buffer);
        if (!before(piece.writer))
          return name(index_) + " reads " + name_of_buffer(buffer) + " and does not wait for " +
                 name(piece.writer);
        if (!kept && entry.micro_batch >= 0 && at(piece.writer).micro_batch != entry.micro_batch)
          return name(index_) + " reads " + name_of_buffer(buffer) + " of another micro-batch, by " +
                 name(piece.writer);
        piece.readers[lane_of(index_)] = index_;
      }
    }
    for (int const buffer : entry.writes) {
      if (program_.at(buffer).bytes > 0 && program_.at(buffer).offset < 0)
        return name(index_) + " writes " + name_of_buffer(buffer) + ", which has no place";
      for (int p = first(buffer); p < last(buffer); ++p) {
        Piece& piece = pieces_[static_cast<std::size_t>(p)];
        if (piece.writer >= 0 && piece.writer != index_ && !before(piece.writer))
          return name(index_) + " writes " + name_of_buffer(buffer) + " and does not wait for " +
                 name(piece.writer);
        for (int const reader : piece.readers)
          if (reader >= 0 && reader != index_ && !before(reader))
            return name(index_) + " writes " + name_of_buffer(buffer) + " and does not wait for " +
                   name(reader) + ", which reads it";
        piece.buffer = buffer;
        piece.writer = index_;
        piece.readers.fill(-1);
      }
    }
    return {};
  }
  int first(int buffer) const { return of_buffer_[static_cast<std::size_t>(buffer)].first; }
  int last(int buffer) const { return of_buffer_[static_cast<std::size_t>(buffer)].second; }

  StepPlan const& plan_;
  Program const& program_;
  std::vector<Piece> pieces_;
  std::vector<std::pair<int, int>> of_buffer_;  // its pieces
  std::array<Clock, lane_count> now_{};         // of each lane
  std::vector<Clock> ended_;                    // of each entry so far
  Clock started_{};
  int index_ = 0;
};

}  // namespace detail

/// Proves that a program does the same however its lanes run: any two entries that touch a common byte, one
/// of them writing, are in an order by lanes and waits, and what an entry reads was last written as that
/// buffer, in the same micro-batch where it does not persist. Moves that work in place do. Empty, or the
/// first mistake in words. Takes time in proportion to the list; for tests and for those who write schedules.
inline std::string mistake_in(StepPlan const& plan, Program const& program) {
  return detail::ProgramCheck(plan, program).run();
}

}  // namespace tessera::inline v0
