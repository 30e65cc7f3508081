// SPDX-License-Identifier: Apache-2.0
// JSON of compare, train, plan and monitor, and of rows of other programs.
#include "report/reading.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <system_error>

#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/results.hpp"

#include "common/statistics.hpp"
#include "common/values.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

namespace {

using Json = nlohmann::ordered_json;
constexpr char kinds[] =
    "give results of compare (JSON), a log of train (JSONL), JSON of plan or monitor, rows of other programs "
    "('rivals'), or a step_log.csv";

std::string printable_path(std::filesystem::path const& path) { return v0::detail::path_text(path); }

/// The values of one JSON object; what has the wrong type is an error that names its place and key.
class Reader {
 public:
  Reader(std::string file, std::string place, Json const& object)
      : place_(std::move(file) + ": " + std::move(place)), object_(object) {}

  [[noreturn]] void fail(std::string const& text) const {
    throw Error(ErrorKind::data,
                place_ + text + "; the file is damaged or of another kind, make it anew or leave it out");
  }
  Json const* find(std::string const& key) const {
    auto const found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }
  std::optional<double> number(std::string const& key, bool signed_values = false) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_number()) fail(cli::in_quotes(key) + " is no number");
    double const given = value->get<double>();
    if (!(std::fabs(given) <= 1e30)) fail(cli::in_quotes(key) + " is beyond 1e30");
    if (given < 0.0 && !signed_values) fail(cli::in_quotes(key) + " is below 0");
    return given;
  }
  std::string text(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return {};
    if (value->is_string()) return value->get<std::string>();
    if (value->is_number_integer()) return std::to_string(value->get<std::int64_t>());
    fail(cli::in_quotes(key) + " is no text");
  }
  std::optional<bool> truth(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_boolean()) fail(cli::in_quotes(key) + " is neither true nor false");
    return value->get<bool>();
  }
  /// Numbers and nulls.
  std::vector<std::optional<double>> numbers(std::string const& key) const {
    std::vector<std::optional<double>> list;
    Json const* const value = find(key);
    if (!value) return list;
    if (!value->is_array()) fail(cli::in_quotes(key) + " is no list");
    for (Json const& element : *value) {
      if (!element.is_null() && !element.is_number()) fail(cli::in_quotes(key) + " holds what is no number");
      list.push_back(element.is_null() ? std::nullopt : std::optional(element.get<double>()));
    }
    return list;
  }
  std::optional<Reader> object(std::string const& key) const {
    Json const* const value = find(key);
    if (!value) return std::nullopt;
    if (!value->is_object()) fail(cli::in_quotes(key) + " is no object");
    return Reader(place_, key + ": ", *value);
  }
  Json const& json() const { return object_; }

 private:
  std::string place_;
  Json const& object_;
};

/// "8 x NVIDIA H200": what a value of an environment says in a line.
std::string words_of(std::string const& key, Json const& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (key.ends_with("_bytes") && value.is_number())
    return cli::fixed(value.get<double>() / 1073741824.0, 1) + " GiB";
  if (value.is_number_integer() && !value.is_number_unsigned())
    return std::to_string(value.get<std::int64_t>());
  if (value.is_number_unsigned()) return std::to_string(value.get<std::uint64_t>());
  if (value.is_number()) return cli::shortest(value.get<double>());
  cli::Names parts;
  if (value.is_array()) {
    if (key == "gpus") {
      std::vector<std::pair<std::string, int>> names;
      for (Json const& gpu : value) {
        std::string const name = gpu.is_object() && gpu.contains("name") && gpu["name"].is_string()
                                     ? gpu["name"].get<std::string>()
                                     : "GPU";
        if (!names.empty() && names.back().first == name)
          ++names.back().second;
        else
          names.emplace_back(name, 1);
      }
      for (auto const& [name, count] : names) parts.push_back(std::to_string(count) + " x " + name);
    } else {
      for (Json const& element : value)
        if (element.is_primitive() && !element.is_null()) parts.push_back(words_of({}, element));
    }
  } else if (value.is_object()) {
    for (auto const& entry : value.items())
      if (entry.value().is_primitive() && !entry.value().is_null())
        parts.push_back(entry.key() + " " + words_of(entry.key(), entry.value()));
  }
  return cli::joined(parts);
}

void take_environment(Json const& environment, Source& source) {
  if (!environment.is_object()) return;
  for (auto const& entry : environment.items()) {
    if (entry.value().is_null()) continue;
    std::string words = words_of(entry.key(), entry.value());
    if (!words.empty()) source.environment.emplace_back(entry.key(), std::move(words));
  }
}

/// The words and numbers that a row of compare or plan has, by their keys.
Row fields_of(Reader const& reader, std::size_t source) {
  Row row;
  row.source = source;
  for (std::size_t at = 0; at < row.words.size(); ++at)
    row.words[at] = reader.text(field(static_cast<Word>(at)).key);
  for (std::size_t at = 0; at < row.numbers.size(); ++at) {
    NumberField const& number = field(static_cast<Number>(at));
    row.numbers[at] = reader.number(number.key, number.signed_values);
  }
  return row;
}

/// What older files say otherwise, or not at all.
void heed_version(Row& row, std::int64_t version) {
  if (version < 2) row[Word::attention].clear();
  if (version >= 3) return;
  // Over the steps of all repeats there, not over repeats.
  if (!row[Number::step_to_step_s]) row[Number::step_to_step_s] = row[Number::std_step_s];
  row[Number::std_step_s].reset();
  auto const &mean = row[Number::avg_step_s], &deviation = row[Number::step_to_step_s];
  auto const &rate = row[Number::tokens_per_sec], &repeats = row[Number::std_tokens_per_sec];
  if (repeats && rate && *rate > 0.0)
    row[Number::spread_pct] = 100.0 * *repeats / *rate;
  else if (mean && deviation && *mean > 0.0)
    row[Number::spread_pct] = 100.0 * *deviation / *mean;
  if (row[Number::spread_pct]) row.unsteady = *row[Number::spread_pct] > 100.0 * cli::steady_share;
}

std::string version_note(std::int64_t version) {
  if (version == 1)
    return "schema version 1: rates are those of the median step, deviations over the steps of all repeats, "
           "and the attention that ran is not known";
  if (version == 2) return "schema version 2: deviations and median steps are over the steps of all repeats";
  return {};
}

void read_rows(std::string const& name, Json const& rows, Source& source, Material& material) {
  if (rows.empty())
    throw Error(ErrorKind::data, name + ": holds no row; let compare finish one, or leave the file out");
  std::size_t const index = material.sources.size();
  source.rows = rows.size();
  for (std::size_t at = 0; at < rows.size(); ++at) {
    std::string const place = "row " + std::to_string(at + 1) + ": ";
    if (!rows[at].is_object())
      throw Error(ErrorKind::data, name + ": " + place + "is no object; the file is damaged, make it anew");
    Reader const reader(name, place, rows[at]);
    Row row = fields_of(reader, index);
    if (row[Word::experiment].empty()) reader.fail("lacks 'experiment'");
    if (row[Word::status].empty()) reader.fail("lacks 'status'");
    row.unsteady = reader.truth("unsteady");
    row.losses = reader.numbers("losses");
    if (row[Word::sharding].empty()) row[Word::sharding] = reader.text("stage");
    if (source.kind == Kind::plan) {
      if (auto const bytes = reader.object("bytes"))
        if (auto const device = bytes->object("device"))
          for (auto const& entry : device->json().items())
            if (entry.key() != "total")
              row.categories.emplace_back(entry.key(), device->number(entry.key()).value_or(0.0) / 1048576.0);
      material.plans.push_back(std::move(row));
    } else {
      heed_version(row, source.version);
      material.rows.push_back(std::move(row));
    }
  }
}

std::int64_t version_of(std::string const& name, Json const& object, int newest) {
  auto const found = object.find("schema_version");
  if (found == object.end() || !found->is_number_integer() || found->get<std::int64_t>() < 1)
    throw Error(ErrorKind::data, name + ": 'schema_version' is missing or no version; " + kinds);
  std::int64_t const version = found->get<std::int64_t>();
  if (version > newest)
    throw Error(ErrorKind::data, name + ": has schema_version " + std::to_string(version) +
                                     ", this program reads up to " + std::to_string(newest) +
                                     "; use a newer program");
  return version;
}

void read_recording(std::string const& name, Json const& json, Source source, Material& material) {
  Reader const reader(name, "", json);
  Recording recording;
  recording.source = material.sources.size();
  std::ptrdiff_t time = -1;
  for (Json const& column : json["columns"]) {
    if (!column.is_string()) reader.fail("'columns' holds what is no text");
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
  material.sources.push_back(std::move(source));
  material.recordings.push_back(std::move(recording));
}

/// Rows of other programs: what each says in words of its own; in words and in numbers under the names of
/// result files.
constexpr std::pair<char const*, std::string Rival::*> rival_texts[] = {{"program", &Rival::program},
                                                                        {"version", &Rival::version},
                                                                        {"date", &Rival::date},
                                                                        {"machine", &Rival::machine},
                                                                        {"note", &Rival::note}};
constexpr Word rival_words[] = {Word::model, Word::precision, Word::sharding, Word::offload, Word::recompute};
constexpr Number rival_numbers[] = {Number::params,     Number::batch,          Number::sequence,
                                    Number::world,      Number::accumulation,   Number::repeats,
                                    Number::steps,      Number::tokens_per_sec, Number::std_tokens_per_sec,
                                    Number::spread_pct, Number::peak_mb};

cli::Names rival_keys() {
  cli::Names keys;
  for (auto const& [key, text] : rival_texts) keys.emplace_back(key);
  for (Word const word : rival_words) keys.emplace_back(field(word).key);
  for (Number const number : rival_numbers) keys.emplace_back(field(number).key);
  return keys;
}

Rival rival_of(std::string const& name, std::string const& place, Json const& json) {
  auto const fail = [&](std::string const& text) {
    throw Error(ErrorKind::data, name + ": " + place + text);
  };
  if (!json.is_object()) fail("is no object; a row of another program is one, see docs/rivals.schema.json");
  cli::Names const keys = rival_keys();
  for (auto const& entry : json.items())
    if (std::find(keys.begin(), keys.end(), entry.key()) == keys.end())
      fail("has a key " + cli::in_quotes(entry.key()) +
           ", which rows of other programs do not have; theirs are " + cli::joined(keys));
  Reader const reader(name, place, json);
  auto const text_of = [&](char const* key) {
    if (Json const* const value = reader.find(key); value && !value->is_string())
      fail(cli::in_quotes(key) + " is no text");
    return reader.text(key);
  };
  Rival rival;
  for (auto const& [key, text] : rival_texts) rival.*text = text_of(key);
  for (Word const word : rival_words) rival.row[word] = text_of(field(word).key);
  for (Number const number : rival_numbers) rival.row[number] = reader.number(field(number).key);
  for (char const* key : {"program", "model", "precision", "machine"})
    if (reader.text(key).empty()) fail("lacks " + cli::in_quotes(key) + "; a row of another program says it");
  for (Number const number : {Number::batch, Number::sequence, Number::tokens_per_sec})
    if (!rival.row[number])
      fail("lacks " + cli::in_quotes(field(number).key) + "; a row of another program says it");
  for (char const* key : {"date", "sharding"})
    if (reader.find(key) && reader.text(key).empty()) fail(cli::in_quotes(key) + " is empty; leave it out");
  if (std::string const fault = fault_of(rival); !fault.empty()) fail(fault);
  Row& row = rival.row;
  row[Word::experiment] = rival.program;
  row[Word::status] = "ok";
  if (!row[Number::world]) row[Number::world] = 1.0;
  if (!row[Number::accumulation]) row[Number::accumulation] = 1.0;
  for (Word const word : {Word::offload, Word::recompute})
    if (row[word].empty()) row[word] = "none";
  if (auto const spread = spread_of(row)) row.unsteady = *spread > cli::steady_share;
  return rival;
}

void read_rivals(std::string const& name, Json const& json, Source source, Material& material) {
  source.kind = Kind::rivals;
  source.version = version_of(name, json, 1);
  for (auto const& entry : json.items())
    if (entry.key() != "schema_version" && entry.key() != "rivals" && entry.key() != "note")
      throw Error(ErrorKind::data, name + ": has a key " + cli::in_quotes(entry.key()) +
                                       ", which a file of rows of other programs does not have; its keys are "
                                       "schema_version, rivals and note");
  if (std::string note = Reader(name, "", json).text("note"); !note.empty())
    source.notes.push_back(std::move(note));
  Json const& rows = json["rivals"];
  if (!rows.is_array())
    throw Error(ErrorKind::data,
                name + ": 'rivals' is no list of rows; write [{...}, ...], see docs/rivals.schema.json");
  if (rows.empty())
    throw Error(ErrorKind::data, name + ": 'rivals' holds no row; add one, or leave the file out");
  source.rows = rows.size();
  for (std::size_t at = 0; at < rows.size(); ++at) {
    material.rivals.push_back(rival_of(name, "row " + std::to_string(at + 1) + ": ", rows[at]));
    material.rivals.back().row.source = material.sources.size();
  }
  material.sources.push_back(std::move(source));
}

/// Fields of a log of train, from its settings and its summary.
void describe_training(Row& row, Json const& config) {
  auto const text = [&](char const* key, Word word) {
    auto const found = config.find(key);
    if (found != config.end() && found->is_string()) row[word] = found->get<std::string>();
  };
  auto const number = [&](char const* key, Number into) {
    auto const found = config.find(key);
    if (found != config.end() && found->is_number()) row[into] = found->get<double>();
  };
  for (Word const word : {Word::model, Word::device, Word::sharding, Word::precision, Word::offload,
                          Word::recompute, Word::reduction, Word::communication, Word::capture,
                          Word::loss_scale, Word::parallel, Word::adapters})
    text(field(word).key, word);
  for (Number const value : {Number::world, Number::batch, Number::sequence, Number::accumulation,
                             Number::global_batch, Number::params, Number::trainable_params, Number::seed})
    number(field(value).key, value);
}

void summarize_training(Reader const& summary, Row& row) {
  row[Number::tokens_per_sec] = summary.number("avg_tokens_per_sec");
  for (Number const number :
       {Number::avg_step_s, Number::step_to_step_s, Number::spread_pct, Number::train_s, Number::mfu_pct,
        Number::gpu_util_pct, Number::power_w, Number::peak_power_w, Number::energy_j, Number::library_mb})
    row[number] = summary.number(field(number).key);
  row[Number::temp_end_c] = summary.number("temp_end_c", true);
  row[Word::weights_hash] = summary.text("weights_hash");
  row.unsteady = summary.truth("unsteady");
  if (summary.truth("interrupted").value_or(false)) row[Word::reason] = "interrupted";
}

void read_training_log(std::string const& name, std::string_view text, std::string const& stem,
                       Material& material) {
  Source source;
  source.kind = Kind::training;
  source.path = name;
  Row row;
  row.source = material.sources.size();
  row[Word::experiment] = stem;
  row[Word::status] = "ok";
  bool summarized = false;
  std::vector<double> seconds, rates;
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t const end = std::min(text.find('\n', begin), text.size());
    std::string_view const words = text.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (words.find_first_not_of(" \t\r") == words.npos) continue;
    std::string const place = "line " + std::to_string(line) + ": ";
    Json const record = Json::parse(words, nullptr, false);
    if (record.is_discarded() || !record.is_object())
      throw Error(ErrorKind::data, name + ": " + place +
                                       "is no JSON object; remove the line where it was cut off, or give "
                                       "another file");
    Reader const reader(name, place, record);
    if (auto const config = reader.object("config")) {
      source.version = version_of(name, record, 1);
      describe_training(row, config->json());
      source.command = reader.text("command");
      if (auto const bytes = reader.object("planned_bytes"))
        if (auto const device = bytes->number("device")) row[Number::planned_mb] = *device / 1048576.0;
      source.environment.clear();
      if (Json const* const environment = reader.find("environment")) take_environment(*environment, source);
    } else if (auto const summary = reader.object("summary")) {
      summarize_training(*summary, row);
      summarized = true;
    } else if (record.contains("step")) {
      auto const step = reader.number("step");
      if (!step || *step < 1.0) reader.fail("'step' is no step");
      auto const at = static_cast<std::size_t>(*step);
      // A run that went on after a checkpoint writes later steps anew.
      if (at <= 10'000'000) {
        if (row.losses.size() < at) row.losses.resize(at);
        row.losses[at - 1] = reader.number("loss", true);
      }
      auto const ms = reader.number("ms"), rate = reader.number("tokens_per_sec");
      if (ms && rate && *ms > 0.0) {
        seconds.push_back(1e-3 * *ms);
        rates.push_back(*rate);
      }
    }
  }
  if (row.losses.empty() && !summarized)
    throw Error(ErrorKind::data, name + ": is no log of train, it has no step; " + kinds);
  row[Number::steps] = static_cast<double>(row.losses.size());
  if (seconds.size() > 1) {
    seconds.erase(seconds.begin());  // what starts is no step of a run under way
    row[Number::step_s] = cli::median(seconds);
  }
  if (!summarized) {
    row[Word::reason] = "its log has no summary: the run goes on, or was killed";
    source.notes.push_back(row[Word::reason]);
    if (seconds.size() > 1) {
      double const mean = cli::mean(seconds), tokens = rates.back() * seconds.back();
      row[Number::avg_step_s] = mean;
      row[Number::tokens_per_sec] = tokens / mean;
      row[Number::step_to_step_s] = cli::deviation(seconds);
      row[Number::spread_pct] = 100.0 * cli::deviation(seconds) / mean;
      row.unsteady = cli::deviation(seconds) > cli::steady_share * mean;
    }
  }
  auto const known = [](auto const& loss) { return loss.has_value(); };
  auto const first = std::find_if(row.losses.begin(), row.losses.end(), known);
  auto const last = std::find_if(row.losses.rbegin(), row.losses.rend(), known);
  if (first != row.losses.end()) row[Number::first_loss] = *first;
  if (last != row.losses.rend()) row[Number::final_loss] = *last;
  source.rows = 1;
  material.sources.push_back(std::move(source));
  material.rows.push_back(std::move(row));
}

}  // namespace

std::filesystem::path file_of(std::filesystem::path const& given) {
  std::error_code code;
  if (!std::filesystem::is_directory(given, code)) return given;
  if (std::filesystem::exists(given / "compare.json", code)) return given / "compare.json";
  throw Error(ErrorKind::data, printable_path(given) +
                                   ": the folder holds no compare.json; name a file, or give the folder to "
                                   "--summarize for the step logs below it");
}

void read_file(std::filesystem::path const& file, Material& material) {
  std::string const name = printable_path(file);
  FileBytes const bytes = FileBytes::open(file);
  std::string_view text(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::size_t const begin = text.find_first_not_of(" \t\r\n");
  if (begin == text.npos) throw Error(ErrorKind::data, name + ": is empty; " + kinds);
  if (text.starts_with("global_step,")) {
    std::filesystem::path const folder = file.has_parent_path() ? file.parent_path() : ".";
    read_step_logs(file, {file}, 1, material);
    return;
  }
  if (text.starts_with("experiment,"))
    throw Error(ErrorKind::data, name +
                                     ": is the CSV of compare, which has no environment and no command; "
                                     "give the compare.json beside it");
  if (text.starts_with("time_s,"))
    throw Error(ErrorKind::data, name + ": is the CSV of monitor; give what its --json wrote");
  if (text[begin] != '{' && text[begin] != '[')
    throw Error(ErrorKind::data, name + ": is no file of results; " + kinds);
  // A log has an object a line, of which the first one ends its line.
  std::size_t const line_end = text.find('\n', begin);
  if (text[begin] == '{') {
    Json const first = Json::parse(text.substr(begin, line_end - begin), nullptr, false);
    if (first.is_object() && (first.contains("config") || first.contains("step"))) {
      read_training_log(name, text, file.stem().string(), material);
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
                                     " is no JSON; the file is damaged or cut off, make it anew");
  } catch (Json::out_of_range const&) {
    throw Error(ErrorKind::data, name +
                                     ": holds a number beyond all that are numbers here; the file is "
                                     "damaged or of another kind");
  }
  Source source;
  source.path = name;
  if (json.is_array()) {
    if (json.empty() || !json.front().is_object() || !json.front().contains("experiment"))
      throw Error(ErrorKind::data, name + ": is a list, and not the flat rows of compare; " + kinds);
    source.version = version_of(name, json.front(), results::schema_version);
    source.notes.push_back("flat rows have no losses, no environment and no command");
    read_rows(name, json, source, material);
    material.sources.push_back(std::move(source));
    return;
  }
  if (!json.is_object()) throw Error(ErrorKind::data, name + ": is no file of results; " + kinds);
  auto const has_list = [&](char const* key) {
    auto const found = json.find(key);
    return found != json.end() && found->is_array();
  };
  if (has_list("columns") && has_list("samples")) {
    source.kind = Kind::recording;
    source.version = version_of(name, json, 1);
    if (json.contains("environment")) take_environment(json["environment"], source);
    read_recording(name, json, std::move(source), material);
    return;
  }
  if (json.contains("rivals")) {
    read_rivals(name, json, std::move(source), material);
    return;
  }
  if (!has_list("rows")) {
    if (json.contains("traceEvents"))
      throw Error(ErrorKind::data, name + ": is a trace; open it in Perfetto, and give train's --log here");
    throw Error(ErrorKind::data, name + ": is no file of results, it has no list 'rows'; " + kinds);
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
    source.notes.push_back("its compare was cut off, or still runs: rows may be missing");
  read_rows(name, rows, source, material);
  material.sources.push_back(std::move(source));
}

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
