// SPDX-License-Identifier: Apache-2.0
// Token files (`.bin`): llm.c's header or raw uint16 ids, told apart and checked before a token is read.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera {
inline namespace v0 {

static_assert(std::endian::native == std::endian::little, "tessera reads little-endian files in place");

/// How the tokens of a source are stored.
enum class TokenFormat : std::uint8_t {
  bytes,  ///< text: every byte is a token, 0 to 255
  u16,    ///< 16-bit ids: nanoGPT's raw files, llm.c's GPT-2 files
  u32     ///< 32-bit ids: llm.c's LLaMA 3 files, tokens given in memory
};

constexpr char const* name_of(TokenFormat format) {
  switch (format) {
    case TokenFormat::bytes:
      return "bytes";
    case TokenFormat::u16:
      return "uint16";
    case TokenFormat::u32:
      return "uint32";
  }
  return "?";
}

constexpr std::int64_t bytes_per_token(TokenFormat format) {
  return format == TokenFormat::bytes ? 1 : format == TokenFormat::u16 ? 2 : 4;
}

/// The vocabulary of a source when none is given: 256 for bytes, GPT-2's 50257 for 16-bit ids, LLaMA 3's
/// 128256 for 32-bit ids.
constexpr std::int64_t default_vocabulary(TokenFormat format) {
  return format == TokenFormat::bytes ? 256 : format == TokenFormat::u16 ? 50257 : 128256;
}

namespace detail {

/// Where the tokens of a `.bin` file lie.
struct TokenLayout {
  TokenFormat format = TokenFormat::u16;
  std::size_t offset = 0;  ///< bytes before the first token: 1024 with a header, else 0
  std::int64_t tokens = 0;
};

/// What a file with one of llm.c's other magic numbers is, or null.
constexpr char const* foreign_magic(std::int32_t magic) {
  switch (magic) {
    case 20240326:
      return "a model file (weights)";
    case 20240327:
      return "a debug state file (activations and gradients)";
    case 20240328:
      return "a tokenizer file";
    case 20240522:
      return "an evaluation set (HellaSwag style)";
    case 20240527:
      return "a training state file (optimizer)";
    default:
      return nullptr;
  }
}

/// The kind of file of `size` bytes that surely begins with these, or null: then they may be raw ids, which
/// no byte tells from another file. So a kind must show at least 6 bytes for which its format leaves next to
/// no choice. Evenly spread bytes do so once in 10^12 files (gzip) to 10^14 (NumPy) and more (the rest); ids
/// of a text hardly ever, since these pairs of bytes are rare tokens.
TESSERA_COLD inline char const* foreign_kind(std::span<std::byte const> bytes, std::size_t size) {
  using namespace std::string_view_literals;
  std::string_view const all(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (all.size() < 16) return nullptr;
  auto const byte = [&](std::size_t at) { return static_cast<unsigned char>(all[at]); };
  auto const u64 = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, all.data() + at, sizeof value);
    return value;
  };
  if (all.starts_with("\x93NUMPY"sv)) return "a NumPy array (.npy)";
  if (all.starts_with("\x89PNG\r\n\x1a\n"sv)) return "a PNG image";
  // ELF: four bytes, then 32 or 64 bits, a byte order, version 1.
  if (all.starts_with("\x7f"
                      "ELF"sv) &&
      (byte(4) == 1 || byte(4) == 2) && (byte(5) == 1 || byte(5) == 2) && byte(6) == 1)
    return "a program or library (ELF)";
  // gzip: three bytes are too few, so flags (none or a name), the level and the system must be known ones.
  if (all.starts_with("\x1f\x8b\x08"sv) && (byte(3) == 0 || byte(3) == 8) &&
      (byte(8) == 0 || byte(8) == 2 || byte(8) == 4) && (byte(9) <= 13 || byte(9) == 255))
    return "compressed with gzip";
  // zip: four bytes, then a version below 6.4 and the method, stored or deflated; PyTorch and .npz are zip.
  if (all.starts_with("PK\x03\x04"sv) && byte(4) < 64 && byte(5) <= 3 && (byte(8) == 0 || byte(8) == 8) &&
      byte(9) == 0)
    return "a zip archive (as .npz and PyTorch files are)";
  // safetensors: the length of a header that the file holds, in eight bytes, then the header, in braces as
  // far as it is seen.
  if (all.substr(8, 2) == "{\""sv && u64(0) >= 2 && u64(0) <= std::min<std::uint64_t>(size - 8, 1 << 27)) {
    std::size_t const length = static_cast<std::size_t>(u64(0));
    std::size_t const last = all.substr(8, length).find_last_not_of(' ');
    if (length > all.size() - 8 || (last != all.npos && all[8 + last] == '}'))
      return "a safetensors file (weights)";
  }
  // pickle: protocol 4 or 5 with a first frame that the file holds and, where it is seen, the final stop, or
  // what torch.save once began with.
  if ((all.starts_with("\x80\x04\x95"sv) || all.starts_with("\x80\x05\x95"sv)) && u64(3) <= size - 11 &&
      (size > all.size() || all.back() == '.'))
    return "a Python pickle";
  if (all.starts_with("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv))
    return "a Python pickle (an old PyTorch file)";
  return nullptr;
}

/// Whether these bytes are surely text and not raw ids: their first 4096 are printable ASCII and white space,
/// of at least 8 kinds. Of the 65536 ids, 9604 are two such bytes (of GPT-2's 50257 less than one in five),
/// so 32 ids, the fewest that are judged, are all of that kind once in 10^22 files; those of a text never,
/// since its frequent tokens are small numbers, whose second byte is no printable one. The 8 kinds let a file
/// of a few repeated ids pass.
inline bool is_plain_text(std::span<std::byte const> bytes) {
  if (bytes.size() < 64) return false;
  std::array<bool, 128> seen{};
  for (std::byte const value : bytes.first(std::min<std::size_t>(bytes.size(), 4096))) {
    auto const c = static_cast<unsigned char>(value);
    if (!(c >= 0x20 && c < 0x7f) && c != '\n' && c != '\r' && c != '\t') return false;
    seen[c] = true;
  }
  return std::count(seen.begin(), seen.end(), true) >= 8;
}

/// So many first bytes of a `.bin` file say what it is.
inline constexpr std::size_t token_head_bytes = 64 * 1024;

/// Reads the header of a `.bin` file of `file_size` bytes, of which it gets the first `token_head_bytes`, and
/// checks it against that size; the magic number decides, a file without one is raw uint16. Throws
/// Error(data) that starts with `name`.
TESSERA_COLD inline TokenLayout token_layout(std::span<std::byte const> bytes, std::size_t file_size,
                                             std::string const& name) {
  constexpr std::size_t header_bytes = 1024;  // 256 int32
  auto const refuse = [&](std::initializer_list<Word> words) {
    throw_error(ErrorKind::data, {name, ": ", sentence(words)});
  };
  auto const header = [&](std::size_t index) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  std::string const size = with_commas(static_cast<std::int64_t>(file_size));
  if (bytes.empty()) refuse({"the token file is empty"});

  std::int32_t const magic = bytes.size() >= sizeof(std::int32_t) ? header(0) : 0;
  if (char const* const what = foreign_magic(magic); what != nullptr)
    refuse({"is ", what, " of llm.c, magic ", magic,
            ", not tokens; training data has magic 20240520 or 20240801, or no header"});
  bool const gpt2 = magic == 20240520;
  if (!gpt2 && magic != 20240801) {
    if (char const* const kind = foreign_kind(bytes, file_size); kind != nullptr)
      refuse({"is ", kind,
              ", not tokens; write its ids as raw uint16 or with llm.c's header, or name other data"});
    if (is_plain_text(bytes))
      refuse({"is text, not tokens; rename it to .txt, then its bytes are the tokens"});
    if (file_size % 2 != 0)
      refuse({"holds ", size,
              " bytes, an odd number, but raw token files hold 2 bytes a token; the file is cut "
              "short or is no token file (text must not be named .bin)"});
    return {TokenFormat::u16, 0, static_cast<std::int64_t>(file_size / 2)};
  }

  if (file_size < header_bytes)
    refuse({"is cut short: the header of a token file takes 1,024 bytes, the file holds ", size});
  std::int32_t const version = header(1);
  std::int32_t const expected_version = gpt2 ? 1 : 7;
  if (version != expected_version)
    refuse({"token file with magic ", magic, " has version ", version, ", version ", expected_version,
            " is known; write it again with a matching tool"});
  TokenFormat const format = gpt2 ? TokenFormat::u16 : TokenFormat::u32;
  std::int64_t const tokens = header(2);
  std::int64_t const held = static_cast<std::int64_t>(file_size - header_bytes);
  std::int64_t const width = bytes_per_token(format);
  if (tokens < 0 || tokens * width != held)
    refuse({"the header says ", with_commas(tokens), " tokens, the file holds ", with_commas(held / width),
            held % width != 0 ? " and a part of one" : "", "; the file is ",
            tokens * width > held ? "cut short" : "damaged or has data after its tokens"});
  if (tokens == 0) refuse({"the token file holds no tokens"});
  return {format, header_bytes, tokens};
}

/// The index of the first value at or above `limit`, or -1. Reads at the speed of memory.
template <class T>
std::int64_t first_at_or_above(T const* values, std::int64_t count, std::int64_t limit) {
  if (limit > static_cast<std::int64_t>(std::numeric_limits<T>::max())) return -1;
  T const bound = static_cast<T>(limit < 0 ? 0 : limit);
  constexpr std::int64_t block = 1 << 14;
  for (std::int64_t start = 0; start < count; start += block) {
    std::int64_t const stop = start + block < count ? start + block : count;
    T largest = 0;
    for (std::int64_t i = start; i < stop; ++i) largest = largest < values[i] ? values[i] : largest;
    if (largest < bound) continue;
    for (std::int64_t i = start; i < stop; ++i)
      if (values[i] >= bound) return i;
  }
  return -1;
}

}  // namespace detail

}  // namespace v0
}  // namespace tessera
