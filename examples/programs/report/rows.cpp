// SPDX-License-Identifier: Apache-2.0
// Implements rows.hpp: the fields of a report's rows, and the labels that distinguish the rows. A row is one
// measured or planned configuration.
#include "report/rows.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <set>

#include "cli/values.hpp"
#include "results/verdicts.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// The fields that files of the program `plan` have and result files of `compare` do not have.
constexpr results::Column plan_columns[] = {
    {.name = "largest_batch"},
    {.name = "longest_sequence"},
    {.name = "predicted_slower"},
    {.name = "predicted_epoch_time_s", .title = "predicted epoch", .unit = results::unit::seconds}};

constexpr results::Column const& column_named(std::string_view name) {
  if (results::is_column(name)) return results::columns[results::column_index(name)];
  return *std::ranges::find(plan_columns, name, &results::Column::name);
}

#define TESSERA_NAME(name) #name,
constexpr char const* word_keys[] = {TESSERA_REPORT_WORDS(TESSERA_NAME)};
#undef TESSERA_NAME
#define TESSERA_COLUMN(name) &column_named(#name),
constexpr results::Column const* number_columns[] = {TESSERA_REPORT_NUMBERS(TESSERA_COLUMN)};
#undef TESSERA_COLUMN

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string integer_text(std::optional<double> const& value) {
  if (!value) return {};
  return *value <= max_exact_integer ? std::to_string(std::llround(*value)) : cli::exact(*value);
}

template <Word word>
std::string word_of(Row const& row, Inputs const&) {
  return row[word];
}
template <Number number>
std::string number_of(Row const& row, Inputs const&) {
  return integer_text(row[number]);
}
template <Number number>
std::string phrase_of(Row const& row, Inputs const&) {
  std::string const value = integer_text(row[number]);
  return value.empty() ? value : header_of(number) + " " + value;
}
/// Returns the name and the value of the setting `word` in `row`, for example "recompute block"; "" if the
/// value is "none" or unknown.
template <Word word>
std::string slot_of(Row const& row, Inputs const&) {
  std::string const& value = row[word];
  return value.empty() || value == "none" ? std::string() : spaced(key_of(word)) + " " + value;
}

}  // namespace

std::string key_of(Word word) { return word_keys[static_cast<std::size_t>(word)]; }
results::Column const& column_of(Number number) { return *number_columns[static_cast<std::size_t>(number)]; }
std::string header_of(Number number) {
  results::Column const& column = column_of(number);
  return column.title.empty() ? spaced(std::string(column.name)) : std::string(column.title);
}

std::optional<double> Row::step_seconds() const {
  auto const& median = (*this)[Number::median_step_time_s];
  return median ? median : (*this)[Number::avg_step_time_s];
}

std::optional<double> Row::memory_mb() const {
  return results::rank_memory_mb((*this)[Word::device], (*this)[Word::offload],
                                 (*this)[Number::peak_gpu_mem_mb], (*this)[Number::host_mem_mb]);
}

std::string Source::kind_text() const {
  switch (kind) {
    case Kind::comparison:
      return "compare";
    case Kind::training:
      return "train";
    case Kind::step_logs:
      return "step logs";
    case Kind::plan:
      return "plan";
    case Kind::recording:
      return "monitor";
    case Kind::rivals:
      return "other programs";
  }
  return {};
}

std::vector<std::optional<double>> const* Recording::column(std::string const& name) const {
  auto const found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) return nullptr;
  auto const& all = values[static_cast<std::size_t>(found - columns.begin())];
  bool const known = std::any_of(all.begin(), all.end(), [](auto const& value) { return value.has_value(); });
  return known ? &all : nullptr;
}

RowList ok_rows(std::vector<Row> const& rows) {
  RowList list;
  for (Row const& row : rows)
    if (row.ok()) list.push_back(&row);
  return list;
}

std::vector<Dimension> const& dimensions() {
  auto const label = [](Row const& row, Inputs const& inputs) { return inputs.sources[row.source].label; };
  auto const ranks = [](Row const& row, Inputs const&) {
    std::string const value = integer_text(row[Number::world]);
    return value.empty() ? value : value + (value == "1" ? " rank" : " ranks");
  };
  static std::vector<Dimension> const all = {
      {"source", label, label},
      {"model", word_of<Word::model>, word_of<Word::model>},
      {"sharding", word_of<Word::sharding>, word_of<Word::sharding>},
      {"precision", word_of<Word::precision>, word_of<Word::precision>},
      {"offload", word_of<Word::offload>, slot_of<Word::offload>},
      {"device", word_of<Word::device>, word_of<Word::device>, false},
      {"ranks", number_of<Number::world>, ranks},
      {"batch", number_of<Number::batch>, phrase_of<Number::batch>},
      {"sequence", number_of<Number::sequence>, phrase_of<Number::sequence>},
      {"accum.", number_of<Number::accumulation>, phrase_of<Number::accumulation>},
      {"recompute", word_of<Word::recompute>, slot_of<Word::recompute>},
      {"reduction", word_of<Word::reduction>, slot_of<Word::reduction>, false},
      {"communication", word_of<Word::communication>, slot_of<Word::communication>, false},
      {"capture", word_of<Word::capture>, slot_of<Word::capture>, false},
      {"attention", word_of<Word::attention>, slot_of<Word::attention>, false},
      {"parallel", word_of<Word::parallel>, slot_of<Word::parallel>, false},
      {"adapters", word_of<Word::adapters>, slot_of<Word::adapters>},
      {"seed", number_of<Number::seed>, phrase_of<Number::seed>, false},
  };
  return all;
}

std::vector<std::size_t> varying_dimensions(RowList const& rows, Inputs const& inputs) {
  std::vector<std::size_t> varying;
  for (std::size_t at = 0; at < dimensions().size(); ++at) {
    std::string known;
    for (Row const* row : rows) {
      std::string value = dimensions()[at].value(*row, inputs);
      if (known.empty()) known = value;
      if (value.empty() || value == known) continue;
      varying.push_back(at);
      break;
    }
  }
  return varying;
}

std::string common_label(RowList const& group, std::vector<std::size_t> const& varying,
                         Inputs const& inputs) {
  cli::Names parts, defaults;
  bool has_setting = false;  // whether a part is a setting of the run, and not only the source
  for (std::size_t const at : varying) {
    Dimension const& dimension = dimensions()[at];
    std::string const value = dimension.value(*group.front(), inputs);
    if (std::any_of(group.begin(), group.end(),
                    [&](Row const* row) { return dimension.value(*row, inputs) != value; }))
      continue;
    std::string phrase = dimension.phrase(*group.front(), inputs);
    if (!phrase.empty()) {
      parts.push_back(std::move(phrase));
      has_setting = has_setting || at > 0;  // dimension 0 is the source
    } else if (!value.empty()) {
      defaults.push_back(std::string(dimension.header) + " " + value);
    }
  }
  if (!has_setting) parts.insert(parts.end(), defaults.begin(), defaults.end());
  return cli::joined(parts, " ");
}

Labels::Labels(RowList const& rows, Inputs const& inputs)
    : material_(inputs), varying_(varying_dimensions(rows, inputs)) {
  if (rows.empty()) return;
  cli::Names all, brief;
  for (std::size_t at = 1; at < dimensions().size(); ++at) {
    Dimension const& dimension = dimensions()[at];
    std::string const value = dimension.value(*rows.front(), inputs);
    std::string const part = dimension.phrase(*rows.front(), inputs);
    if (part.empty() || std::any_of(rows.begin(), rows.end(),
                                    [&](Row const* row) { return dimension.value(*row, inputs) != value; }))
      continue;
    all.push_back(part);
    if (dimension.brief && part != "accum. 1") brief.push_back(part);
  }
  shared_ = cli::joined(all);
  briefly_ = cli::joined(brief);
  for (Row const* row : rows) ++counts_[parts_of(*row)];
}

std::string Labels::of(Row const& row) const {
  std::string const label = parts_of(row);
  std::string const& name = row[Word::experiment];
  auto const found = counts_.find(label);
  if (label.empty()) return name;
  return found != counts_.end() && found->second > 1 ? label + " (" + name + ")" : label;
}

std::string Labels::parts_of(Row const& row) const { return common_label({&row}, varying_, material_); }

void name_sources(std::vector<Source>& sources) {
  namespace fs = std::filesystem;
  std::set<std::string> seen;
  for (Source const& source : sources)
    if (!seen.insert(fs::path(source.path).lexically_normal().string()).second)
      cli::refuse(source.path + " was given twice; give it once");
  // The label of a source consists of the last parts of its path, as few as are needed to make it unique. The
  // file name compare.json is never part of the label; the folder's name then takes its place.
  std::size_t most = 1;
  for (Source const& source : sources) {
    fs::path const path = fs::path(source.path).lexically_normal();
    most = std::max(most, static_cast<std::size_t>(std::distance(path.begin(), path.end())));
  }
  auto const name = [](Source const& source, std::size_t parts) {
    fs::path path = fs::path(source.path).lexically_normal();
    if (path.has_extension() && path.stem() == "compare" && path.has_parent_path()) path = path.parent_path();
    if (!path.has_filename() && path.has_parent_path()) path = path.parent_path();
    fs::path text = source.kind == Kind::step_logs ? path.filename() : path.stem();
    fs::path above = path.parent_path();
    for (std::size_t part = 1; part < parts && above.has_filename(); ++part, above = above.parent_path())
      text = above.filename() / text;
    return text.string();
  };
  for (Source& source : sources) {
    for (std::size_t parts = 1; parts <= most; ++parts) {
      source.label = name(source, parts);
      auto const alike = std::count_if(sources.begin(), sources.end(), [&](Source const& other) {
        return name(other, parts) == source.label;
      });
      if (alike == 1) break;
      source.label = source.path;
    }
  }
}

void check_rate(Row& row, Source& source) {
  auto const& rate = row[Number::median_tokens_per_sec];
  if (!row.ok() || !rate || *rate > 0.0) return;
  std::string const text =
      "its rate is " + cli::shortest(*rate) + " tokens/s, but a measured rate is above 0";
  row[Word::status] = "failed";
  row[Word::reason] = text;
  row[Word::verdict].clear();
  for (Number const number :
       {Number::median_tokens_per_sec, Number::tokens_per_sec_per_rank, Number::efficiency, Number::speedup,
        Number::speedup_uncertainty, Number::scaling_efficiency, Number::mfu_pct})
    row[number].reset();
  source.notes.push_back("row " + row[Word::experiment] + " counts as failed: " + text +
                         "; measure it again, or correct the file");
}

std::optional<double> spread_of(Row const& row) {
  auto const &spread = row[Number::spread_pct], &rate = row[Number::median_tokens_per_sec];
  if (spread) return 0.01 * *spread;
  if (row[Number::std_tokens_per_sec] && rate && *rate > 0.0) return *row[Number::std_tokens_per_sec] / *rate;
  return std::nullopt;
}

}  // namespace reporting
}  // namespace programs
