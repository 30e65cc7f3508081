// SPDX-License-Identifier: Apache-2.0
// Text as tokens in memory, for a training that reads text itself.
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

/// The tokens that prepare would write of these files and folders, in memory: 4 bytes each. Without paths
/// those of `default_data_path`. `threads` 0: all cores. Throws Error(data).
TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options);

/// Makes the tokens of a record, as those of a document: with what the tokenizer puts around it. For one
/// thread.
RecordEncoder record_encoder(std::shared_ptr<Tokenizer const> tokenizer);

}  // namespace text
}  // namespace programs
