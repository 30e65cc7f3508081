// SPDX-License-Identifier: Apache-2.0
// A schedule as text: the step of a recipe, line by line.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/plan/report.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera::inline v0 {

namespace detail {

/// "gathered of h.3 (host)": a buffer in words, with its tier where that is not the device.
inline std::string words(StepPlan const& plan, Buffer const& buffer, int unit) {
  bool const frozen =
      buffer.range.size() > 0 && buffer.unit >= 0 && !plan.flat({buffer.unit, buffer.flat}).trainable;
  std::string text((frozen ? "frozen " : "") + std::string(name_of(buffer.kind)));
  if (buffer.unit >= 0 && buffer.unit != unit) text += " of " + plan.unit(buffer.unit).name;
  if (buffer.tier != Tier::device) text += " (" + std::string(name_of(buffer.tier)) + ")";
  return text;
}

/// The bytes that an entry carries from or works on in this rank.
inline std::int64_t bytes_of(Program const& program, Entry const& entry) {
  if (entry.from < 0) return 0;
  Buffer const& from = program.at(entry.from);
  return entry.part.size() * static_cast<std::int64_t>(size_of(from.type)) *
         (entry.move == Move::copy || entry.verb == Verb::fold ? from.pieces : 1);
}

inline void append_padded(std::string& line, std::string const& text, std::size_t width) {
  line += text;
  line.append(text.size() < width ? width - text.size() : 1, ' ');
}

}  // namespace detail

/// A line for each entry of one rank's program: its number, lane, micro-batch, unit and verb, what moves from
/// where to where and how many bytes of this rank's, and the entries of other lanes that it waits for. A move
/// among some of the ranks names the group.
inline std::string listing(StepPlan const& plan, Program const& program) {
  std::size_t unit_width = 6;
  for (UnitSpec const& unit : plan.units) unit_width = std::max(unit_width, unit.name.size() + 2);
  std::string text;
  std::string head;
  detail::append_padded(head, "entry", 7);
  detail::append_padded(head, "lane", 15);
  detail::append_padded(head, "micro", 7);
  detail::append_padded(head, "unit", unit_width);
  detail::append_padded(head, "verb", 17);
  detail::append_padded(head, "bytes", 12);
  text += head + "what, and after which entries of other lanes\n";
  auto const& entries = program.schedule.entries;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    Entry const& entry = entries[index];
    std::string line;
    detail::append_padded(line, std::to_string(index), 7);
    detail::append_padded(line, std::string(name_of(entry.lane)), 15);
    detail::append_padded(line, entry.micro_batch < 0 ? "-" : std::to_string(entry.micro_batch), 7);
    detail::append_padded(line, entry.unit < 0 ? "-" : plan.unit(entry.unit).name, unit_width);
    detail::append_padded(line, std::string(name_of(entry.verb)), 17);
    std::int64_t const bytes = detail::bytes_of(program, entry);
    detail::append_padded(line, entry.from < 0 ? "-" : bytes_text(bytes), 12);
    if (entry.move != Move::none) line += std::string(name_of(entry.move)) + " ";
    if (entry.group != Group::all) line += "among " + std::string(name_of(entry.group)) + " ";
    if (entry.from >= 0) {
      line += detail::words(plan, program.at(entry.from), entry.unit);
      if (entry.to != entry.from) line += " to " + detail::words(plan, program.at(entry.to), entry.unit);
    }
    for (std::size_t wait = 0; wait < entry.waits.size(); ++wait)
      line += (wait ? ", " : entry.from >= 0 ? "; after " : "after ") + std::to_string(entry.waits[wait]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace tessera::inline v0
