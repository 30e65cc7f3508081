// SPDX-License-Identifier: Apache-2.0
// Lists the columns of result files, one per line. The preprocessor generates from this list: the struct that
// a program fills, JSON, CSV, the JSON Schema, empty rows, the columns of the terminal, and the headers and
// units of pages.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/config.hpp"

namespace programs {
namespace results {

/// A row of a result file: one measured configuration. It is a JSON object with the fields of `columns`, in
/// their order, then additional fields. A measurement that is missing is null, never 0.
using Row = nlohmann::ordered_json;

namespace column {

// The value types of columns.
using text = std::string;
using maybe_text = std::optional<std::string>;
using integer = std::int64_t;
using maybe_integer = std::optional<std::int64_t>;
using seed = std::uint64_t;
using number = std::optional<double>;
using maybe_bool = std::optional<bool>;
using numbers = std::optional<std::vector<std::optional<double>>>;
struct stage {};  ///< the ZeRO stage: a whole number, or a name such as "dp"
struct choice {   ///< one of the names that the column's `about` lists
  std::string name{};
};

}  // namespace column

/// The unit in which pages show a column: its name, and the factor by which the stored value is multiplied.
struct Unit {
  std::string_view name{};
  double factor = 1.0;
};
namespace unit {
inline constexpr Unit tokens_per_second{"tokens/s"}, milliseconds{"ms", 1e3}, megabytes{"MB"},
    megabytes_of_bytes{"MB", 1.0 / 1048576.0}, percent{"%"}, percent_of_share{"%", 100.0}, watts{"W"},
    joules{"J"}, celsius{"C"}, seconds{"s"}, tokens_per_second_per_gb{"tokens/s per GB"},
    gigabytes_per_second{"GB/s"};
}  // namespace unit

/// The rows that a table marks as the best ones of a column: the rows with the smallest value, the fastest
/// rows, or the rows with the most tokens per second for their memory.
enum class Best : std::uint8_t { none, least, fastest, most_efficient };

/// The properties of a column in the terminal output of `compare`.
struct TerminalColumn {
  std::string_view header{};  ///< with its unit; empty: the terminal does not show the column
  int importance = 0;         ///< a narrow terminal leaves out the least important columns
  int decimals = 0;
  Best best = Best::none;
  std::string_view after{};  ///< the column to the left; empty: the order of `columns` decides
};

struct Measurements;

/// The properties of one column of result files.
struct Column {
  std::string_view name;     ///< the key in JSON and the header in CSV
  std::string_view about{};  ///< description in the JSON Schema; for the type `choice`, its names
  std::string_view title{};  ///< the header on pages; empty: the name with spaces
  Unit unit{};               ///< on pages, and for the number on the terminal
  bool is_signed = false;    ///< whether negative numbers are legal
  TerminalColumn terminal{};
  /// Returns the value of a measured number in `row`; null if the column is not a measured number.
  std::optional<double> (*number)(Measurements const& row) = nullptr;
};

// clang-format off
/// The columns of every row, in order. The arguments of COLUMN are a kind, a type of namespace `column`, a
/// name, and initialisers for members of Column. A column of the kind `described` says what ran. A column of
/// the kind `measured` becomes a member of Measurements. Times are in seconds. Values with `_mb` are in 2^20
/// bytes, the maximum over ranks. Rates count the work of all ranks. `_w` means watts, `_j` joules, `_c`
/// degrees Celsius.
#define TESSERA_RESULT_COLUMNS(COLUMN) \
  COLUMN(described, text, experiment, .about = "") \
  COLUMN(described, text, model, .about = "") \
  COLUMN(measured, maybe_integer, params, .about = "") \
  COLUMN(described, stage, stage, .about = "the ZeRO stage, or the name of a sharding that is not a stage") \
  COLUMN(described, text, sharding, .about = "") \
  COLUMN(described, text, precision, .about = "") \
  COLUMN(described, text, offload, .about = "") \
  COLUMN(described, text, recompute, .about = "") \
  COLUMN(described, text, reduction, .about = "") \
  COLUMN(described, text, capture, .about = "") \
  COLUMN(measured, maybe_text, attention, .about = "the attention that ran; null if nothing ran") \
  COLUMN(described, integer, world, .about = "", .title = "ranks") \
  COLUMN(described, integer, batch, .about = "") \
  COLUMN(described, integer, sequence, .about = "") \
  COLUMN(described, integer, accumulation, .about = "", .title = "accum.") \
  COLUMN(described, integer, global_batch, .about = "") \
  COLUMN(measured, integer, repeats, .about = "") \
  COLUMN(measured, choice, status, .about = "ok|oom|refused|failed") \
  COLUMN(measured, maybe_text, reason, .about = "null if the status is ok") \
  COLUMN(measured, number, median_tokens_per_sec, .about = "median over repeats; all ranks together", \
         .title = "throughput", .unit = unit::tokens_per_second, .terminal = {"tok/s", 9, 0, Best::fastest}) \
  COLUMN(measured, number, std_tokens_per_sec, .about = "standard deviation over repeats", \
         .terminal = {"+-", 8, 0}) \
  COLUMN(measured, number, tokens_per_sec_per_rank, .about = "") \
  COLUMN(measured, number, avg_step_time_s, .about = "mean of all timed steps", .unit = unit::milliseconds, \
         .terminal = {"ms/step", 7, 1, Best::fastest}) \
  COLUMN(measured, number, median_step_time_s, .about = "median over repeats of the median step", \
         .title = "step", .unit = unit::milliseconds) \
  COLUMN(measured, number, std_step_time_s, .about = "standard deviation over repeats") \
  COLUMN(measured, number, samples_per_sec, .about = "") \
  COLUMN(measured, number, total_time_s, .about = "", .title = "total time", .unit = unit::seconds, \
         .terminal = {"total\ns", 2, 1, Best::none, "train_time_s"}) \
  COLUMN(measured, number, train_time_s, .about = "", .title = "training time", .unit = unit::seconds, \
         .terminal = {"train\ns", 2, 1, Best::none, "first_step_s"}) \
  COLUMN(measured, number, first_step_s, .about = "time of the first step", \
         .terminal = {"first\nstep s", 1, 2, Best::none, "avg_cpu_util_pct"}) \
  COLUMN(measured, number, peak_gpu_mem_mb, .about = "high-water mark of the arena of the device", \
         .title = "peak", .unit = unit::megabytes, .terminal = {"device\nMB/rank", 8, 2, Best::least}) \
  COLUMN(measured, number, planned_gpu_mem_mb, .about = "planned size of the arena of the device", \
         .title = "planned", .unit = unit::megabytes) \
  COLUMN(measured, number, arena_mb, .about = "mapped size of the arena of the device") \
  COLUMN(measured, number, library_mb, .about = "device memory besides what Tessera allocated", \
         .title = "libraries", .unit = unit::megabytes) \
  COLUMN(measured, number, host_mem_mb, .about = "arena of the host", .title = "host", .unit = unit::megabytes, \
         .terminal = {"host\nMB/rank", 6, 2}) \
  COLUMN(measured, number, nvme_mb, .about = "", .title = "NVMe", .unit = unit::megabytes, \
         .terminal = {"NVMe\nMB/rank", 4, 2}) \
  COLUMN(measured, maybe_integer, comm_bytes_per_step, .about = "bytes sent by the busiest rank", \
         .title = "sent a step", .unit = unit::megabytes_of_bytes, \
         .terminal = {"sent\nMB/step", 5, 2, Best::least}) \
  COLUMN(measured, number, comm_time_s, .about = "", .unit = unit::milliseconds, \
         .terminal = {"comm\nms/step", 4, 1}) \
  COLUMN(measured, number, comm_exposed_s, .about = "time of collectives that no computation hides, in a step") \
  COLUMN(measured, number, avg_gpu_util_pct, .about = "", .title = "GPU use", .unit = unit::percent, \
         .terminal = {"GPU\n%", 3, 0}) \
  COLUMN(measured, number, avg_cpu_util_pct, .about = "", .title = "CPU use", .unit = unit::percent, \
         .terminal = {"CPU\n%", 2, 0}) \
  COLUMN(measured, number, peak_power_w, .about = "") \
  COLUMN(measured, number, avg_power_w, .about = "", .title = "power", .unit = unit::watts) \
  COLUMN(measured, number, energy_j, .about = "", .title = "energy", .unit = unit::joules) \
  COLUMN(measured, number, temp_start_c, .about = "") \
  COLUMN(measured, number, temp_end_c, .about = "", .title = "temperature", .unit = unit::celsius, \
         .is_signed = true) \
  COLUMN(measured, number, mfu_pct, .about = "", .title = "MFU", .unit = unit::percent, \
         .terminal = {"MFU\n%", 5, 1, Best::none, "avg_step_time_s"}) \
  COLUMN(measured, number, speedup, .about = "", \
         .terminal = {"speedup", 6, 2, Best::none, "std_tokens_per_sec"}) \
  COLUMN(measured, number, scaling_efficiency, .about = "", .title = "scaling", .unit = unit::percent_of_share) \
  COLUMN(measured, number, first_loss, .about = "", .is_signed = true, .terminal = {"first\nloss", 3, 4}) \
  COLUMN(measured, number, final_loss, .about = "", .is_signed = true, .terminal = {"final\nloss", 7, 4}) \
  COLUMN(measured, numbers, losses, .about = "") \
  COLUMN(measured, numbers, grad_norms, .about = "") \
  COLUMN(measured, maybe_text, weights_hash, .about = "hash of the final weights") \
  COLUMN(measured, maybe_text, same_program_as, .about = "the row with an identical schedule") \
  COLUMN(measured, seed, seed, .about = "", .is_signed = true) \
  COLUMN(measured, number, planned_host_mem_mb, .about = "", .title = "planned host", .unit = unit::megabytes) \
  COLUMN(measured, number, process_mem_mb, .about = "", .title = "process", .unit = unit::megabytes) \
  COLUMN(measured, number, comm_waiting_s, .about = "time spent waiting for other ranks, in a step") \
  COLUMN(measured, maybe_text, speedup_against, .about = "the experiment that `speedup` divides by") \
  COLUMN(measured, maybe_integer, steps, .about = "") \
  COLUMN(measured, maybe_integer, warmup, .about = "") \
  COLUMN(measured, maybe_integer, skipped_steps, .about = "") \
  COLUMN(measured, maybe_integer, timed_skipped_steps, .about = "skipped steps among the timed ones, in all repeats") \
  COLUMN(measured, maybe_text, schedule_hash, .about = "hash of the schedule of a step") \
  COLUMN(measured, maybe_integer, trainable_params, .about = "") \
  COLUMN(measured, number, planned_nvme_mb, .about = "", .title = "planned NVMe", .unit = unit::megabytes) \
  COLUMN(measured, number, nvme_read_mb, .about = "read in a step by one rank", \
         .terminal = {"read\nMB/step", 4, 2, Best::none, "nvme_mb"}) \
  COLUMN(measured, number, nvme_write_mb, .about = "written in a step by one rank", \
         .terminal = {"written\nMB/step", 4, 2, Best::none, "nvme_read_mb"}) \
  COLUMN(measured, maybe_text, nvme_engine, .about = "how files are read and written") \
  COLUMN(measured, choice, samples_are, .about = "tokens|lines|records") \
  COLUMN(measured, number, padding_pct, .about = "share of positions with a masked target") \
  COLUMN(measured, number, final_loss_with_padding, .about = "loss of the last step, with each masked target counted as 0") \
  COLUMN(measured, maybe_integer, epochs, .about = "epochs of a row whose length is given in epochs") \
  COLUMN(measured, maybe_integer, samples, .about = "samples of an epoch") \
  COLUMN(measured, number, avg_epoch_time_s, .about = "", .terminal = {"s/epoch", 8, 2}) \
  COLUMN(measured, numbers, epoch_times_s, .about = "") \
  COLUMN(measured, numbers, epoch_samples_per_sec, .about = "") \
  COLUMN(measured, number, first_epoch_loss, .about = "", .terminal = {"loss of\nepoch 1", 6, 4}) \
  COLUMN(measured, number, final_epoch_loss, .about = "", .terminal = {"of the\nlast", 6, 4}) \
  COLUMN(measured, numbers, epoch_losses, .about = "") \
  COLUMN(measured, numbers, epoch_losses_with_padding, .about = "") \
  COLUMN(measured, number, step_to_step_std_s, .about = "standard deviation within a repeat") \
  COLUMN(measured, number, spread_pct, .about = "of the rate: over repeats; with one repeat, from step to step") \
  COLUMN(measured, maybe_bool, unsteady, .about = "steps or repeats vary by more than 5%") \
  COLUMN(measured, number, speedup_uncertainty, .about = "") \
  COLUMN(measured, number, allocated_mb, .about = "device memory of arenas after the last step") \
  COLUMN(measured, maybe_text, mfu_against, .about = "the source of the peak rate that `mfu_pct` divides by: documented or measured") \
  COLUMN(measured, maybe_text, product_plans, .about = "library or measured: how algorithms of matrix products were chosen") \
  COLUMN(measured, maybe_integer, measured_products, .about = "matrix products with a measured plan") \
  COLUMN(measured, maybe_integer, hashed_steps, .about = "steps before `weights_hash` was taken") \
  COLUMN(measured, number, predicted_step_time_s, .about = "predicted before the row ran, from times of the machine") \
  COLUMN(measured, number, predicted_tokens_per_sec, .about = "", .title = "predicted", \
         .unit = unit::tokens_per_second, \
         .terminal = {"predicted\ntok/s", 7, 0, Best::none, "median_tokens_per_sec"}) \
  COLUMN(measured, number, predicted_guessed_pct, .about = "share of the predicted time in kinds of work that were not measured") \
  COLUMN(measured, number, prediction_error_pct, .about = "error of the predicted rate relative to the measured rate", \
         .title = "prediction off", .unit = unit::percent, .is_signed = true, \
         .terminal = {"off\n%", 6, 1, Best::none, "predicted_tokens_per_sec"}) \
  COLUMN(measured, number, other_cpu_util_pct, .about = "CPU use of other programs during the timed steps") \
  COLUMN(measured, maybe_bool, disturbed, .about = "other programs used too much CPU for the rate to be ranked") \
  COLUMN(measured, number, efficiency, .about = "median_tokens_per_sec per 2^30 bytes of peak_gpu_mem_mb; on the CPU also of host_mem_mb", \
         .unit = unit::tokens_per_second_per_gb, \
         .terminal = {"tok/s\nper GB", 6, 0, Best::most_efficient, "peak_gpu_mem_mb"}) \
  COLUMN(measured, number, memory_saved_pct, .about = "memory saved against the row `speedup_against`, of the same parts as efficiency", \
         .title = "memory saved", .unit = unit::percent, .is_signed = true, \
         .terminal = {"saved\n%", 5, 1, Best::none, "efficiency"}) \
  COLUMN(measured, number, loss_reduction_pct, .about = "how much lower the last loss is than the first", \
         .title = "loss reduction", .unit = unit::percent, .is_signed = true, \
         .terminal = {"lower\nby %", 2, 1, Best::none, "final_loss"}) \
  COLUMN(measured, maybe_text, verdict, .about = "optimal, works, unnecessary, overkill, fallback, oom, or same program as X") \
  COLUMN(measured, number, cpu_time_s, .about = "CPU time of all threads in the timed steps", .title = "CPU time", \
         .unit = unit::seconds) \
  COLUMN(measured, number, gpu_busy_s, .about = "time in which GPUs were busy in the timed steps, summed over GPUs", \
         .title = "GPU time", .unit = unit::seconds) \
  COLUMN(measured, number, std_gpu_util_pct, .about = "standard deviation over repeats") \
  COLUMN(measured, number, device_limit_mb, .about = "device memory that a rank may use") \
  COLUMN(measured, number, nvme_gb_per_s, \
         .about = "10^9 bytes read and written per second of a busy disk lane, summed over ranks", \
         .title = "disk", .unit = unit::gigabytes_per_second, \
         .terminal = {"disk\nGB/s", 4, 2, Best::none, "nvme_write_mb"}) \
  COLUMN(measured, number, temp_min_c, .about = "lowest temperature of a GPU", .is_signed = true) \
  COLUMN(measured, number, temp_max_c, .about = "highest temperature of a GPU", .is_signed = true) \
  COLUMN(measured, numbers, peak_power_each_w, .about = "highest power of each GPU, in the order of ranks")
// clang-format on

/// The measured values of a row.
struct Measurements {
#define TESSERA_MEMBER_measured(type, name) column::type name{};
#define TESSERA_MEMBER_described(type, name)
#define TESSERA_MEMBER(kind, type, name, ...) TESSERA_MEMBER_##kind(type, name)
  TESSERA_RESULT_COLUMNS(TESSERA_MEMBER)
#undef TESSERA_MEMBER
#undef TESSERA_MEMBER_described
#undef TESSERA_MEMBER_measured
};

namespace detail {

template <class T, T Measurements::*member>
std::optional<double> number_of(Measurements const& row) {
  if constexpr (std::is_constructible_v<column::number, T>)
    return column::number(row.*member);
  else
    return std::nullopt;
}

}  // namespace detail

#define TESSERA_NUMBER_measured(type, name) &detail::number_of<column::type, &Measurements::name>
#define TESSERA_NUMBER_described(type, name) nullptr
#define TESSERA_COLUMN(kind, type, name_, ...) \
  Column{.name = #name_, __VA_ARGS__, .number = TESSERA_NUMBER_##kind(type, name_)},
/// The columns of a row, in order.
inline constexpr Column columns[] = {TESSERA_RESULT_COLUMNS(TESSERA_COLUMN)};
#undef TESSERA_COLUMN
#undef TESSERA_NUMBER_described
#undef TESSERA_NUMBER_measured

/// Returns the index of the column with this name; the number of columns if there is none. The result is an
/// index and not a pointer: under g++'s sanitizers a comparison of a pointer with null is not a constant
/// expression.
constexpr std::size_t column_index(std::string_view name) {
  std::size_t index = 0;
  while (index < std::size(columns) && columns[index].name != name) ++index;
  return index;
}
constexpr bool is_column(std::string_view name) { return column_index(name) < std::size(columns); }

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

// Each type_schema returns the JSON Schema of the values of one column type. The second argument is the
// column's `about`.

inline Row type_schema(column::text const&, std::string_view) { return {{"type", "string"}}; }
inline Row type_schema(column::maybe_text const&, std::string_view) { return {{"type", {"string", "null"}}}; }
inline Row type_schema(column::integer const&, std::string_view) { return {{"type", "integer"}}; }
inline Row type_schema(column::maybe_integer const&, std::string_view) {
  return {{"type", {"integer", "null"}}};
}
inline Row type_schema(column::seed const&, std::string_view) { return {{"type", "integer"}}; }
inline Row type_schema(column::number const&, std::string_view) { return {{"type", {"number", "null"}}}; }
inline Row type_schema(column::maybe_bool const&, std::string_view) {
  return {{"type", {"boolean", "null"}}};
}
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

/// Returns the columns that the terminal shows, in their order.
inline std::vector<Column const*> terminal_columns() {
  std::vector<Column const*> shown;
  auto const add = [&](auto const& self, std::string_view after) -> void {
    for (Column const& column : columns) {
      if (column.terminal.header.empty() || column.terminal.after != after) continue;
      shown.push_back(&column);
      self(self, column.name);
    }
  };
  add(add, "");
  return shown;
}

/// Returns a row with every column set to null.
inline Row empty_row() {
  Row row = Row::object();
  for (Column const& column : columns) row[std::string(column.name)] = nullptr;
  return row;
}

/// Writes the measured values to the columns of a row.
inline void write(Row& row, Measurements const& measured) {
#define TESSERA_WRITE_measured(name) row[#name] = detail::to_json(measured.name);
#define TESSERA_WRITE_described(name)
#define TESSERA_WRITE(kind, type, name, ...) TESSERA_WRITE_##kind(name)
  TESSERA_RESULT_COLUMNS(TESSERA_WRITE)
#undef TESSERA_WRITE
#undef TESSERA_WRITE_described
#undef TESSERA_WRITE_measured
}

/// Returns an object with the JSON Schema of each column.
inline Row column_schemas() {
  Row all = Row::object();
#define TESSERA_SCHEMA(kind, type, name, ...) \
  all[#name] = detail::column_schema<column::type>(columns[column_index(#name)].about);
  TESSERA_RESULT_COLUMNS(TESSERA_SCHEMA)
#undef TESSERA_SCHEMA
  return all;
}

}  // namespace results
}  // namespace programs
