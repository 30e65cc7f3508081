// SPDX-License-Identifier: Apache-2.0
// Measures the parts of steps on this machine and writes a file from which plan and compare predict steps.
#pragma once

namespace programs {
namespace info {

/// Runs `info --measure FILE`, which has its own command line. Runs steps of small models under recipes that
/// have every kind of entry, and writes the times of entries. Returns 0. Throws what training and files
/// throw.
int measure(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
