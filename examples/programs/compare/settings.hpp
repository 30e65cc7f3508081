// SPDX-License-Identifier: Apache-2.0
// Defines the struct Settings, which holds the values of the flags of the program `compare`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/options.hpp"

#include "cli/launch.hpp"
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
  std::int64_t epochs = 0;   ///< 0: the length is given in steps
  std::int64_t samples = 0;  ///< how many samples to use, from the start of the data; 0: all
  std::int64_t warmup = 5;
  int repeat = 1;
  double min_time = 0.0;

  cli::DataFlags data;
  TrainerOptions trainer;
  std::string freeze, lora;  ///< the text of the flags; `trainer` holds the parsed values

  /// the initial weights; empty: weights of the model's folder, or random ones from the seed
  std::filesystem::path init;
  std::filesystem::path nvme_path, product_plans;
  /// measured algorithms for matrix products, from product_plans; null: the library chooses the algorithms
  std::shared_ptr<ProductPlans> plans;
  bool full = false, pairs = false;
  bool minute = false;  ///< no flag selects rows or steps, so the program trains what fits into a minute
  std::filesystem::path output_dir = "results";
  std::filesystem::path json, csv;  ///< empty if the flag is not given
  std::string format = "rows";
  std::string defaults = "own";  ///< "own", or the name of the published comparison whose defaults are used
  bool timestamp = false;
  std::filesystem::path machine;
  cli::KnownTimes times;  ///< measured times of this machine, for predictions; empty: nothing is predicted
  cli::Names published;   ///< published comparisons with which the rows are compared
  bool list = false;
  cli::ConfigFile file;
  cli::LaunchFlags launch;
};

}  // namespace compare
}  // namespace programs
