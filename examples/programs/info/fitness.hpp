// SPDX-License-Identifier: Apache-2.0
// How fit a device is for training a model, for each sharding and offload, by what is planned alone.
#pragma once

namespace programs {
namespace info {

/// `info --fitness`, which has a line of its own. Returns 0; throws Error(out_of_memory) after the report
/// when no strategy fits, Error(unsupported) when all were refused.
int fitness(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
