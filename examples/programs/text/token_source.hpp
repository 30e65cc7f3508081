// SPDX-License-Identifier: Apache-2.0
// Provides text as tokens in memory, for training that reads text directly.
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

/// Returns the tokens that `prepare` would write for these files and folders. Takes 4 bytes of memory per
/// token. Reads `default_data_path` if there are no paths. `threads` 0: all cores. Throws Error(data).
TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options);

/// Returns an encoder that converts a record to tokens like a document, with the tokens that the tokenizer
/// puts around it. Use it on one thread only.
RecordEncoder record_encoder(std::shared_ptr<Tokenizer const> tokenizer);

}  // namespace text
}  // namespace programs
