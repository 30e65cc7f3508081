// SPDX-License-Identifier: Apache-2.0
// Grades how well a device is suited to train a model, for each combination of sharding and offload. It only
// plans memory and trains nothing.
#pragma once

namespace programs {
namespace info {

/// Runs `info --fitness`, which has its own flags. Prints the report. Returns 0 if a combination fits. Throws
/// Error(out_of_memory) if none fits, or Error(unsupported) if all were refused.
int fitness(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
