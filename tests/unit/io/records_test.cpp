// SPDX-License-Identifier: Apache-2.0
// Tests sources of training data whose samples are records (separate texts): the lines of a text file, the
// objects of a JSON Lines file, or the documents of a token file. Also tests how records are cut and padded
// to the length of a sequence.
#include "tessera/io/records.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/data/batch.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;
using file_support::TemporaryFolder;
using file_support::write;

namespace {

using Tokens = std::vector<std::int32_t>;
using Paths = std::vector<std::string>;

/// Returns every record of `source` as a string.
std::vector<std::string> texts(ts::TokenSource const& source) {
  std::vector<std::string> found;
  for (ts::Record const& record : source.records()) {
    Tokens tokens(static_cast<std::size_t>(record.tokens));
    source.read(record.first, tokens);
    found.emplace_back(tokens.begin(), tokens.end());
  }
  return found;
}

ts::TokenSource documents(std::vector<std::uint32_t> tokens, std::vector<ts::Record> records) {
  ts::TokenSource source = ts::TokenSource::from_memory(std::move(tokens), {.vocabulary = 100});
  source.divide(std::move(records));
  return source;
}

}  // namespace

TEST_CASE("a record is cut to a sequence or filled up on its right") {
  auto const source = documents({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, {{0, 2}, {2, 5}, {7, 4}, {0, 11}});
  ts::Loader loader(source, {.batch = 4, .sequence = 4, .order = ts::Order::sequential});
  CHECK(loader.samples() == 4);
  ts::Batch const& batch = loader.load(0);
  CHECK(batch.tokens == Tokens{1, 2, 0, 0, 3, 4, 5, 6, 8, 9, 10, 11, 1, 2, 3, 4});
  CHECK(batch.targets == Tokens{2, -1, -1, -1, 4, 5, 6, 7, 9, 10, 11, -1, 2, 3, 4, 5});
  CHECK(batch.valid_tokens() == 1 + 4 + 3 + 4);
  CHECK(loader.targets_in(0) == batch.valid_tokens());
  CHECK(loader.load(7).tokens == loader.load(0).tokens);

  // The loader reuses its buffer. If a short record is loaded after a long record, no tokens of the long
  // record may remain.
  ts::Loader one(source, {.batch = 1, .sequence = 4, .order = ts::Order::sequential});
  one.load(3);
  CHECK(one.load(0).tokens == Tokens{1, 2, 0, 0});
  CHECK(one.load(0).targets == Tokens{2, -1, -1, -1});
}

TEST_CASE("records are shuffled alike on every world, and the first of them are a set of their own") {
  std::vector<std::uint32_t> tokens(60);
  std::vector<ts::Record> records;
  for (std::uint32_t i = 0; i < 20; ++i) {
    tokens[3 * i] = i;
    records.push_back({3 * i, 2 + i % 2});
  }
  auto const source = documents(tokens, records);
  ts::LoaderOptions options{.batch = 2, .sequence = 2, .accumulation = 2, .seed = 9, .samples = 7};
  ts::Loader whole(source, options);
  options.accumulation = 1;
  options.world = 2;
  for (std::int64_t step : {0, 1, 5})
    for (int rank : {0, 1}) {
      options.rank = rank;
      ts::Loader part(source, options);
      auto const expected = whole.load(step).micro_tokens(rank);
      CHECK(part.load(step).tokens == Tokens(expected.begin(), expected.end()));
      for (std::size_t at : {0u, 2u}) CHECK(part.load(step).tokens[at] < 7);
    }
}

TEST_CASE("records that lie outside or leave nothing to predict are refused") {
  auto source = ts::TokenSource::from_memory({1, 2, 3}, {.vocabulary = 100});
  CHECK_ERROR(data, source.divide({}), "memory", "every record has fewer than two tokens");
  CHECK_ERROR(usage, source.divide({{0, 1}}), "a record of 1 tokens");
  CHECK_ERROR(usage, source.divide({{2, 2}}), "from token 2", "the number of tokens is 3");
  CHECK_ERROR(usage, source.divide({{-1, 2}}), "from token -1");
  source.divide({{0, 3}});
  CHECK_ERROR(data, ts::Loader(source, {.samples = 2}).samples(), "--samples 2", "the 1 samples");
}

TEST_CASE("lines of files end at their ends and stay where they are") {
  TemporaryFolder folder;
  std::string const long_line(40'000, 'x');
  write(folder / "a.txt", "first line\r\n\nb\nlast\r");
  write(folder / "b.txt", "\nown\n" + long_line + "\r\n\r\n" + std::string(40'000, 'y'));
  auto const source = ts::open_lines(Paths{folder / "a.txt", folder / "b.txt"});
  CHECK(texts(source) ==
        std::vector<std::string>{"first line", "last\r", "own", long_line, std::string(40'000, 'y')});
  CHECK(source.format() == ts::TokenFormat::bytes);
  CHECK(file_support::has(source.description(), " bytes in 5 records, 4 too short"));
  auto const in_folder = ts::open_lines(Paths{folder.path().string()}, {.vocabulary = 300});
  CHECK(texts(in_folder) == texts(source));
  CHECK(in_folder.vocabulary() == 300);
  CHECK_ERROR(data, ts::open_lines(Paths{write(folder / "c.txt", "a\nb\n\n")}), "c.txt",
              "every record has fewer than two");
  auto const bin = write(folder / "t.bin", bytes_of(std::vector<std::uint16_t>{1, 2, 3}));
  CHECK_ERROR(usage, ts::open_lines(Paths{bin}), "t.bin", "uint16 tokens", "--samples-are records");
}

TEST_CASE("an encoder makes the tokens of a record") {
  TemporaryFolder folder;
  auto const words = [](std::string_view text, std::vector<std::uint32_t>& tokens) {
    std::uint32_t length = 0;
    for (char const c : std::string(text) + " ") {
      if (c != ' ')
        ++length;
      else if (length > 0)
        tokens.push_back(1000 + std::exchange(length, 0));
    }
  };
  auto const lines = ts::open_lines(Paths{write(folder / "a.txt", "to be or\nnot\n\nto wonder\r\n")},
                                    {.vocabulary = 2000, .encode = words});
  CHECK(lines.vocabulary() == 2000);
  REQUIRE(lines.records().size() == 2);
  CHECK(lines.records()[1].tokens == 2);
  ts::Loader loader(lines, {.batch = 2, .sequence = 3, .order = ts::Order::sequential});
  CHECK(loader.load(0).tokens == Tokens{1002, 1002, 1002, 1002, 1006, 0});
  CHECK(loader.load(0).targets == Tokens{1002, 1002, -1, 1006, -1, -1});
  CHECK_ERROR(data, ts::open_lines(Paths{folder / "a.txt"}, {.vocabulary = 1006, .encode = words}), "a.txt",
              "token 1006", "vocabulary of 1006");
}

TEST_CASE("objects of JSON Lines are records") {
  TemporaryFolder folder;
  auto const path = write(folder / "a.jsonl",
                          "{\"id\": 7, \"text\": \"one\\ntwo \\u00e4\"}\n"
                          "  \n"
                          "{\"text\": \"x\"}\r\n"
                          "{\"text\": \"end\", \"title\": \"no \\\"end\\\"\"}");
  auto const source = ts::open_records(Paths{path});
  CHECK(texts(source) == std::vector<std::string>{"one\ntwo \xc3\xa4", "end"});
  CHECK(source.vocabulary() == 256);
  CHECK(file_support::has(source.description(), " in 2 records, 1 too short"));
  auto const refused = [&](std::string const& text, ts::RecordOptions const& options = {}) {
    return ts::open_records(Paths{write(folder / "b.jsonl", text)}, options);
  };
  CHECK_ERROR(data, ts::open_records(Paths{path}, {.field = "title"}), "a.jsonl", "line 1",
              "no field 'title', its fields are: id, text; give --field NAME");
  CHECK_ERROR(data, ts::open_records(Paths{path}, {.field = "id"}), "line 1", "the field 'id' is not text");
  CHECK_ERROR(data, refused("{\"text\": \"fine\"}\n{\"text\": \"cut"), "b.jsonl", "line 2",
              "is not valid JSON, at byte", "--samples-are lines");
  CHECK_ERROR(data, refused("[{\"text\": \"fine\"}]"), "line 1",
              "is JSON, but not an object; each line must be one object, or give --samples-are lines");
  CHECK_ERROR(data, refused("{}\n"), "line 1", "no field 'text', its fields are: none");
  // The accepted lines of this file have a byte order mark, blank lines, nested fields, duplicate fields,
  // invalid UTF-8, and one half of a surrogate pair.
  auto const odd = refused(
      "\xef\xbb\xbf{\"text\": \"mark\"}\r\n\t\r\r\n\n"
      "{\"in\": {\"text\": \"no\"}, \"text\": \"first\", \"text\": \"last\"}\n"
      "{\"text\": \"a\xff\xc3(\"}\n{\"text\": \"\\ud83d x\", \"\xfe\": 1}");
  CHECK(texts(odd) ==
        std::vector<std::string>{"mark", "last", "a\xef\xbf\xbd\xef\xbf\xbd(", "\xef\xbf\xbd x"});
  CHECK(file_support::has(odd.description(), "b.jsonl (3 x invalid UTF-8 as U+FFFD), "));
  CHECK_ERROR(data, refused("{\"text\": 12}"), "line 1", "the field 'text' is not text");
  // For each of the next lines, the error message gives the reason for the refusal and is itself valid UTF-8.
  CHECK_ERROR(data, refused("{\"text\": \"a\"}\n{\"note\": \"a: b: c] d\", \"text\": tru}"), "line 2",
              "at byte 35 of the line: syntax error while parsing value - invalid literal", "tru}");
  for (char const* const line : {"{\"text\": \xff\xfe}", "{\"text\": \xc3\xa9}", "\xe6\x97\xa5"}) {
    std::string const message = file_support::thrown_by([&] { (void)refused(line); }).text;
    CAPTURE(message);
    CHECK(ts::utf8::first_invalid(message) == message.size());
    CHECK(file_support::has(message, "invalid literal"));
  }
  std::string wide = "{\"a";
  for (int i = 0; i < 150; ++i) wide += "\xc3\xa9";
  std::string const message = file_support::thrown_by([&] { (void)refused(wide + "\": 1}"); }).text;
  CHECK(ts::utf8::first_invalid(message) == message.size());
  CHECK_ERROR(data, refused(std::string("\xff\xfe{\0\"\0", 6)), "b.jsonl", "is text in UTF-16", "iconv");
  // NaN and Infinity are accepted, because Python's json module writes and reads them.
  CHECK(texts(refused("{\"x\": NaN, \"y\": [-Infinity, Infinity], \"text\": \"NaN \\\" Infinity\"}")) ==
        std::vector<std::string>{"NaN \" Infinity"});
  CHECK_ERROR(data, refused("{\"x\": NaN, \"text\": tru}"), "line 1", "is not valid JSON, at byte");
  CHECK_ERROR(data, refused(std::string("{\"text\": \"a\0b\"}", 15)), "b.jsonl: holds a NUL byte at 11");
  CHECK_ERROR(data, refused("{\"text\": \"" + std::string(5000, 'x') + std::string("\0\"}", 3)), "line 1",
              "is not valid JSON, at byte");
  // Python reads a number beyond the range of double as Infinity, so such numbers are accepted in other
  // fields. As the value of the field `text` the number is refused, because it is not a string.
  CHECK(texts(refused("{\"x\": [1e999, -1E+400, 7, 1" + std::string(400, '0') +
                      "], \"text\": \"1e999 and NaN\", \"y\": NaN}")) ==
        std::vector<std::string>{"1e999 and NaN"});
  CHECK_ERROR(data, refused("{\"text\": 1e999}"), "line 1", "the field 'text' is not text");
  for (char const* const number : {"1e999e", "1.e999", "01e999", "+1e999", "1e999-", "- 1e999"})
    CHECK_ERROR(data, refused("{\"x\": " + std::string(number) + ", \"text\": \"a\"}"), "line 1",
                "is not valid JSON, at byte");
  CHECK_ERROR(data, refused("{\"text\": \"" + std::string(100'000, 'x') + "\"} x"), "line 1",
              "is not valid JSON");
  CHECK_ERROR(data, refused("{\"text\": \"\"}\n"), "b.jsonl", "no record holds any text");
  CHECK_ERROR(data, refused("{\"text\": \"a\"}\n"), "b.jsonl", "every record has fewer than two tokens");
  CHECK_ERROR(data, refused("{\"text\": \"abc\"}\n", {.vocabulary = 99}), "token 99", "--vocabulary 100");
}

TEST_CASE("documents of a token file end behind their separator") {
  TemporaryFolder folder;
  // Token files separate documents by a special token. In the files of llm.c it comes before each document.
  // In the files of nanoGPT it comes after each document.
  auto const before = write(folder / "a.bin", bytes_of(std::vector<std::uint16_t>{50256, 1, 2, 50256, 3}));
  auto const behind = write(folder / "b.bin", bytes_of(std::vector<std::uint16_t>{4, 5, 50256, 6, 50256}));
  auto const source = ts::open_records(Paths{before, behind});
  REQUIRE(source.records().size() == 3);
  ts::Loader loader(source, {.batch = 3, .sequence = 4, .order = ts::Order::sequential});
  CHECK(loader.load(0).tokens == Tokens{1, 2, 50256, 0, 4, 5, 50256, 0, 6, 50256, 0, 0});
  CHECK(loader.load(0).targets == Tokens{2, 50256, -1, -1, 5, 50256, -1, -1, 50256, -1, -1, -1});
  CHECK(file_support::has(source.description(), "in 3 records, 2 too short"));
  CHECK(ts::open_records(Paths{before}, {.separator = 2}).records().size() == 2);
  CHECK_ERROR(data, ts::open_records(Paths{before}, {.separator = 7}), "a.bin", "contains no token 7");
}
