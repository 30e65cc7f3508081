// SPDX-License-Identifier: Apache-2.0
// What compare was asked for, and the rows that follow from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/batches.hpp"
#include "common/models.hpp"
#include "common/run_flags.hpp"
#include "tessera/policy/table.hpp"
#include "tessera/train/options.hpp"

namespace tessera::inline v0 {
namespace compare {

/// The command line. An empty list of a slot means its default.
struct Settings {
  std::vector<cli::ModelChoice> models = {cli::model_choice("--models", "tiny")};
  std::vector<int> ranks = {4};
  std::vector<std::int64_t> batches;        ///< empty: derived or `default_batch`
  std::vector<std::int64_t> sequences = {128};
  std::vector<std::int64_t> accumulations;  ///< empty: derived or 1
  std::optional<std::int64_t> global_batch;

  cli::Names stages = {"dp", "zs0", "zs1", "zs2", "zs3"};
  cli::Names precisions = {"fp32", "fp16", "bf16"};
  cli::Names offloads;
  cli::Names recomputes, reductions, captures, attentions;

  std::int64_t steps = 20;
  std::int64_t warmup = 5;
  int repeat = 1;
  double min_time = 0.0;

  cli::DataFlags data;
  TrainerOptions trainer;

  std::filesystem::path nvme_path;
  std::filesystem::path output_dir = "results";
  std::filesystem::path json, csv;  ///< empty: not named
  std::string format = "rows";
  bool list = false;
};

inline constexpr std::int64_t default_batch = 4;

/// One row before it is measured.
struct Point {
  cli::ModelChoice model;
  cli::BatchRelation split;
  std::int64_t sequence = 0;
  RecipeTable recipe;
  std::string experiment;
  std::optional<std::string> refusal;  ///< the rule or the missing part of the build

  int world() const { return static_cast<int>(split.ranks); }
  /// "dp", "0", "1", "2" or "3".
  std::string stage() const { return recipe.stage < 0 ? "dp" : std::to_string(recipe.stage); }
  /// Rows are compared with each other when this is equal: everything but sharding, offload and what they cost.
  std::string group() const;
};

/// All rows, in the order of the table. `text_vocabulary` is that of the data. Throws Error(config) for a relation
/// or a size that cannot be.
std::vector<Point> make_matrix(Settings const& settings, std::int64_t text_vocabulary);

}  // namespace compare
}  // namespace tessera::inline v0
