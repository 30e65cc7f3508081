// SPDX-License-Identifier: Apache-2.0
// Lists the columns of results, one line each. The members that a program sets, JSON, CSV, the JSON Schema
// and the defaults of rows follow from these lines.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace results {

/// One measured configuration: a JSON object in the order of `row_fields`, then fields of its own. An absent
/// measurement is null, never 0.
using Row = nlohmann::ordered_json;

// clang-format off
namespace column {

// The types of the values of columns.
using text = std::string;
using maybe_text = std::optional<std::string>;
using whole = std::int64_t;
using maybe_whole = std::optional<std::int64_t>;
using seed = std::uint64_t;
using number = std::optional<double>;
using truth = std::optional<bool>;
using numbers = std::optional<std::vector<std::optional<double>>>;
struct stage {};  ///< a whole number, or a name
struct choice {   ///< one of the names that the column lists
  std::string name{};
};

}  // namespace column

/// The columns that every row has, in this order: COLUMN(kind, type of column::, name, about). A `described`
/// column says what was run. A `measured` column is a member of Measurements. Times in seconds, `_mb` in 2^20
/// bytes and the largest over ranks, rates over all ranks, `_w` watts, `_j` joules, `_c` degrees Celsius.
#define TESSERA_RESULT_COLUMNS(COLUMN) \
  COLUMN(described, text, experiment, "") \
  COLUMN(described, text, model, "") \
  COLUMN(measured, maybe_whole, params, "") \
  COLUMN(described, stage, stage, "the ZeRO stage, or the name of a sharding that is none") \
  COLUMN(described, text, sharding, "") \
  COLUMN(described, text, precision, "") \
  COLUMN(described, text, offload, "") \
  COLUMN(described, text, recompute, "") \
  COLUMN(described, text, reduction, "") \
  COLUMN(described, text, capture, "") \
  COLUMN(measured, maybe_text, attention, "what ran; null where nothing did") \
  COLUMN(described, whole, world, "") \
  COLUMN(described, whole, batch, "") \
  COLUMN(described, whole, sequence, "") \
  COLUMN(described, whole, accumulation, "") \
  COLUMN(described, whole, global_batch, "") \
  COLUMN(measured, whole, repeats, "") \
  COLUMN(measured, choice, status, "ok|oom|refused|failed") \
  COLUMN(measured, maybe_text, reason, "null where the status is ok") \
  COLUMN(measured, number, median_tokens_per_sec, "median over repeats; all ranks together") \
  COLUMN(measured, number, std_tokens_per_sec, "standard deviation over repeats") \
  COLUMN(measured, number, tokens_per_sec_per_rank, "") \
  COLUMN(measured, number, avg_step_time_s, "mean of all timed steps") \
  COLUMN(measured, number, median_step_time_s, "median over repeats of the median step") \
  COLUMN(measured, number, std_step_time_s, "standard deviation over repeats") \
  COLUMN(measured, number, samples_per_sec, "") \
  COLUMN(measured, number, total_time_s, "") \
  COLUMN(measured, number, train_time_s, "") \
  COLUMN(measured, number, first_step_s, "time of the first step") \
  COLUMN(measured, number, peak_gpu_mem_mb, "high-water mark of the arena of the device") \
  COLUMN(measured, number, planned_gpu_mem_mb, "planned size of the arena of the device") \
  COLUMN(measured, number, arena_mb, "mapped size of the arena of the device") \
  COLUMN(measured, number, library_mb, "device memory besides what Tessera allocated") \
  COLUMN(measured, number, host_mem_mb, "arena of the host") \
  COLUMN(measured, number, nvme_mb, "") \
  COLUMN(measured, maybe_whole, comm_bytes_per_step, "bytes sent by the busiest rank") \
  COLUMN(measured, number, comm_time_s, "") \
  COLUMN(measured, number, comm_exposed_s, "time of collectives that no computation hides, in a step") \
  COLUMN(measured, number, avg_gpu_util_pct, "") \
  COLUMN(measured, number, avg_cpu_util_pct, "") \
  COLUMN(measured, number, peak_power_w, "") \
  COLUMN(measured, number, avg_power_w, "") \
  COLUMN(measured, number, energy_j, "") \
  COLUMN(measured, number, temp_start_c, "") \
  COLUMN(measured, number, temp_end_c, "") \
  COLUMN(measured, number, mfu_pct, "") \
  COLUMN(measured, number, speedup, "") \
  COLUMN(measured, number, scaling_efficiency, "") \
  COLUMN(measured, number, first_loss, "") \
  COLUMN(measured, number, final_loss, "") \
  COLUMN(measured, numbers, losses, "") \
  COLUMN(measured, numbers, grad_norms, "") \
  COLUMN(measured, maybe_text, weights_hash, "hash of the final weights") \
  COLUMN(measured, maybe_text, same_program_as, "the row with an identical schedule") \
  COLUMN(measured, seed, seed, "") \
  COLUMN(measured, number, planned_host_mem_mb, "") \
  COLUMN(measured, number, process_mem_mb, "") \
  COLUMN(measured, number, comm_waiting_s, "time spent waiting for other ranks, in a step") \
  COLUMN(measured, maybe_text, speedup_against, "the experiment that `speedup` divides by") \
  COLUMN(measured, maybe_whole, steps, "") \
  COLUMN(measured, maybe_whole, warmup, "") \
  COLUMN(measured, maybe_whole, skipped_steps, "") \
  COLUMN(measured, maybe_whole, timed_skipped_steps, "skipped steps among the timed ones, in all repeats") \
  COLUMN(measured, maybe_text, schedule_hash, "hash of the schedule of a step") \
  COLUMN(measured, maybe_whole, trainable_params, "") \
  COLUMN(measured, number, planned_nvme_mb, "") \
  COLUMN(measured, number, nvme_read_mb, "read in a step by one rank") \
  COLUMN(measured, number, nvme_write_mb, "written in a step by one rank") \
  COLUMN(measured, maybe_text, nvme_engine, "how files are read and written") \
  COLUMN(measured, choice, samples_are, "tokens|lines|records") \
  COLUMN(measured, number, padding_pct, "share of positions with a masked target") \
  COLUMN(measured, number, final_loss_with_padding, "loss of the last step, with each masked target counted as 0") \
  COLUMN(measured, maybe_whole, epochs, "epochs of a row whose length is given in epochs") \
  COLUMN(measured, maybe_whole, samples, "samples of an epoch") \
  COLUMN(measured, number, avg_epoch_time_s, "") \
  COLUMN(measured, numbers, epoch_times_s, "") \
  COLUMN(measured, numbers, epoch_samples_per_sec, "") \
  COLUMN(measured, number, first_epoch_loss, "") \
  COLUMN(measured, number, final_epoch_loss, "") \
  COLUMN(measured, numbers, epoch_losses, "") \
  COLUMN(measured, numbers, epoch_losses_with_padding, "") \
  COLUMN(measured, number, step_to_step_std_s, "standard deviation within a repeat") \
  COLUMN(measured, number, spread_pct, "of the rate: over repeats; with one repeat, from step to step") \
  COLUMN(measured, truth, unsteady, "steps or repeats vary by more than 5%") \
  COLUMN(measured, number, speedup_uncertainty, "") \
  COLUMN(measured, number, allocated_mb, "device memory of arenas after the last step") \
  COLUMN(measured, maybe_text, mfu_against, "the source of the peak rate that `mfu_pct` divides by: documented or measured") \
  COLUMN(measured, maybe_text, product_plans, "library or measured: how algorithms of matrix products were chosen") \
  COLUMN(measured, maybe_whole, measured_products, "matrix products with a measured plan") \
  COLUMN(measured, maybe_whole, hashed_steps, "steps before `weights_hash` was taken") \
  COLUMN(measured, number, predicted_step_time_s, "predicted before the row ran, from times of the machine") \
  COLUMN(measured, number, predicted_tokens_per_sec, "") \
  COLUMN(measured, number, predicted_guessed_pct, "share of the predicted time in kinds of work that were not measured") \
  COLUMN(measured, number, prediction_error_pct, "error of the predicted rate relative to the measured rate") \
  COLUMN(measured, number, other_cpu_util_pct, "CPU use of other programs during the timed steps") \
  COLUMN(measured, truth, disturbed, "other programs used too much CPU for the rate to be ranked")
// clang-format on

/// The names of the columns.
#define TESSERA_NAME(kind, type, name, about) #name,
inline constexpr auto row_fields = std::to_array<std::string_view>({TESSERA_RESULT_COLUMNS(TESSERA_NAME)});
#undef TESSERA_NAME

/// What a program measures of a row.
struct Measurements {
#define TESSERA_MEMBER_measured(type, name) column::type name{};
#define TESSERA_MEMBER_described(type, name)
#define TESSERA_MEMBER(kind, type, name, about) TESSERA_MEMBER_##kind(type, name)
  TESSERA_RESULT_COLUMNS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
#undef TESSERA_MEMBER_described
#undef TESSERA_MEMBER_measured
};

namespace detail {

inline Row to_json(std::string const& value) { return value; }
inline Row to_json(std::int64_t value) { return value; }
inline Row to_json(std::uint64_t value) { return value; }
inline Row to_json(double value) { return value; }
inline Row to_json(bool value) { return value; }
inline Row to_json(column::choice const& value) { return value.name; }
inline Row to_json(std::vector<std::optional<double>> const& values) {
  Row list = Row::array();
  for (std::optional<double> const& value : values) list.push_back(value ? Row(*value) : Row(nullptr));
  return list;
}
template <class T>
Row to_json(std::optional<T> const& value) {
  return value ? to_json(*value) : Row(nullptr);
}

// The JSON Schema of a column's values, by its type.

inline Row type_schema(column::text const&, std::string_view) { return {{"type", "string"}}; }
inline Row type_schema(column::maybe_text const&, std::string_view) { return {{"type", {"string", "null"}}}; }
inline Row type_schema(column::whole const&, std::string_view) { return {{"type", "integer"}}; }
inline Row type_schema(column::maybe_whole const&, std::string_view) {
  return {{"type", {"integer", "null"}}};
}
inline Row type_schema(column::seed const&, std::string_view) { return {{"type", "integer"}}; }
inline Row type_schema(column::number const&, std::string_view) { return {{"type", {"number", "null"}}}; }
inline Row type_schema(column::truth const&, std::string_view) { return {{"type", {"boolean", "null"}}}; }
inline Row type_schema(column::numbers const&, std::string_view) {
  return {{"type", {"array", "null"}}, {"items", {{"type", {"number", "null"}}}}};
}
inline Row type_schema(column::stage const&, std::string_view) { return {{"type", {"integer", "string"}}}; }
inline Row type_schema(column::choice const&, std::string_view names) {
  Row list = Row::array();
  while (!names.empty()) {
    std::size_t const end = names.find('|');
    list.push_back(std::string(names.substr(0, end)));
    names.remove_prefix(end == names.npos ? names.size() : end + 1);
  }
  return {{"enum", std::move(list)}};
}
template <class Type>
Row column_schema(std::string_view about) {
  Row schema = type_schema(Type(), about);
  if (!about.empty() && !schema.contains("enum")) schema["description"] = std::string(about);
  return schema;
}

}  // namespace detail

/// A row with every column as null.
inline Row empty_row() {
  Row row = Row::object();
  for (std::string_view const field : row_fields) row[std::string(field)] = nullptr;
  return row;
}

/// Writes what was measured to its columns of a row.
inline void write(Row& row, Measurements const& measured) {
#define TESSERA_WRITE_measured(name) row[#name] = detail::to_json(measured.name);
#define TESSERA_WRITE_described(name)
#define TESSERA_WRITE(kind, type, name, about) TESSERA_WRITE_##kind(name)
  TESSERA_RESULT_COLUMNS(TESSERA_WRITE)
#undef TESSERA_WRITE
#undef TESSERA_WRITE_described
#undef TESSERA_WRITE_measured
}

/// The JSON Schema of each column, by its name.
inline Row column_schemas() {
  Row all = Row::object();
#define TESSERA_SCHEMA(kind, type, name, about) all[#name] = detail::column_schema<column::type>(about);
  TESSERA_RESULT_COLUMNS(TESSERA_SCHEMA)
#undef TESSERA_SCHEMA
  return all;
}

}  // namespace results
}  // namespace v0
}  // namespace tessera
