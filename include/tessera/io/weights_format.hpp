// SPDX-License-Identifier: Apache-2.0
// Recognizes the format of a weights file by its first bytes. Rejects pickles.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

enum class WeightsFormat : std::uint8_t {
  safetensors,  ///< a safetensors file, or an unknown format, which the safetensors reader rejects
  llmc,         ///< any file of llm.c: weights, optimizer state, tokens, and others
  pickle        ///< a PyTorch pickle, which is never read
};

/// Returns the format of a file. Throws Error(data) if the file cannot be read or is a pickle. Reading a
/// pickle may run code that it contains, so the error gives a Python command that converts the file to
/// safetensors.
WeightsFormat weights_format(std::filesystem::path const& path);

/// Throws the error of `weights_format` for the first pickle in a folder, in the order of names. Does nothing
/// if the folder has no pickle.
void refuse_pickles_in(std::filesystem::path const& folder);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weights_format_definitions.hpp"
#endif
