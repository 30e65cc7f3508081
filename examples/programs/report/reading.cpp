// SPDX-License-Identifier: Apache-2.0
// Reads the input files of a report: finds out which program wrote a file, and reads the JSON files of the
// programs `compare`, `plan` and `monitor`.
#include "report/reading.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <system_error>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/json_lines.hpp"

#include "report/json_files.hpp"
#include "report/judge.hpp"
#include "results/published.hpp"
#include "results/results.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// Returns a row with the text and numeric fields of a row in a file of `compare` or `plan`. `source` is the
/// index of the file.
Row fields_of(Reader const& reader, std::size_t source) {
  Row row;
  row.source = source;
  for (std::size_t at = 0; at < row.words.size(); ++at)
    row.words[at] = reader.text(key_of(static_cast<Word>(at)));
  for (std::size_t at = 0; at < row.numbers.size(); ++at) {
    results::Column const& column = column_of(static_cast<Number>(at));
    row.numbers[at] = reader.number(std::string(column.name), column.is_signed);
  }
  return row;
}

/// Changes the fields of a row of an older schema version to the meaning that they have in the newest
/// version.
void heed_version(Row& row, std::int64_t version) {
  if (version < 2) row[Word::attention].clear();
  if (version >= 3) return;
  // In files of versions 1 and 2, std_step_time_s is the deviation over the steps of all repeats. Since
  // version 3 it is the deviation over repeats, and step_to_step_std_s is the deviation over steps.
  if (!row[Number::step_to_step_std_s]) row[Number::step_to_step_std_s] = row[Number::std_step_time_s];
  row[Number::std_step_time_s].reset();
  auto const &mean = row[Number::avg_step_time_s], &deviation = row[Number::step_to_step_std_s];
  auto const &rate = row[Number::median_tokens_per_sec], &repeats = row[Number::std_tokens_per_sec];
  if (repeats && rate && *rate > 0.0)
    row[Number::spread_pct] = 100.0 * *repeats / *rate;
  else if (mean && deviation && *mean > 0.0)
    row[Number::spread_pct] = 100.0 * *deviation / *mean;
  if (row[Number::spread_pct]) row.unsteady = *row[Number::spread_pct] > 100.0 * cli::steady_share;
}

std::string version_note(std::int64_t version) {
  if (version == 1)
    return "schema version 1: rates are from the median step, deviations over the steps of all repeats, "
           "and the attention that ran is not known";
  if (version == 2) return "schema version 2: deviations and median steps are over the steps of all repeats";
  return {};
}

/// Finds the rows of a comparison that ran the same program, which means the same schedule over the same
/// buffers. Stores in each of these rows by how much their rates differ. `first` is the index of the
/// comparison's first row.
void note_twins(std::vector<Row>& rows, std::size_t first) {
  std::map<std::string, std::vector<Row*>> programs;
  for (std::size_t at = first; at < rows.size(); ++at) {
    std::string const& twin = rows[at][Word::same_program_as];
    programs[twin.empty() ? rows[at][Word::experiment] : twin].push_back(&rows[at]);
  }
  for (auto const& [program, twins] : programs) {
    if (twins.size() < 2) continue;
    double least = 0.0, most = 0.0;
    for (Row const* twin : twins) {
      double const rate = twin->ok() ? (*twin)[Number::median_tokens_per_sec].value_or(0.0) : 0.0;
      if (!(rate > 0.0)) continue;
      least = least > 0.0 ? std::min(least, rate) : rate;
      most = std::max(most, rate);
    }
    for (Row* twin : twins) {
      twin->program = program;
      twin->twins_differ = least > 0.0 ? most / least - 1.0 : 0.0;
      // In older files the uncertainty of a speedup between two rows of the same program is too small. This
      // code raises it.
      auto& uncertainty = (*twin)[Number::speedup_uncertainty];
      auto const is_base = [&](Row const* other) {
        return (*other)[Word::experiment] == (*twin)[Word::speedup_against];
      };
      if ((*twin)[Number::speedup] && uncertainty && std::any_of(twins.begin(), twins.end(), is_base))
        uncertainty = std::max(*uncertainty, std::fabs(*(*twin)[Number::speedup] - 1.0));
    }
  }
}

/// Returns the figures in the field `published` of a row; none if the row has no such field.
std::vector<PublishedFigure> published_in(Reader const& row) {
  std::vector<PublishedFigure> list;
  auto const published = row.object("published");
  auto const figures = published ? published->object("figures") : std::nullopt;
  if (!figures) return list;
  for (auto const& [key, ignored] : figures->json().items()) {
    auto const value = [&, name = key](char const* of) {
      auto const values = published->object(of);
      return values ? values->number(name, true) : std::nullopt;
    };
    list.push_back({published->text("comparison"), key, figures->number(key, true), value("deviations"),
                    value("ours"), value("our_deviations"), value("ratios"), value("planned")});
  }
  return list;
}

/// Returns `rows` with the figures of the published comparisons `names` in each row that repeats a published
/// row. If no row does, adds a note to `source`.
Json with_published(Json const& rows, cli::Names const& names, Source& source) {
  bool const are_rows =
      std::all_of(rows.begin(), rows.end(), [](Json const& row) { return row.is_object(); });
  if (names.empty() || !are_rows) return rows;  // read_rows refuses other elements
  std::vector<results::Row> all;
  for (Json const& row : rows) {
    all.push_back(results::empty_row());
    all.back().update(row);
  }
  cli::add_published(all, names);
  if (std::none_of(all.begin(), all.end(), [](Json const& row) { return row.contains("published"); }))
    source.notes.push_back(
        "no row has the same model, ranks, recipe, batch and sequence as a published row of " +
        cli::joined(names));
  return all;
}

void read_rows(std::string const& name, Json const& rows, Source& source, Inputs& inputs) {
  if (rows.empty())
    throw Error(ErrorKind::data, name + ": holds no row; let compare finish one, or leave the file out");
  std::size_t const index = inputs.sources.size(), first = inputs.rows.size();
  source.rows = rows.size();
  for (std::size_t at = 0; at < rows.size(); ++at) {
    std::string const place = "row " + std::to_string(at + 1) + ": ";
    if (!rows[at].is_object())
      throw Error(ErrorKind::data,
                  name + ": " + place + "is not an object; the file is damaged, create it again");
    Reader const reader(name, place, rows[at]);
    Row row = fields_of(reader, index);
    if (row[Word::experiment].empty()) reader.fail("lacks 'experiment'");
    if (row[Word::status].empty()) reader.fail("lacks 'status'");
    row.unsteady = reader.boolean("unsteady");
    row.disturbed = reader.boolean("disturbed");
    row.losses = reader.numbers("losses");
    row.published = published_in(reader);
    if (auto const published = reader.object("published"))
      row.published_cannot_be = published->text("cannot_be");
    if (row[Word::sharding].empty()) row[Word::sharding] = reader.text("stage");
    if (source.kind == Kind::plan) {
      if (auto const bytes = reader.object("bytes"))
        if (auto const device = bytes->object("device"))
          for (auto const& entry : device->json().items())
            if (entry.key() != "total")
              row.categories.emplace_back(entry.key(), device->number(entry.key()).value_or(0.0) / 1048576.0);
      inputs.plans.push_back(std::move(row));
    } else {
      heed_version(row, source.version);
      check_rate(row, source);
      inputs.rows.push_back(std::move(row));
    }
  }
  note_twins(inputs.rows, first);
}

void read_recording(std::string const& name, Json const& json, Source source, Inputs& inputs) {
  Reader const reader(name, "", json);
  Recording recording;
  recording.source = inputs.sources.size();
  std::ptrdiff_t time = -1;
  for (Json const& column : json["columns"]) {
    if (!column.is_string()) reader.fail("'columns' holds a value that is not text");
    recording.columns.push_back(column.get<std::string>());
    if (recording.columns.back() == "time_s")
      time = static_cast<std::ptrdiff_t>(recording.columns.size()) - 1;
  }
  if (time < 0) reader.fail("'columns' lacks time_s");
  recording.values.resize(recording.columns.size());
  std::size_t at = 0;
  for (Json const& sample : json["samples"]) {
    ++at;
    auto const fail = [&](std::string const& text) {
      Reader(name, "sample " + std::to_string(at) + ": ", json).fail(text);
    };
    if (!sample.is_array() || sample.size() != recording.columns.size())
      fail("is not a list of " + std::to_string(recording.columns.size()) + " values");
    Json const& when = sample[static_cast<std::size_t>(time)];
    if (!when.is_number()) fail("has no time_s");
    recording.seconds.push_back(when.get<double>());
    for (std::size_t column = 0; column < sample.size(); ++column) {
      Json const& value = sample[column];
      recording.values[column].push_back(value.is_number() ? std::optional(value.get<double>())
                                                           : std::nullopt);
    }
  }
  if (at == 0) reader.fail("holds no sample");
  source.rows = at;
  source.command = reader.text("command");
  inputs.sources.push_back(std::move(source));
  inputs.recordings.push_back(std::move(recording));
}

}  // namespace

std::vector<std::filesystem::path> comparisons_in(std::filesystem::path const& folder) {
  namespace fs = std::filesystem;
  std::error_code code;
  // Maps each time that occurs in file names to the file with this time in its name. If there are two, the
  // file with all fields ("compare...") is preferred to the flat list.
  std::map<std::string, fs::path> by_time;
  for (fs::directory_iterator entry(folder, code), end; !code && entry != end; entry.increment(code)) {
    std::string const name = entry->path().filename();
    for (std::string_view const stem : {"compare", "zero_comparison", "offload_comparison"}) {
      if (!name.starts_with(stem) || entry->path().extension() != ".json") continue;
      std::string const time = name.substr(stem.size(), name.size() - stem.size() - 5);
      bool const is_time =
          time.size() == 16 && time[0] == '_' && time[9] == '_' &&
          std::count_if(time.begin(), time.end(), [](char c) { return '0' <= c && c <= '9'; }) == 14;
      if (!time.empty() && !is_time) continue;
      fs::path& file = by_time[time.empty() ? std::string(stem) : time];
      if (file.empty() || stem == "compare") file = entry->path();
    }
  }
  // A copy of the folder has the same file names, but possibly other modification times. So files with a time
  // in their names are ordered by this time.
  std::vector<fs::path> found;
  for (auto file = by_time.rbegin(); file != by_time.rend(); ++file)
    if (file->first.starts_with('_')) found.push_back(file->second);
  for (auto const& [name, file] : by_time) {
    if (name.starts_with('_')) continue;
    auto const changed = fs::last_write_time(file, code);
    found.insert(
        std::find_if(found.begin(), found.end(),
                     [&](fs::path const& other) { return fs::last_write_time(other, code) < changed; }),
        file);
  }
  return found;
}

std::vector<std::filesystem::path> files_of(std::filesystem::path const& given) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::is_directory(given, code)) return {given};
  if (auto const found = comparisons_in(given); !found.empty()) return {found.front()};
  std::vector<fs::path> files, logs;
  std::error_code ignored;
  bool const one = fs::exists(given / "trainer.json", ignored);  // the folder is one checkpoint
  bool checkpoints = one;
  for (fs::directory_iterator entry(given, code), end; !code && entry != end; entry.increment(code)) {
    if (entry->path().extension() == ".json") files.push_back(entry->path());
    if (entry->path().extension() == ".jsonl") logs.push_back(entry->path());
    checkpoints = checkpoints || fs::exists(entry->path() / "trainer.json", ignored);
  }
  std::sort(files.begin(), files.end());
  if (!files.empty() && !one) return files;
  if (!logs.empty())
    throw Error(ErrorKind::data,
                files::path_text(given) + ": the folder holds no JSON file, but a log of train; give " +
                    cli::in_shell(files::path_text(*std::min_element(logs.begin(), logs.end()))));
  if (checkpoints)
    throw Error(ErrorKind::data, files::path_text(given) +
                                     ": is a folder of checkpoints of train, which hold no results; give the "
                                     "file that train wrote with --log");
  throw Error(ErrorKind::data,
              files::path_text(given) +
                  ": the folder holds no JSON file; name a file, or give the folder to --summarize for the "
                  "step logs below it");
}

void read_file(std::filesystem::path const& file, Inputs& inputs) {
  std::string const name = files::path_text(file);
  FileBytes const bytes = FileBytes::open(file);
  std::string_view text(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::size_t const begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) throw Error(ErrorKind::data, name + ": is empty; " + kinds);
  if (text.starts_with("global_step,")) {
    std::filesystem::path const folder = file.has_parent_path() ? file.parent_path() : ".";
    read_step_logs(file, {file}, 1, inputs);
    return;
  }
  if (text.starts_with("experiment,"))
    throw Error(ErrorKind::data, name +
                                     ": is the CSV of compare, which has no environment and no command; "
                                     "give the compare.json in the same folder");
  if (text.starts_with("time_s,"))
    throw Error(ErrorKind::data, name + ": is the CSV of monitor; give the file of its --json");
  if (text[begin] != '{' && text[begin] != '[')
    throw Error(ErrorKind::data, name + ": is not a results file; " + kinds);
  if (json_lines::nests_too_deeply(text))
    throw Error(ErrorKind::data,
                name + ": is nested more than 64 deep; the file is damaged or of another kind");
  // A log has one JSON object per line, so its first object ends with the first line.
  std::size_t const line_end = text.find('\n', begin);
  if (text[begin] == '{') {
    Json const first = Json::parse(text.substr(begin, line_end - begin), nullptr, false);
    if (first.is_object() && (first.contains("config") || first.contains("step"))) {
      read_training_log(name, text, file.stem().string(), inputs);
      return;
    }
  }
  Json json;
  try {
    json = Json::parse(text);
  } catch (Json::parse_error const& error) {
    auto const upto = std::min<std::size_t>(error.byte, text.size());
    auto const line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(upto), '\n');
    throw Error(ErrorKind::data, name + ": line " + std::to_string(line) +
                                     " is not valid JSON; the file is damaged or cut off, create it again");
  } catch (Json::out_of_range const&) {
    throw Error(ErrorKind::data, name +
                                     ": holds a number that is too large; the file is "
                                     "damaged or of another kind");
  }
  add_json(name, json, inputs);
}

void add_json(std::string const& name, Json const& json, Inputs& inputs) {
  Source source;
  source.path = name;
  if (json.is_array()) {
    if (json.empty() || !json.front().is_object() || !json.front().contains("experiment"))
      throw Error(ErrorKind::data, name + ": is a list, but not the flat rows of compare; " + kinds);
    source.version = version_of(name, json.front(), results::schema_version);
    source.notes.push_back("flat rows have no losses, no environment and no command");
    std::size_t const first = inputs.rows.size();
    read_rows(name, with_published(json, inputs.published, source), source, inputs);
    inputs.sources.push_back(std::move(source));
    complete_rows(inputs, first, json, Json::object());
    return;
  }
  if (!json.is_object()) throw Error(ErrorKind::data, name + ": is not a results file; " + kinds);
  auto const has_list = [&](char const* key) {
    auto const found = json.find(key);
    return found != json.end() && found->is_array();
  };
  if (has_list("columns") && has_list("samples")) {
    source.kind = Kind::recording;
    source.version = version_of(name, json, 1);
    if (json.contains("environment")) take_environment(json["environment"], source);
    read_recording(name, json, std::move(source), inputs);
    return;
  }
  if (json.contains("rivals")) {
    read_rivals(name, json, std::move(source), inputs);
    return;
  }
  if (!has_list("rows")) {
    if (json.contains("traceEvents"))
      throw Error(ErrorKind::data, name + ": is a trace; open it in Perfetto, and give train's --log here");
    throw Error(ErrorKind::data, name + ": is not a results file, because it has no list 'rows'; " + kinds);
  }
  source.version = version_of(name, json, results::schema_version);
  Json const& rows = json["rows"];
  bool const planned = results::holds_plans(json);
  source.kind = planned ? Kind::plan : Kind::comparison;
  source.command = Reader(name, "", json).text("command");
  if (json.contains("environment")) take_environment(json["environment"], source);
  if (std::string note = planned ? std::string() : version_note(source.version); !note.empty())
    source.notes.push_back(std::move(note));
  if (!planned && json.contains("wall_s") && json["wall_s"].is_null())
    source.notes.push_back("compare was interrupted or is still running: rows may be missing");
  std::size_t const first = inputs.rows.size();
  read_rows(name, with_published(rows, inputs.published, source), source, inputs);
  inputs.sources.push_back(std::move(source));
  if (!planned)
    complete_rows(inputs, first, rows, json.contains("environment") ? json["environment"] : Json());
}

}  // namespace reporting
}  // namespace programs
