// SPDX-License-Identifier: Apache-2.0
// Tests that the library's tokenizers give the tokens in golden.json. The PyPI packages tokenizers and
// sentencepiece produced the tokens in this file.
#include <cstdint>
#include <string>
#include <vector>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

#include "text/support.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode.hpp"

namespace ts = tessera;
namespace text = programs::text;
using text_support::fixtures;

namespace {

std::string bytes_of_file(std::string const& path) {
  auto const bytes = ts::FileBytes::open(path);
  return {reinterpret_cast<char const*>(bytes.data()), bytes.size()};
}

nlohmann::json const& golden() {
  static nlohmann::json const json = nlohmann::json::parse(bytes_of_file(fixtures + "/golden.json"));
  return json;
}

std::string from_hex(std::string const& hex) {
  std::string bytes;
  for (std::size_t at = 0; at < hex.size(); at += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  return bytes;
}

/// Splits the text `bytes` at every position at which the tokenizer permits a split, and encodes the parts
/// one after the other. Returns the tokens of all parts.
text::Ids encoded_in_pieces(text::Tokenizer const& tokenizer, std::string_view bytes) {
  auto const encoder = tokenizer.encoder();
  text::Ids out = tokenizer.before();
  std::string storage;
  std::vector<std::size_t> ends{bytes.size()};
  while (std::size_t const at = tokenizer.cut(bytes.substr(0, ends.back()), 1)) ends.push_back(at);
  std::size_t begin = 0;
  for (; !ends.empty(); ends.pop_back()) {
    encoder->encode(text::repaired(bytes.substr(begin, ends.back() - begin), storage), begin == 0, out);
    begin = ends.back();
  }
  return out;
}

}  // namespace

TEST_CASE("text: tokens equal those of the PyPI packages") {
  for (auto const& item : golden()["ids"].items()) {
    std::string const name = item.key();
    auto const& expected = item.value();
    CAPTURE(name);
    auto const tokenizer = text::Tokenizer::open(fixtures + "/" + name);
    auto const encoder = tokenizer->encoder();
    REQUIRE(golden()["texts"].size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) {
      std::string const bytes = from_hex(golden()["texts"][i]), hex = golden()["texts"][i];
      CAPTURE(bytes);
      CAPTURE(hex);
      std::string storage;
      // The second time, the encoder returns the tokens from its cache.
      for (int time = 0; time < 2; ++time) {
        text::Ids ids = tokenizer->before();
        encoder->encode(text::repaired(bytes, storage), true, ids);
        CHECK(ids == expected[i].get<text::Ids>());
      }
    }
  }
}

TEST_CASE("text: cuts change no token") {
  std::string all;
  for (auto const& hex : golden()["texts"]) all += from_hex(hex) + " and so on\nnext line ";
  for (auto const& item : golden()["ids"].items()) {
    std::string const name = item.key();
    CAPTURE(name);
    auto const tokenizer = text::Tokenizer::open(fixtures + "/" + name);
    text::Ids whole = text::encode(*tokenizer, all);
    whole.insert(whole.begin(), tokenizer->before().begin(), tokenizer->before().end());
    CHECK(encoded_in_pieces(*tokenizer, all) == whole);
    // In this text, every tokenizer must find at least one position after the first byte at which it permits
    // a split.
    CHECK((tokenizer->cut(all, 1) > 0) == true);
  }
}
