// SPDX-License-Identifier: Apache-2.0
// Reads what describes a BPE tokenizer, from bytes alone; what is not there is refused by its name.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "text/bpe_tokenizer.hpp"

namespace programs {
using namespace tessera;
namespace text {

/// Returns a function that finds a token of a vocabulary by the spelling in the file. The description must
/// outlive it.
std::function<std::optional<TokenId>(std::string const&)> finder(BpeDescription const& description);

/// A tokenizer.json. Throws Error(data) that starts with `name`.
BpeDescription parse_tokenizer_json(std::string_view bytes, std::string const& name);

/// GPT-2's two files. `prefix_space` is add_prefix_space of the folder's tokenizer_config.json.
BpeDescription parse_vocab_and_merges(std::string_view vocab, std::string const& vocab_name,
                                      std::string_view merges, std::string const& merges_name,
                                      bool prefix_space);

}  // namespace text
}  // namespace programs
