// SPDX-License-Identifier: Apache-2.0
// Text as tokens in memory, for a training that reads text itself.
#pragma once

#include <string>
#include <vector>

#include "tessera/data/tokens.hpp"

#include "text/tokenizer.hpp"

namespace tessera {
inline namespace v0 {
namespace text {

/// The tokens that prepare would write of these files and folders, in memory: 4 bytes each. Without paths
/// those of `default_data_path`. `threads` 0: all cores. Throws Error(data).
TokenSource tokenized(Tokenizer const& tokenizer, std::vector<std::string> paths, std::string const& field,
                      int threads, TokenOptions options);

}  // namespace text
}  // namespace v0
}  // namespace tessera
