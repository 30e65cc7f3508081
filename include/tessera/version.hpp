// SPDX-License-Identifier: Apache-2.0
// Defines the version of Tessera. CMake reads the three numbers from this file.
#pragma once

#define TESSERA_VERSION_MAJOR 0
#define TESSERA_VERSION_MINOR 1
#define TESSERA_VERSION_PATCH 0

namespace tessera {
inline namespace v0 {

inline constexpr char version[] = "0.1.0";

}  // namespace v0
}  // namespace tessera
