// SPDX-License-Identifier: Apache-2.0
// What kind of file of weights a path is, by its first bytes; and what pickles are refused with.
#pragma once

#include <cstdint>
#include <filesystem>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {

enum class WeightsFormat : std::uint8_t {
  safetensors,  ///< or what is none of the others: its reader says more
  llmc,         ///< of llm.c, weights or not
  pickle        ///< of PyTorch: never read
};

/// The format of a file. Throws Error(data) for one that cannot be read, and for a pickle, which may run code
/// when it is read, with the line of Python that converts it.
WeightsFormat weights_format(std::filesystem::path const& path);

/// Throws the same for the first pickle in a folder, by its name; nothing where there is none.
void refuse_pickles_in(std::filesystem::path const& folder);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/weights_format_definitions.hpp"
#endif
