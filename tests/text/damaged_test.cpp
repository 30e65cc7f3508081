// SPDX-License-Identifier: Apache-2.0
// Tests tokenizer files with wrong values that a careless reader would use unchecked, and tokenizer files
// with rare features.
#include <cstddef>
#include <cstdint>
#include <string>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

#include "support/file_support.hpp"
#include "text/sentence_piece.hpp"
#include "text/support.hpp"
#include "text/tokenizer.hpp"

namespace ts = tessera;
namespace text = programs::text;
using text_support::refusal;

namespace {

std::string number(std::uint32_t value) {
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}
/// Returns the bytes of one field of a Protocol Buffers message. `index` is the number of the field, and
/// `bytes` is its content of at most 16383 bytes.
std::string field(int index, std::string const& bytes) {
  std::string text(1, static_cast<char>(index << 3 | 2));
  text += static_cast<char>(bytes.size() % 128 | 0x80);
  text += static_cast<char>(bytes.size() / 128);
  return text + bytes;
}
/// Returns the rules of a SentencePiece normalizer: a double-array trie of 256 elements (`root`, then 255
/// times `rest`), and the replacement texts.
std::string rules(std::uint32_t root, std::uint32_t rest, std::string const& texts) {
  std::string units = number(root);
  for (int at = 1; at < 256; ++at) units += number(rest);
  return number(static_cast<std::uint32_t>(units.size())) + units + texts;
}

}  // namespace

TEST_CASE("text: flags of another kind in a tokenizer's folder are refused by their key") {
  file_support::TemporaryFolder folder;
  file_support::write(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<s>": 3})");
  file_support::write(folder / "merges.txt", "a b\n");
  for (char const* flag : {R"("lstrip": "yes")", R"("rstrip": 1)", R"("single_word": [])"}) {
    file_support::write(folder / "tokenizer_config.json",
                        R"({"added_tokens_decoder": {"3": {"content": "<s>", )" + std::string(flag) + "}}}");
    std::string const message = refusal([&] { (void)text::Tokenizer::open(folder.path().string(), "none"); });
    CAPTURE(message);
    CHECK(message.find("tokenizer_config.json: added_tokens_decoder.3.") != message.npos);
    CHECK(message.ends_with(" must be true or false"));
  }
}

TEST_CASE("text: files next to a tokenizer are read as Python reads JSON") {
  file_support::TemporaryFolder folder;
  file_support::write(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<s>": 3})");
  file_support::write(folder / "merges.txt", "a b\n");
  auto const says = [&](char const* file, std::string const& members) {
    file_support::write(folder / file, R"({"eos_token": "<s>", )" + members + "}");
    std::string ids;
    std::string const message = refusal([&] {
      for (auto const id : text::encode(*text::Tokenizer::open(folder.path().string()), "ab", true))
        ids += std::to_string(id) + " ";
    });
    std::filesystem::remove(folder / file);
    return ids.empty() ? message : ids;
  };
  for (char const* file : {"tokenizer_config.json", "special_tokens_map.json"})
    for (char const* members :
         {R"("model_max_length": Infinity)", R"("x": [NaN, -Infinity])", R"("chat_template": "\ud83d")",
          R"("chat_template": "\ude00 NaN", "x": NaN)"}) {
      CAPTURE(members);
      CHECK(says(file, members) == "2 3 ");
    }
  for (char const* members : {"\"x\": nan", "\"x\": ", "\"x\": \"\xff\""})
    CHECK(says("tokenizer_config.json", members).find("holds no JSON object; repair") != std::string::npos);
}

TEST_CASE("text: a SentencePiece model of words joins neighbouring unknown words") {
  auto const piece = [](std::string const& content, char type) {
    return field(1, field(1, content) + std::string("\x18") + type);
  };
  std::string const mark = "\xe2\x96\x81";
  std::string const model = piece("<unk>", 2) + piece("<s>", 3) + piece("</s>", 3) + piece(mark + "the", 1) +
                            piece(mark + "dog", 1) + field(2, "\x18\x03");
  text::SentencePieceTokenizer const words(model, "m");
  CHECK(text::encode(words, "the xx yy dog zz the") == text::Ids{3, 0, 4, 0, 3});
  CHECK(words.cut("the dog xx yy zz the dog", 1) == 0);
}

TEST_CASE("text: a SentencePiece model that its library would end the program for is refused before") {
  std::string const sound = file_support::read(TESSERA_TEXT_FIXTURES "/sentencepiece/tokenizer.model");
  auto const says = [&](std::string const& bytes) {
    return refusal([&] { text::SentencePieceTokenizer(bytes, "m"); });
  };
  REQUIRE(says(sound) == "nothing was refused");
  std::string const damaged = "; the file is damaged or not a SentencePiece model";
  for (std::string const& piece : {std::string(), std::string("a\0b", 3)})
    CHECK(says(field(1, field(1, piece)) + sound) == "m: piece 0 is empty or holds a NUL" + damaged);
  CHECK(says(sound.substr(0, sound.size() - 3)) == "m: its bytes are not a protobuf message" + damaged);
  CHECK(says("version https://git-lfs.github.com/spec/v1\n") ==
        "m: its bytes are not a protobuf message" + damaged);

  // The rules are a double-array trie. The offset of its root is 0, so the children of the root are the first
  // 256 elements. The label of no element equals its byte, so no rule matches.
  std::uint32_t const nowhere = 0x80000000u;
  auto const normalizer = [&](std::string const& bytes) { return sound + field(3, field(2, bytes)); };
  CHECK(says(normalizer(rules(0, nowhere, std::string("x\0", 2)))) == "nothing was refused");
  for (std::string const& bytes :
       {rules(1u << 10 << 9, nowhere, std::string("x\0", 2)), rules(0, nowhere, "x"),
        rules(1u << 8, nowhere | 9, std::string("x\0", 2)), number(5000) + "x", std::string("abc")})
    CHECK(says(normalizer(bytes)) == "m: the rules of its normalizer are incomplete" + damaged);
}
