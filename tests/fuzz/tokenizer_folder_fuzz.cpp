// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as the vocab.json, the tokenizer_config.json or the
// special_tokens_map.json of a folder. They must give a tokenizer that can encode a text, or throw
// Error(data) with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/core/error.hpp"

#include "fuzz/support.hpp"
#include "text/tokenizer.hpp"

namespace text = programs::text;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  static fuzz::Folder const folder;
  constexpr std::pair<char const*, std::string_view> sound[] = {
      {"vocab.json", R"({"a": 0, "b": 1, "ab": 2, "\u0120": 3, "<|endoftext|>": 4, "<s>": 5})"},
      {"merges.txt", "#version: 0.2\na b\n"},
      {"tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<|endoftext|>"}})"},
      {"special_tokens_map.json", "{}"}};
  for (char const* name : {"vocab.json", "tokenizer_config.json", "special_tokens_map.json"}) {
    for (auto const& [file, bytes] : sound)
      folder.write(file, file == std::string_view(name) ? fuzz::text_of(input, size) : bytes);
    try {
      auto const tokenizer = text::Tokenizer::open(folder.path().string());
      (void)tokenizer->document_form();
      for (text::TokenId const id : text::encode(*tokenizer, "ab  it's 12\n<s>x<|endoftext|>\xff", true))
        if (id >= tokenizer->vocabulary()) std::abort();
    } catch (tessera::Error const& error) {
      fuzz::check(error);
    }
  }
  return 0;
}
