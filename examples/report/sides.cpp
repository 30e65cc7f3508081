// SPDX-License-Identifier: Apache-2.0
// Figures of few rows beside each other: what each stage costs, and what other programs do with the same
// work.
#include <algorithm>
#include <cmath>
#include <map>

#include "common/values.hpp"
#include "report/figures.hpp"
#include "report/judge.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

namespace {

constexpr std::size_t side_bars_at_most = 12, side_groups_at_most = 12;

std::string whole_text(Row const& row, Number number, char const* none) {
  return row[number] ? cli::grouped(std::llround(*row[number])) : std::string(none);
}

std::string slot_text(Row const& row, Word word) { return row[word].empty() ? "none" : row[word]; }

/// Equal where rows do the same work: what a program trains, and how much of it in which precision.
std::string work_key(Row const& row) {
  return row[Word::model] + "\n" + row[Word::precision] + "\n" + whole_text(row, Number::batch, "-") + "\n" +
         whole_text(row, Number::sequence, "-") + "\n" + whole_text(row, Number::world, "1") + "\n" +
         whole_text(row, Number::accumulation, "1") + "\n" + slot_text(row, Word::offload) + "\n" +
         slot_text(row, Word::recompute) + "\n" + slot_text(row, Word::adapters);
}

/// "gpt2, bf16, 64 x 1,024 tokens, 2 ranks".
std::string work_text(Row const& row) {
  cli::Names parts = {row[Word::model], row[Word::precision]};
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

std::optional<Bar> rate_bar(Row const& row) {
  if (!row[Number::tokens_per_sec]) return std::nullopt;
  Bar bar{{}, {*row[Number::tokens_per_sec]}};
  bar.deviation = rate_deviation(row);
  bar.unsteady = row.is_unsteady();
  return bar;
}

std::optional<Bar> peak_bar(Row const& row) {
  if (!row[Number::peak_mb]) return std::nullopt;
  return Bar{{}, {*row[Number::peak_mb]}};
}

/// Colours of other programs, by the first word of their names. Ours is the first, and its like, the sixth,
/// is nobody's.
class Colours {
 public:
  explicit Colours(Material const& material) {
    for (Rival const& rival : material.rivals) of(rival.program);
  }
  std::size_t of(std::string const& program) {
    std::string const word = program.substr(0, program.find_first_of(" ,"));
    return 1 + places_.emplace(word, places_.size()).first->second % 4;
  }

 private:
  std::map<std::string, std::size_t> places_;
};

bool has_rate(Row const& row) { return row.ok() && row[Number::tokens_per_sec].has_value(); }

std::string unsteady_note(SideChart const& chart) {
  for (SideGroup const& group : chart.groups)
    for (SideBar const& bar : group.bars)
      for (auto const& value : bar.values)
        if (value && value->unsteady) return " Pale bars with ~ vary by more than 5%.";
  return {};
}

/// Of rows one of each stage, in the order of the files; others of a stage are not of its price alone.
RowList one_a_stage(RowList const& rows) {
  RowList kept;
  for (Row const* row : rows)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](Row const* other) { return (*other)[Word::sharding] == (*row)[Word::sharding]; }))
      kept.push_back(row);
  return kept;
}

void add_stages(Material const& material, Figures& figures) {
  constexpr char title[] = "Stages: throughput beside memory";
  RowList rows;
  for (Row const& row : material.rows)
    if (has_rate(row) && row[Number::peak_mb] && !row[Word::sharding].empty()) rows.push_back(&row);
  std::vector<RowList> groups;
  for (RowList const& group : grouped_by(
           rows, [&](Row const& row) { return key_without(row, material, {"sharding"}) + row[Word::mesh]; }))
    if (RowList stages = one_a_stage(group); stages.size() > 1) groups.push_back(std::move(stages));
  if (groups.empty()) {
    figures.left_out.push_back({title, "no two rows differ in their stage alone"});
    return;
  }
  std::size_t const all = groups.size();
  // Those with the most stages, where they are too many.
  std::stable_sort(groups.begin(), groups.end(),
                   [](RowList const& one, RowList const& other) { return one.size() > other.size(); });
  groups.resize(std::min(all, side_groups_at_most / 2));
  SideChart chart{title, {"tokens/s", "peak MB of a rank"}, false, {}};
  Colours colours(material);
  RowList const shown = ok_rows(material.rows);
  auto const varying = varying_dimensions(shown, material);
  std::map<std::string, int> works;
  for (RowList const& group : groups) ++works[work_key(*group.front())];
  for (RowList& group : groups) {
    group.resize(std::min(group.size(), side_bars_at_most));
    Row const& first = *group.front();
    // Where the work does not tell groups apart, all that does.
    SideGroup side{works[work_key(first)] > 1 ? common_label(group, varying, material) : work_text(first),
                   {}};
    std::vector<Rival const*> beside;
    for (Rival const& rival : material.rivals)
      if (!rival.row[Word::sharding].empty() && work_key(rival.row) == work_key(first) &&
          beside.size() < side_bars_at_most)
        beside.push_back(&rival);
    for (Row const* row : group)
      side.bars.push_back(
          {(beside.empty() ? "" : "Tessera ") + (*row)[Word::sharding], 0, {rate_bar(*row), peak_bar(*row)}});
    for (Rival const* rival : beside)
      side.bars.push_back({rival->program + " " + rival->row[Word::sharding],
                           colours.of(rival->program),
                           {rate_bar(rival->row), peak_bar(rival->row)}});
    chart.groups.push_back(std::move(side));
  }
  std::string note =
      "Over all ranks; the peak is of the rank that holds most. Each group has a scale of its own, from 0.";
  note += of_text(groups.size(), all, "groups") + unsteady_note(chart);
  figures.drawn.push_back({"stages", title, std::move(note), {draw(chart)}});
}

/// The fastest row of each program.
template <class Name>
RowList fastest_by(RowList const& rows, Name const& name) {
  RowList kept;
  for (RowList const& group : grouped_by(rows, name))
    kept.push_back(*std::max_element(group.begin(), group.end(), [](Row const* one, Row const* other) {
      return *(*one)[Number::tokens_per_sec] < *(*other)[Number::tokens_per_sec];
    }));
  return kept;
}

void add_rivals(Material const& material, Figures& figures) {
  constexpr char title[] = "Throughput beside other programs";
  if (material.rivals.empty()) {
    figures.left_out.push_back({title, "no row of another program was given"});
    return;
  }
  RowList ours;
  for (Row const& row : material.rows)
    if (has_rate(row)) ours.push_back(&row);
  SideChart chart{title, {"tokens/s"}, true, {}};
  Colours colours(material);
  std::size_t beside = 0, works = 0;
  bool several = false;
  for (RowList const& group : grouped_by(ours, work_key)) {
    std::map<Row const*, Rival const*> owner;
    RowList theirs;
    for (Rival const& rival : material.rivals)
      if (work_key(rival.row) == work_key(*group.front())) {
        owner[&rival.row] = &rival;
        theirs.push_back(&rival.row);
      }
    if (theirs.empty()) continue;
    beside += theirs.size();
    if (++works > side_groups_at_most) continue;
    RowList const own = fastest_by(group, [](Row const&) { return std::string(); });
    RowList others = fastest_by(theirs, [&](Row const& row) { return owner[&row]->program; });
    several = several || group.size() > own.size() || theirs.size() > others.size();
    std::stable_sort(others.begin(), others.end(), [](Row const* one, Row const* other) {
      return *(*one)[Number::tokens_per_sec] > *(*other)[Number::tokens_per_sec];
    });
    others.resize(std::min(others.size(), side_bars_at_most));
    SideGroup side{work_text(*group.front()), {{"Tessera", 0, {rate_bar(*own.front())}}}};
    for (Row const* row : others) {
      std::string const& stage = (*row)[Word::sharding];
      side.bars.push_back({owner[row]->program + (stage.empty() ? "" : " " + stage),
                           colours.of(owner[row]->program),
                           {rate_bar(*row)}});
    }
    chart.groups.push_back(std::move(side));
  }
  if (chart.groups.empty()) {
    figures.left_out.push_back({title,
                                "no row of another program has the work of a row here (model, precision, "
                                "batch, sequence, ranks, accumulation, offload, recomputation)"});
    return;
  }
  std::string note =
      "The same model, batch, sequence, precision and ranks; where each was measured is in the table of "
      "other "
      "programs. Each group has a scale of its own, from 0; whiskers are one deviation.";
  if (several) note += " Of several rows of a program the fastest.";
  if (std::size_t const without = material.rivals.size() - beside; without > 0)
    note += " " + std::to_string(without) +
            (without == 1 ? " row of another program has" : " rows of other programs have") +
            " no row of the same work here.";
  note += of_text(chart.groups.size(), works, "groups") + unsteady_note(chart);
  figures.drawn.push_back({"rivals", title, std::move(note), {draw(chart)}});
}

}  // namespace

void add_side_figures(Material const& material, Figures& figures) {
  add_stages(material, figures);
  add_rivals(material, figures);
}

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
