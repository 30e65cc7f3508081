// SPDX-License-Identifier: Apache-2.0
// Provides tokens in memory, for training that reads text directly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tessera/data/tokens.hpp"
#include "tessera/io/records.hpp"

#include "text/tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// Returns a source of the tokens that the program `prepare` would write for the files and folders `paths`.
/// The tokens are in memory, 4 bytes per token. If `paths` is empty, reads `default_data_path`. `field` is
/// the field of a JSON object with the text. `threads` 0 means all cores. Throws Error(data).
TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options);

/// Returns a function that encodes one record to tokens, including the tokens that begin and end a document.
/// Use the function on one thread only.
RecordEncoder record_encoder(std::shared_ptr<Tokenizer const> tokenizer);

}  // namespace text
}  // namespace programs
