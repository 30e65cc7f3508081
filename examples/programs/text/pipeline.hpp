// SPDX-License-Identifier: Apache-2.0
// Inputs to tokens on several threads: blocks are read in order, encoded by whichever thread is free, and
// given on in order, so the result is the same on any number of threads. Memory does not grow with the
// inputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "text/input.hpp"
#include "text/tokenizer.hpp"

namespace programs {
namespace text {

/// A place between two blocks.
struct Position {
  std::size_t file = 0;     ///< of the inputs
  std::int64_t offset = 0;  ///< unpacked bytes of that file
  std::int64_t line = 0;    ///< lines of that file, of records
  std::int64_t bytes = 0;   ///< unpacked bytes of all files
  std::int64_t packed = 0;  ///< bytes of all files as they lie on the disk, for the bar
};

/// The approximate largest number of bytes of a text that are encoded together.
inline constexpr std::size_t longest_stretch = 256 * 1024;

struct PipelineOptions {
  int threads = 1;
  std::string field = "text";             ///< the field with the text of a record
  std::int64_t data_bytes = 0;            ///< unpacked bytes to read; 0: all. The last record is read in full
  Position start{};                       ///< position where an earlier run ended
  std::size_t stretch = longest_stretch;  ///< bytes of a text that are encoded together
};

/// Returns the longest stretch for which inputs of this size (0: unknown) have enough stretches to split off
/// a share of them.
std::size_t stretch_for(std::int64_t bytes, double share);

/// What one block gave.
struct Encoded {
  Ids ids;
  std::vector<std::size_t> ends;  ///< where each of its parts ends: a record, or a stretch of a text
  std::int64_t documents = 0;     ///< that end in it
  std::int64_t empty = 0;         ///< documents without text, which give nothing
  std::int64_t replaced = 0;      ///< U+FFFD in the place of bytes that are no UTF-8
  Position after;                 ///< what comes next
};

/// Encodes all inputs. `take` gets the blocks in order, on the calling thread, and ends the run by false.
/// Throws what went wrong first in the order of the inputs.
void encode_inputs(Tokenizer const& tokenizer, std::vector<InputFile> const& files,
                   PipelineOptions const& options, std::function<bool(Encoded const&)> const& take);

}  // namespace text
}  // namespace programs
