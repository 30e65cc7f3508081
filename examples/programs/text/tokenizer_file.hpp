// SPDX-License-Identifier: Apache-2.0
// Parses the files of BPE tokenizers. The error message for an unsupported feature names it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/bpe_tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// Returns a function that looks up a token's id by the token's spelling in the file. The description must
/// outlive the function.
std::function<std::optional<TokenId>(std::string const&)> finder(BpeDescription const& description);

/// Parses a tokenizer.json. Throws Error(data), which starts with `name`.
BpeDescription parse_tokenizer_json(std::string_view bytes, std::string const& name);

/// Parses GPT-2's two files. `prefix_space` is add_prefix_space of the folder's tokenizer_config.json.
BpeDescription parse_vocab_and_merges(std::string_view vocab, std::string const& vocab_name,
                                      std::string_view merges, std::string const& merges_name,
                                      bool prefix_space);

}  // namespace text
}  // namespace programs
