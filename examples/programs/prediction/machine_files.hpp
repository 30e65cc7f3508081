// SPDX-License-Identifier: Apache-2.0
// Times of machines that come with the programs: the files of examples/machines, as texts.
#pragma once

#include <span>

namespace programs {
namespace cli {

struct MachineFile {
  char const* name;  ///< of `--machine`
  char const* text;  ///< as `info --measure` writes it
};

/// By name. Made by CMake.
std::span<MachineFile const> machine_files();

}  // namespace cli
}  // namespace programs
