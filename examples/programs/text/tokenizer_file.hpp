// SPDX-License-Identifier: Apache-2.0
// Parses the files of BPE tokenizers. If a feature is not supported, the error names it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/bpe_tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// Returns a function that looks up the id of a token, spelled as in the file. `description` must exist as
/// long as the function.
std::function<std::optional<TokenId>(std::string const&)> finder(BpeDescription const& description);

/// Returns the contents of a tokenizer.json. Throws Error(data), which starts with `name`.
BpeDescription parse_tokenizer_json(std::string_view bytes, std::string const& name);

/// Returns the contents of GPT-2's two files, vocab.json and merges.txt. `prefix_space` is add_prefix_space
/// of the folder's tokenizer_config.json.
BpeDescription parse_vocab_and_merges(std::string_view vocab, std::string const& vocab_name,
                                      std::string_view merges, std::string const& merges_name,
                                      bool prefix_space);

}  // namespace text
}  // namespace programs
