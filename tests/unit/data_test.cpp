// SPDX-License-Identifier: Apache-2.0
// Token sources and loaders: every kind of input, every refusal with its text, batches by hand.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/data/batch.hpp"
#include "tessera/data/tokens.hpp"

#include "file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;
using file_support::TemporaryFolder;
using file_support::write;

namespace {

/// A token file of llm.c: 256 int32, then the tokens.
std::string llmc(std::int32_t magic, std::int32_t version, std::int32_t count, std::string const& tokens) {
  std::vector<std::int32_t> header(256, 0);
  header[0] = magic;
  header[1] = version;
  header[2] = count;
  return bytes_of(header) + tokens;
}

std::string u16(std::vector<std::uint16_t> const& tokens) { return bytes_of(tokens); }
std::string u32(std::vector<std::uint32_t> const& tokens) { return bytes_of(tokens); }

std::vector<std::int32_t> all(ts::TokenSource const& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.size()));
  source.read(0, tokens);
  return tokens;
}

ts::TokenSource counting(std::uint32_t tokens) {
  std::vector<std::uint32_t> values(tokens);
  std::iota(values.begin(), values.end(), 0u);
  return ts::TokenSource::from_memory(std::move(values), {.vocabulary = 1 << 30});
}

using Tokens = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a text file is its bytes and every value is legal") {
  TemporaryFolder folder;
  std::string every;
  for (int i = 0; i < 256; ++i) every += static_cast<char>(i);
  auto const source = ts::TokenSource::open(write(folder / "every.txt", every));
  Tokens expected(256);
  std::iota(expected.begin(), expected.end(), 0);
  CHECK(all(source) == expected);
  CHECK(source.vocabulary() == 256);
  CHECK(source.format() == ts::TokenFormat::bytes);
  CHECK(source.description() == (folder / "every.txt").string() + ", 256 bytes");
  CHECK(ts::TokenSource::open(folder / "every.txt", {.vocabulary = 50257}).vocabulary() == 50257);
  CHECK_ERROR(data, ts::TokenSource::open(folder / "every.txt", {.vocabulary = 128}), "every.txt",
              "token 128 at index 128", "vocabulary of 128", "--vocabulary 129");
}

TEST_CASE("token files with and without header") {
  TemporaryFolder folder;
  Tokens const expected = {5, 0, 50256, 7};
  auto const raw = ts::TokenSource::open(write(folder / "raw.bin", u16({5, 0, 50256, 7})));
  CHECK(all(raw) == expected);
  CHECK(raw.vocabulary() == 50257);
  CHECK(raw.description() == (folder / "raw.bin").string() + ", 4 tokens (uint16)");
  auto const gpt2 =
      ts::TokenSource::open(write(folder / "gpt2.bin", llmc(20240520, 1, 4, u16({5, 0, 50256, 7}))));
  CHECK(all(gpt2) == expected);
  CHECK(gpt2.format() == ts::TokenFormat::u16);
  auto const llama =
      ts::TokenSource::open(write(folder / "l3.bin", llmc(20240801, 7, 3, u32({128000, 1, 128255}))));
  CHECK(all(llama) == Tokens{128000, 1, 128255});
  CHECK(llama.vocabulary() == 128256);
  CHECK(llama.format() == ts::TokenFormat::u32);
  // One token is too short for a magic number and still a raw file.
  CHECK(all(ts::TokenSource::open(write(folder / "one.bin", u16({9})))) == Tokens{9});
}

TEST_CASE("damaged token files are refused with their numbers") {
  TemporaryFolder folder;
  auto const path = folder / "bad.bin";
  auto const open = [&](std::string const& bytes) { return ts::TokenSource::open(write(path, bytes)); };
  CHECK_ERROR(data, open(""), "bad.bin", "empty");
  CHECK_ERROR(data, open("abc"), "bad.bin", "3 bytes", "odd", "2 bytes a token");
  CHECK_ERROR(data, open(u16({1, 2, 3}) + "x"), "7 bytes", "odd");
  CHECK_ERROR(data, open(llmc(20240520, 1, 5, u16({1, 2, 3}))), "header says 5 tokens", "holds 3",
              "cut short");
  CHECK_ERROR(data, open(llmc(20240520, 1, 2, u16({1, 2, 3}))), "header says 2 tokens", "holds 3",
              "after its tokens");
  CHECK_ERROR(data, open(llmc(20240520, 1, 3, u16({1, 2, 3}) + "x")), "holds 3 and a part of one");
  CHECK_ERROR(data, open(llmc(20240520, 1, -1, u16({1}))), "header says -1 tokens");
  CHECK_ERROR(data, open(llmc(20240520, 1, 0, "")), "holds no tokens");
  CHECK_ERROR(data, open(llmc(20240520, 2, 1, u16({1}))), "magic 20240520", "has version 2",
              "version 1 is known");
  CHECK_ERROR(data, open(llmc(20240801, 1, 1, u32({1}))), "magic 20240801", "has version 1",
              "version 7 is known");
  CHECK_ERROR(data, open(llmc(20240520, 1, 1, u16({1})).substr(0, 100)), "cut short", "1,024", "holds 100");
  CHECK_ERROR(data, open(llmc(20240326, 3, 0, "")), "a model file", "20240326", "not tokens");
  CHECK_ERROR(data, open(llmc(20240327, 1, 0, "")), "a debug state file", "20240327");
  CHECK_ERROR(data, open(llmc(20240328, 2, 0, "")), "a tokenizer file", "20240328");
  CHECK_ERROR(data, open(llmc(20240522, 1, 0, "")), "an evaluation set", "20240522");
  CHECK_ERROR(data, open(llmc(20240527, 1, 0, "")), "a training state file", "20240527");
}

TEST_CASE("a file of another kind that is named .bin is refused by that kind") {
  TemporaryFolder folder;
  auto const path = folder / "foreign.bin";
  auto const open = [&](std::string const& bytes) { return ts::TokenSource::open(write(path, bytes)); };
  auto const after = [](std::string start) { return start + std::string(100, '\1'); };
  auto const start = [](auto const& text) { return std::string(text, sizeof text - 1); };
  std::string const header = "{\"a\":{}}  ", frame(20, 'x');
  std::string const numpy = start("\x93NUMPY\1\0\x76\0"), png = start("\x89PNG\r\n\x1a\n"),
                    elf = start(
                        "\x7f"
                        "ELF\2\1\1\0"),
                    gzip = start("\x1f\x8b\x08\0\1\2\3\4\0\3"), zip = start("PK\3\4\x14\0\0\0\x08\0"),
                    safetensors = bytes_of(std::uint64_t{header.size()}) + header,
                    pickle = start("\x80\4\x95") + bytes_of(std::uint64_t{frame.size()}) + frame,
                    torch = start("\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e");
  CHECK_ERROR(data, open(after(numpy)), "foreign.bin", "is a NumPy array", "not tokens", "raw uint16");
  CHECK_ERROR(data, open(after(png)), "is a PNG image");
  CHECK_ERROR(data, open(after(elf)), "is a program or library (ELF)");
  CHECK_ERROR(data, open(after(gzip)), "is compressed with gzip");
  CHECK_ERROR(data, open(after(zip)), "is a zip archive");
  CHECK_ERROR(data, open(after(safetensors)), "is a safetensors file");
  CHECK_ERROR(data, open(pickle + "K."), "is a Python pickle");
  CHECK_ERROR(data, open(after(torch)), "is a Python pickle (an old PyTorch file)");
  // Ids that share the first bytes only.
  for (auto const& [bytes, kept] : {std::pair(numpy, 4),
                                    {png, 6},
                                    {elf, 3},
                                    {gzip, 3},
                                    {zip, 4},
                                    {safetensors, 10},
                                    {pickle, 31},
                                    {torch, 4}}) {
    std::string ids = after(bytes.substr(0, static_cast<std::size_t>(kept)));
    ids.resize(100, '\1');
    CHECK(ts::TokenSource::open(write(path, ids), {.vocabulary = 65536}).size() == 50);
  }
}

TEST_CASE("text that is named .bin is refused and ids that look a little like it are not") {
  TemporaryFolder folder;
  auto const path = folder / "letters.bin";
  auto const open = [&](std::string const& bytes) {
    return ts::TokenSource::open(write(path, bytes), {.vocabulary = 65536});
  };
  std::string const text = "The letters of a text, read as numbers of 16 bits,\n\tmake nonsense.\r\n";
  std::string book;
  while (book.size() < 10'000) book += text;
  CHECK_ERROR(data, open(text), "letters.bin", "is text, not tokens", "rename it to .txt");
  CHECK_ERROR(data, open(text + "x"), "is text, not tokens");  // of odd size too
  CHECK_ERROR(data, open(book + u16({50256})), "is text, not tokens");
  CHECK(open(text.substr(0, 62)).size() == 31);                       // too short to be sure
  CHECK(open(u16({50256}) + book.substr(0, 9'998)).size() == 5'000);  // one byte suffices
  CHECK(open(book.substr(0, 4'094) + u16({7})).size() == 2'048);      // the last of those that count
  CHECK(open(u16(std::vector<std::uint16_t>(3'000, 0x2020))).size() == 3'000);  // one id again and again
  CHECK(ts::TokenSource::open(write(folder / "letters.txt", text)).size() ==
        static_cast<std::int64_t>(text.size()));
}

TEST_CASE("a token beyond the vocabulary names file and index and token") {
  TemporaryFolder folder;
  CHECK_ERROR(data, ts::TokenSource::open(write(folder / "a.bin", u16({1, 2, 50257}))), "a.bin",
              "token 50257 at index 2", "vocabulary of 50257", "--vocabulary 50258");
  CHECK(ts::TokenSource::open(folder / "a.bin", {.vocabulary = 50258}).vocabulary() == 50258);
  CHECK(ts::TokenSource::open(folder / "a.bin", {.vocabulary = 70000}).vocabulary() == 70000);
  // The first of several, in the second file of two, far from its start.
  std::vector<std::uint16_t> many(100'000, 3);
  many[70'001] = 40;
  many[70'500] = 60;
  CHECK_ERROR(
      data,
      ts::TokenSource::open({folder / "small.bin", write(folder / "b.bin", u16(many))}, {.vocabulary = 40}),
      "small.bin", "no such file");
  write(folder / "small.bin", u16({39}));
  CHECK_ERROR(data, ts::TokenSource::open({folder / "small.bin", folder / "b.bin"}, {.vocabulary = 40}),
              "b.bin", "token 40 at index 70001", "vocabulary of 40");
  CHECK_ERROR(
      data, ts::TokenSource::open(write(folder / "c.bin", llmc(20240801, 7, 1, u32({4'000'000'000u})))),
      "token 4000000000 at index 0", "vocabulary of 128256, and no vocabulary reaches it; give other data");
  CHECK_ERROR(data,
              ts::TokenSource::open(write(folder / "c.bin", llmc(20240801, 7, 1, u32({2'147'483'646u})))),
              "--vocabulary 2147483647");
  CHECK_ERROR(data,
              ts::TokenSource::open(write(folder / "c.bin", llmc(20240801, 7, 1, u32({2'147'483'647u}))),
                                    {.vocabulary = 2'147'483'647}),
              "no vocabulary reaches it");
  CHECK_ERROR(usage, ts::TokenSource::open(folder / "b.bin", {.vocabulary = -1}), "vocabulary is -1");
}

TEST_CASE("a folder gives its texts in path order and counts the rest") {
  TemporaryFolder folder;
  write(folder / "b.txt", "B");
  write(folder / "a.txt", "AA");
  write(folder / "sub/z", "z");
  write(folder / "sub-1", "-");  // '-' sorts before '/'
  write(folder / ".hidden", "no");
  write(folder / ".git/config", "no");
  write(folder / "empty", "");
  write(folder / "binary", std::string("x\0y", 3));
  write(folder / "late-nul", std::string(4096, 'n') + std::string(1, '\0'));
  std::filesystem::create_symlink("a.txt", folder / "link");
  auto const source = ts::TokenSource::open(folder.path());
  std::string text;
  for (auto const token : all(source)) text += static_cast<char>(token);
  CHECK(text == "AAB" + std::string(4096, 'n') + std::string(1, '\0') + "-z");
  CHECK(source.files() == 5);
  CHECK(source.skipped() == 5);
  CHECK(source.description() == "5 files, 4,102 bytes, 5 skipped");
  CHECK(source.name() == folder.path().string());
}

TEST_CASE("several paths follow each other, large files too") {
  TemporaryFolder folder;
  std::string const large(200'000, 'l');
  auto const first = write(folder / "1", "first"), second = write(folder / "2", large);
  auto const source = ts::TokenSource::open({second, first, second});
  CHECK(source.size() == 400'005);
  CHECK(ts::TokenSource::open({second.c_str(), first.c_str()}).size() == 200'005);  // no pair of iterators
  CHECK(ts::TokenSource::open(std::vector<std::string>{first, first}).size() == 10);
  Tokens around(9);
  source.read(199'998, around);
  CHECK(around == Tokens{'l', 'l', 'f', 'i', 'r', 's', 't', 'l', 'l'});
  source.read(400'003, std::span(around).first(2));
  CHECK(around[0] == 'l');
  source.read(400'005, std::span(around).first(0));
  CHECK_ERROR(usage, source.read(400'000, around), "tokens 400000 to 400009", "there are 400005");
  CHECK_ERROR(usage, source.read(-1, around), "tokens -1");
  CHECK(source.name() == second.string() + ", " + first.string() + ", " + second.string());
}

TEST_CASE("a file that is cut short while it is read is an error and no end of the process") {
  TemporaryFolder folder;
  std::vector<std::uint16_t> ids(100'000, 7);
  auto const text = write(folder / "long.txt", std::string(300'000, 't'));
  auto const tokens = write(folder / "long.bin", u16(ids));
  auto const source = ts::TokenSource::open(text), numbers = ts::TokenSource::open(tokens);
  Tokens out(100);
  std::filesystem::resize_file(text, 150'000);
  std::filesystem::resize_file(tokens, 100'001);
  source.read(149'900, out);
  CHECK(out == Tokens(100, 't'));
  CHECK_ERROR(data, source.read(149'901, out), "long.txt: was cut short while it was read",
              "it had 300,000 bytes and has 150,000 now", "leave data as it is while a run reads it");
  CHECK_ERROR(data, numbers.read(50'000, out), "long.bin: was cut short",
              "200,000 bytes and has 100,001 now");
  Tokens all_of_them(300'000);
  CHECK_ERROR(data, source.read(0, all_of_them), "long.txt: was cut short");
  std::filesystem::resize_file(text, 300'000);
  source.read(299'900, out);
  CHECK(out == Tokens(100, 0));
}

TEST_CASE("a source of more files than it keeps open reads them all and knows when one was replaced") {
  TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int at = 0; at < 300; ++at) {
    paths.push_back(write(folder / std::to_string(at), std::string(70'000, static_cast<char>(at % 100))));
  }
  auto const source = ts::TokenSource::open(paths);
  Tokens out(1);
  for (int at = 0; at < 300; ++at) {
    source.read(70'000 * at + 69'999, out);
    CHECK(out[0] == at % 100);
  }
  std::filesystem::rename(write(folder / "new", std::string(70'000, 'n')), paths[299]);
  CHECK_ERROR(data, source.read(70'000 * 299, out), "/299: is another file than when it was opened");
  std::filesystem::resize_file(paths[298], 10);
  CHECK_ERROR(data, source.read(70'000 * 298 + 10, out), "/298: was cut short", "has 10 now");
  std::filesystem::remove(paths[297]);
  CHECK_ERROR(data, source.read(70'000 * 297, out), "/297: no such file");
  for (int const at : {0, 255}) {  // kept open, so nothing is lost
    std::filesystem::remove(paths[static_cast<std::size_t>(at)]);
    source.read(70'000 * at, out);
    CHECK(out[0] == at % 100);
  }
}

TEST_CASE("data that cannot be read is refused by name") {
  TemporaryFolder folder;
  CHECK_ERROR(data, ts::TokenSource::open(folder / "absent.txt"), "absent.txt", "no such file");
  CHECK_ERROR(data, ts::TokenSource::open(folder / "absent.bin"), "absent.bin", "no such file");
  CHECK_ERROR(data, ts::TokenSource::open(write(folder / "empty.txt", "")), "empty.txt", "empty");
  CHECK_ERROR(data, ts::TokenSource::open(std::filesystem::path()), "empty data path");
  std::filesystem::create_directory(folder / "none");
  write(folder / "none/.hidden", "x");
  write(folder / "none/train.bin", u16({0, 1, 2}));
  CHECK_ERROR(data, ts::TokenSource::open(folder / "none"), "none", "holds no text", "2 entries skipped",
              "name token files themselves");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
  CHECK_ERROR(data, ts::TokenSource::open(folder / "pipe"), "pipe", "not a regular file");
  CHECK_ERROR(data, ts::TokenSource::open(write(folder / "file", "x") / "below"), "file/below",
              "Not a directory");
  CHECK_ERROR(data,
              ts::TokenSource::open({write(folder / "t.txt", "text"), write(folder / "t.bin", u16({1}))}),
              "t.bin: holds uint16", "t.txt holds bytes", "one kind");
  CHECK_ERROR(data, ts::TokenSource::open({folder / "t.bin", folder / "t.txt"}), "t.txt: holds bytes");
}

TEST_CASE("unreadable data is refused by name") {
  TemporaryFolder folder;
  write(folder / "secret.txt", "x");
  write(folder / "closed/file.txt", "x");
  ::chmod((folder / "secret.txt").c_str(), 0);
  ::chmod((folder / "closed").c_str(), 0);
  bool const root = ::geteuid() == 0;  // root may read everything, so become nobody for a moment
  if (root) REQUIRE(::seteuid(65534) == 0);
  auto const file = file_support::thrown_by([&] { (void)ts::TokenSource::open(folder / "secret.txt"); });
  auto const closed = file_support::thrown_by([&] { (void)ts::TokenSource::open(folder / "closed"); });
  auto const below = file_support::thrown_by([&] { (void)ts::TokenSource::open(folder.path()); });
  if (root) REQUIRE(::seteuid(0) == 0);
  ::chmod((folder / "closed").c_str(), 0755);
  CHECK(file.kind == ts::ErrorKind::data);
  CHECK(file_support::has(file.text, "secret.txt: cannot open for reading (Permission denied)"));
  CHECK(file_support::has(closed.text, "closed: cannot read the folder (Permission denied)"));
  CHECK(file_support::has(below.text, "closed: cannot read the folder (Permission denied)"));
}

TEST_CASE("the default data is the package fortunes") {
  if (std::filesystem::exists(ts::default_data_path)) {
    auto const source = ts::TokenSource::open(std::vector<std::string>{});
    CHECK(source.size() > 100'000);
    CHECK(source.vocabulary() == 256);
  } else {
    CHECK_ERROR(data, ts::TokenSource::open(std::vector<std::string>{}), "/usr/share/games/fortunes",
                "package fortunes", "--data");
  }
}

TEST_CASE("a control byte in a file name does not break the line") {
  TemporaryFolder folder;
  CHECK_ERROR(data, ts::TokenSource::open(folder / "two\nlines"), "two\\x0alines");
}

TEST_CASE("a batch by hand") {
  auto const source = counting(13);  // T = 3: samples 0..3
  ts::Loader loader(source, {.batch = 1, .sequence = 3, .accumulation = 2, .order = ts::Order::sequential});
  CHECK(loader.samples() == 4);
  CHECK(loader.global_batch() == 2);
  CHECK(loader.steps_per_epoch() == 2);
  ts::Batch const& batch = loader.load(1);
  CHECK(batch.tokens == Tokens{6, 7, 8, 9, 10, 11});
  CHECK(batch.targets == Tokens{7, 8, 9, 10, 11, 12});
  CHECK(batch.first_sample == 2);
  CHECK(batch.step == 1);
  CHECK(batch.accumulation == 2);
  CHECK(batch.batch == 1);
  CHECK(batch.sequence == 3);
  CHECK(batch.elements() == 6);
  CHECK(batch.unmasked() == 6);
  CHECK(Tokens(batch.micro_tokens(1).begin(), batch.micro_tokens(1).end()) == Tokens{9, 10, 11});
  CHECK(Tokens(batch.micro_targets(0).begin(), batch.micro_targets(0).end()) == Tokens{7, 8, 9});
  CHECK(loader.load(2).tokens == Tokens{0, 1, 2, 3, 4, 5});  // wrapped
}

TEST_CASE("a loader is checked without its memory") {
  auto const source = counting(13);
  ts::LoaderOptions const huge{.batch = 1 << 14, .sequence = 12, .accumulation = 8000};  // 12 GiB
  ts::Loader::check(source, huge);
  CHECK_ERROR(data, ts::Loader::check(source, {.batch = 1, .sequence = 13}), "too little data");
}

TEST_CASE("a masked target does not count") {
  ts::Batch const batch{.batch = 1, .sequence = 4, .tokens = {1, 2, 3, 4}, .targets = {2, -1, -100, 0}};
  CHECK(batch.elements() == 4);
  CHECK(batch.unmasked() == 2);
}

TEST_CASE("ranks and accumulation share one global batch") {
  auto const source = counting(1000);
  for (auto const order : {ts::Order::shuffled, ts::Order::sequential}) {
    ts::Loader whole(source, {.batch = 2, .sequence = 7, .accumulation = 4, .order = order, .seed = 5});
    for (int const world : {2, 4}) {
      for (std::int64_t const step : {0, 3, 17, 40}) {  // an epoch has 17 steps and a remainder
        Tokens const expected = whole.load(step).tokens;
        Tokens got(expected.size());
        for (int rank = 0; rank < world; ++rank) {
          ts::Loader part(source, {.batch = 2,
                                   .sequence = 7,
                                   .accumulation = 4 / world,
                                   .rank = rank,
                                   .world = world,
                                   .order = order,
                                   .seed = 5});
          ts::Batch const& batch = part.load(step);
          CHECK(batch.first_sample == step * 8 + rank * 2);
          for (int a = 0; a < batch.accumulation; ++a) {
            auto const micro = batch.micro_tokens(a);
            std::copy(micro.begin(), micro.end(), got.begin() + (a * world + rank) * 14);
          }
        }
        CHECK(got == expected);
      }
    }
  }
}

TEST_CASE("an epoch holds every sample once and the next is another order") {
  auto const source = counting(4 * 24 + 1);
  ts::Loader loader(source, {.batch = 3, .sequence = 4, .accumulation = 2, .seed = 8});
  auto const starts = [&](std::int64_t epoch) {
    std::vector<std::int32_t> result;
    for (std::int64_t s = 0; s < loader.steps_per_epoch(); ++s) {
      ts::Batch const& batch = loader.load(epoch * loader.steps_per_epoch() + s);
      for (std::size_t i = 0; i < batch.tokens.size(); i += 4) result.push_back(batch.tokens[i]);
    }
    return result;
  };
  CHECK(loader.steps_per_epoch() == 4);
  auto const first = starts(0), second = starts(1);
  CHECK(std::set<std::int32_t>(first.begin(), first.end()).size() == 24);
  CHECK(std::set<std::int32_t>(second.begin(), second.end()).size() == 24);
  CHECK(first != second);
}

TEST_CASE("load is pure in its step and reuses its memory") {
  auto const source = counting(500);
  ts::Loader loader(source, {.batch = 2, .sequence = 9, .seed = 3});
  Tokens const tenth = loader.load(10).tokens;
  auto const* const memory = loader.load(0).tokens.data();
  CHECK(loader.load(10).tokens == tenth);
  CHECK(loader.load(11).tokens != tenth);
  CHECK(loader.load(12).tokens.data() == memory);
}

TEST_CASE("data tokens is a range over one epoch") {
  TemporaryFolder folder;
  auto const path = write(folder / "train.bin", u16(std::vector<std::uint16_t>(101, 4)));
  std::vector<std::int64_t> steps;
  for (auto const& batch : ts::data::tokens(path, {.batch = 2, .sequence = 10})) {
    steps.push_back(batch.step);
    CHECK(batch.tokens == Tokens(20, 4));
  }
  CHECK(steps == std::vector<std::int64_t>{0, 1, 2, 3, 4});
  steps.clear();
  for (auto const& batch : ts::data::tokens(path, {.batch = 2, .sequence = 10, .first_step = 8}))
    steps.push_back(batch.step);
  CHECK(steps == std::vector<std::int64_t>{8, 9});  // the rest of the second epoch
  auto range = ts::data::tokens({path, path}, {.batch = 2, .sequence = 10});
  CHECK(range.source().size() == 202);
  CHECK(range.loader().steps_per_epoch() == 10);
  static_assert(std::input_iterator<ts::Loader::Iterator>);
}

TEST_CASE("fewer samples than a global batch still give steps") {
  auto const source = counting(9);  // two samples of four tokens
  ts::Loader loader(source, {.batch = 5, .sequence = 4, .order = ts::Order::sequential});
  CHECK(loader.steps_per_epoch() == 1);
  Tokens starts;
  for (std::size_t i = 0; i < 5; ++i) starts.push_back(loader.load(0).tokens[i * 4]);
  CHECK(starts == Tokens{0, 4, 0, 4, 0});
}

TEST_CASE("a loader of the first samples reads them alone") {
  auto const source = counting(41);  // ten samples of four tokens
  ts::Loader loader(source, {.batch = 3, .sequence = 4, .order = ts::Order::shuffled, .samples = 3});
  CHECK(loader.samples() == 3);
  std::set<std::int32_t> starts;
  for (std::size_t i = 0; i < 3; ++i) starts.insert(loader.load(1).tokens[i * 4]);
  CHECK(starts == std::set<std::int32_t>{0, 4, 8});
  CHECK(ts::Loader(source, {.sequence = 4, .samples = 10}).samples() == 10);
  CHECK_ERROR(data, ts::Loader::check(source, {.sequence = 4, .samples = 11}), "--samples 11",
              "the 10 samples", "--sequence 4", "41 tokens");
  CHECK_ERROR(usage, ts::Loader::check(source, {.sequence = 4, .samples = -1}), "--samples is -1");
}

TEST_CASE("a whole epoch ends with a step of its own, filled with what does not count") {
  auto const source = counting(21);  // five samples of four tokens
  for (int const world : {1, 2}) {
    Tokens seen;
    for (int rank = 0; rank < world; ++rank) {
      ts::Loader loader(source, {.batch = 1,
                                 .sequence = 4,
                                 .accumulation = 2 / world,
                                 .rank = rank,
                                 .world = world,
                                 .seed = 3,
                                 .whole_epochs = true});
      CHECK(loader.steps_per_epoch() == 3);
      for (std::int64_t step = 3; step < 6; ++step) {  // the second epoch
        CHECK(loader.targets_in(step) == (step < 5 ? 8 : 4));
        ts::Batch const& batch = loader.load(step);
        CHECK(batch.first_sample == 5 + (step - 3) * 2 + rank);
        for (int a = 0; a < batch.accumulation; ++a) {
          auto const tokens = batch.micro_tokens(a), targets = batch.micro_targets(a);
          bool const beyond = step == 5 && a * world + rank == 1;
          CHECK(targets[0] == (beyond ? -1 : tokens[0] + 1));
          CHECK(targets[3] == (beyond ? -1 : tokens[3] + 1));
          if (!beyond) seen.push_back(tokens[0] / 4);
        }
      }
    }
    std::sort(seen.begin(), seen.end());
    CHECK(seen == Tokens{0, 1, 2, 3, 4});
  }
}

TEST_CASE("a loader refuses numbers that make no batch") {
  auto const source = counting(10);
  auto const load = [&](ts::LoaderOptions options) { return ts::Loader(source, options).global_batch(); };
  CHECK_ERROR(usage, load({.batch = 0, .sequence = 2}), "--batch is 0", "1 or more");
  CHECK_ERROR(usage, load({.sequence = -2}), "--sequence is -2");
  CHECK_ERROR(usage, load({.sequence = 2, .accumulation = 0}), "--accumulation is 0");
  CHECK_ERROR(usage, load({.sequence = 2, .world = 0}), "the world is 0");
  CHECK_ERROR(usage, load({.sequence = 2, .rank = 2, .world = 2}), "rank 2", "world of 2");
  CHECK_ERROR(usage, load({.sequence = 2, .rank = -1}), "rank -1");
  CHECK_ERROR(usage, load({.sequence = 2, .first_step = -1}), "first step is -1");
  CHECK_ERROR(usage, load({.batch = 1 << 30, .sequence = 4}), "1073741824 x", "more than 2147483647");
  CHECK_ERROR(usage, load({.batch = 1 << 30, .sequence = 1, .world = 4}), "on 4 ranks");
  CHECK_ERROR(data, load({.sequence = 10}), "memory: too little data", "10 tokens present", "11 needed",
              "--sequence 10");
  CHECK(load({.sequence = 9}) == 1);
  ts::Loader loader(source, {.sequence = 9});
  CHECK_ERROR(usage, loader.load(-1), "step -1");
  CHECK_ERROR(usage, loader.load(std::numeric_limits<std::int64_t>::max()), "does not exist");
  CHECK_ERROR(data, ts::TokenSource::from_memory({}), "memory", "no tokens");
}
