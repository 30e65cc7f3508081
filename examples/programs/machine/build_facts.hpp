// SPDX-License-Identifier: Apache-2.0
// Declares facts about the build of a program.
#pragma once

namespace programs {
namespace cli {

/// The first twelve digits of the git commit, read when CMake configured the build; "" without git.
extern char const* const git_hash;

/// The compiler flags of the CMake build type. They do not include instruction-set flags and flags of single
/// targets.
extern char const* const compile_flags;

}  // namespace cli
}  // namespace programs
