// SPDX-License-Identifier: Apache-2.0
// Defines the settings of the program `plan`, which its flags set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tessera/train/options.hpp"

#include "cli/run_flags.hpp"
#include "config/config_file.hpp"
#include "plan/limits.hpp"
#include "prediction/predict.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// Values of flags of the program `compare` that affect neither memory nor time. The program `plan` accepts
/// these flags so that both programs accept the same command line.
struct Unused {
  std::int64_t number = 0;
  double real = 0.0;
  std::string text;
  bool said = false;
};

struct Settings {
  cli::MatrixFlags matrix;
  std::string defaults = "own";  ///< "own", or the name of the published comparison whose defaults are used
  Unused unused;
  std::int64_t epochs = 0;   ///< 0: the flag was not given
  std::int64_t samples = 0;  ///< samples of an epoch; with --data, only the first ones of it; 0: not given
  cli::DataFlags data;       ///< the data whose samples are counted; no paths: no data is opened
  TrainerOptions trainer;
  std::string freeze, lora;  ///< the text of the flags; `trainer` holds the parsed values
  LimitFlags limits;
  std::filesystem::path json;
  double search_time = 0.5;  ///< seconds for each search
  std::filesystem::path machine;
  std::int64_t hosts = 1;  ///< the hosts over which the ranks of a row are divided
  cli::KnownTimes times;   ///< measured times of a machine; empty: nothing is predicted
  std::string prefer;      ///< the text of the flag; empty: recommend the simplest row that fits
  bool no_search = false, schedule = false;
  bool brief = false;             ///< print no rows
  bool checkpoint_async = false;  ///< also set in `trainer`
  cli::ConfigFile file;
  cli::Names published;  ///< published comparisons with which the plans are compared
};

}  // namespace planning
}  // namespace programs
