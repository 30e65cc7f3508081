// SPDX-License-Identifier: Apache-2.0
// Measures the times of schedule entries (parts of training steps) on this machine and writes them to a file.
// plan and compare predict step times from this file.
#pragma once

namespace programs {
namespace info {

/// Runs `info --measure FILE` with its own command line. Trains small models with recipes that together have
/// every kind of entry, and writes the times of the entries. Returns 0. Throws the errors of training and of
/// files.
int measure(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
