// SPDX-License-Identifier: Apache-2.0
// Encodes inputs to tokens on several threads. One thread reads blocks in order, any free thread encodes a
// block, and results are delivered in order. So the tokens do not depend on the number of threads. The use of
// memory does not grow with the size of the inputs.
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

/// A position in the inputs at which a later run can resume. It is always the end of a block.
struct Position {
  std::size_t file = 0;     ///< index of the file in the inputs
  std::int64_t offset = 0;  ///< uncompressed bytes of this file before the position
  std::int64_t line = 0;    ///< lines of this file before the position, for JSONL
  std::int64_t bytes = 0;   ///< uncompressed bytes of all files before the position
  std::int64_t packed = 0;  ///< bytes of all files as stored on disk, for the progress bar
};

/// A text longer than this is encoded in sections of about this many bytes.
inline constexpr std::size_t longest_stretch = 256 * 1024;

struct PipelineOptions {
  int threads = 1;
  std::string field = "text";  ///< the field of a record that contains the text
  /// Uncompressed bytes to read. The record that contains the last byte is read completely. 0: all.
  std::int64_t data_bytes = 0;
  Position start{};                       ///< the position at which an earlier run ended
  std::size_t stretch = longest_stretch;  ///< size of a section of text in bytes
};

/// Returns the size in bytes of the sections into which a text is split. Whole sections are held out, for
/// example as validation data. `share` is the share of the input to hold out, such as 0.01. `bytes` is the
/// size of the input; 0 means unknown. The result is `longest_stretch`, unless bytes x share is smaller. In
/// this case the result is half of bytes x share, but at least 16, so that at least one section can be held
/// out.
std::size_t stretch_for(std::int64_t bytes, double share);

/// The tokens of one block.
struct Encoded {
  Ids ids;
  std::vector<std::size_t> ends;  ///< end in `ids` of each part: a record, or a section of a text
  std::int64_t documents = 0;     ///< number of documents that end in this block
  std::int64_t empty = 0;         ///< number of documents without text; they have no tokens
  std::int64_t replaced = 0;      ///< number of invalid UTF-8 sequences that became U+FFFD
  Position after;                 ///< the position after this block
};

/// Encodes all inputs on several threads. Calls `consume` for each block in the order of the input, on the
/// calling thread. Stops if `consume` returns false. If the encoding of some blocks fails, throws the error
/// of the first of these blocks in the order of the input.
void encode_inputs(Tokenizer const& tokenizer, std::vector<InputFile> const& files,
                   PipelineOptions const& options, std::function<bool(Encoded const&)> const& consume);

}  // namespace text
}  // namespace programs
