// SPDX-License-Identifier: Apache-2.0
// Declares facts about the build of a program.
#pragma once

namespace programs {
namespace cli {

/// First twelve digits of the commit that CMake found, or "" without git. Later commits appear only after
/// CMake runs again.
extern char const* const git_hash;

/// Compiler flags of the build type, without the instruction set and the flags of single targets.
extern char const* const compile_flags;

}  // namespace cli
}  // namespace programs
