// SPDX-License-Identifier: Apache-2.0
// Tests added tokens (tokens that are matched before the text is split). The expected ids and flags are the
// results of the PyPI packages tokenizers 0.23 and transformers 5.
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "tessera/core/error.hpp"

#include "support/file_support.hpp"
#include "text/bpe_tokenizer.hpp"
#include "text/pipeline.hpp"
#include "text/support.hpp"
#include "text/tokenizer.hpp"
#include "text/tokenizer_file.hpp"

namespace text = programs::text;
using file_support::TemporaryFolder;
using text_support::fixtures, text_support::refusal;
using Json = nlohmann::json;

namespace {

Json token(char const* content, int id, std::initializer_list<char const*> flags = {}, bool special = true) {
  Json json = {{"id", id}, {"content", content}, {"special", special}, {"normalized", false}};
  for (char const* flag : {"lstrip", "rstrip", "single_word"}) json[flag] = false;
  for (char const* flag : flags) json[flag] = true;
  return json;
}

/// Returns the tokenizer of the fixture gpt2 with the added tokens `added`. They replace the added tokens of
/// the fixture.
text::BpeTokenizer gpt2_with(Json const& added) {
  Json json = Json::parse(file_support::read(fixtures + "/gpt2/tokenizer.json"));
  json["added_tokens"] = added;
  return text::BpeTokenizer(text::parse_tokenizer_json(json.dump(), "t.json"));
}

std::size_t gpt2_size() {
  return Json::parse(file_support::read(fixtures + "/gpt2/tokenizer.json"))["model"]["vocab"].size();
}

void check_has(std::string const& message, std::initializer_list<char const*> parts) {
  CAPTURE(message);
  for (char const* const part : parts) CHECK(message.find(part) != message.npos);
}

/// A temporary folder that contains the SentencePiece model of the fixtures.
struct SentencePieceFolder {
  TemporaryFolder folder;
  SentencePieceFolder() {
    file_support::write(folder / "tokenizer.model",
                        file_support::read(fixtures + "/sentencepiece/tokenizer.model"));
  }
  void write(char const* name, Json const& json) const { file_support::write(folder / name, json.dump()); }
  std::shared_ptr<text::Tokenizer const> open(std::string const& end = {}) const {
    return text::Tokenizer::open(folder.path().string(), end);
  }
};

}  // namespace

TEST_CASE("text: the package's ids of added tokens count, not those of the file") {
  auto const size = static_cast<text::TokenId>(gpt2_size());
  // The ids of these tokens are not contiguous. The text "q" is in the vocabulary too, and one text occurs
  // twice.
  auto const tokenizer =
      gpt2_with({token("<|a|>", 900), token("q", 950), token("<|b|>", 7), token("<|a|>", 901)});
  text::TokenId const q = text::encode(*text::Tokenizer::open(fixtures + "/gpt2", "none"), "q").front();
  CHECK(text::encode(tokenizer, "<|b|>q<|a|>") == text::Ids{size + 1, q, size});
  CHECK(tokenizer.vocabulary() == size + 2);
  CHECK(tokenizer.find("<|b|>") == size + 1);
}

TEST_CASE("text: flags of added tokens mean what they mean in the package") {
  auto const size = static_cast<text::TokenId>(gpt2_size());
  auto const ids = [&](Json const& added, std::string_view bytes) {
    return text::encode(gpt2_with(added), bytes);
  };
  auto const plain = [](std::string_view bytes) {
    return text::encode(*text::Tokenizer::open(fixtures + "/gpt2", "none"), bytes);
  };
  auto const joined = [](std::initializer_list<text::Ids> parts) {
    text::Ids all;
    for (text::Ids const& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  text::Ids const x{size};
  CHECK(ids(Json::array({token("xx", 0)}), "a xx b") == joined({plain("a "), x, plain(" b")}));
  CHECK(ids(Json::array({token("xx", 0, {"lstrip"})}), "a \t xx b") == joined({plain("a"), x, plain(" b")}));
  CHECK(ids(Json::array({token("xx", 0, {"rstrip"})}), "a xx \n b") == joined({plain("a "), x, plain("b")}));
  CHECK(ids(Json::array({token("xx", 0, {"lstrip", "rstrip"})}), "xx  xx") == joined({x, x}));
  // The added token "xx" has the flag "single_word". It matches only if no letter, mark, digit or connector
  // is next to it.
  Json const word = Json::array({token("xx", 0, {"single_word"})});
  for (char const* apart : {" xx", "xx-", "xx\xe2\x80\x99", ".xx."}) {
    std::string const whole = apart;
    std::size_t const at = whole.find("xx");
    CHECK(ids(word, whole) == joined({plain(whole.substr(0, at)), x, plain(whole.substr(at + 2))}));
  }
  for (char const* within : {"axx", "xx1", "xx_", "xx\xcc\x81", "\xe6\x97\xa5xx"})
    CHECK(ids(word, within) == plain(within));
  // If two added tokens have one text, the id of the first and the flags of the last are used.
  CHECK(ids(Json::array({token("xx", 0, {"single_word"}), token("yy", 0), token("xx", 0)}), "axx") ==
        joined({plain("a"), x}));
  CHECK(ids(Json::array({token("xx", 0), token("xx", 0, {"single_word"})}), "axx") == plain("axx"));
  // The flags "lstrip" and "rstrip" extend a match by the white space before and after it. The tokenizer also
  // searches for tokens in this white space. If an extended match covers all characters of a token, this
  // token does not match.
  CHECK(ids(Json::array({token(" xx", 0, {"rstrip"})}), " xx  xxz") == joined({x, x, plain("z")}));
  CHECK(ids(Json::array({token("~ ", 0), token(" ", 0, {"lstrip", "rstrip"})}), "a   b").size() == 3);
}

TEST_CASE("text: a vocab.json with its merges.txt takes added tokens of the files next to it") {
  TemporaryFolder const folder;
  file_support::write(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<e>": 3, "\u0120": 4})");
  file_support::write(folder / "merges.txt", "#version: 0.2\r\na b\r\n");
  auto const open = [&] { return text::Tokenizer::open(folder.path().string()); };
  file_support::write(folder / "added_tokens.json", R"({"<y>": 6, "<x>": 5})");
  file_support::write(folder / "special_tokens_map.json",
                      R"({"eos_token": {"content": "<e>", "rstrip": true}, "pad_token": "<p>"})");
  CHECK(text::encode(*open(), "ab<x>a<e> b<y><p>", true) == text::Ids{2, 5, 0, 3, 1, 6, 7, 3});
  CHECK(open()->vocabulary() == 8);
  // The list of added tokens in tokenizer_config.json replaces the lists in added_tokens.json and
  // special_tokens_map.json.
  file_support::write(
      folder / "tokenizer_config.json",
      R"({"eos_token": "<e>", "added_tokens_decoder": {"5": {"content": "<z>", "lstrip": true}}})");
  CHECK(text::encode(*open(), "a <z>b", true) == text::Ids{0, 5, 1, 3});
  auto const refused = [&](std::string const& decoder) {
    file_support::write(folder / "tokenizer_config.json",
                        R"({"eos_token": "<e>", "added_tokens_decoder": )" + decoder + "}");
    return refusal([&] { (void)open(); });
  };
  check_has(refused(R"({"8": {"content": "<z>"}})"), {"tokenizer_config.json: added_tokens_decoder.8 gives "
                                                      "'<z>' the id 8, but transformers would assign 5"});
  check_has(refused(R"({"5": {"content": "ab"}})"), {"gives 'ab' the id 5, but transformers would assign 2"});
  check_has(refused(R"({"5": {"content": "<z>", "single_word": true}})"),
            {"added_tokens_decoder.5.single_word is true", "set it to false"});
  check_has(refused(R"({"x": {"content": "<z>"}})"), {"added_tokens_decoder.x is not a token with an id"});
  std::filesystem::remove(folder / "tokenizer_config.json");
  file_support::write(folder / "added_tokens.json", R"({"<x>": "5"})");
  check_has(refusal([&] { (void)open(); }), {"added_tokens.json: <x> must have a whole number as its id"});
}

TEST_CASE("text: a tokenizer.json takes added tokens of tokenizer_config.json") {
  TemporaryFolder const folder;
  file_support::write(folder / "tokenizer.json",
                      R"({"model": {"vocab": {"a": 0, "b": 1}, "merges": []},
                          "added_tokens": [{"id": 2, "content": "<x>", "special": true}]})");
  file_support::write(
      folder / "tokenizer_config.json",
      R"({"eos_token": "<e>", "added_tokens_decoder": {"2": {"content": "<x>", "special": true},
                          "3": {"content": "<e>", "special": true}}, "additional_special_tokens": ["<x>", "<y>"]})");
  auto const tokenizer = text::Tokenizer::open(folder.path().string());
  CHECK(text::encode(*tokenizer, "a<y><x>b", true) == text::Ids{0, 4, 2, 1, 3});
}

TEST_CASE("text: a SentencePiece model takes added tokens of the files next to it") {
  SentencePieceFolder const folder;
  Json const im = {{"600", {{"content", "<|im|>"}, {"special", true}}}};
  Json config = {{"legacy", false}, {"bos_token", "<s>"}, {"added_tokens_decoder", im}};
  auto const ids = [&](char const* bytes) {
    folder.write("tokenizer_config.json", config);
    return text::encode(*folder.open(), bytes);
  };
  CHECK(ids("the end<|im|>the") == text::Ids{264, 292, 263, 600, 446, 262});
  CHECK(ids("<|im|>the") == text::Ids{600, 446, 262});
  CHECK(ids("the <|im|> end") == text::Ids{264, 443, 600, 292, 263});
  CHECK(ids("<s>the</s> end") == text::Ids{1, 446, 262, 2, 292, 263});
  CHECK(folder.open()->vocabulary() == 601);
  config["legacy"] = true;
  CHECK(ids("the end<|im|>the") == text::Ids{264, 292, 263, 600, 264});
  config.erase("legacy");
  config["added_tokens_decoder"]["600"]["lstrip"] = config["added_tokens_decoder"]["600"]["rstrip"] = true;
  CHECK(ids("the <|im|> end") == text::Ids{264, 600, 444, 263});
  config["added_tokens_decoder"] = {{"601", {{"content", "<|im|>"}}}};
  check_has(refusal([&] { (void)ids("x"); }),
            {"added_tokens_decoder.601", "the id 601, but transformers would assign 600"});
  config.erase("added_tokens_decoder");
  folder.write("added_tokens.json", {{"<|im|>", 600}});
  CHECK(ids("the end<|im|>the") == text::Ids{264, 292, 263, 600, 446, 262});
}

TEST_CASE("text: a SentencePiece model is read for LLaMA's classes, refused for others") {
  SentencePieceFolder const folder;
  auto const says = [&](char const* file, Json const& json) {
    folder.write(file, json);
    std::string const message = refusal([&] { (void)folder.open(); });
    std::filesystem::remove(folder.folder / file);
    return message;
  };
  auto const class_says = [&](char const* name) {
    return says("tokenizer_config.json", {{"tokenizer_class", name}});
  };
  for (char const* name : {"LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"})
    CHECK(class_says(name) == "nothing was refused");
  for (char const* name : {"llama", "mistral"})
    CHECK(says("config.json", {{"model_type", name}}) == "nothing was refused");
  for (char const* name : {"T5Tokenizer", "XLMRobertaTokenizerFast", "AlbertTokenizer", "XLNetTokenizer",
                           "BigBirdTokenizer", "CodeLlamaTokenizer"})
    check_has(class_says(name), {"tokenizer_config.json: tokenizer_class is ", name, "as LlamaTokenizer does",
                                 "copy tokenizer.model into a folder of its own"});
  check_has(says("config.json", {{"model_type", "t5"}}), {"config.json: model_type is t5, "});
  // The tokenizers of Gemma do not insert a space before a text.
  check_has(class_says("GemmaTokenizer"),
            {"tokenizer_class is GemmaTokenizer", "which puts no space in front of a text"});
  std::string const model = file_support::read(fixtures + "/sentencepiece/tokenizer.model");
  file_support::write(folder.folder / "tokenizer.model", model + std::string("\x1a\x02\x18\0", 4));
  CHECK(class_says("GemmaTokenizer") == "nothing was refused");
  folder.write("tokenizer_config.json", {{"tokenizer_class", "GemmaTokenizer"}});
  CHECK(text::encode(*folder.open(), "the") == text::Ids{446, 262});
}

TEST_CASE("text: null means in tokenizer_config.json what it means to the tokenizer class") {
  SentencePieceFolder const folder;
  Json config = {{"tokenizer_class", "LlamaTokenizer"}, {"bos_token", "<s>"}};
  auto const ids = [&] {
    folder.write("tokenizer_config.json", config);
    return text::encode(*folder.open("none"), "the end", true);
  };
  CHECK(ids() == text::Ids{1, 264, 292, 263});
  config["add_bos_token"] = nullptr;
  CHECK(ids() == text::Ids{264, 292, 263});
  config["add_bos_token"] = true;
  config["add_prefix_space"] = nullptr;
  CHECK(ids() == text::Ids{1, 264, 292, 263});
  config["legacy"] = true;
  CHECK(ids() == text::Ids{1, 264, 292, 263});
  config["legacy"] = false;
  CHECK(ids() == text::Ids{1, 446, 262, 292, 263});
}

TEST_CASE("text: <|endoftext|> of a vocab.json is special unless the files name all of its three uses") {
  TemporaryFolder const folder;
  file_support::write(folder / "vocab.json", R"({"<": 0, "|": 1, ">": 2, "e": 3, "n": 4, "d": 5, "o": 6,
                                                 "f": 7, "t": 8, "x": 9, "<|endoftext|>": 10, "</s>": 11})");
  file_support::write(folder / "merges.txt", "");
  text::Ids const spelled{0, 1, 3, 4, 5, 6, 7, 8, 3, 9, 8, 1, 2};
  auto const ids = [&](Json const& config) {
    file_support::write(folder / "tokenizer_config.json", config.dump());
    return text::encode(*text::Tokenizer::open(folder.path().string(), "none"), "<|endoftext|>", true);
  };
  Json config = {{"tokenizer_class", "GPT2Tokenizer"}};
  CHECK(ids(config) == text::Ids{10});
  config["bos_token"] = config["eos_token"] = "</s>";
  CHECK(ids(config) == text::Ids{10});
  config["unk_token"] = "</s>";
  CHECK(ids(config) == spelled);
  config["unk_token"] = nullptr;
  CHECK(ids(config) == spelled);
  CHECK(ids({{"bos_token", nullptr}, {"eos_token", nullptr}, {"unk_token", nullptr}}) == spelled);
  CHECK(ids({{"add_bos_token", true}}) == text::Ids{10, 10});
}

TEST_CASE("text: add_prefix_space and split_special_tokens next to a tokenizer.json") {
  TemporaryFolder const folder;
  auto const name = [&](char const* file) { return folder / file; };
  std::string const json = file_support::read(fixtures + "/gpt2/tokenizer.json");
  file_support::write(name("tokenizer.json"), json);
  auto const ids = [&](Json const& config) {
    file_support::write(name("tokenizer_config.json"), config.dump());
    return text::encode(*text::Tokenizer::open(folder.path().string(), "none"), "the end");
  };
  auto const gpt2 = text::Tokenizer::open(fixtures + "/gpt2", "none");
  text::Ids const bare = text::encode(*gpt2, "the end"), spaced = text::encode(*gpt2, " the end");
  REQUIRE(bare != spaced);
  char const* const key = "tokenizer_class";
  CHECK(ids({{key, "GPT2Tokenizer"}}) == bare);
  CHECK(ids({{key, "GPT2Tokenizer"}, {"add_prefix_space", true}}) == spaced);
  CHECK(ids({{key, "RobertaTokenizerFast"}, {"add_prefix_space", true}}) == spaced);
  for (char const* without : {"PreTrainedTokenizerFast", "LlamaTokenizerFast"})
    CHECK(ids({{key, without}, {"add_prefix_space", true}}) == bare);
  file_support::write(name("config.json"), R"({"model_type": "gpt2"})");
  CHECK(ids({{"add_prefix_space", true}}) == spaced);
  std::filesystem::remove(name("config.json"));
  Json adds = Json::parse(json);
  adds["pre_tokenizer"]["add_prefix_space"] = true;
  file_support::write(name("tokenizer.json"), adds.dump());
  CHECK(ids({{key, "GPT2Tokenizer"}}) == bare);
  CHECK(ids({{key, "GPTNeoXTokenizer"}}) == bare);
  CHECK(ids({{key, "PreTrainedTokenizerFast"}, {"add_prefix_space", false}}) == spaced);
  CHECK(ids(Json::object()) == spaced);
  for (char const* without : {"PreTrainedTokenizerFast", "GPT2Tokenizer"}) {
    check_has(refusal([&] {
                (void)ids({{key, without}, {"split_special_tokens", true}});
              }),
              {"tokenizer_config.json: split_special_tokens is true, which tessera does not support"});
    (void)ids({{key, without}, {"split_special_tokens", false}});
  }
  // The pre-tokenizer of this file ignores add_prefix_space. If add_prefix_space contradicts tokenizer.json,
  // the tokenizer is refused.
  file_support::write(name("tokenizer.json"), file_support::read(fixtures + "/llama2/tokenizer.json"));
  (void)ids({{key, "LlamaTokenizer"}, {"add_prefix_space", true}});
  (void)ids({{key, "LlamaTokenizer"}, {"add_prefix_space", nullptr}});
  check_has(refusal([&] {
              (void)ids({{key, "LlamaTokenizer"}, {"add_prefix_space", false}});
            }),
            {"add_prefix_space is false, but tokenizer.json puts a space in front", "make both agree"});
}

TEST_CASE("text: the folder's own tokens end and begin documents of a SentencePiece model") {
  SentencePieceFolder const folder;
  CHECK(folder.open()->document_form() == "<s> TEXT </s>");
  folder.write("tokenizer_config.json", {{"eos_token", "\xe2\x96\x81the"}});
  CHECK(folder.open()->behind() == text::Ids{264});
  CHECK(folder.open("</s>")->document_form() == "<s> TEXT </s>");
  folder.write("tokenizer_config.json", {{"eos_token", {{"content", "<unk>"}}}, {"bos_token", nullptr}});
  CHECK(folder.open()->document_form() == "TEXT <unk>");
  folder.write("tokenizer_config.json", {{"add_eos_token", true}, {"add_bos_token", false}});
  CHECK(folder.open("none")->document_form() == "TEXT </s>");
}

TEST_CASE("text: stretches of a text with added tokens have the tokens of the whole") {
  SentencePieceFolder const folder;
  folder.write("tokenizer_config.json",
               {{"added_tokens_decoder",
                 {{"600", {{"content", "the"}, {"lstrip", true}}}, {"601", {{"content", " end"}}}}}});
  std::string bytes;
  for (int i = 0; i < 40; ++i) bytes += "of the end and the " + std::to_string(i * i) + " words end then ";
  auto const path = file_support::write(folder.folder / "t.txt", bytes);
  auto const tokenizer = folder.open("none");
  text::Inputs const inputs = text::find_inputs({path.string()}, text::InputFormat::text);
  text::PipelineOptions options;
  options.stretch = 16;
  text::Ids ids;
  std::size_t parts = 0;
  text::encode_inputs(*tokenizer, inputs.files, options, [&](text::Encoded const& block) {
    ids.insert(ids.end(), block.ids.begin(), block.ids.end());
    parts += block.ends.size();
    return true;
  });
  CHECK(ids == text::encode(*tokenizer, bytes, true));
  CHECK(parts > 20);
}

TEST_CASE("text: a share of a few bytes is of short stretches") {
  CHECK(text::stretch_for(0, 0.5) == text::longest_stretch);
  CHECK(text::stretch_for(1'000'000, 0.0) == text::longest_stretch);
  CHECK(text::stretch_for(100'000'000, 0.01) == text::longest_stretch);
  CHECK(text::stretch_for(426'000, 0.02) == 4260);
  CHECK(text::stretch_for(100, 0.001) == 16);
}
