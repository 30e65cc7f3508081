// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: arbitrary bytes are read as a tokenizer.json and as a merges.txt. They must give a
// tokenizer that encodes a text in parts to the tokens of the whole text, or throw Error(data) with one line
// of text.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "tessera/core/error.hpp"

#include "text/bpe_tokenizer.hpp"
#include "text/tokenizer_file.hpp"
#include "text/unicode.hpp"

namespace text = programs::text;

namespace {

void use(text::BpeDescription description, std::string_view bytes) {
  text::BpeTokenizer const tokenizer(std::move(description));
  std::string storage;
  text::Ids whole, pieces;
  auto const encoder = tokenizer.encoder();
  encoder->encode(text::repaired(bytes, storage), true, whole);
  std::size_t const at = tokenizer.cut(bytes, 1);
  if (at >= bytes.size() && at > 0) std::abort();
  if (at > 0) {
    encoder->encode(text::repaired(bytes.substr(0, at), storage), true, pieces);
    encoder->encode(text::repaired(bytes.substr(at), storage), false, pieces);
    if (pieces != whole) std::abort();
  }
  for (text::TokenId const id : whole)
    if (id >= tokenizer.vocabulary()) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* input, std::size_t size) {
  std::string_view const bytes(reinterpret_cast<char const*>(input), size);
  std::string_view const sample = bytes.substr(bytes.size() / 2);
  try {
    use(text::parse_tokenizer_json(bytes, "input"), "ab  it's 12\n\xe2\x96\x81 a\xff b <s>x</s>");
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  try {
    std::string vocabulary = "{";
    for (char c = 'a'; c <= 'z'; ++c) vocabulary += std::string("\"") + c + "\":" + std::to_string(c) + ",";
    vocabulary += R"("\u0120":200,"ab":201,"abc":202,"\u0120a":203})";
    use(text::parse_vocab_and_merges(vocabulary, "vocab.json", bytes, "merges.txt", false), sample);
  } catch (tessera::Error const& error) {
    if (error.kind() != tessera::ErrorKind::data || std::strchr(error.what(), '\n') != nullptr) std::abort();
  }
  return 0;
}
