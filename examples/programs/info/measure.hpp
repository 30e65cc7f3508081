// SPDX-License-Identifier: Apache-2.0
// How long the parts of steps take on this machine, for a file from which plan and compare predict steps.
#pragma once

namespace programs {
namespace info {

/// `info --measure FILE`, which has a line of its own: runs steps of small models under recipes that have
/// every kind of entry, and writes how long entries took. Returns 0; throws what training and files do.
int measure(int argc, char const* const* argv);

}  // namespace info
}  // namespace programs
