// SPDX-License-Identifier: Apache-2.0
#include "plan/rows.hpp"

#include <cmath>
#include <cstddef>
#include <utility>

#include "cli/outputs.hpp"
#include "cli/values.hpp"
#include "plan/advice.hpp"
#include "workload/data.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

using cli::Json;

Json limit_json(std::int64_t bytes) { return bytes == MemoryLimit::none ? Json(nullptr) : Json(bytes); }

/// Returns the result of a search for the largest batch or the longest sequence as text: "37"; "none" if
/// nothing fits; or, if the search ran out of time, "37+" (more possibly fits) or "?".
std::string count_text(Largest const& found) {
  if (found.value == 0) return found.exact ? "none" : "?";
  return std::to_string(found.value) + (found.exact ? "" : "+");
}

}  // namespace

results::Row to_json(Planned const& row, MemoryLimit const& limit, Planned const* picked) {
  Json json = Json::object();
  cli::describe_point(json, row.point);
  json["params"] = row.params;
  json["trainable_params"] = row.trainable;
  json["status"] = row.status;
  json["reason"] = cli::or_null(row.reason);
  json["limit_device_bytes"] = limit_json(limit.device);
  json["limit_host_bytes"] = limit_json(limit.host);
  json["limit_nvme_bytes"] = limit_json(limit.nvme);
  json["picked"] = picked == &row;
  json["same_program_as"] = cli::or_null(row.same_program_as);
  if (!row.is_planned()) return json;
  json["planned_gpu_mem_mb"] = cli::mebibytes(row.on(Tier::device));
  json["planned_host_mem_mb"] = cli::mebibytes(row.on(Tier::host));
  json["planned_nvme_mb"] = cli::mebibytes(row.on(Tier::nvme));
  json["all_ranks_bytes"] = row.footprint.total;
  json["all_ranks_nvme_bytes"] = row.footprint.nvme;
  Json places = Json::object();
  for (std::size_t tier = 0; tier < tier_count; ++tier) {
    Json place = Json::object();
    for (auto const& category : row.memory.categories) place[category.name] = category.bytes[tier];
    place["total"] = row.memory.total[tier];
    places[std::string(name_of(Tier{static_cast<std::uint8_t>(tier)}))] = std::move(place);
  }
  json["bytes"] = std::move(places);
  auto const found = [&](std::string const& name, Largest const& largest) {
    json[name] = largest.value > 0 ? Json(largest.value) : Json(nullptr);
    json[name + "_exact"] = largest.exact;  // if false, a larger value possibly fits
  };
  found("largest_batch", row.largest_batch);
  found("longest_sequence", row.longest_sequence);
  json["schedule_hash"] = row.schedule_hash;
  auto const rate = row.predicted.tokens_per_second();
  json["predicted_step_time_s"] = rate ? Json(*row.predicted.step_s) : Json(nullptr);
  json["predicted_tokens_per_sec"] = cli::or_null(rate);
  json["predicted_tokens_per_sec_per_gib"] = cli::or_null(efficiency(row));
  json["predicted_guessed_pct"] = rate ? Json(100.0 * row.predicted.guessed) : Json(nullptr);
  json["predicted_from_link_data"] = rate ? Json(row.predicted.from_link_data) : Json(nullptr);
  json["predicted_error_pct"] =
      rate && !row.predicted.is_mostly_guessed() ? Json(row.predicted.error_pct) : Json(nullptr);
  json["predicted_slower"] = cli::or_null(row.slower);
  std::int64_t const steps = cli::steps_of_epoch(row.epoch_samples, row.point.split.global());
  bool const epoch = row.epoch_samples > 0;
  json["epoch_samples"] = epoch ? Json(row.epoch_samples) : Json(nullptr);
  json["epoch_steps"] = epoch ? Json(steps) : Json(nullptr);
  json["predicted_epoch_time_s"] =
      epoch && rate ? Json(static_cast<double>(steps) * *row.predicted.step_s) : Json(nullptr);
  json["prediction_reason"] = cli::or_null(row.predicted.reason);
  return json;
}

std::vector<results::Row> result_rows(std::vector<Planned> const& rows) {
  std::vector<results::Row> list;
  for (Planned const& row : rows) {
    results::Row& json = list.emplace_back(results::empty_row());
    cli::describe_point(json, row.point);
    json["status"] = row.status;
    if (!row.is_planned()) continue;
    json["planned_gpu_mem_mb"] = cli::mebibytes(row.on(Tier::device));
    json["planned_host_mem_mb"] = cli::mebibytes(row.on(Tier::host));
    if (auto const rate = row.predicted.tokens_per_second()) {
      json["predicted_step_time_s"] = *row.predicted.step_s;
      json["predicted_tokens_per_sec"] = *rate;
    }
  }
  return list;
}

std::string size_text(std::int64_t bytes) {
  if (bytes >= 1024 * 1024 || bytes < 1024) return bytes_text(bytes);
  return cli::fixed(static_cast<double>(bytes) / 1024.0, 1) + " KiB";
}

std::string row_text(Planned const& row, bool first, Settings const& settings, cli::Terminal const& terminal,
                     cli::Names& left_out) {
  constexpr std::size_t size = 11;  // "1023.5 MiB "
  std::vector<cli::Table::Column> columns = {
      {"stage", false, 100}, {"offload", false, 100, 13}, {"place", false, 9, 6}};
  for (char const* name : {"parameters", "gradients", "optimizer", "activations"})
    columns.push_back({name, true, 5, size});
  columns.push_back({"workspace", true, 2, size});
  columns.push_back({"bookkeeping", true, 1, size});
  if (settings.checkpoint_async) {
    columns.push_back({"staging", true, 3, size});
    columns.push_back({"snapshot", true, 4, size});
  }
  columns.push_back({"a rank", true, 90, size});
  columns.push_back({"all ranks", true, 8, size});
  columns.push_back({"fits", false, 100});
  if (settings.times) {
    columns.push_back({"ms/step", true, 50, 9});
    columns.push_back({"slower", true, 40, 7});
    columns.push_back({"tok/s", true, 60, 11});
  }
  if (!settings.no_search) {
    columns.push_back({"batch up to", true, 7});
    columns.push_back({"sequence up to", true, 6});
  }
  cli::Table table(std::move(columns));
  if (first) table.heading(row.point.group());
  cli::Names const head = {std::string(row.point.recipe.names.sharding),
                           std::string(row.point.recipe.names.offload)};
  if (!row.is_planned()) table.text_row(head, row.status + ": " + row.reason);
  for (std::size_t tier = 0; tier < tier_count && row.is_planned(); ++tier) {
    if (tier > 0 && row.memory.total[tier] == 0) continue;
    cli::Names cells = tier == 0 ? head : cli::Names{"", ""};
    cells.emplace_back(name_of(Tier{static_cast<std::uint8_t>(tier)}));
    for (auto const& category : row.memory.categories)
      cells.push_back(category.bytes[tier] == 0 ? "-" : size_text(category.bytes[tier]));
    cells.push_back(size_text(row.memory.total[tier]));
    cells.push_back(tier == 0                                      ? size_text(row.footprint.total)
                    : tier == static_cast<std::size_t>(Tier::nvme) ? size_text(row.footprint.nvme)
                                                                   : "");
    cells.push_back(tier == 0 ? (row.fits() ? "yes" : "no") : "");
    if (settings.times) {
      auto const rate = tier == 0 ? row.predicted.tokens_per_second() : std::nullopt;
      cells.push_back(rate ? cli::fixed(*row.predicted.step_s * 1e3, 1) : tier == 0 ? "-" : "");
      cells.push_back(tier > 0 ? "" : row.slower ? "x" + cli::fixed(*row.slower, 2) : "-");
      bool const guessed = row.predicted.guesses_much();
      cells.push_back(rate ? (guessed ? "~" : "") + cli::grouped(std::llround(*rate)) : tier == 0 ? "-" : "");
    }
    if (!settings.no_search) {
      cells.push_back(tier == 0 ? count_text(row.largest_batch) : "");
      cells.push_back(tier == 0 ? count_text(row.longest_sequence) : "");
    }
    table.row(std::move(cells));
  }
  for (auto const& name : table.left_out(terminal)) left_out.push_back(name);
  left_out = cli::distinct(left_out);
  return table.text(terminal, first);
}

}  // namespace planning
}  // namespace programs
