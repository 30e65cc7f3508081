// SPDX-License-Identifier: Apache-2.0
// Measures how long the entries of training steps take on this machine, and writes the times to a file. An
// entry is one computation or one data movement of a step. The programs `plan` and `compare` predict step
// times from this file.
#pragma once

namespace programs {
namespace info {

/// Runs `info --measure FILE`, which has its own flags. Trains small models with several recipes, which
/// together use every kind of entry, and writes the times of the entries. Returns 0. Throws the errors of
/// training and of files.
int measure(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
