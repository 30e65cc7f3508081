// SPDX-License-Identifier: Apache-2.0
// Tests reading and writing of safetensors files. The test writes some files by hand and some with the
// library's writer. Each kind of damaged file must give its own error message.
#include "tessera/io/safetensors.hpp"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/dtype.hpp"
#include "tessera/core/shape.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::bytes_of;
using file_support::read;
using file_support::TemporaryFolder;
using file_support::write;

namespace {

std::string file_of(std::string const& header, std::string const& data) {
  return bytes_of(static_cast<std::uint64_t>(header.size())) + header + data;
}

std::string entry(std::string const& name, std::string const& type, std::string const& shape,
                  std::string const& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + type + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets +
         "}";
}

using Floats = std::vector<float>;

Floats floats(ts::SafetensorsFile const& file, std::string_view name) {
  Floats values(static_cast<std::size_t>(file.at(name).elements()));
  file.read_as_float(name, values);
  return values;
}

}  // namespace

TEST_CASE("every float type is read as float at any alignment") {
  TemporaryFolder folder;
  std::string const data = bytes_of(std::vector<double>{0.5, -1e300}) + bytes_of(Floats{1.5f, -2.0f, 3.25f}) +
                           bytes_of(std::vector<std::uint16_t>{0x3c00, 0xc000, 0x7bff}) +
                           bytes_of(std::vector<std::uint16_t>{0x3f80, 0x4049}) + bytes_of(7.0f) + "\x05";
  for (std::size_t const padding : {0u, 1u, 3u}) {
    std::string const header =
        "{" + entry("half", "F16", "[3]", "[28,34]") + "," + entry("double", "F64", "[2]", "[0,16]") + "," +
        entry("float", "F32", "[3,1]", "[16,28]") + "," + entry("brain", "BF16", "[1,2]", "[34,38]") + "," +
        entry("scalar", "F32", "[]", "[38,42]") + "," + entry("none", "F32", "[0,4]", "[42,42]") + "," +
        entry("bytes", "U8", "[1]", "[42,43]") + ",\"__metadata__\":{\"format\":\"pt\",\"who\":\"me\"}}" +
        std::string(padding, ' ');
    auto const file = ts::SafetensorsFile::open(write(folder / "m.safetensors", file_of(header, data)));
    CHECK(file.tensors().size() == 7);
    CHECK(file.tensors().front().name == "brain");
    CHECK(file.metadata().at("who") == "me");
    CHECK_ERROR(data, floats(file, "double"), "tensor double holds -1e+300 at element 1, which is outside");
    std::vector<double> doubles(2);
    file.read_as("double", 0, std::span(doubles));
    CHECK(doubles == std::vector<double>{0.5, -1e300});
    CHECK(floats(file, "float") == Floats{1.5f, -2.0f, 3.25f});
    CHECK(floats(file, "half") == Floats{1.0f, -2.0f, 65504.0f});
    CHECK(floats(file, "brain") == Floats{1.0f, 3.140625f});
    CHECK(floats(file, "scalar") == Floats{7.0f});
    CHECK(floats(file, "none").empty());
    Floats part(2);
    file.read_as_float("half", 1, part);
    CHECK(part == Floats{-2.0f, 65504.0f});
    CHECK(file.find("absent") == nullptr);
    file.expect_shape("float", ts::Shape{3, 1});
    CHECK_ERROR(data, file.at("absent"), "m.safetensors: has no tensor absent among its 7");
    CHECK_ERROR(data, floats(file, "bytes"), "tensor bytes has dtype U8", "F64, F32, F16 or BF16");
    CHECK_ERROR(data, file.read_as_float("half", part), "tensor half of shape [3] has 3 elements",
                "2 were requested");
    CHECK_ERROR(data, file.read_as_float("half", 2, part), "tensor half", "2 to 4 were requested");
    CHECK_ERROR(data, file.read_as_float("half", -1, part), "-1 to 1");
    CHECK_ERROR(data, file.expect_shape("float", ts::Shape{1, 3}), "tensor float has shape [3, 1]",
                "the model needs [1, 3]");
  }
}

TEST_CASE("a file that is cut short while it is read is an error and names it") {
  TemporaryFolder folder;
  std::string const header = "{" + entry("first", "F32", "[4096]", "[0,16384]") + "," +
                             entry("second", "BF16", "[32768]", "[16384,81920]") + "}";
  auto const path = write(folder / "m.safetensors", file_of(header, std::string(81920, '\0')));
  auto const file = ts::SafetensorsFile::open(path);
  CHECK(floats(file, "second") == Floats(32768, 0.0f));
  std::filesystem::resize_file(path, 20000);
  CHECK(floats(file, "first") == Floats(4096, 0.0f));
  CHECK_ERROR(data, floats(file, "second"), "m.safetensors: was truncated while it was read",
              "has 20,000 now");
}

TEST_CASE("a damaged file is refused with file and tensor and numbers") {
  TemporaryFolder folder;
  auto const path = folder / "bad.safetensors";
  auto const raw = [&](std::string const& bytes) { return ts::SafetensorsFile::open(write(path, bytes)); };
  auto const open = [&](std::string const& header, std::size_t data_bytes) {
    return raw(file_of(header, std::string(data_bytes, 'd')));
  };
  auto const one = [&](std::string const& type, std::string const& shape, std::string const& offsets,
                       std::size_t data_bytes) {
    return open(entry("w", type, shape, offsets).insert(0, 1, '{').append(1, '}'), data_bytes);
  };

  SUBCASE("length and header") {
    CHECK_ERROR(data, ts::SafetensorsFile::open(folder / "absent"), "absent: no such file");
    CHECK_ERROR(data, ts::SafetensorsFile::open(folder.path()), "is a folder");
    CHECK_ERROR(data, raw(""), "bad.safetensors", "holds 0 bytes");
    CHECK_ERROR(data, raw("1234567"), "holds 7 bytes", "the length of the header alone takes 8");
    CHECK_ERROR(data, raw(bytes_of(std::uint64_t{100}) + "{}"), "the header has 100 bytes",
                "only 2 bytes follow", "cut short");
    CHECK_ERROR(data, raw(bytes_of(std::uint64_t{100'000'001}) + "{}"), "has 100000001 bytes",
                "limit is 100000000");
    CHECK_ERROR(data, raw(bytes_of(~std::uint64_t{0}) + "{}"), "has 18446744073709551615 bytes");
    CHECK_ERROR(data, raw(bytes_of(std::uint64_t{0})), "does not begin with {");
    CHECK_ERROR(data, open("\f{}", 0), "does not begin with {");
    CHECK_ERROR(data, open("\xef\xbb\xbf{}", 0), "does not begin with {");
    CHECK_ERROR(data, open("  \n", 0), "does not begin with {");
    CHECK_ERROR(data, open("[]", 0), "does not begin with {");
    CHECK_ERROR(data, open("{", 0), "not valid JSON", "byte 2");
    CHECK_ERROR(data, open("{}}", 0), "not valid JSON");
    CHECK_ERROR(data, open("{\"w\":\n}", 0), "not valid JSON");
    CHECK_ERROR(data, open("{\"\xff\":{}}", 0), "not valid JSON");
    CHECK(open("{}", 0).tensors().empty());
    CHECK(open("{}   ", 0).tensors().empty());
    CHECK(open(" \t\r\n{} \t\r\n", 0).tensors().empty());
    // The JSON parser would take a NUL byte for the end of the text and ignore the rest of the header. The
    // reader must therefore check all bytes after the JSON object itself.
    for (std::string const& after :
         {std::string("\0", 1), std::string(" \0 ", 3), std::string("\0garbage", 8), std::string("\n\0", 2),
          std::string("\0}", 2)})
      CHECK_ERROR(data, open("{}" + after, 0),
                  "bad.safetensors: the header has data other than white space after its JSON");
    CHECK_ERROR(data, open("{}x", 0), "not valid JSON");
    CHECK_ERROR(data, open("{}\f", 0), "not valid JSON");
  }
  SUBCASE("fields") {
    CHECK_ERROR(data, open("{\"w\":3}", 0), "tensor w is the number 3", "an object is needed");
    CHECK_ERROR(data, open("{\"w\":null}", 0), "tensor w is null");
    CHECK_ERROR(data, open("{\"w\":[1]}", 0), "tensor w is an array");
    CHECK_ERROR(data, open("{\"w\":{}}", 0), "tensor w lacks the field dtype");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}", 4),
                "tensor w lacks the field data_offsets");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4),
                "tensor w lacks the field shape");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":1}}", 0), "tensor w: field dtype is the number 1");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":true}}", 0), "tensor w: field dtype is a truth value");
    CHECK_ERROR(data, open("{\"w\":{\"shape\":\"x\"}}", 0), "tensor w: field shape is the string \"x\"");
    CHECK_ERROR(data, open("{\"w\":{\"shape\":{}}}", 0), "tensor w: field shape is an object");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":[]}}", 0), "tensor w: field dtype is an array");
    CHECK_ERROR(data, open("{\"w\":{\"stride\":[1]}}", 0), "tensor w lacks the field dtype");
    CHECK_ERROR(data, open("{\"w\":{\"shape\":[[1]]}}", 0), "an element of shape is an array");
    CHECK_ERROR(data, open("{\"w\":{\"shape\":[\"1\"]}}", 0), "an element of shape is the string");
    CHECK_ERROR(data, one("F32", "[1.5]", "[0,4]", 4), "tensor w: an element of shape is the number 1.5");
    CHECK_ERROR(data, one("F32", "[-1]", "[0,4]", 4), "an element of shape is the number -1");
    CHECK_ERROR(data, one("F5", "[1]", "[0,4]", 4), "tensor w has the unknown dtype \"F5\"");
    CHECK_ERROR(data, one("F4", "[8]", "[0,8]", 8), "and dtype F4 takes 4 bytes");
    CHECK_ERROR(data, one("F4", "[3]", "[0,2]", 2),
                "tensor w of shape [3] and dtype F4 does not end with a whole byte");
    CHECK_ERROR(data, one("f32", "[1]", "[0,4]", 4), "unknown dtype \"f32\"");
    CHECK_ERROR(data, one("F32", "[1]", "[0]", 4), "tensor w has data_offsets with 1 numbers");
    CHECK_ERROR(data, one("F32", "[1]", "[0,4,8]", 4), "data_offsets with 3 numbers");
    CHECK_ERROR(data, open("{\"__metadata__\":{\"a\":1}}", 0), "__metadata__ key a is the number 1");
    CHECK_ERROR(data, open("{\"__metadata__\":{\"a\":{}}}", 0), "__metadata__ key a is an object");
    CHECK_ERROR(data, open("{\"__metadata__\":[]}", 0), "__metadata__ is an array");
  }
  SUBCASE("duplicates") {
    std::string const w = entry("w", "F32", "[1]", "[0,4]"), v = entry("v", "F32", "[1]", "[4,8]");
    std::string const other = entry("w", "F32", "[9]", "[4,8]");
    for (std::string const& before : {w, other, entry("w", "U8", "[3]", "[90,10]")}) {
      auto const last = open("{" + before + "," + v + "," + w + "}", 8);
      CHECK(last.tensors().size() == 2);
      CHECK((last.at("w").begin == 0 && last.at("w").shape == std::vector<std::int64_t>{1}));
    }
    CHECK_ERROR(data, open("{" + w + "," + entry("w", "F32", "[1]", "[4,8]") + "}", 8), "hole from byte 0");
    CHECK_ERROR(data, open("{" + entry("w", "F5", "[1]", "[0,4]") + "," + w + "}", 4), "unknown dtype");
    for (char const* const first : {"{}", "null"})
      CHECK_ERROR(data, open("{\"__metadata__\":" + std::string(first) + ",\"__metadata__\":{}}", 0),
                  "__metadata__ appears twice");
    CHECK(open("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0).metadata().at("a") == "2");
    CHECK_ERROR(data, open("{\"w\":{\"dtype\":\"F32\",\"dtype\":\"F32\"}}", 0),
                "tensor w has the field dtype twice");
  }
  SUBCASE("offsets") {
    CHECK_ERROR(data, one("F32", "[1]", "[0,8]", 4), "tensor w needs bytes 0 to 8", "holds 4 bytes of data");
    CHECK_ERROR(data, one("F32", "[1]", "[-4,0]", 4), "an element of data_offsets is the number -4");
    CHECK_ERROR(data, one("F32", "[1]", "[4,0]", 4), "tensor w has data_offsets that run backwards",
                "4 to 0");
    CHECK_ERROR(data, one("F32", "[1]", "[0,9223372036854775807]", 4), "to 9223372036854775807", "holds 4");
    CHECK_ERROR(data, one("F32", "[1]", "[0,18446744073709551615]", 4),
                "the huge number 18446744073709551615");
    CHECK_ERROR(data, one("F32", "[1]", "[0,18446744073709551616]", 4), "is the number 18446744073709551616");
    CHECK_ERROR(data, one("F32", "[2]", "[0,4]", 4), "tensor w of shape [2] and dtype F32 takes 8 bytes",
                "give 4");
    CHECK_ERROR(data, one("F16", "[]", "[0,4]", 4), "of shape [] and dtype F16 takes 2 bytes");
    CHECK_ERROR(data, one("F32", "[0]", "[0,4]", 4), "of shape [0] and dtype F32 takes 0 bytes");
    CHECK_ERROR(data, one("F32", "[4294967296,4294967296]", "[0,0]", 0), "shape too large to count",
                "[4294967296, 4294967296]");
    CHECK_ERROR(data, one("F32", "[2305843009213693952,2]", "[0,0]", 0), "shape too large to count");
    std::string many = "[2";
    for (int dim = 1; dim < 300'000; ++dim) many += ",1";
    CHECK_ERROR(data, one("F32", many + "]", "[0,4]", 4),
                "of shape [2, 1, 1, 1, 1, 1, 1, 1, ... 300,000 dims] and dtype F32 takes 8 bytes");
    CHECK(one("F32", "[4611686018427387904,4,0]", "[0,0]", 0).at("w").elements() == 0);
    CHECK_ERROR(data, one("F32", "[1]", "[0,4]", 9), "tensors take 4 bytes", "holds 9",
                "belongs to no tensor");
    CHECK_ERROR(data, one("F32", "[1]", "[4,8]", 8), "tensor w begins at byte 4", "hole from byte 0");
    CHECK_ERROR(
        data,
        open("{" + entry("a", "F32", "[1]", "[0,4]") + "," + entry("b", "F32", "[1]", "[8,12]") + "}", 12),
        "tensor b begins at byte 8", "hole from byte 4");
    CHECK_ERROR(
        data,
        open("{" + entry("b", "F32", "[2]", "[0,8]") + "," + entry("a", "F32", "[2]", "[4,12]") + "}", 12),
        "tensor a at bytes 4 to 12 overlaps tensor b at bytes 0 to 8");
    CHECK_ERROR(data, open("{" + entry("x\\ny", "F32", "[1]", "[0,8]") + "}", 4), "tensor x\\x0ay");
  }
}

TEST_CASE("what a header holds besides the tensors' data is ignored") {
  TemporaryFolder folder;
  auto const open = [&](std::string const& header, std::string const& data) {
    return ts::SafetensorsFile::open(write(folder / "m.safetensors", file_of(header, data)));
  };
  std::string const w = entry("w", "F32", "[1]", "[0,4]"), value = bytes_of(2.5f);
  CHECK(floats(open("{\"__metadata__\":null," + w + "}", value), "w") == Floats{2.5f});
  CHECK(open("{\"__metadata__\":null," + w + "}", value).metadata().empty());
  for (std::string const note :
       {"1", "-1", "1.5", "true", "null", "\"x\"", "[]", "{}", "[1,[2],{\"dtype\":[{}]}]",
        "{\"shape\":[7],\"data_offsets\":{\"dtype\":null},\"a\":18446744073709551615}"}) {
    CAPTURE(note);
    for (bool const first : {true, false}) {
      std::string with = w;
      std::string const field = "\"note\":" + note;
      with.insert(first ? with.find('{') + 1 : with.size() - 1,
                  first ? field + "," + field + "," : "," + field);
      CHECK(floats(open("{" + with + "," + entry("v", "F32", "[1]", "[4,8]") + "}", value + value), "w") ==
            Floats{2.5f});
    }
  }
  // The library does not support these types. `bytes` is the size of a tensor of 8 elements.
  for (auto const& [name, bytes] :
       {std::pair("F8_E8M0", 8), std::pair("F8_E4M3FNUZ", 8), std::pair("F8_E5M2FNUZ", 8),
        std::pair("F6_E2M3", 6), std::pair("F6_E3M2", 6), std::pair("F4", 4)}) {
    std::string const type = name;
    CAPTURE(type);
    auto const file =
        open("{" + w + "," + entry("x", type, "[2,4]", "[4," + std::to_string(4 + bytes) + "]") + "," +
                 entry("none", type, "[0,3]", "[4,4]") + "}",
             value + std::string(static_cast<std::size_t>(bytes), 'x'));
    CHECK(floats(file, "w") == Floats{2.5f});
    CHECK(file.at("x").type == type);
    CHECK_ERROR(data, floats(file, "x"), "tensor x has dtype " + type, "F64, F32, F16 or BF16");
  }
}

TEST_CASE("every prefix of a good file is refused") {
  std::string const header =
      "{" + entry("a", "F32", "[2]", "[0,8]") + "," + entry("b", "I8", "[3]", "[8,11]") + "}";
  std::string const good = file_of(header, std::string(11, 'x'));
  auto const parse = [&](std::size_t size) {
    // `bytes` has exactly `size` bytes, so that the address sanitizer detects a read past its end.
    std::vector<std::byte> bytes(size);
    if (size > 0) std::memcpy(bytes.data(), good.data(), size);
    return ts::parse_safetensors(bytes, "file").entries.size();
  };
  CHECK(parse(good.size()) == 2);
  for (std::size_t size = 0; size < good.size(); ++size) CHECK_ERROR(data, parse(size), "file: ");
}

TEST_CASE("what is written is read back to the bit") {
  TemporaryFolder folder;
  auto const path = folder / "out.safetensors";
  Floats big(1000);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = std::sqrt(static_cast<float>(i)) - 10.0f;
  std::vector<ts::SafetensorsSpec> const specs = {{"z.weight", ts::extents_of(ts::Shape{10, 100})},
                                                  {"nothing", {0, 3}},
                                                  {"a\"quoted\"", {2}},
                                                  {"scalar", {}},
                                                  {"end", {0}}};
  auto const save = [&](std::size_t chunk) {
    ts::SafetensorsWriter writer(path, specs, {{"step", "12"}});
    for (std::size_t i = 0; i < big.size(); i += chunk)
      writer.append("z.weight", std::span(big).subspan(i, std::min(chunk, big.size() - i)));
    writer.append("nothing", {});
    writer.append("a\"quoted\"", Floats{std::numeric_limits<float>::quiet_NaN(), -0.0f});
    writer.append("scalar", Floats{1e-42f});
    CHECK(!std::filesystem::exists(path));
    writer.commit();
  };
  save(1000);
  std::string const once = read(path);
  {
    auto const file = ts::SafetensorsFile::open(path);
    CHECK(file.tensors().size() == 5);
    CHECK(floats(file, "z.weight") == big);
    CHECK(file.at("z.weight").shape == std::vector<std::int64_t>{10, 100});
    CHECK(file.at("scalar").shape.empty());
    CHECK(file.at("nothing").shape == std::vector<std::int64_t>{0, 3});
    CHECK(floats(file, "scalar") == Floats{1e-42f});
    CHECK(std::isnan(floats(file, "a\"quoted\"")[0]));
    CHECK(std::signbit(floats(file, "a\"quoted\"")[1]));
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"step", "12"}});
    CHECK(file.tensors()[0].type == "F32");
  }
  std::uint64_t length = 0;
  std::memcpy(&length, once.data(), sizeof length);
  CHECK(length % 8 == 0);
  CHECK(once.substr(8).starts_with("{\"__metadata__\":{\"format\":\"pt\""));
  CHECK(once.size() == 8 + length + 1003 * 4);
  std::filesystem::remove(path);
  save(7);
  CHECK(read(path) == once);
}

TEST_CASE("the writer refuses what it was not told and leaves no file") {
  TemporaryFolder folder;
  auto const path = folder / "out.safetensors";
  Floats const two = {1, 2};
  auto const make = [&](std::vector<ts::SafetensorsSpec> specs) {
    return ts::SafetensorsWriter(path, std::move(specs));
  };
  {
    auto writer = make({{"a", {2}}, {"b", {2}}});
    CHECK_ERROR(usage, writer.append("b", two), "out.safetensors: tensor b is out of order", "a lacks 2");
    writer.append("a", two);
    CHECK_ERROR(usage, writer.append("a", two), "tensor a is out of order", "b lacks 2");
    CHECK_ERROR(usage, writer.append("b", Floats{1, 2, 3}), "tensor b got 3 elements", "2 are missing");
    writer.append("b", Floats{1});
    CHECK_ERROR(usage, writer.commit(), "tensor b lacks 1 elements");
    writer.append("b", Floats{2});
    CHECK_ERROR(usage, writer.append("c", two), "tensor c comes after the last");
  }
  CHECK_ERROR(usage, make({{"a", {2}}, {"a", {2}}}), "tensor a is given twice");
  CHECK_ERROR(usage, make({{"__metadata__", {2}}}), "reserved");
  CHECK_ERROR(usage, make({{"a", {-2}}}), "impossible shape [-2]");
  CHECK_ERROR(usage, make({{"a", {1 << 30, 1 << 30, 1 << 30}}}), "impossible shape");
  CHECK_ERROR(usage, make({{"\xff", {1}}}), "not UTF-8");
  CHECK_ERROR(failed, ts::SafetensorsWriter(folder / "no/out", {}), "no/out", "does not exist");
  CHECK(folder.entries() == 0);
  make({}).commit();
  CHECK(ts::SafetensorsFile::open(path).tensors().empty());
}
