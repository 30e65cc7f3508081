// SPDX-License-Identifier: Apache-2.0
// Provides the files of measured times that are built into the programs. Each built-in file has the text of a
// file in examples/machines.
#pragma once

#include <span>

namespace programs {
namespace cli {

struct MachineFile {
  char const* name;  ///< the name that `--machine` accepts
  char const* text;  ///< contents in the format of `info --measure`
};

/// Returns the built-in files, sorted by name. CMake generates the definition of this function.
std::span<MachineFile const> machine_files();

}  // namespace cli
}  // namespace programs
