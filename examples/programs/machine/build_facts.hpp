// SPDX-License-Identifier: Apache-2.0
// Declares facts about the build of a program.
#pragma once

namespace programs {
namespace cli {

/// First twelve digits of the git commit when CMake last configured the build; "" without git.
extern char const* const git_hash;

/// Compiler flags of the CMake build type, without instruction-set flags and flags of single targets.
extern char const* const compile_flags;

}  // namespace cli
}  // namespace programs
