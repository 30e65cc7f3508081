// SPDX-License-Identifier: Apache-2.0
// Encodes inputs to tokens on several threads. Blocks are read in order, encoded by any free thread, and
// delivered in order, so the result does not depend on the number of threads. Memory use does not grow with
// the inputs.
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

/// A position in the inputs at which a later run can resume: the end of a block, the unit of work of one
/// thread.
struct Position {
  std::size_t file = 0;     ///< index in the inputs
  std::int64_t offset = 0;  ///< uncompressed bytes in that file
  std::int64_t line = 0;    ///< lines in that file, for records
  std::int64_t bytes = 0;   ///< uncompressed bytes in all files
  std::int64_t packed = 0;  ///< bytes of all files as stored on disk, for the progress bar
};

/// A longer text is encoded in sections of about this many bytes.
inline constexpr std::size_t longest_stretch = 256 * 1024;

struct PipelineOptions {
  int threads = 1;
  std::string field = "text";             ///< the field of a record that holds the text
  std::int64_t data_bytes = 0;            ///< uncompressed bytes to read, up to a record's end; 0: all
  Position start{};                       ///< position where an earlier run ended
  std::size_t stretch = longest_stretch;  ///< bytes of a text that are encoded together
};

/// Returns the section size in bytes for splitting off a share of the input, such as 0.01 for validation
/// data. It is `longest_stretch`. If bytes x share is smaller, it is half of that (at least 16), so that some
/// section belongs to the share. `bytes` is the input size; 0 means unknown.
std::size_t stretch_for(std::int64_t bytes, double share);

/// The tokens of one block of input.
struct Encoded {
  Ids ids;
  std::vector<std::size_t> ends;  ///< end of each part: a record, or a section of a text
  std::int64_t documents = 0;     ///< documents that end in this block
  std::int64_t empty = 0;         ///< documents without text, which have no tokens
  std::int64_t replaced = 0;      ///< bytes that were not UTF-8, replaced by U+FFFD
  Position after;                 ///< position after this block
};

/// Encodes all inputs on several threads. Calls `consume` with the blocks in order, on the calling thread; if
/// `consume` returns false, stops. If blocks fail, throws the error of the first one in input order.
void encode_inputs(Tokenizer const& tokenizer, std::vector<InputFile> const& files,
                   PipelineOptions const& options, std::function<bool(Encoded const&)> const& consume);

}  // namespace text
}  // namespace programs
