// SPDX-License-Identifier: Apache-2.0
// Tests limits of tokenizer files, the repair of invalid UTF-8, input files and their compression, records,
// and threads.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>
#include <zlib.h>
#include <zstd.h>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

#include "support/file_support.hpp"
#include "text/bpe_tokenizer.hpp"
#include "text/input.hpp"
#include "text/pipeline.hpp"
#include "text/support.hpp"
#include "text/token_source.hpp"
#include "text/tokenizer_file.hpp"
#include "text/unicode.hpp"

namespace ts = tessera;
namespace text = programs::text;
using file_support::TemporaryFolder;
using text_support::fixtures, text_support::refusal;

namespace {

void check_says(std::string const& message, std::initializer_list<char const*> texts) {
  for (char const* const part : texts) {
    CAPTURE(message);
    CAPTURE(part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::string repaired(std::string const& bytes) {
  std::string storage;
  return std::string(text::repaired(bytes, storage));
}

/// Returns the text of a small tokenizer.json, whose vocabulary has the letters a and b. `members` and
/// `model` are texts of JSON members. `members` is added to the JSON object of the file, and `model` to the
/// object in its member "model". An added member replaces an earlier member with the same key.
std::string small_json(std::string const& members, std::string const& model = {}) {
  return R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"</s>":3},"merges":["a b"])" +
         (model.empty() ? "" : "," + model) + "}" + (members.empty() ? "" : "," + members) + "}";
}

std::string gzipped(std::string const& bytes) {
  z_stream state{};
  REQUIRE(::deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(::deflateBound(&state, static_cast<uLong>(bytes.size())) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  state.avail_in = static_cast<uInt>(bytes.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  REQUIRE(::deflate(&state, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - state.avail_out);
  ::deflateEnd(&state);
  return out;
}

std::string zstd_packed(std::string const& bytes) {
  std::string out(::ZSTD_compressBound(bytes.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

std::string all_of(std::filesystem::path const& path) {
  std::string out;
  auto const stream = text::ByteStream::open(path.string());
  while (text::fill(*stream, out, out.size() + 1000)) {
  }
  return out;
}

text::Ids ids_of(text::Tokenizer const& tokenizer, text::Inputs const& inputs,
                 text::PipelineOptions const& options) {
  text::Ids ids;
  text::encode_inputs(tokenizer, inputs.files, options, [&](text::Encoded const& block) {
    REQUIRE((block.ends.empty() ? 0 : block.ends.back()) == block.ids.size());
    ids.insert(ids.end(), block.ids.begin(), block.ids.end());
    return true;
  });
  return ids;
}

}  // namespace

TEST_CASE("text: invalid bytes are U+FFFD as Python gives it") {
  std::string const r = "\xef\xbf\xbd";
  CHECK(repaired("plain") == "plain");
  CHECK(repaired("\xff") == r);
  CHECK(repaired("a\x80z") == "a" + r + "z");
  CHECK(repaired("\xe2\x82") == r);  // one replacement for an incomplete character
  CHECK(repaired("\xe2\x82z") == r + "z");
  CHECK(repaired("\xf0\x9f\x98") == r);
  CHECK(repaired("\xed\xa0\x80") == r + r + r);          // a surrogate
  CHECK(repaired("\xc0\xaf") == r + r);                  // an overlong form
  CHECK(repaired("\xf4\x90\x80\x80") == r + r + r + r);  // beyond U+10FFFF
  CHECK(repaired("12345678\xf0\x9f\x98\x80\xc3") == "12345678\xf0\x9f\x98\x80" + r);
}

TEST_CASE("text: what a tokenizer.json asks for and is not there is refused by its path") {
  auto const says = [](std::string const& members, std::string const& model,
                       std::initializer_list<char const*> texts) {
    std::string const json = small_json(members, model);
    CAPTURE(json);
    check_says(refusal([&] { (void)text::parse_tokenizer_json(json, "t.json"); }), texts);
  };
  (void)text::parse_tokenizer_json(small_json(""), "t.json");
  says(R"("normalizer":{"type":"Lowercase"})", "", {"t.json: normalizer.type is Lowercase", "NFKD"});
  says(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"StripAccents"}]})", "",
       {"normalizer.normalizers[1].type is StripAccents"});
  says(R"("normalizer":{"type":"Replace","pattern":{"Regex":"a+"},"content":"b"})", "",
       {"normalizer.pattern", "Regex"});
  says(R"("pre_tokenizer":{"type":"BertPreTokenizer"})", "",
       {"pre_tokenizer.type is BertPreTokenizer", "Metaspace"});
  says(R"("pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"Digits"}]})", "",
       {"pre_tokenizer.pretokenizers[1]", "follows a ByteLevel"});
  says(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":"(a"},"behavior":"Isolated","invert":false})",
       "", {"pre_tokenizer.pattern: cannot use the expression '(a'", "parenthes"});
  for (char const* const foreign : {"\\\\h", "[a[b]]", "[a&&b]", "(?m:a)"})
    says(R"("pre_tokenizer":{"type":"Split","pattern":{"Regex":")" + std::string(foreign) +
             R"("},"behavior":"Isolated","invert":false})",
         "", {"pre_tokenizer.pattern: the expression '", "which tessera does not support"});
  says(R"("pre_tokenizer":{"type":"Split","pattern":{"String":"a"},"behavior":"Sideways"})", "",
       {"behavior is Sideways"});
  says(R"("post_processor":{"type":"Odd"})", "", {"post_processor.type is Odd"});
  says(R"("version":"2.0")", "", {"version is 2.0", "it supports 1.0"});
  std::string const bert = R"({"type":"BertProcessing","cls":["a",0],"sep":["b",1]})";
  says(R"("post_processor":{"type":"Sequence","processors":[)" + bert + "," + bert + "]}", "",
       {"post_processor.processors[1] adds tokens around a text, but an earlier part already does"});
  says(R"("added_tokens":[{"id":9,"content":"x","single_word":1}])", "",
       {"added_tokens[0].single_word must be true or false"});
  says(R"("added_tokens":[{"id":-1,"content":"x"}])", "", {"added_tokens[0].id must be a token id"});
  says("", R"("dropout":0.1)", {"model.dropout is 0.1"});
  says("", R"("end_of_word_suffix":"</w>")", {"model.end_of_word_suffix is"});
  says("", R"("type":"WordPiece")",
       {"model.type is WordPiece, which tessera does not support; it supports BPE"});
  says("", R"("merges":["a x"])", {"model.merges[0]", "'x', which the vocabulary lacks"});
  says("", R"("merges":["a"])", {"model.merges[0] must be two tokens"});
  says("", R"("vocab":{"a":4294967296})", {"model.vocab.a must be a token id"});
  check_says(refusal([] { (void)text::parse_tokenizer_json("{", "t.json"); }), {"t.json: is not valid JSON"});
  check_says(refusal([] { (void)text::parse_tokenizer_json("{}", "t.json"); }),
             {"t.json: the file has no model"});
  says(R"("pre_tokenizer":{"type":"ByteLevel"})", R"("byte_fallback":true)",
       {"model.byte_fallback is true under a ByteLevel, without tokens of all bytes"});
  // If the vocabulary has tokens for all bytes, byte_fallback changes nothing.
  std::string all_bytes = file_support::read(fixtures + "/gpt2/tokenizer.json");
  std::string const off = "\"byte_fallback\":false";
  REQUIRE(all_bytes.find(off) != std::string::npos);
  all_bytes.replace(all_bytes.find(off), off.size(), "\"byte_fallback\":true");
  CHECK(text::encode(text::BpeTokenizer(text::parse_tokenizer_json(all_bytes, "t.json")), "\xe2\x84\xab x") ==
        text::encode(*text::Tokenizer::open(fixtures + "/gpt2", "none"), "\xe2\x84\xab x"));
  text::BpeTokenizer const tokenizer(text::parse_tokenizer_json(small_json(""), "t.json"));
  CHECK(text::encode(tokenizer, "abba") == text::Ids{2, 1, 0});
  check_says(refusal([&] { (void)text::encode(tokenizer, "abc"); }), {"t.json", "no token for the bytes 63"});
  // The PyPI package tokenizers accepts these files, so the library's reader must accept them too. The files
  // have an unknown token that is not in the vocabulary, no byte tokens for byte_fallback, a version line
  // among the merges, or nested sequences.
  auto const read = [](std::string const& members, std::string const& model_members, std::string_view bytes) {
    return text::encode(
        text::BpeTokenizer(text::parse_tokenizer_json(small_json(members, model_members), "t.json")), bytes);
  };
  CHECK(read("", R"("unk_token":"<unk>")", "ab") == text::Ids{2});
  std::string const some_bytes =
      R"("byte_fallback":true,"unk_token":"</s>","vocab":{"a":0,"<0x63>":1,"</s>":2},)"
      R"("merges":["#version: 0.2"])";
  CHECK(read("", some_bytes, "acd") == text::Ids{0, 1, 2});
  CHECK(
      read(R"("normalizer":{"type":"Sequence","normalizers":[{"type":"Sequence","normalizers":)"
           R"([{"type":"Replace","pattern":{"String":"x"},"content":"a"}]}]},"truncation":{"max_length":1},)"
           R"("padding":{"strategy":{"Fixed":5},"pad_to_multiple_of":8},)"
           R"("version":"1.0","decoder":{"type":"Odd"},"more":[1],"post_processor":null,"added_tokens":[])",
           R"("dropout":null,"continuing_subword_prefix":"","end_of_word_suffix":null,"unk_token":null)",
           "xb") == text::Ids{2});
  CHECK(read("\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Sequence\","
             "\"pretokenizers\":[{\"type\":\"Digits\"}]}]}",
             R"("merges":[["a","b"]])", "ab") == text::Ids{2});
  for (bool const fuse : {false, true}) {
    std::string const model = std::string(R"("unk_token":"</s>","fuse_unk":)") + (fuse ? "true" : "false");
    text::BpeTokenizer const unknown(text::parse_tokenizer_json(small_json("", model), "t.json"));
    CHECK(text::encode(unknown, "axyb") == (fuse ? text::Ids{0, 3, 1} : text::Ids{0, 3, 3, 1}));
  }
}

TEST_CASE("text: a folder says which of its tokenizers is taken, and what ends a document") {
  TemporaryFolder const folder;
  check_says(refusal([&] { (void)text::Tokenizer::open(folder.path().string()); }),
             {"holds no tokenizer", "vocab.json"});
  file_support::write(folder / "tokenizer.json", small_json(""));
  file_support::write(folder / "tokenizer.model", "x");
  auto const tokenizer = text::Tokenizer::open(folder.path().string());
  CHECK(tokenizer->description() == "tokenizer.json, taken before tokenizer.model");
  CHECK(tokenizer->document_form() == "TEXT </s>");
  CHECK(tokenizer->vocabulary() == 4);
  CHECK(text::Tokenizer::open(folder.path().string(), "none")->document_form() == "TEXT");
  CHECK(text::Tokenizer::open(folder.path().string(), "b")->behind() == text::Ids{1});
  check_says(refusal([&] { (void)text::Tokenizer::open(folder.path().string(), "zzz"); }),
             {"has no token 'zzz'", "--end-of-text"});
  check_says(refusal([&] { (void)text::Tokenizer::open((folder / "tokenizer.model").string()); }),
             {"not a SentencePiece model"});
  CHECK(text::Tokenizer::open(fixtures + "/opt")->document_form() == "</s> TEXT </s>");
  CHECK(text::Tokenizer::open(fixtures + "/sentencepiece")->document_form() == "<s> TEXT </s>");
  CHECK(text::Tokenizer::open(fixtures + "/sentencepiece", "none")->behind().empty());
}

TEST_CASE("text: a vocab.json with its merges.txt is read for GPT-2's classes, refused for others") {
  TemporaryFolder const folder;
  file_support::write(folder / "vocab.json", R"({"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3})");
  file_support::write(folder / "merges.txt", "a b\n");
  auto const says = [&](char const* file, std::string const& key, std::string const& value) {
    file_support::write(folder / file, "{\"" + key + "\": " + value + "}");
    std::string const message = refusal([&] { (void)text::Tokenizer::open(folder.path().string()); });
    std::filesystem::remove(folder / file);
    return message;
  };
  for (char const* name :
       {"GPT2Tokenizer", "GPT2TokenizerFast", "CodeGenTokenizer", "PreTrainedTokenizerFast"})
    CHECK(says("tokenizer_config.json", "tokenizer_class", '"' + std::string(name) + '"') ==
          "nothing was refused");
  CHECK(says("tokenizer_config.json", "tokenizer_class", "null") == "nothing was refused");
  for (char const* name : {"gpt2", "opt"})
    CHECK(says("config.json", "model_type", '"' + std::string(name) + '"') == "nothing was refused");
  CHECK(says("config.json", "layers", "1") == "nothing was refused");
  for (char const* name : {"Qwen2Tokenizer", "RobertaTokenizerFast", "CLIPTokenizer", "WhisperTokenizer"})
    check_says(says("tokenizer_config.json", "tokenizer_class", '"' + std::string(name) + '"'),
               {"tokenizer_config.json: tokenizer_class is ", name, "as GPT2Tokenizer does",
                "make a tokenizer.json with save_pretrained of transformers"});
  check_says(says("config.json", "model_type", "\"qwen2\""), {"config.json: model_type is qwen2, "});
  check_says(says("config.json", "tokenizer_class", "\"BartTokenizer\""),
             {"config.json: tokenizer_class is BartTokenizer, "});
  check_says(says("tokenizer_config.json", "tokenizer_class", "5"), {"tokenizer_class must be a string"});
  // If tokenizer_config.json and config.json disagree, tokenizer_config.json counts. A tokenizer.json does
  // not depend on the class.
  file_support::write(folder / "config.json", R"({"model_type": "qwen2"})");
  CHECK(says("tokenizer_config.json", "tokenizer_class", "\"GPT2Tokenizer\"") == "nothing was refused");
  file_support::write(folder / "tokenizer.json", small_json(""));
  CHECK(refusal([&] { (void)text::Tokenizer::open(folder.path().string()); }) == "nothing was refused");
}

TEST_CASE("text: vocabularies of tiktoken and SentencePiece models of other names are named") {
  TemporaryFolder const folder;
  auto const says = [&] { return refusal([&] { (void)text::Tokenizer::open(folder.path().string()); }); };
  for (char const* lines : {"IQ== 0\nIg== 1\n", "IQ== 0\r\nIg== 1\r\n", "aGVsbG8h 10"}) {
    file_support::write(folder / "tokenizer.model", lines);
    check_says(says(),
               {"tokenizer.model: is a vocabulary of tiktoken", "use the tokenizer.json of the same"});
  }
  for (char const* lines : {"IQ= 0\n", "IQ==\n", "IQ== x\n", " 0\n", ""}) {
    file_support::write(folder / "tokenizer.model", lines);
    CHECK(says().find("tiktoken") == std::string::npos);
  }
  std::filesystem::remove(folder / "tokenizer.model");
  for (char const* name : {"sentencepiece.bpe.model", "spiece.model"}) {
    auto const file = folder / name;
    file_support::write(file, file_support::read(fixtures + "/sentencepiece/tokenizer.model"));
    check_says(says(), {": holds ", name, "name the file itself"});
    CHECK(text::encode(*text::Tokenizer::open(file.string()), "the end") ==
          text::encode(*text::Tokenizer::open(fixtures + "/sentencepiece"), "the end"));
  }
}

TEST_CASE("text: records") {
  CHECK(tessera::field_of(R"({"id":[{"text":"no"}],"text":"a\u00e9\ud83d\ude00"})", "text", "f") ==
        "a\xc3\xa9\xf0\x9f\x98\x80");
  CHECK(tessera::field_of(R"({"text":"1","text":"2"})", "text", "f") == "2");
  CHECK(tessera::field_of(R"({"text":"\ud83dx\\ud83d\udc00"})", "text", "f") ==
        "\xef\xbf\xbdx\\ud83d\xef\xbf\xbd");
  check_says(refusal([] { (void)tessera::field_of(R"({"a":1,"b":{"text":"x"}})", "text", "f: line 3"); }),
             {"f: line 3: has no field 'text', its fields are: a, b; give --field NAME"});
  check_says(refusal([] { (void)tessera::field_of(R"({"text":5})", "text", "f"); }), {"'text' is not text"});
  check_says(refusal([] { (void)tessera::field_of(R"(["text"])", "text", "f"); }),
             {"is JSON, but not an object"});
  check_says(refusal([] { (void)tessera::field_of(R"({"text":"x")", "text", "f"); }),
             {"f: is not valid JSON, at byte"});
  check_says(refusal([] { (void)tessera::field_of(std::string(100000, '['), "text", "f"); }),
             {"f: is not valid JSON"});
}

TEST_CASE("text: packed files are what they were, damaged ones are named") {
  TemporaryFolder const folder;
  std::string plain;
  for (int i = 0; i < 30000; ++i) plain += "line " + std::to_string(i * 7919) + "\n";
  auto const gz = gzipped(plain), zst = zstd_packed(plain);
  CHECK(all_of(file_support::write(folder / "a.txt", plain)) == plain);
  CHECK(all_of(file_support::write(folder / "a.gz", gz + gz)) == plain + plain);
  CHECK(all_of(file_support::write(folder / "a.zst", zst + zst)) == plain + plain);
  CHECK(all_of(file_support::write(folder / "empty.txt", "")).empty());
  for (std::string const& packed : {gz, zst}) {
    auto const path = file_support::write(folder / "cut", packed.substr(0, packed.size() - 5));
    check_says(refusal([&] { (void)all_of(path); }), {"cut: the ", " file is cut short"});
    std::string damaged = packed;
    for (std::size_t at = packed.size() / 2; at < packed.size() / 2 + 8; ++at)
      damaged[at] = static_cast<char>(damaged[at] ^ 0x5a);
    check_says(refusal([&] { (void)all_of(file_support::write(folder / "damaged", damaged)); }),
               {"damaged: the ", " file is "});
  }
  check_says(refusal([&] { (void)all_of(file_support::write(folder / "p", "PAR1\x15............")); }),
             {"is a Parquet file", "to_json(FILE, orient='records', lines=True)"});
  check_says(refusal([&] {
               (void)all_of(file_support::write(folder / "u", "\xff\xfe" + std::string("h\0i\0", 4)));
             }),
             {"u: is text in UTF-16; convert it to UTF-8: iconv -f UTF-16"});
  for (std::string const& packed : {gzipped("PAR1\x15............"), zstd_packed("PAR1\x15............")})
    check_says(refusal([&] { (void)all_of(file_support::write(folder / "p.gz", packed)); }),
               {"p.gz: is a Parquet file"});
  check_says(
      refusal([&] { (void)text::find_inputs({(folder / "x.bin").string()}, text::InputFormat::by_name); }),
      {"the name of a token file (.bin)"});
  for (std::string const& packed : {gzipped(std::string("a\0b", 3)), std::string("a\0b", 3)})
    check_says(refusal([&] { (void)all_of(file_support::write(folder / "n", packed)); }),
               {"n: holds a NUL byte at 1, so it is not text; give text, JSON Lines or token files"});
}

TEST_CASE("text: JSON Lines are known by their names in any case, and in .json by their first line") {
  TemporaryFolder const folder;
  auto const records = [&](char const* name, std::string const& bytes) {
    auto const path = file_support::write(folder / "named" / name, bytes);
    return text::find_inputs({path.string()}, text::InputFormat::by_name).files.at(0).records;
  };
  std::string const object = R"({"text":"one","v":[1e999,NaN],"half":"\ud800"})", two = object + "\n{}\n";
  for (char const* const name : {"a.jsonl", "a.JSONL", "a.Jsonl", "a.NDJSON", "a.JsonL.GZ"})
    CHECK(records(name, "anything"));
  CHECK_FALSE(records("a.jsonl.txt", two));
  for (char const* const name : {"a.json", "a.JSON", "a.json.gz"}) {
    CHECK(records(name, two));
    CHECK(records(name, "\xef\xbb\xbf\r\n \n" + object + "\r\n\r\n not JSON"));
    CHECK(records(name, object));
    CHECK_FALSE(records(name, "text"));
    CHECK_FALSE(records(name, ""));
    CHECK_FALSE(records(name, " \n\n"));
    for (std::string const& other :
         {"[" + object + "]", std::string("[\n"), std::string("{\n  \"text\": \"one\"\n}\n"),
          object + "," + object, std::string("{\"text\": \"cut")})
      check_says(refusal([&] { (void)records(name, other); }),
                 {": its first line is not a whole JSON object; write JSON Lines"});
  }
  CHECK(records("packed.json", gzipped(two)));
  CHECK(records("long.json", "{\"text\":\"" + std::string(1'000'000, 'x') + "\"}\n{}"));

  // In a folder, a .json file that contains one JSON value is text, not records, since programs often write
  // such files.
  file_support::write(folder / "in/a.json", two);
  file_support::write(folder / "in/b.json", object + "\n");
  file_support::write(folder / "in/c.json", "{\n}\n");
  file_support::write(folder / "in/d.json", "[1]");
  auto const inputs = text::find_inputs({(folder / "in").string()}, text::InputFormat::by_name);
  REQUIRE(inputs.files.size() == 4);
  CHECK(inputs.skipped == 0);
  for (std::size_t at = 0; at < 4; ++at) CHECK(inputs.files[at].records == (at == 0));
  // If the format is given explicitly, the file names do not matter.
  for (auto const format : {text::InputFormat::text, text::InputFormat::records})
    for (text::InputFile const& file : text::find_inputs({(folder / "in").string()}, format).files)
      CHECK(file.records == (format == text::InputFormat::records));
  CHECK(text::find_inputs({(folder / "in/d.json").string()}, text::InputFormat::text).files.size() == 1);
}

TEST_CASE("text: tokens are equal on any number of threads, from any place and of packed files") {
  TemporaryFolder const folder;
  std::string book, records;
  for (int i = 0; i < 12000; ++i) {
    book += "Line " + std::to_string(i) + " has \xc3\xa9 and \xe6\x97\xa5\xe6\x9c\xac words, it's so\n" +
            (i % 50 == 0 ? "\xff\n\n" : "");
    records += "{\"text\":\"record " + std::to_string(i) + " don't \\u00e9\"}\n" +
               (i % 99 == 0 ? "\n{\"text\":\"\"}\n" : "");
  }
  file_support::write(folder / "in/a.txt", book);
  file_support::write(folder / "in/b.jsonl.zst", zstd_packed(records));
  file_support::write(folder / "in/c/d.txt.gz", gzipped(book.substr(0, 1000)));
  file_support::write(folder / "in/.hidden", "x");
  file_support::write(folder / "in/binary", std::string("a\0b", 3));
  auto const inputs = text::find_inputs({(folder / "in").string()}, text::InputFormat::by_name);
  CHECK(inputs.files.size() == 3);
  CHECK(inputs.skipped == 2);
  for (char const* const name : {"gpt2", "llama3", "llama2", "sentencepiece"}) {
    CAPTURE(name);
    auto const tokenizer = text::Tokenizer::open(fixtures + "/" + name);
    text::Ids expected = text::encode(*tokenizer, book, true);
    auto const encode = text::record_encoder(tokenizer);
    for (std::size_t at = 0; at < records.size();) {
      std::size_t const end = records.find('\n', at);
      if (end - at > 14) {
        encode(tessera::field_of(records.substr(at, end - at), "text", "f"), expected);
      }
      at = end + 1;
    }
    auto const last = text::encode(*tokenizer, book.substr(0, 1000), true);
    expected.insert(expected.end(), last.begin(), last.end());
    for (int const threads : {1, 2, 5}) CHECK(ids_of(*tokenizer, inputs, {.threads = threads}) == expected);

    // The callback ends encode_inputs() after each block. The next call resumes at the position after this
    // block.
    text::Ids parts;
    text::Position at;
    for (bool more = true; more;) {
      more = false;
      text::encode_inputs(*tokenizer, inputs.files, {.threads = 2, .start = at},
                          [&](text::Encoded const& block) {
                            parts.insert(parts.end(), block.ids.begin(), block.ids.end());
                            at = block.after;
                            more = true;
                            return false;
                          });
    }
    CHECK(parts == expected);
    CHECK(at.bytes == static_cast<std::int64_t>(book.size() + records.size() + 1000));
  }
  auto const tokenizer = text::Tokenizer::open(fixtures + "/gpt2", "none");
  text::Inputs first{{inputs.files[0]}, 0};
  std::size_t const within = book.find("\xe6\x97") + 2;  // after two of a character's three bytes
  CHECK(ids_of(*tokenizer, first, {.data_bytes = static_cast<std::int64_t>(within)}) ==
        text::encode(*tokenizer, book.substr(0, within - 2)));
  text::Inputs second{{inputs.files[1]}, 0};
  auto const three =
      ids_of(*tokenizer, second, {.data_bytes = static_cast<std::int64_t>(records.find("record 2") + 1)});
  CHECK(three == text::encode(*tokenizer,
                              "record 0 don't \xc3\xa9"
                              "record 1 don't \xc3\xa9"
                              "record 2 don't \xc3\xa9"));
  auto const source = text::tokenized(*tokenizer, {inputs.files[0].path}, "text", 2, {});
  CHECK(source.size() == static_cast<std::int64_t>(text::encode(*tokenizer, book).size()));
  CHECK(source.vocabulary() == 420);
}

TEST_CASE("text: the error of the first faulty record is given, on any number of threads") {
  TemporaryFolder const folder;
  std::string records;
  for (int i = 0; i < 40000; ++i) records += i >= 30000 ? "{\"no\":1}\n" : "{\"text\":\"record\"}\n";
  auto const inputs = text::find_inputs({file_support::write(folder / "a.jsonl", records).string()},
                                        text::InputFormat::by_name);
  auto const tokenizer = text::Tokenizer::open(fixtures + "/gpt2");
  for (int const threads : {1, 4})
    check_says(refusal([&] { (void)ids_of(*tokenizer, inputs, {.threads = threads}); }),
               {"a.jsonl: line 30001: has no field 'text'"});
}
