// SPDX-License-Identifier: Apache-2.0
// Defines the data of a report: rows (one measured or planned configuration each), recordings of the program
// `monitor`, and the input files from which the rows and recordings come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "results/result_columns.hpp"

namespace programs {
namespace reporting {

// The fields that a report uses of result files and of files that the program `plan` wrote. The first list
// has the text fields ("words"), the second list the numeric fields. The report's CSV has its columns in this
// order.
// clang-format off
#define TESSERA_REPORT_WORDS(WORD) \
  WORD(experiment) WORD(model) WORD(device) WORD(sharding) WORD(precision) WORD(offload) WORD(recompute) \
  WORD(reduction) WORD(communication) WORD(capture) WORD(attention) WORD(attention_policy) WORD(loss_scale) \
  WORD(parallel) WORD(adapters) WORD(mesh) WORD(status) WORD(reason) WORD(weights_hash) WORD(same_program_as) \
  WORD(speedup_against) WORD(verdict)
#define TESSERA_REPORT_NUMBERS(NUMBER) \
  NUMBER(world) NUMBER(batch) NUMBER(sequence) NUMBER(accumulation) NUMBER(global_batch) NUMBER(params) \
  NUMBER(trainable_params) NUMBER(repeats) NUMBER(steps) NUMBER(warmup) NUMBER(skipped_steps) \
  NUMBER(median_tokens_per_sec) NUMBER(std_tokens_per_sec) NUMBER(tokens_per_sec_per_rank) \
  NUMBER(median_step_time_s) NUMBER(avg_step_time_s) NUMBER(std_step_time_s) NUMBER(step_to_step_std_s) \
  NUMBER(spread_pct) NUMBER(first_step_s) NUMBER(train_time_s) NUMBER(peak_gpu_mem_mb) \
  NUMBER(planned_gpu_mem_mb) NUMBER(host_mem_mb) NUMBER(planned_host_mem_mb) NUMBER(nvme_mb) \
  NUMBER(planned_nvme_mb) NUMBER(library_mb) NUMBER(process_mem_mb) NUMBER(comm_bytes_per_step) \
  NUMBER(comm_time_s) NUMBER(comm_exposed_s) NUMBER(comm_waiting_s) NUMBER(predicted_tokens_per_sec) \
  NUMBER(prediction_error_pct) NUMBER(mfu_pct) NUMBER(avg_gpu_util_pct) NUMBER(avg_cpu_util_pct) \
  NUMBER(avg_power_w) NUMBER(peak_power_w) NUMBER(energy_j) NUMBER(temp_end_c) NUMBER(speedup) \
  NUMBER(speedup_uncertainty) NUMBER(scaling_efficiency) NUMBER(first_loss) NUMBER(final_loss) \
  NUMBER(largest_batch) NUMBER(longest_sequence) NUMBER(seed) NUMBER(efficiency) NUMBER(memory_saved_pct) \
  NUMBER(loss_reduction_pct) NUMBER(total_time_s) NUMBER(cpu_time_s) NUMBER(gpu_busy_s) \
  NUMBER(std_gpu_util_pct) NUMBER(device_limit_mb) NUMBER(nvme_gb_per_s) NUMBER(predicted_slower) \
  NUMBER(predicted_epoch_time_s)
// clang-format on

#define TESSERA_NAME(name) name,
/// The text fields of a row. A field that is missing in a file is empty.
enum class Word { TESSERA_REPORT_WORDS(TESSERA_NAME) count };
/// The numeric fields of a row, in the units of result files.
enum class Number { TESSERA_REPORT_NUMBERS(TESSERA_NAME) count };
#undef TESSERA_NAME

/// All whole numbers up to this one are exact as a double.
inline constexpr double max_exact_integer = 9007199254740991.0;

/// Returns the key of a text field in result files.
std::string key_of(Word word);
/// Returns the column of a numeric field: its key in result files, and its unit on pages.
results::Column const& column_of(Number number);
/// Returns the column header of a numeric field on pages.
std::string header_of(Number number);

/// The planned memory of one rank: a list of categories, such as parameters or activations, with their bytes.
using Categories = std::vector<std::pair<std::string, double>>;

/// A published figure of a row, and our figure in the same unit.
struct PublishedFigure {
  std::string comparison;  ///< name of the published comparison
  std::string name;        ///< key of the figure, such as "tokens_per_sec"
  std::optional<double> published, published_deviation, ours, our_deviation, ratio;
  std::optional<double> planned;  ///< our planned or predicted figure, if the row did not run
};

/// One measured or planned configuration: a recipe with a model, a shape and a number of ranks.
struct Row {
  std::size_t source = 0;  ///< index into Inputs::sources
  std::array<std::string, static_cast<std::size_t>(Word::count)> words;
  std::array<std::optional<double>, static_cast<std::size_t>(Number::count)> numbers;
  std::optional<bool> unsteady, disturbed;
  /// rows of one file that ran the same schedule over the same buffers have the same value, the name of the
  /// first of these rows; empty if no other row ran the same
  std::string program;
  /// how much faster the fastest row with this value of `program` is than the slowest one, as a fraction
  double twins_differ = 0.0;
  std::vector<std::optional<double>> losses;  ///< losses of all steps, beginning with the first
  Categories categories;                      ///< of device memory; only in rows of `plan`
  std::vector<PublishedFigure> published;     ///< only in rows with the field `published`
  std::string published_cannot_be;            ///< why a published figure is impossible; empty if none is

  std::string& operator[](Word word) { return words[static_cast<std::size_t>(word)]; }
  std::string const& operator[](Word word) const { return words[static_cast<std::size_t>(word)]; }
  std::optional<double>& operator[](Number number) { return numbers[static_cast<std::size_t>(number)]; }
  std::optional<double> const& operator[](Number number) const {
    return numbers[static_cast<std::size_t>(number)];
  }

  bool ok() const { return (*this)[Word::status] == "ok"; }
  /// Returns whether pages mark the row's rate with "~". This is so if the rate varies much, or if other
  /// programs disturbed the row.
  bool is_unsteady() const { return unsteady.value_or(false) || disturbed.value_or(false); }
  /// Returns the median of the step times in seconds; the mean if the file has no median; nullopt if it has
  /// neither.
  std::optional<double> step_seconds() const;
  /// Returns the peak of the memory of a rank by which rows are compared (results::rank_memory_mb), in MB.
  std::optional<double> memory_mb() const;
};

enum class Kind { comparison, training, step_logs, plan, recording, rivals };

/// An input of a report: a file or folder that was read.
struct Source {
  Kind kind = Kind::comparison;
  std::string path;   ///< as on the command line, without unprintable characters
  std::string label;  ///< unique among the sources
  std::int64_t version = 0;
  std::size_t rows = 0;
  std::string command;  ///< the command that made the file; empty if unknown
  /// names and values as text, in the order of the file
  std::vector<std::pair<std::string, std::string>> environment;
  std::vector<std::string> notes;  ///< sentences about the numbers in this input

  std::string kind_text() const;
};

/// The samples of one file that the program `monitor` wrote.
struct Recording {
  std::size_t source = 0;
  std::vector<std::string> columns;
  std::vector<double> seconds;
  std::vector<std::vector<std::optional<double>>> values;  ///< first index: column; second index: sample

  /// Returns the values of a column, or null if the column is missing or has no known value.
  std::vector<std::optional<double>> const* column(std::string const& name) const;
};

/// A measurement of another program (a rival). Rivals have their own table, and one figure compares them with
/// Tessera's rows. The sentences about the fastest and smallest rows do not include them.
struct Rival {
  Row row;
  std::string program, version, date, machine, note;
};

struct Inputs {
  std::vector<std::string> published;  ///< the comparisons whose figures are added to rows that have none
  std::vector<Source> sources;
  std::vector<Row> rows;   ///< the measured rows, in the order of the files
  std::vector<Row> plans;  ///< in the order of the files
  std::vector<Rival> rivals;
  std::vector<Recording> recordings;
};

using RowList = std::vector<Row const*>;

/// Returns the rows with the status "ok", whose measurement completed.
RowList ok_rows(std::vector<Row> const& rows);

/// Makes a label for each row from the settings in which the rows differ.
class Labels {
 public:
  Labels(RowList const& rows, Inputs const& inputs);
  /// Returns the label of `row`, such as "zs2 bf16 cpu_optimizer 4 ranks". If several rows would have equal
  /// labels, adds the experiment's name to each of them.
  std::string of(Row const& row) const;
  /// Returns the settings that all rows have in common: "tiny, batch 4, sequence 128".
  std::string const& shared() const { return shared_; }
  /// Returns the common settings for a caption. Leaves out settings that usually have their defaults.
  std::string const& shared_briefly() const { return briefly_; }

 private:
  std::string parts_of(Row const& row) const;

  Inputs const& material_;
  std::vector<std::size_t> varying_;
  std::map<std::string, int> counts_;  ///< number of rows with each label
  std::string shared_, briefly_;
};

/// A setting in which rows may differ. `header` is the header of its column. `value` returns the value of the
/// setting in a row, or "". `phrase` returns the value as it appears in labels and captions.
struct Dimension {
  char const* header;
  std::string (*value)(Row const&, Inputs const&);
  std::string (*phrase)(Row const&, Inputs const&);
  bool brief = true;  ///< whether captions name the setting if all rows have the same value
};
std::vector<Dimension> const& dimensions();
/// Returns the indices of the dimensions in which the rows differ. A row without a value does not count as
/// different, because older files lack some values.
std::vector<std::size_t> varying_dimensions(RowList const& rows, Inputs const& inputs);
/// Returns a label with the values that all rows of a group have in common in the given dimensions. Defaults
/// such as "offload none" are in the label only if it would have no other setting.
std::string common_label(RowList const& group, std::vector<std::size_t> const& varying, Inputs const& inputs);

/// Returns whether two rows ran the same schedule over the same buffers. If so, a difference between their
/// rates is only noise.
inline bool are_one_program(Row const& one, Row const& other) {
  return !one.program.empty() && one.source == other.source && one.program == other.program;
}

/// Returns the standard deviation of a row's rate as a fraction of the rate; nullopt if it is unknown.
std::optional<double> spread_of(Row const& row);

/// If a completed row has a rate that is not above 0, sets its status to failed, because such a rate is no
/// measurement. Clears the figures that depend on the rate, and adds a note to the row's input `source`.
void check_rate(Row& row, Source& source);

/// Gives every source a short unique label. Throws Error(usage) if a file was given twice.
void name_sources(std::vector<Source>& sources);

}  // namespace reporting
}  // namespace programs
