// SPDX-License-Identifier: Apache-2.0
// What compare was asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/options.hpp"

#include "cli/run_flags.hpp"
#include "config/config_file.hpp"
#include "prediction/predict.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace compare {

using cli::Point;

struct Settings {
  cli::MatrixFlags matrix;
  std::int64_t steps = 20;
  std::int64_t epochs = 0;   ///< 0: the steps say how long
  std::int64_t samples = 0;  ///< the first so many of the data; 0: all
  std::int64_t warmup = 5;
  int repeat = 1;
  double min_time = 0.0;

  cli::DataFlags data;
  TrainerOptions trainer;
  std::string freeze, lora;  ///< as given; the trainer has what they mean

  std::filesystem::path init;  ///< empty: a folder's weights, or the seed's
  std::filesystem::path nvme_path, product_plans;
  std::shared_ptr<ProductPlans> plans;  ///< null: the library's first choice
  bool full = false, pairs = false;
  bool minute = false;  ///< no flag selects rows or their length, so the run is fitted into a minute
  std::filesystem::path output_dir = "results";
  std::filesystem::path json, csv;  ///< empty: not named
  std::string format = "rows";
  std::string defaults = "own";  ///< or the published comparison that they are of
  bool timestamp = false;
  std::filesystem::path machine;
  cli::KnownTimes times;  ///< none: nothing is predicted
  cli::Names published;   ///< comparisons that rows are held against
  bool list = false;
  cli::ConfigFile file;
};

}  // namespace compare
}  // namespace programs
