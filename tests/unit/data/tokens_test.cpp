// SPDX-License-Identifier: Apache-2.0
// Tests TokenSource, which reads token ids: every kind of input file, and every error with its text.
#include "tessera/data/tokens.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;
using file_support::TemporaryFolder;
using file_support::write;

namespace {

/// Returns the content of a token file in the format of llm.c: a header of 256 int32 values, then `tokens`.
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

using Tokens = std::vector<std::int32_t>;

}  // namespace

TEST_CASE("a text file is its bytes, and a NUL is legal behind its first 4096") {
  TemporaryFolder folder;
  std::string every;
  Tokens expected;
  for (int i = 0; i <= 4096; ++i) expected.push_back(i == 4096 ? 0 : 1 + i % 255);
  for (int const value : expected) every += static_cast<char>(value);
  auto const source = ts::TokenSource::open(write(folder / "every.txt", every));
  CHECK(all(source) == expected);
  CHECK(source.vocabulary() == 256);
  CHECK(source.format() == ts::TokenFormat::bytes);
  CHECK(source.description() == (folder / "every.txt").string() + ", 4,097 bytes");
  CHECK(ts::TokenSource::open(folder / "every.txt", {.vocabulary = 50257}).vocabulary() == 50257);
  CHECK_ERROR(data, ts::TokenSource::open(folder / "every.txt", {.vocabulary = 128}), "every.txt",
              "token 128 at index 127", "vocabulary of 128", "--vocabulary 129");
  every[4095] = '\0';
  CHECK_ERROR(data, ts::TokenSource::open(write(folder / "every.txt", every)),
              "every.txt: holds a NUL byte at 4095, so it is not text; give text, JSON Lines or token files");
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
  // This file has only one token of 2 bytes, which is too short for the magic number of a format. The file is
  // read as raw token ids.
  CHECK(all(ts::TokenSource::open(write(folder / "one.bin", u16({9})))) == Tokens{9});
}

TEST_CASE("damaged token files are refused with their numbers") {
  TemporaryFolder folder;
  auto const path = folder / "bad.bin";
  auto const open = [&](std::string const& bytes) { return ts::TokenSource::open(write(path, bytes)); };
  CHECK_ERROR(data, open(""), "bad.bin", "empty");
  CHECK_ERROR(data, open("abc"), "bad.bin", "3 bytes", "odd", "2 bytes per token");
  CHECK_ERROR(data, open(u16({1, 2, 3}) + "x"), "7 bytes", "odd");
  CHECK_ERROR(data, open(llmc(20240520, 1, 5, u16({1, 2, 3}))), "header gives 5 tokens", "holds 3",
              "cut short");
  CHECK_ERROR(data, open(llmc(20240520, 1, 2, u16({1, 2, 3}))), "header gives 2 tokens", "holds 3",
              "after its tokens");
  CHECK_ERROR(data, open(llmc(20240520, 1, 3, u16({1, 2, 3}) + "x")), "holds 3 and a part of one");
  CHECK_ERROR(data, open(llmc(20240520, 1, -1, u16({1}))), "header gives -1 tokens");
  CHECK_ERROR(data, open(llmc(20240520, 1, 0, "")), "holds no tokens");
  CHECK_ERROR(data, open(llmc(20240520, 2, 1, u16({1}))), "magic 20240520", "has version 2",
              "only version 1 can be read");
  CHECK_ERROR(data, open(llmc(20240801, 1, 1, u32({1}))), "magic 20240801", "has version 1",
              "only version 7 can be read");
  CHECK_ERROR(data, open(llmc(20240520, 1, 1, u16({1})).substr(0, 100)), "cut short", "1,024",
              "the file has 100");
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
  // These files contain valid token ids. Their first `kept` bytes equal the first bytes of the signature of
  // another format, but the rest of the signature is missing.
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

TEST_CASE("ids of 32 and 64 bits are not read as ids of 16") {
  TemporaryFolder folder;
  auto const path = folder / "wide.bin";
  auto const open = [&](std::string const& bytes) {
    return ts::TokenSource::open(write(path, bytes), {.vocabulary = 65536});
  };
  std::vector<std::uint32_t> gpt2, llama3;
  std::vector<std::uint64_t> wide;
  std::vector<std::uint16_t> narrow;
  for (std::uint32_t i = 0; i < 100; ++i) {
    gpt2.push_back(i * 7919 % 50257);
    llama3.push_back(i * 7919 * 13 % 128256);
    wide.push_back(i * 7919 % 50257);
    narrow.push_back(static_cast<std::uint16_t>(i % 2 == 0 ? i * 7919 % 50257 : i % 40));
  }
  auto const few = bytes_of(std::vector<std::uint32_t>(gpt2.begin(), gpt2.begin() + 16));
  CHECK_ERROR(data, open(bytes_of(gpt2)), "wide.bin: holds ids that are 32-bit integers",
              "must hold 16-bit ones", "numpy.fromfile(FILE, 'uint32').astype('uint16').tofile('ids.bin')");
  CHECK_ERROR(data, open(bytes_of(llama3)), "ids that are 32-bit", "write the header");
  CHECK_ERROR(data, open(bytes_of(wide)), "ids that are 64-bit", "'uint64'");
  CHECK_ERROR(data, open(few), "ids that are 32-bit");
  CHECK(open(few.substr(0, 60)).size() == 30);  // 15 ids are too few to recognise 32-bit ids
  // In this file of 16-bit ids, every second id is small, as in a file of 32-bit ids, whose high halves are
  // small. In real 32-bit token ids the high half is at most 15. Some ids here are larger, so the file is
  // accepted.
  CHECK(open(bytes_of(narrow)).size() == 100);
  CHECK(open(std::string(400, '\0')).size() == 200);
}

TEST_CASE("a header of llm.c with a magic that is none is no row of ids") {
  TemporaryFolder folder;
  std::string const sound = llmc(20240520, 1, 5, u16({1, 2, 3, 4, 5}));
  for (std::size_t const at : {0, 1, 2, 3}) {
    std::string damaged = sound;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x10);
    CHECK_ERROR(data, ts::TokenSource::open(write(folder / "h.bin", damaged)),
                "h.bin: has llm.c's header for 5 tokens, but its magic is ", "version 1");
  }
}

TEST_CASE("files of another kind are no text, whatever their name") {
  TemporaryFolder folder;
  auto const refused = [&](std::string const& bytes, std::initializer_list<char const*> parts) {
    CAPTURE(bytes);
    auto const message =
        file_support::thrown_by([&] { (void)ts::TokenSource::open(write(folder / "data", bytes)); });
    CHECK(message.kind == ts::ErrorKind::data);
    for (char const* const part : parts) CHECK(file_support::has(message.text, part));
  };
  auto const start = [](auto const& text) {
    return std::string(text, sizeof text - 1) + std::string(300, '\2');
  };
  refused(start("\x1f\x8b\x08\0\1\2\3\4\0\3"), {"data: is compressed with gzip", "gunzip", "prepare"});
  refused(start("\x28\xb5\x2f\xfd"), {"compressed with zstd", "unzstd"});
  refused(start("\xfd\x37zXZ\0"), {"compressed with xz", "unpack it"});
  refused("BZh91AY&SY" + std::string(300, 'z'), {"compressed with bzip2"});
  refused(start("PK\3\4\x14\0\0\0\x08\0"), {"is a zip archive"});
  refused(start("PAR1"), {"is a Parquet file", "write its rows as JSON Lines"});
  refused(start("ARROW1\0\0"), {"is an Arrow file"});
  refused(start("\xff\xff\xff\xff\x10\0\0\0"), {"is an Arrow stream"});
  refused(start("\x93NUMPY\1\0"), {"is a NumPy array", "raw uint16"});
  refused("%PDF-1.4\n1 0 obj and only letters", {"is a PDF document"});
  refused(start("\xff\xd8\xff\xdb"), {"is a JPEG image"});
  refused(start("GIF89a"), {"is a GIF image"});
  refused(start("II*\0"), {"is a TIFF image"});
  refused(start("\x80\2}q"), {"is a Python pickle", "--init"});
  refused(start("SQLite format 3\0"), {"is an SQLite database"});
  refused(std::string(257, 'n') + "ustar  " + std::string(300, 'x'), {"is a tar archive"});
  refused(bytes_of(std::uint64_t{10}) + "{\"a\":{}}  ", {"is a safetensors file"});
  refused(llmc(20240520, 1, 3, u16({1, 2, 3})), {"is a token file of llm.c", "to a name that ends in .bin"});
  refused(llmc(20240326, 3, 0, ""), {"is a model file"});
  refused(start("\xff\xfeh\0i\0").substr(0, 6), {"is text in UTF-16", "iconv -f UTF-16 -t UTF-8"});
  refused(start("\xfe\xff\0h\0i").substr(0, 6), {"is text in UTF-16"});
  refused(start("a\0b\0c\0d\0e\0f\0g\0h\0").substr(0, 16), {"is text in UTF-16"});
  refused(start("\xff\xfe\0\0h\0\0\0").substr(0, 8), {"is text in UTF-32", "iconv -f UTF-32"});
  refused(std::string("a\0b", 3), {"data: holds a NUL byte at 1, so it is not text"});
  refused(std::string("\0", 1), {"holds a NUL byte at 0"});
  // A text file is accepted even if its first letters are the magic number of another format, or if it
  // contains every byte value except NUL.
  std::string any;
  for (int value = 255; value > 0; --value) any += static_cast<char>(value);
  for (std::string const& text :
       {std::string("PAR1 begins a file of Parquet."), std::string("BZhang wrote this"),
        std::string("ID3 tags"), std::string("%PDF-1 is a version"),
        std::string("GIF and PK\3, \x1b[1mbold\x1b[0m"), std::string("MZ"),
        std::string("caf\xe9 \xff\xfe \x80"), std::string("\xff\xfe\xfd caf\xe9"), std::string("\x80 12"),
        std::string("ORC\n\t\f"), any})
    CHECK(ts::TokenSource::open(write(folder / "data", text)).size() ==
          static_cast<std::int64_t>(text.size()));
  // If a folder is opened, a compressed file in it is skipped.
  write(folder / "data", "BZh91AY&SY" + std::string(300, 'z'));
  write(folder / "text", "text");
  CHECK(ts::TokenSource::open(folder.path()).skipped() == 1);
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
  // A text file is recognised even if it has an odd number of bytes.
  CHECK_ERROR(data, open(text + "x"), "is text, not tokens");
  CHECK_ERROR(data, open(book + u16({50256})), "is text, not tokens");
  CHECK(open(text.substr(0, 62)).size() == 31);  // too short to be recognised as text
  // The file is accepted as token ids, because the bytes of its first id are not text.
  CHECK(open(u16({50256}) + book.substr(0, 9'998)).size() == 5'000);
  // The reader checks only the first 2,048 ids. The last of these ids is not text, so the file is accepted as
  // token ids.
  CHECK(open(book.substr(0, 4'094) + u16({7})).size() == 2'048);
  CHECK(open(u16(std::vector<std::uint16_t>(3'000, 0x2020))).size() == 3'000);  // one id, repeated
  CHECK(ts::TokenSource::open(write(folder / "letters.txt", text)).size() ==
        static_cast<std::int64_t>(text.size()));
}

TEST_CASE("a token beyond the vocabulary names file and index and token") {
  TemporaryFolder folder;
  CHECK_ERROR(data, ts::TokenSource::open(write(folder / "a.bin", u16({1, 2, 50257}))), "a.bin",
              "token 50257 at index 2", "vocabulary of 50257", "--vocabulary 50258");
  CHECK(ts::TokenSource::open(folder / "a.bin", {.vocabulary = 50258}).vocabulary() == 50258);
  CHECK(ts::TokenSource::open(folder / "a.bin", {.vocabulary = 70000}).vocabulary() == 70000);
  // Two ids are too large for the vocabulary. The error must name the one that comes first. It is in the
  // second file, far from the start of the file.
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
  write(folder / "sub-1", "-");  // '-' sorts before '/', so this file comes before sub/z
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
  // These arguments are two C strings, not a pair of iterators.
  CHECK(ts::TokenSource::open({second.c_str(), first.c_str()}).size() == 200'005);
  CHECK(ts::TokenSource::open(std::vector<std::string>{first, first}).size() == 10);
  Tokens around(9);
  source.read(199'998, around);
  CHECK(around == Tokens{'l', 'l', 'f', 'i', 'r', 's', 't', 'l', 'l'});
  source.read(400'003, std::span(around).first(2));
  CHECK(around[0] == 'l');
  source.read(400'005, std::span(around).first(0));
  CHECK_ERROR(usage, source.read(400'000, around), "tokens 400000 to 400009",
              "the number of tokens is 400005");
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
  CHECK_ERROR(data, source.read(149'901, out), "long.txt: was truncated while it was read",
              "it had 300,000 bytes and has 150,000 now", "do not change data while a run reads it");
  CHECK_ERROR(data, numbers.read(50'000, out), "long.bin: was truncated",
              "200,000 bytes and has 100,001 now");
  Tokens all_of_them(300'000);
  CHECK_ERROR(data, source.read(0, all_of_them), "long.txt: was truncated");
  std::filesystem::resize_file(text, 300'000);
  source.read(299'900, out);
  CHECK(out == Tokens(100, 0));
}

TEST_CASE("a source of more files than it keeps open reads them all and knows when one was replaced") {
  TemporaryFolder folder;
  std::vector<std::string> paths;
  for (int at = 0; at < 300; ++at) {
    paths.push_back(write(folder / std::to_string(at), std::string(70'000, static_cast<char>(1 + at % 100))));
  }
  auto const source = ts::TokenSource::open(paths);
  Tokens out(1);
  for (int at = 0; at < 300; ++at) {
    source.read(70'000 * at + 69'999, out);
    CHECK(out[0] == 1 + at % 100);
  }
  std::filesystem::rename(write(folder / "new", std::string(70'000, 'n')), paths[299]);
  CHECK_ERROR(data, source.read(70'000 * 299, out), "/299: was replaced after it was opened");
  std::filesystem::resize_file(paths[298], 10);
  CHECK_ERROR(data, source.read(70'000 * 298 + 10, out), "/298: was truncated while it was read",
              "has 10 now");
  std::filesystem::remove(paths[297]);
  CHECK_ERROR(data, source.read(70'000 * 297, out), "/297: no such file");
  // Files 0 and 255 are still open, so they can be read after they are removed.
  for (int const at : {0, 255}) {
    std::filesystem::remove(paths[static_cast<std::size_t>(at)]);
    source.read(70'000 * at, out);
    CHECK(out[0] == 1 + at % 100);
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
              "t.bin: holds uint16", "t.txt holds bytes", "files of the same kind");
  CHECK_ERROR(data, ts::TokenSource::open({folder / "t.bin", folder / "t.txt"}), "t.txt: holds bytes");
}

TEST_CASE("unreadable data is refused by name") {
  TemporaryFolder folder;
  write(folder / "secret.txt", "x");
  write(folder / "closed/file.txt", "x");
  ::chmod((folder / "secret.txt").c_str(), 0);
  ::chmod((folder / "closed").c_str(), 0);
  // Root can read every file, so root continues this test as another user.
  bool const root = ::geteuid() == 0;
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
