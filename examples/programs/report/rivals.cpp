// SPDX-License-Identifier: Apache-2.0
// Reads files with measurements of other programs, which the report calls rivals.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/core/error.hpp"

#include "cli/values.hpp"
#include "report/json_files.hpp"
#include "report/reading.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// The names of Tessera's own programs in the column `program` of the CSV. A row of another program must not
/// have one of these names.
constexpr std::string_view own_programs[] = {"compare", "train", "plan",    "report",
                                             "monitor", "info",  "prepare", "step logs"};
constexpr std::string_view stage_names[] = {"dp", "zs0", "zs1", "zs2", "zs3"};

bool is_date(std::string const& text) {
  constexpr std::string_view form = "0000-00-00";
  bool const formed = text.size() == form.size() &&
                      std::equal(text.begin(), text.end(), form.begin(),
                                 [](char c, char of) { return of == '-' ? c == '-' : c >= '0' && c <= '9'; });
  if (!formed) return false;
  std::string const month = text.substr(5, 2), day = text.substr(8);
  return month >= "01" && month <= "12" && day >= "01" && day <= "31";
}

/// Returns whether a text has no space at its ends and no invisible character. Two such names are equal if
/// they look alike. `text` is UTF-8.
bool is_plain_name(std::string_view text) {
  if (text.starts_with(' ') || text.ends_with(' ')) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const byte = [&](std::size_t ahead) {
      return at + ahead < text.size() ? static_cast<unsigned char>(text[at + ahead]) : 0u;
    };
    unsigned const first = byte(0), second = byte(1), third = byte(2);
    bool const unseen =
        first < 0x20 || first == 0x7f ||
        (first == 0xc2 && (second <= 0xa0 || second == 0xad)) ||  // up to U+00A0, and U+00AD
        (first == 0xe2 && second == 0x80 && (third <= 0x8f || (third >= 0xa8 && third <= 0xaf))) ||  // U+2000
        (first == 0xe2 && second == 0x81 && third >= 0x9f && third <= 0xaf) ||                       // U+205F
        (first == 0xe3 && second == 0x80 && third == 0x80) ||                                        // U+3000
        (first == 0xef && second == 0xbb && third == 0xbf);                                          // U+FEFF
    if (unseen) return false;
  }
  return true;
}

/// The keys of a row of another program. The first list has texts that only these rows have. The next lists
/// have texts and numbers with the same keys as in result files.
constexpr std::pair<char const*, std::string Rival::*> rival_texts[] = {{"program", &Rival::program},
                                                                        {"version", &Rival::version},
                                                                        {"date", &Rival::date},
                                                                        {"machine", &Rival::machine},
                                                                        {"note", &Rival::note}};
constexpr Word rival_words[] = {Word::model, Word::precision, Word::sharding, Word::offload, Word::recompute};
constexpr Number rival_numbers[] = {Number::params,
                                    Number::batch,
                                    Number::sequence,
                                    Number::world,
                                    Number::accumulation,
                                    Number::repeats,
                                    Number::steps,
                                    Number::warmup,
                                    Number::train_time_s,
                                    Number::comm_time_s,
                                    Number::median_tokens_per_sec,
                                    Number::std_tokens_per_sec,
                                    Number::spread_pct,
                                    Number::peak_gpu_mem_mb};

cli::Names rival_keys() {
  cli::Names keys;
  for (auto const& [key, text] : rival_texts) keys.emplace_back(key);
  for (Word const word : rival_words) keys.emplace_back(key_of(word));
  for (Number const number : rival_numbers) keys.emplace_back(column_of(number).name);
  return keys;
}

Rival rival_of(std::string const& name, std::string const& place, Json const& json) {
  auto const fail = [&](std::string const& text) {
    throw Error(ErrorKind::data, name + ": " + place + text);
  };
  if (!json.is_object())
    fail("is not an object; a row of another program must be one, see docs/rivals.schema.json");
  cli::Names const keys = rival_keys();
  for (auto const& entry : json.items())
    if (std::find(keys.begin(), keys.end(), entry.key()) == keys.end())
      fail("has a key " + cli::in_quotes(entry.key()) +
           ", which rows of other programs do not have; their keys are " + cli::joined(keys));
  Reader const reader(name, place, json);
  auto const text_of = [&](std::string const& key) {
    if (Json const* const value = reader.find(key); value && !value->is_string())
      fail(cli::in_quotes(key) + " is not text");
    return reader.text(key);
  };
  Rival rival;
  for (auto const& [key, text] : rival_texts) rival.*text = text_of(key);
  for (Word const word : rival_words) rival.row[word] = text_of(key_of(word));
  for (Number const number : rival_numbers)
    rival.row[number] = reader.number(std::string(column_of(number).name));
  for (char const* key : {"program", "model", "precision", "machine"})
    if (reader.text(key).empty())
      fail("lacks " + cli::in_quotes(key) + "; a row of another program must have it");
  for (Number const number : {Number::batch, Number::sequence, Number::median_tokens_per_sec})
    if (!rival.row[number])
      fail("lacks " + cli::in_quotes(column_of(number).name) + "; a row of another program must have it");
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

}  // namespace

std::string fault_of(Rival const& rival) {
  Row const& row = rival.row;
  for (Number const number :
       {Number::params, Number::batch, Number::sequence, Number::world, Number::accumulation})
    if (auto const& value = row[number];
        value && (*value < 1.0 || *value > max_exact_integer || *value != std::floor(*value)))
      return cli::in_quotes(column_of(number).name) + " is not a whole number from 1 to 2^53 - 1";
  if (*row[Number::median_tokens_per_sec] <= 0.0)
    return cli::in_quotes(column_of(Number::median_tokens_per_sec).name) +
           " is 0; leave out rows that did not run";
  if (!rival.date.empty() && !is_date(rival.date))
    return "'date' is " + cli::in_quotes(rival.date) + "; write it as 2026-01-31, or leave it out";
  std::string const& stage = row[Word::sharding];
  if (!stage.empty() &&
      std::find(std::begin(stage_names), std::end(stage_names), stage) == std::end(stage_names))
    return "'sharding' is " + cli::in_quotes(stage) + "; write dp or zs0 to zs3, or leave it out";
  if (!is_plain_name(rival.program))
    return "'program' is " + cli::in_quotes(rival.program) +
           ", with white space at an end or an invisible character; remove it";
  std::string const lower = cli::lower(rival.program);
  if (lower.starts_with("tessera"))
    return "is named " + cli::in_quotes(rival.program) +
           "; rows of Tessera must come from compare, give its file";
  if (std::find(std::begin(own_programs), std::end(own_programs), lower) != std::end(own_programs))
    return "is named " + cli::in_quotes(rival.program) + ", like a program of Tessera; give it another name";
  return {};
}

void read_rivals(std::string const& name, Json const& json, Source source, Inputs& inputs) {
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
                name + ": 'rivals' is not a list of rows; write [{...}, ...], see docs/rivals.schema.json");
  if (rows.empty())
    throw Error(ErrorKind::data, name + ": 'rivals' holds no row; add one, or leave the file out");
  source.rows = rows.size();
  for (std::size_t at = 0; at < rows.size(); ++at) {
    inputs.rivals.push_back(rival_of(name, "row " + std::to_string(at + 1) + ": ", rows[at]));
    inputs.rivals.back().row.source = inputs.sources.size();
  }
  inputs.sources.push_back(std::move(source));
}

}  // namespace reporting
}  // namespace programs
