// SPDX-License-Identifier: Apache-2.0
// Token files (`.bin`): llm.c's header or raw uint16 ids, told apart and checked before a token is read.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera::inline v0 {

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

/// Reads the header of a `.bin` file and checks it against the file's size; the magic number decides, a file
/// without one is raw uint16. Throws Error(data) that starts with `name`.
inline TokenLayout token_layout(std::span<std::byte const> bytes, std::string const& name) {
  constexpr std::size_t header_bytes = 1024;  // 256 int32
  auto const refuse = [&](std::string const& text) { throw Error(ErrorKind::data, name + ": " + text); };
  auto const header = [&](std::size_t index) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  std::string const size = with_commas(static_cast<std::int64_t>(bytes.size()));
  if (bytes.empty()) refuse("the token file is empty");

  std::int32_t const magic = bytes.size() >= sizeof(std::int32_t) ? header(0) : 0;
  if (char const* const what = foreign_magic(magic); what != nullptr)
    refuse("is " + std::string(what) + " of llm.c, magic " + std::to_string(magic) +
           ", not tokens; training data has magic 20240520 or 20240801, or no header");
  bool const gpt2 = magic == 20240520;
  if (!gpt2 && magic != 20240801) {
    if (bytes.size() % 2 != 0)
      refuse("holds " + size +
             " bytes, an odd number, but raw token files hold 2 bytes a token; the file is cut "
             "short or is no token file (text must not be named .bin)");
    return {TokenFormat::u16, 0, static_cast<std::int64_t>(bytes.size() / 2)};
  }

  if (bytes.size() < header_bytes)
    refuse("is cut short: the header of a token file takes 1,024 bytes, the file holds " + size);
  std::int32_t const version = header(1);
  std::int32_t const expected_version = gpt2 ? 1 : 7;
  if (version != expected_version)
    refuse("token file with magic " + std::to_string(magic) + " has version " + std::to_string(version) +
           ", version " + std::to_string(expected_version) +
           " is known; write it again with a matching tool");
  TokenFormat const format = gpt2 ? TokenFormat::u16 : TokenFormat::u32;
  std::int64_t const tokens = header(2);
  std::int64_t const held = static_cast<std::int64_t>(bytes.size() - header_bytes);
  std::int64_t const width = bytes_per_token(format);
  if (tokens < 0 || tokens * width != held)
    refuse("the header says " + with_commas(tokens) + " tokens, the file holds " + with_commas(held / width) +
           (held % width != 0 ? " and a part of one" : "") + "; the file is " +
           (tokens * width > held ? "cut short" : "damaged or has data after its tokens"));
  if (tokens == 0) refuse("the token file holds no tokens");
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

}  // namespace tessera::inline v0
