// SPDX-License-Identifier: Apache-2.0
// Grades how well a device is suited to train a model with each sharding and offload. Uses only plans and
// trains nothing.
#pragma once

namespace programs {
namespace info {

/// Runs `info --fitness` with its own command line. Returns 0. Prints the report, then throws
/// Error(out_of_memory) if no combination fits, or Error(unsupported) if all were refused.
int fitness(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
