// SPDX-License-Identifier: Apache-2.0
#include "monitor/phases.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/io/file.hpp"

#include "cli/terminal.hpp"

namespace programs {
using namespace tessera;
namespace monitor {

namespace {

double in_seconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e9; }
double in_ms(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e6; }

}  // namespace

Spool::Spool() : file_(std::tmpfile(), &std::fclose) {
  if (!file_) files::file_error("a temporary file for samples", "create", errno);
}

void Spool::add(std::string const& line) {
  if (std::fwrite(line.data(), 1, line.size(), file_.get()) != line.size() ||
      std::fputc('\n', file_.get()) == EOF)
    files::file_error("the temporary file of samples", "write", errno);
}

void Spool::rewind() {
  if (std::fflush(file_.get()) != 0 || std::fseek(file_.get(), 0, SEEK_SET) != 0)
    files::file_error("the temporary file of samples", "write", errno);
}

std::optional<std::string> Spool::next() {
  std::string line;
  for (int byte = std::fgetc(file_.get()); byte != EOF; byte = std::fgetc(file_.get())) {
    if (byte == '\n') return line;
    line.push_back(static_cast<char>(byte));
  }
  return std::nullopt;
}

cli::Mark const* PhaseFigures::Group::around(std::int64_t begin, std::int64_t end) {
  while (at < stretches.size() && stretches[at].end < begin) ++at;
  return at < stretches.size() && stretches[at].begin <= begin && end <= stretches[at].end ? &stretches[at]
                                                                                           : nullptr;
}

double PhaseFigures::Group::seconds() const {
  std::int64_t sum = 0;
  for (cli::Mark const& each : stretches) sum += each.end - each.begin;
  return in_seconds(sum);
}

double PhaseFigures::Group::shortest_ms() const {
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (cli::Mark const& each : stretches) least = std::min(least, each.end - each.begin);
  return in_ms(least);
}

PhaseFigures::PhaseFigures(cli::Marks marks, cli::Names names, std::vector<std::optional<int>> decimals,
                           std::vector<ColumnTime> times)
    : marks_(std::move(marks)), names_(std::move(names)), times_(std::move(times)), last_(names_.size()) {
  for (std::int64_t phase = 0; phase <= cli::phase_count; ++phase) {
    Group group;
    if (phase < cli::phase_count) {
      group.name = cli::phase_names[phase];
      for (cli::Mark const& mark : marks_.phases)
        if (mark.phase == phase) group.stretches.push_back(mark);
    } else {
      group.name = "steps";
      group.stretches.push_back({0, -1, marks_.steps.front().begin, marks_.steps.back().end});
    }
    for (auto const& places : decimals)
      group.counts.push_back(places ? std::optional<Counts>(*places) : std::nullopt);
    groups_.push_back(std::move(group));
  }
}

PhaseFigures::Place PhaseFigures::add(std::int64_t begin, std::int64_t end, Json const& row) {
  Place place;
  while (step_ < marks_.steps.size() && marks_.steps[step_].end < begin) ++step_;
  if (step_ < marks_.steps.size() && marks_.steps[step_].begin <= begin && end <= marks_.steps[step_].end)
    place.step = marks_.steps[step_].step;
  for (std::size_t number = 0; number < groups_.size(); ++number) {
    Group& group = groups_[number];
    cli::Mark const* const stretch = group.around(begin, end);
    if (!stretch) continue;
    ++group.samples;
    if (number + 1 < groups_.size()) place.phase = cli::phase_names[number];
    for (std::size_t column = 0; column < names_.size(); ++column) {
      if (!group.counts[column] || !row[column].is_number()) continue;
      ColumnTime const& time = times_[column];
      bool const known = !time.since_last || last_[column];
      std::int64_t const from = time.since_last ? last_[column].value_or(0) : begin - time.window;
      if (known && stretch->begin <= from) group.counts[column]->add(row[column].get<double>());
    }
  }
  for (std::size_t column = 0; column < names_.size(); ++column)
    if (row[column].is_number()) last_[column] = begin;
  return place;
}

Json PhaseFigures::json() const {
  Json phases = Json::object();
  for (Group const& group : groups_) {
    Json columns = Json::object();
    for (std::size_t column = 0; column < names_.size(); ++column) {
      if (!group.counts[column]) continue;
      auto const found = group.counts[column]->summary();
      Json& cell = columns[names_[column]] = nullptr;
      if (!found) continue;
      cell = {{"samples", found->samples}, {"mean", found->mean}, {"std", nullptr},
              {"min", found->min},         {"max", found->max},   {"median", found->median}};
      if (found->samples > 1) cell["std"] = found->std;
    }
    bool const any = !group.stretches.empty();
    phases[group.name] = {{"stretches", group.stretches.size()},
                          {"seconds", group.seconds()},
                          {"shortest_ms", any ? Json(group.shortest_ms()) : Json(nullptr)},
                          {"samples", group.samples},
                          {"columns", std::move(columns)}};
  }
  Json windows = Json::object();
  for (std::size_t column = 0; column < names_.size(); ++column)
    if (groups_.front().counts[column])
      windows[names_[column]] =
          times_[column].since_last ? Json("since_last") : Json(in_ms(times_[column].window));
  return {{"rank", marks_.rank},
          {"ranks", marks_.ranks},
          {"first_step", marks_.steps.front().step},
          {"last_step", marks_.steps.back().step},
          {"windows_ms", std::move(windows)},
          {"phases", std::move(phases)}};
}

std::string PhaseFigures::table(int width) const {
  auto const number = [](std::int64_t step) { return std::to_string(step); };
  std::string text = "phases of rank " + number(marks_.rank) + " of " + number(marks_.ranks) + ", steps " +
                     number(marks_.steps.front().step) + " to " + number(marks_.steps.back().step) +
                     "; mean +- std of the values of this phase only; - if there is none\n";
  std::vector<cli::Table::Column> columns{{"column", false, 100}};
  for (Group const& group : groups_) columns.push_back({group.name});
  cli::Table table(columns);
  auto const row = [&](std::string const& name, auto const& cell) {
    cli::Names cells{name};
    for (Group const& group : groups_) cells.push_back(cell(group));
    table.row(std::move(cells));
  };
  row("seconds", [](Group const& group) { return cli::fixed(group.seconds(), 3); });
  row("shortest, ms",
      [](Group const& group) { return group.stretches.empty() ? "-" : cli::fixed(group.shortest_ms(), 3); });
  row("samples", [](Group const& group) { return cli::grouped(group.samples); });
  for (std::size_t column = 0; column < names_.size(); ++column) {
    auto const has = [&](Group const& group) {
      return group.counts[column] && group.counts[column]->summary().has_value();
    };
    if (std::none_of(groups_.begin(), groups_.end(), has)) continue;
    row(names_[column], [&](Group const& group) -> std::string {
      auto const found = group.counts[column]->summary();
      if (!found) return "-";
      return cli::fixed(found->mean, 1) + " +- " + (found->samples > 1 ? cli::fixed(found->std, 1) : "-");
    });
  }
  cli::Terminal terminal;
  terminal.width = width;
  return text + table.text(terminal) +
         cli::left_out_text(table.left_out(terminal), terminal, "the output of --json has them");
}

void check_overlap(std::string const& path, cli::Marks const& marks, std::int64_t begin, std::int64_t end) {
  auto const fail = [&](std::string const& what) {
    throw Error(ErrorKind::data, files::path_text(path) + ": its steps " + what +
                                     "; it belongs to another run, or the command did not write it");
  };
  if (marks.steps.back().end < begin)
    fail("ended " + cli::fixed(in_seconds(begin - marks.steps.back().end), 1) + " s before the first sample");
  if (marks.steps.front().begin > end)
    fail("began " + cli::fixed(in_seconds(marks.steps.front().begin - end), 1) + " s after the last sample");
}

}  // namespace monitor
}  // namespace programs
