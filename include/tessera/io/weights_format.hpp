// SPDX-License-Identifier: Apache-2.0
// Recognizes the format of a weights file by its first bytes, and rejects pickles.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

enum class WeightsFormat : std::uint8_t {
  safetensors,  ///< or an unknown format, which the safetensors reader rejects
  llmc,         ///< any file of llm.c, weights or not
  pickle        ///< a PyTorch pickle: never read
};

/// Returns the format of a file. Throws Error(data) if it cannot be read, and for a pickle, which may run
/// code when it is read, with the line of Python that converts it.
WeightsFormat weights_format(std::filesystem::path const& path);

/// Throws the same error for the first pickle in a folder, in the order of names. Does nothing if there is
/// none.
void refuse_pickles_in(std::filesystem::path const& folder);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weights_format_definitions.hpp"
#endif
