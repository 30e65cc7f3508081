// SPDX-License-Identifier: Apache-2.0
// What a report is made of: rows of measurements and of plans, recordings of monitor, and where each is from.
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

// The columns of results and the fields of plans that a report reads, by name and in the order of its CSV.
// clang-format off
#define TESSERA_REPORT_WORDS(WORD) \
  WORD(experiment) WORD(model) WORD(device) WORD(sharding) WORD(precision) WORD(offload) WORD(recompute) \
  WORD(reduction) WORD(communication) WORD(capture) WORD(attention) WORD(loss_scale) WORD(parallel) \
  WORD(adapters) WORD(mesh) WORD(status) WORD(reason) WORD(weights_hash) WORD(same_program_as) \
  WORD(speedup_against)
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
  NUMBER(largest_batch) NUMBER(longest_sequence) NUMBER(seed)
// clang-format on

#define TESSERA_NAME(name) name,
/// The texts of a row. A text that a file lacks is empty.
enum class Word { TESSERA_REPORT_WORDS(TESSERA_NAME) count };
/// The numbers of a row, in the units of result files.
enum class Number { TESSERA_REPORT_NUMBERS(TESSERA_NAME) count };
#undef TESSERA_NAME

/// Beyond it doubles are not all whole numbers.
inline constexpr double whole_at_most = 9007199254740991.0;

/// The name of a text in files.
std::string key_of(Word word);
/// The column of a number: its name in files, its unit in pages.
results::Column const& column_of(Number number);
/// The header of a number in pages.
std::string header_of(Number number);

/// Bytes of a plan by category, of one rank.
using Categories = std::vector<std::pair<std::string, double>>;

/// One measured or planned configuration.
struct Row {
  std::size_t source = 0;  ///< index into Material::sources
  std::array<std::string, static_cast<std::size_t>(Word::count)> words;
  std::array<std::optional<double>, static_cast<std::size_t>(Number::count)> numbers;
  std::optional<bool> unsteady, disturbed;
  std::string program;        ///< first row of the source that is the same program; empty: no other row is
  double twins_differ = 0.0;  ///< the lead of the fastest of them over the slowest, as a share
  std::vector<std::optional<double>> losses;  ///< from the first step on
  Categories categories;                      ///< of the device, where it is a plan

  std::string& operator[](Word word) { return words[static_cast<std::size_t>(word)]; }
  std::string const& operator[](Word word) const { return words[static_cast<std::size_t>(word)]; }
  std::optional<double>& operator[](Number number) { return numbers[static_cast<std::size_t>(number)]; }
  std::optional<double> const& operator[](Number number) const {
    return numbers[static_cast<std::size_t>(number)];
  }

  bool ok() const { return (*this)[Word::status] == "ok"; }
  /// Checks whether its rate is marked with "~".
  bool is_unsteady() const { return unsteady.value_or(false) || disturbed.value_or(false); }
  /// Of seconds a step: the median, or what there is.
  std::optional<double> step_seconds() const;
};

enum class Kind { comparison, training, step_logs, plan, recording, rivals };

/// A file or folder that was read.
struct Source {
  Kind kind = Kind::comparison;
  std::string path;   ///< as given, printable
  std::string label;  ///< tells it from the others
  std::int64_t version = 0;
  std::size_t rows = 0;
  std::string command;                                           ///< that made it; may be empty
  std::vector<std::pair<std::string, std::string>> environment;  ///< in words, in the order of the file
  std::vector<std::string> notes;                                ///< what to know about its figures

  std::string kind_text() const;
};

/// Samples of monitor.
struct Recording {
  std::size_t source = 0;
  std::vector<std::string> columns;
  std::vector<double> seconds;
  std::vector<std::vector<std::optional<double>>> values;  ///< by column, then by sample

  /// The values of a column; null where there is none or none of its values is known.
  std::vector<std::optional<double>> const* column(std::string const& name) const;
};

/// What another program was measured to do. Such rows stand in a table of their own and beside ours in one
/// figure; nothing that is said of our rows counts them.
struct Rival {
  Row row;
  std::string program, version, date, machine, note;
};

struct Material {
  std::vector<Source> sources;
  std::vector<Row> rows;   ///< measured, in the order of the files
  std::vector<Row> plans;  ///< likewise
  std::vector<Rival> rivals;
  std::vector<Recording> recordings;
};

using RowList = std::vector<Row const*>;

/// The rows that were measured to their end.
RowList ok_rows(std::vector<Row> const& rows);

/// What rows can be told apart by: the value of each that varies among them.
class Labels {
 public:
  Labels(RowList const& rows, Material const& material);
  /// "zs2 bf16 cpu_optimizer 4 ranks", with the experiment's name where that is not enough.
  std::string of(Row const& row) const;
  /// What all rows share: "tiny, batch 4, sequence 128".
  std::string const& shared() const { return shared_; }
  /// Of that what a caption needs: without slots that are mostly left to their defaults.
  std::string const& shared_briefly() const { return briefly_; }

 private:
  std::string parts_of(Row const& row) const;

  Material const& material_;
  std::vector<std::size_t> varying_;
  std::map<std::string, int> counts_;  ///< of each label
  std::string shared_, briefly_;
};

/// A dimension of a comparison: what its column is called, and its value in a row (empty: none).
struct Dimension {
  char const* header;
  std::string (*value)(Row const&, Material const&);
  std::string (*phrase)(Row const&, Material const&);
  bool brief = true;  ///< named in captions, where all rows share it
};
std::vector<Dimension> const& dimensions();
/// The dimensions by which rows differ, by index. A row that does not say what it has in one differs from
/// none there: older files and other programs say less.
std::vector<std::size_t> varying_dimensions(RowList const& rows, Material const& material);
/// What the rows of a group have in common, of the dimensions by which rows vary.
std::string common_label(RowList const& group, std::vector<std::size_t> const& varying,
                         Material const& material);

/// Checks whether two rows ran the identical schedule over identical buffers, so that neither is faster.
inline bool are_one_program(Row const& one, Row const& other) {
  return !one.program.empty() && one.source == other.source && one.program == other.program;
}

/// By what share of it a row's rate varies; nothing where that is not known.
std::optional<double> spread_of(Row const& row);

/// Gives every source a short name of its own. Throws Error(usage) where a file was given twice.
void name_sources(std::vector<Source>& sources);

}  // namespace reporting
}  // namespace programs
