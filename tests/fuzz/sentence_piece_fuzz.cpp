// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a tokenizer.model. They must give a tokenizer whose ids are
// in its vocabulary, or throw Error(data) with one line of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "tessera/core/error.hpp"

#include "fuzz/support.hpp"
#include "text/sentence_piece.hpp"
#include "text/unicode.hpp"

namespace text = programs::text;

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  try {
    text::SentencePieceTokenizer const tokenizer(std::string(fuzz::text_of(input, size)), "tokenizer.model");
    (void)tokenizer.end_token();
    (void)tokenizer.find("</s>");
    text::Ids ids = tokenizer.before();
    tokenizer.encoder()->encode("ab  it's 12\n\xe2\x96\x81 a\xc3\xa9 <s>x</s> \xf0\x9f\x98\x80", true, ids);
    for (text::TokenId const id : ids) {
      if (id >= tokenizer.vocabulary()) std::abort();
      (void)tokenizer.token_text(id);
    }
  } catch (tessera::Error const& error) {
    fuzz::check(error);
  }
  return 0;
}
