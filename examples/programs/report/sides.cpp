// SPDX-License-Identifier: Apache-2.0
// Draws figures of horizontal bars. One figure compares rows that differ only in the ZeRO stage (the
// sharding). Another figure compares Tessera's rows with other programs that did the same work.
#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "cli/values.hpp"
#include "report/figures.hpp"
#include "report/judge.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

constexpr std::size_t max_side_bars = 12, max_side_groups = 12;

std::string whole_text(Row const& row, Number number, char const* none) {
  if (!row[number]) return none;
  return *row[number] <= max_exact_integer ? cli::grouped(std::llround(*row[number]))
                                           : cli::exact(*row[number]);
}

std::string slot_text(Row const& row, Word word) { return row[word].empty() ? "none" : row[word]; }

/// Returns a key that is equal for rows that do the same work according to their settings: model name,
/// precision, batch, sequence, ranks, accumulation, offload, recomputation and adapters.
std::string named_work(Row const& row) {
  return row[Word::model] + "\n" + row[Word::precision] + "\n" + whole_text(row, Number::batch, "-") + "\n" +
         whole_text(row, Number::sequence, "-") + "\n" + whole_text(row, Number::world, "1") + "\n" +
         whole_text(row, Number::accumulation, "1") + "\n" + slot_text(row, Word::offload) + "\n" +
         slot_text(row, Word::recompute) + "\n" + slot_text(row, Word::adapters);
}

/// Returns whether the row trains only a part of the parameters although it has no adapters.
bool is_frozen(Row const& row) {
  auto const &all = row[Number::params], &trained = row[Number::trainable_params];
  return all && trained && *all != *trained && slot_text(row, Word::adapters) == "none";
}

/// Returns the machine of `row`, one of Tessera's rows, such as "NVIDIA H200"; "" if the row's result file
/// does not name the machine.
std::string machine_of(Row const& row, Inputs const& inputs) {
  char const* const machine_key = row[Word::device] == "cuda" ? "device_models" : "cpu";
  for (auto const& [key, words] : inputs.sources[row.source].environment)
    if (key == machine_key) return words;
  return {};
}

/// Decides which rows do the same work. Models with one name may have different sizes, for example because of
/// their vocabulary. For such a name the numbers of parameters must be equal too, and a row of another
/// program without this number matches no row.
class Works {
 public:
  explicit Works(Inputs const& inputs) {
    for (Row const& row : inputs.rows)
      if (row.ok() && row[Number::params]) sizes_[named_work(row)].insert(*row[Number::params]);
  }
  bool has_sizes(Row const& row) const {
    auto const found = sizes_.find(named_work(row));
    return found != sizes_.end() && found->second.size() > 1;
  }
  std::string key(Row const& row) const {
    return named_work(row) + (has_sizes(row) ? "\n" + whole_text(row, Number::params, "-") : std::string());
  }
  bool same(Row const& rival, Row const& ours) const {
    if (named_work(rival) != named_work(ours)) return false;
    auto const &theirs = rival[Number::params], &own = ours[Number::params];
    return theirs && own ? *theirs == *own : !has_sizes(ours);
  }
  /// Returns the work of a row as text, for a heading: "gpt2, bf16, 64 x 1,024 tokens, 2 ranks".
  std::string text(Row const& row) const;

 private:
  std::map<std::string, std::set<double>> sizes_;
};

std::string Works::text(Row const& row) const {
  cli::Names parts = {row[Word::model], row[Word::precision]};
  if (has_sizes(row)) parts.push_back(whole_text(row, Number::params, "unknown") + " parameters");
  parts.push_back(row[Number::batch] && row[Number::sequence]
                      ? whole_text(row, Number::batch, "") + " x " + whole_text(row, Number::sequence, "") +
                            " tokens"
                      : std::string());
  if (row[Number::world].value_or(1.0) != 1.0) parts.push_back(whole_text(row, Number::world, "") + " ranks");
  if (row[Number::accumulation].value_or(1.0) != 1.0)
    parts.push_back("accumulation " + whole_text(row, Number::accumulation, ""));
  for (Word const word : {Word::offload, Word::adapters})
    if (slot_text(row, word) != "none") parts.push_back(row[word]);
  if (slot_text(row, Word::recompute) != "none") parts.push_back("recompute " + row[Word::recompute]);
  std::erase(parts, std::string());
  return cli::joined(parts);
}

/// Returns a sentence that lists the machines on which Tessera was measured; "" if there are fewer than two.
std::string machines_text(std::set<std::string> const& machines) {
  if (machines.size() < 2) return {};
  return " Tessera was measured on: " + cli::joined({machines.begin(), machines.end()}, "; ") + ".";
}

/// Returns a sentence with the number of rows that a figure leaves out because they train only a part of the
/// parameters; "" if there are none.
std::string frozen_text(Inputs const& inputs) {
  auto const frozen = std::count_if(inputs.rows.begin(), inputs.rows.end(),
                                    [](Row const& row) { return row.ok() && is_frozen(row); });
  if (frozen == 0) return {};
  return " Without " + std::to_string(frozen) + (frozen == 1 ? " row that trains" : " rows that train") +
         " a part of the parameters.";
}

std::optional<Bar> rate_bar(Row const& row) {
  if (!row[Number::median_tokens_per_sec]) return std::nullopt;
  Bar bar{{}, {*row[Number::median_tokens_per_sec]}};
  bar.deviation = rate_deviation(row);
  bar.unsteady = row.is_unsteady();
  return bar;
}

std::optional<Bar> peak_bar(Row const& row) {
  if (!row[Number::peak_gpu_mem_mb]) return std::nullopt;
  return Bar{{}, {*row[Number::peak_gpu_mem_mb]}};
}

/// Assigns a colour to each program, according to the first word of its name. Tessera has the first of six
/// colours. The last colour is too similar to the first and is not used.
class Colours {
 public:
  explicit Colours(Inputs const& inputs) {
    for (Rival const& rival : inputs.rivals) of(rival.program);
  }
  std::size_t of(std::string const& program) {
    std::string const word = program.substr(0, program.find_first_of(" ,"));
    return 1 + places_.emplace(word, places_.size()).first->second % 4;
  }

 private:
  std::map<std::string, std::size_t> places_;
};

bool is_shown(Row const& row) {
  return row.ok() && row[Number::median_tokens_per_sec].has_value() && !is_frozen(row);
}

std::string unsteady_note(SideChart const& chart) {
  for (SideGroup const& group : chart.groups)
    for (SideBar const& bar : group.bars)
      for (auto const& value : bar.values)
        if (value && value->unsteady) return " Pale bars with ~ vary by more than 5% or were disturbed.";
  return {};
}

/// Groups the rows by `name(row)` and returns the fastest row of each group. If several rows have the same
/// program, only the row that represents them counts.
template <class Name>
RowList fastest_by(RowList const& rows, Name const& name) {
  RowList fastest;
  for (RowList const& all : grouped_by(rows, name)) {
    RowList const group = represented(all);
    fastest.push_back(*std::max_element(group.begin(), group.end(), [](Row const* one, Row const* other) {
      return *(*one)[Number::median_tokens_per_sec] < *(*other)[Number::median_tokens_per_sec];
    }));
  }
  return fastest;
}

/// Returns the first row of each ZeRO stage, in the order of the files. Further rows of a stage differ in
/// other settings too, so they are left out.
RowList one_per_stage(RowList const& rows) {
  RowList distinct;
  for (Row const* row : rows)
    if (std::none_of(distinct.begin(), distinct.end(),
                     [&](Row const* other) { return (*other)[Word::sharding] == (*row)[Word::sharding]; }))
      distinct.push_back(row);
  return distinct;
}

void add_stages(Inputs const& inputs, Figures& figures) {
  constexpr char title[] = "Stages: throughput and memory";
  RowList rows;
  for (Row const& row : inputs.rows)
    if (is_shown(row) && row[Number::peak_gpu_mem_mb] && !row[Word::sharding].empty()) rows.push_back(&row);
  std::vector<RowList> groups;
  Works const works(inputs);
  for (RowList const& group : grouped_by(rows, [&](Row const& row) {
         return key_without(row, inputs, {"sharding"}) + row[Word::mesh] + "\n" + works.key(row) + "\n" +
                whole_text(row, Number::trainable_params, "-");
       }))
    if (RowList stages = one_per_stage(group); stages.size() > 1) groups.push_back(std::move(stages));
  if (groups.empty()) {
    figures.left_out.push_back({title, "no two rows differ only in their stage"});
    return;
  }
  std::size_t const all = groups.size();
  // If there are too many groups, only the groups with the most ZeRO stages remain.
  std::stable_sort(groups.begin(), groups.end(),
                   [](RowList const& one, RowList const& other) { return one.size() > other.size(); });
  groups.resize(std::min(all, max_side_groups / 2));
  SideChart chart{title, {"tokens/s", "peak MB of a rank"}, false, {}};
  Colours colours(inputs);
  RowList const shown = ok_rows(inputs.rows);
  auto const varying = varying_dimensions(shown, inputs);
  std::map<std::string, int> times;
  for (RowList const& group : groups) ++times[works.key(*group.front())];
  std::set<std::string> machines;
  std::size_t bars = 0, all_bars = 0;
  for (RowList& group : groups) {
    all_bars += group.size();
    group.resize(std::min(group.size(), max_side_bars));
    Row const& first = *group.front();
    if (std::string machine = machine_of(first, inputs); !machine.empty()) machines.insert(machine);
    // If several groups do the same work, the heading of each group names all settings that distinguish the
    // group.
    SideGroup side{times[works.key(first)] > 1 ? common_label(group, varying, inputs) : works.text(first),
                   {}};
    std::map<Row const*, Rival const*> owner;
    RowList rival_rows;
    for (Rival const& rival : inputs.rivals)
      if (!rival.row[Word::sharding].empty() && works.same(rival.row, first)) {
        owner[&rival.row] = &rival;
        rival_rows.push_back(&rival.row);
      }
    rival_rows = fastest_by(
        rival_rows, [&](Row const& row) { return owner[&row]->program + "\n" + row[Word::sharding]; });
    all_bars += rival_rows.size();
    rival_rows.resize(std::min(rival_rows.size(), max_side_bars));
    for (Row const* row : group)
      side.bars.push_back({(rival_rows.empty() ? "" : "Tessera ") + (*row)[Word::sharding],
                           0,
                           {rate_bar(*row), peak_bar(*row)}});
    for (Row const* row : rival_rows)
      side.bars.push_back({owner[row]->program + " " + (*row)[Word::sharding],
                           colours.of(owner[row]->program),
                           {rate_bar(*row), peak_bar(*row)}});
    bars += side.bars.size();
    chart.groups.push_back(std::move(side));
  }
  std::string note =
      "Over all ranks; the peak is of the rank that uses the most. Each group has its own scale, from 0.";
  note += of_text(groups.size(), all, "groups") + of_text(bars, all_bars, "bars") + frozen_text(inputs) +
          machines_text(machines) + unsteady_note(chart);
  figures.drawn.push_back({"stages", title, std::move(note), {draw(chart)}});
}

void add_rivals(Inputs const& inputs, Figures& figures) {
  constexpr char title[] = "Throughput of Tessera and other programs";
  if (inputs.rivals.empty()) {
    figures.left_out.push_back({title, "no row of another program was given"});
    return;
  }
  RowList ours;
  for (Row const& row : inputs.rows)
    if (is_shown(row)) ours.push_back(&row);
  SideChart chart{title, {"tokens/s"}, true, {}};
  Colours colours(inputs);
  Works const works(inputs);
  std::set<std::string> machines;
  // for each kind of work, the machines that did it
  std::map<std::string, std::set<std::string>> machines_of;
  for (Row const* row : ours) machines_of[works.key(*row)].insert(machine_of(*row, inputs));
  std::set<Rival const*> compared;
  std::size_t groups = 0, bars = 0, all_bars = 0;
  bool several = false;
  for (RowList const& group : grouped_by(ours, [&](Row const& row) {
         return works.key(row) + "\n" + row[Word::device] + "\n" + machine_of(row, inputs);
       })) {
    Row const& first = *group.front();
    std::map<Row const*, Rival const*> owner;
    RowList theirs;
    for (Rival const& rival : inputs.rivals)
      if (works.same(rival.row, first)) {
        owner[&rival.row] = &rival;
        compared.insert(&rival);
        theirs.push_back(&rival.row);
      }
    if (theirs.empty()) continue;
    if (++groups > max_side_groups) continue;
    Row const& own = *fastest_by(group, [](Row const&) { return std::string(); }).front();
    RowList others = fastest_by(theirs, [&](Row const& row) { return owner[&row]->program; });
    several = several || group.size() > 1 || theirs.size() > others.size();
    std::stable_sort(others.begin(), others.end(), [](Row const* one, Row const* other) {
      return *(*one)[Number::median_tokens_per_sec] > *(*other)[Number::median_tokens_per_sec];
    });
    all_bars += 1 + others.size();
    others.resize(std::min(others.size(), max_side_bars));
    bars += 1 + others.size();
    std::string const machine = machine_of(first, inputs);
    if (!machine.empty()) machines.insert(machine);
    bool const staged = std::any_of(group.begin(), group.end(), [&](Row const* row) {
      return (*row)[Word::sharding] != own[Word::sharding];
    });
    SideGroup side{works.text(first), {}};
    if (machines_of[works.key(first)].size() > 1)
      side.heading += ", Tessera on " + (machine.empty() ? "an unnamed machine" : machine);
    side.bars.push_back(
        {staged && !own[Word::sharding].empty() ? "Tessera " + own[Word::sharding] : "Tessera",
         0,
         {rate_bar(own)}});
    for (Row const* row : others) {
      std::string const& stage = (*row)[Word::sharding];
      side.bars.push_back({owner[row]->program + (stage.empty() ? "" : " " + stage),
                           colours.of(owner[row]->program),
                           {rate_bar(*row)}});
    }
    chart.groups.push_back(std::move(side));
  }
  if (chart.groups.empty()) {
    figures.left_out.push_back(
        {title,
         "no row of another program does the same work as a row here (model, its parameters, "
         "precision, batch, sequence, ranks, accumulation, offload, recomputation; "
         "all parameters trained)"});
    return;
  }
  std::string note =
      "The same model, batch, sequence, precision and ranks; the table of other programs names each machine. "
      "Each group has its own scale, from 0; whiskers are one deviation, over steps, or over repeats if "
      "there are several.";
  if (several) note += " Of several rows of a program, the fastest is shown.";
  if (std::size_t const without = inputs.rivals.size() - compared.size(); without > 0)
    note += " " + std::to_string(without) +
            (without == 1 ? " row of another program has" : " rows of other programs have") +
            " no row of the same work here.";
  auto const unsaid = std::count_if(inputs.rivals.begin(), inputs.rivals.end(), [&](Rival const& rival) {
    return !rival.row[Number::params] && works.has_sizes(rival.row);
  });
  if (unsaid > 0)
    note += " Of these " + std::to_string(unsaid) + (unsaid == 1 ? " does" : " do") +
            " not give 'params', in which rows here differ.";
  note += of_text(chart.groups.size(), groups, "groups") + of_text(bars, all_bars, "bars") +
          frozen_text(inputs) + machines_text(machines) + unsteady_note(chart);
  figures.drawn.push_back({"rivals", title, std::move(note), {draw(chart)}});
}

}  // namespace

void add_side_figures(Inputs const& inputs, Figures& figures) {
  add_stages(inputs, figures);
  add_rivals(inputs, figures);
}

}  // namespace reporting
}  // namespace programs
