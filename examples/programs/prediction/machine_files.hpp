// SPDX-License-Identifier: Apache-2.0
// Provides the measured entry times of machines that are built into the programs: the texts of the files in
// examples/machines.
#pragma once

#include <span>

namespace programs {
namespace cli {

struct MachineFile {
  char const* name;  ///< as given to `--machine`
  char const* text;  ///< in the format of `info --measure`
};

/// Returns the built-in files, sorted by name. CMake generates the definition.
std::span<MachineFile const> machine_files();

}  // namespace cli
}  // namespace programs
