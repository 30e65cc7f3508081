// SPDX-License-Identifier: Apache-2.0
// Reads the logs that the program `train` writes. Each log becomes one row of the report.
#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

#include "report/json_files.hpp"
#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace reporting {

namespace {

/// Fills a row with the settings in the first line of a log of `train`.
void describe_training(Row& row, Reader const& config) {
  for (Word const word : {Word::model, Word::device, Word::sharding, Word::precision, Word::offload,
                          Word::recompute, Word::reduction, Word::communication, Word::capture,
                          Word::loss_scale, Word::parallel, Word::adapters})
    if (Json const* const text = config.find(key_of(word)); text && text->is_string())
      row[word] = text->get<std::string>();
  for (Number const value : {Number::world, Number::batch, Number::sequence, Number::accumulation,
                             Number::global_batch, Number::params, Number::trainable_params, Number::seed})
    if (Json const* const number = config.find(std::string(column_of(value).name));
        number && number->is_number())
      row[value] = number->get<double>();
}

void summarize_training(Reader const& summary, Row& row) {
  row[Number::median_tokens_per_sec] = summary.number("avg_tokens_per_sec");
  for (Number const number :
       {Number::avg_step_time_s, Number::step_to_step_std_s, Number::spread_pct, Number::train_time_s,
        Number::mfu_pct, Number::avg_gpu_util_pct, Number::avg_power_w, Number::peak_power_w,
        Number::energy_j, Number::library_mb})
    row[number] = summary.number(std::string(column_of(number).name));
  row[Number::temp_end_c] = summary.number("temp_end_c", true);
  row[Word::weights_hash] = summary.text("weights_hash");
  row.unsteady = summary.boolean("unsteady");
  if (summary.boolean("interrupted").value_or(false)) row[Word::reason] = "interrupted";
}

}  // namespace

void read_training_log(std::string const& name, std::string_view text, std::string const& stem,
                       Inputs& inputs) {
  Source source;
  source.kind = Kind::training;
  source.path = name;
  Row row;
  row.source = inputs.sources.size();
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
      throw Error(ErrorKind::data,
                  name + ": " + place +
                      "is not a JSON object; remove the line if it was cut off, or give another file");
    Reader const reader(name, place, record);
    if (auto const config = reader.object("config")) {
      source.version = version_of(name, record, 1);
      describe_training(row, *config);
      source.command = reader.text("command");
      if (auto const bytes = reader.object("planned_bytes"))
        if (auto const device = bytes->number("device"))
          row[Number::planned_gpu_mem_mb] = *device / 1048576.0;
      source.environment.clear();
      if (Json const* const environment = reader.find("environment")) take_environment(*environment, source);
    } else if (auto const summary = reader.object("summary")) {
      summarize_training(*summary, row);
      summarized = true;
    } else if (record.contains("step")) {
      auto const step = reader.number("step");
      if (!step || *step < 1.0) reader.fail("'step' is not the number of a step");
      auto const at = static_cast<std::size_t>(*step);
      // A run that resumed from a checkpoint possibly wrote some steps twice. The later line of a step
      // replaces the earlier one.
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
    throw Error(ErrorKind::data, name + ": is not a log of train, because it has no step; " + kinds);
  row[Number::steps] = static_cast<double>(row.losses.size());
  if (seconds.size() > 1) {
    seconds.erase(seconds.begin());  // the time of the first step includes start-up work
    row[Number::median_step_time_s] = cli::median(seconds);
  }
  if (!summarized) {
    row[Word::reason] = "its log has no summary: the run is still running, or was killed";
    source.notes.push_back(row[Word::reason]);
    if (seconds.size() > 1) {
      double const mean = cli::mean(seconds), deviation = cli::deviation(seconds);
      double const tokens = rates.back() * seconds.back();
      row[Number::avg_step_time_s] = mean;
      row[Number::median_tokens_per_sec] = tokens / mean;
      row[Number::step_to_step_std_s] = deviation;
      row[Number::spread_pct] = 100.0 * deviation / mean;
      row.unsteady = deviation > cli::steady_share * mean;
    }
  }
  auto const known = [](auto const& loss) { return loss.has_value(); };
  auto const first = std::find_if(row.losses.begin(), row.losses.end(), known);
  auto const last = std::find_if(row.losses.rbegin(), row.losses.rend(), known);
  if (first != row.losses.end()) row[Number::first_loss] = *first;
  if (last != row.losses.rend()) row[Number::final_loss] = *last;
  source.rows = 1;
  check_rate(row, source);
  inputs.sources.push_back(std::move(source));
  inputs.rows.push_back(std::move(row));
}

}  // namespace reporting
}  // namespace programs
