// SPDX-License-Identifier: Apache-2.0
// Formats a planned step as text: its list of entries, and its table with the placement of state.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tessera/plan/report.hpp"
#include "tessera/plan/schedule.hpp"
#include "tessera/plan/step_plan.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

/// Returns a description of a buffer: "gathered weights of h.3 (host)", "saved residual". The text leaves out
/// the name of the buffer's unit if the unit is `unit`. It leaves out the memory if the buffer is in device
/// memory.
inline std::string words(StepPlan const& plan, Buffer const& buffer, int unit) {
  bool const frozen =
      buffer.range.size() > 0 && buffer.unit >= 0 && !plan.flat({buffer.unit, buffer.flat}).trainable;
  std::string text((frozen ? "frozen " : "") + name_of(buffer.kind, buffer.copy));
  UnitSpec const* const of = buffer.unit >= 0 ? &plan.unit(buffer.unit) : nullptr;
  if (of && buffer.kind == BufferKind::saved)
    text += " " + of->saved[static_cast<std::size_t>(buffer.index)].name;
  if (of && buffer.kind == BufferKind::backward)
    text += " " + of->backward[static_cast<std::size_t>(buffer.index)].name;
  if (buffer.unit >= 0 && buffer.unit != unit) text += " of " + plan.unit(buffer.unit).name;
  if (buffer.tier != Tier::device) text += " (" + std::string(name_of(buffer.tier)) + ")";
  return text;
}

/// Appends `text` to `line`, and then spaces until the text and the spaces have `width` characters. Appends
/// at least one space.
inline void append_padded(std::string& line, std::string const& text, std::size_t width) {
  line += text;
  line.append(text.size() < width ? width - text.size() : 1, ' ');
}

}  // namespace detail

/// Returns the unit of an entry as text: "h.3", "h.3:1" for the second segment of a unit with several
/// segments, "h.3+2" if the entry has two groups of parameters after the first, "-" if it has no unit.
inline std::string unit_text(StepPlan const& plan, Entry const& entry) {
  if (entry.items.size() > 1)
    return std::string(plan.unit_name(entry)) + "+" + std::to_string(entry.items.size() - 1);
  if (entry.unit < 0) return "-";
  bool const several =
      plan.unit(entry.unit).segments() > 1 && (computes(entry.verb) || entry.verb == Verb::cross);
  return plan.unit(entry.unit).name + (several ? ":" + std::to_string(entry.segment) : std::string());
}

/// Returns a table as text. It has a line for each kind of state during a step: its memory tier, its
/// distribution over the ranks, its number format, and the contents of its buffers. The format of moments is
/// the format of the optimizer's first state.
inline std::string table_text(StepPlan const& plan) {
  std::string text;
  auto const line = [&](std::string_view state, std::string_view memory, std::string_view ranks,
                        std::string_view format, std::string_view buffer) {
    detail::append_padded(text, std::string(state), 29);
    detail::append_padded(text, std::string(memory), 8);
    detail::append_padded(text, std::string(ranks), 12);
    detail::append_padded(text, std::string(format), 8);
    text.append(buffer).append("\n");
  };
  line("state", "memory", "ranks", "format", "buffer");
  visit_rows(plan.table, [&](std::string_view name, StepRow const& row) {
    bool const of_optimizer = name.starts_with("moments");
    DType const type = of_optimizer && !plan.optimizer.empty() ? plan.optimizer.front().type : row.type;
    line(name, name_of(row.placement.tier), name_of(row.placement.over), name_of(type),
         name_of(row.kind, row.copy));
  });
  return text;
}

/// Returns the list of one rank's program as text, one line for each entry. A line has the entry's number,
/// lane, micro-batch, unit and verb, the bytes that this rank sends or processes, the source and the target
/// buffer, and the entries of other lanes for which the entry waits. If only some of the ranks take part in a
/// transfer, its line names their group. An entry with several groups of parameters names the first one and
/// the number of the others: "h.3+2". The second segment of a unit is "h.3:1". An entry that is repeated for
/// several micro-batches has one line, with its first micro-batch.
inline std::string listing(StepPlan const& plan, Program const& program) {
  std::size_t unit_width = 6;
  for (UnitSpec const& unit : plan.units) unit_width = std::max(unit_width, unit.name.size() + 5);
  std::string text;
  std::string head;
  detail::append_padded(head, "entry", 7);
  detail::append_padded(head, "lane", 15);
  detail::append_padded(head, "micro", 7);
  detail::append_padded(head, "unit", unit_width);
  detail::append_padded(head, "verb", 17);
  detail::append_padded(head, "bytes", 12);
  text += head + "operation; entries of other lanes that it waits for\n";
  Schedule const& schedule = program.schedule;
  auto const& entries = schedule.entries;
  for (int index = 0; index < static_cast<int>(entries.size()); ++index) {
    Entry const& entry = entries[static_cast<std::size_t>(index)];
    bool const repeated = schedule.times > 1 && schedule.body_begin <= index && index < schedule.body_end;
    if (repeated && index == schedule.body_begin)
      text += std::to_string(index) + " to " + std::to_string(schedule.body_end - 1) + " are repeated " +
              std::to_string(schedule.times) + " times, " + std::to_string(schedule.stride) +
              (schedule.stride == 1 ? " micro-batch" : " micro-batches") + " later each time\n";
    std::string line;
    detail::append_padded(line, std::to_string(index), 7);
    detail::append_padded(line, std::string(name_of(entry.lane)), 15);
    detail::append_padded(line, entry.micro_batch < 0 ? "-" : std::to_string(entry.micro_batch), 7);
    detail::append_padded(line, unit_text(plan, entry), unit_width);
    detail::append_padded(line, std::string(name_of(entry.verb)), 17);
    std::int64_t const bytes = program.bytes_of(entry);
    int const from = entry.source_buffer();
    detail::append_padded(line, from < 0 ? "-" : bytes_text(bytes), 12);
    if (entry.move != Move::none) line += std::string(name_of(entry.move)) + " ";
    char const* const with = entry.move == Move::send      ? "to "
                             : entry.move == Move::receive ? "from "
                                                           : "among ";
    if (plan.placement().owners > 1 && (entry.move == Move::gather || entry.move == Move::broadcast))
      line += (entry.move == Move::gather ? "to rank " : "from rank ") +
              std::to_string(entry.items.front().root) + " ";
    if (entry.group != Group::all) line += with + std::string(name_of(entry.group)) + " ";
    if (from >= 0) {
      int const unit = entry.items.empty() ? entry.unit : entry.items.front().of.unit;
      Role const result = entry.verb == Verb::accumulate ? Role::gradient
                          : entry.verb == Verb::norm     ? Role::partials
                          : entry.verb == Verb::update   ? Role::master
                          : entry.verb == Verb::add_tied ? Role::tied_gradient
                                                         : Role::target;
      int const to = entry.at(result, entry.verb == Verb::add_tied ? entry.operands.back().index : 0);
      line += detail::words(plan, program.at(from), unit);
      if (to >= 0 && to != from) line += " to " + detail::words(plan, program.at(to), unit);
    }
    for (std::size_t wait = 0; wait < entry.waits.size(); ++wait)
      line += (wait        ? ", "
               : from >= 0 ? "; after "
                           : "after ") +
              std::to_string(entry.waits[wait]) +
              (entry.waits[wait] >= index ? " of the previous repetition" : "");
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

}  // namespace v0
}  // namespace tessera
