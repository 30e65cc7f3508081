// SPDX-License-Identifier: Apache-2.0
// Rates how well a device is suited to train a model with each sharding and offload, from plans only.
#pragma once

namespace programs {
namespace info {

/// Runs `info --fitness`, which has its own command line. Returns 0. After the report, throws
/// Error(out_of_memory) if no strategy fits, or Error(unsupported) if all were refused.
int fitness(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
