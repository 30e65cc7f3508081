// SPDX-License-Identifier: Apache-2.0
// Recognizes token files (`.bin`) and checks them before a token is read. A token file has llm.c's header, or
// it consists of raw uint16 ids.
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
#include <utility>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera {
inline namespace v0 {

static_assert(std::endian::native == std::endian::little, "tessera reads little-endian files in place");

/// The format in which a token source stores its tokens.
enum class TokenFormat : std::uint8_t {
  bytes,  ///< text: every byte is a token from 0 to 255
  u16,    ///< 16-bit ids: nanoGPT's raw files and llm.c's GPT-2 files
  u32     ///< 32-bit ids: llm.c's LLaMA 3 files, and tokens given in memory
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
  switch (format) {
    case TokenFormat::bytes:
      return 1;
    case TokenFormat::u16:
      return 2;
    case TokenFormat::u32:
      return 4;
  }
  return 0;
}

/// Returns the vocabulary size of a source if the user gives none: 256 for bytes, 50257 (GPT-2) for 16-bit
/// ids, 128256 (LLaMA 3) for 32-bit ids.
constexpr std::int64_t default_vocabulary(TokenFormat format) {
  switch (format) {
    case TokenFormat::bytes:
      return 256;
    case TokenFormat::u16:
      return 50257;
    case TokenFormat::u32:
      return 128256;
  }
  return 0;
}

/// The format of a `.bin` file, and the position and number of its tokens.
struct TokenLayout {
  TokenFormat format = TokenFormat::u16;
  std::size_t offset = 0;  ///< number of bytes before the first token: 1024 with a header, else 0
  std::int64_t tokens = 0;
};

namespace detail {

/// Returns a description of the file of llm.c that begins with the number `magic`, if this file does not hold
/// tokens. Returns null for other numbers.
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

/// A foreign format: a file format that is neither text nor token ids. `what` is its description, and
/// `advice` tells the user what to do. If `what` is null, the object is a null kind: the file is text, token
/// ids or unknown.
struct ForeignKind {
  char const* what = nullptr;
  char const* advice = nullptr;
};

namespace advice {
inline constexpr char unpack[] = "unpack it and give the unpacked file";
inline constexpr char export_rows[] =
    "write its rows as JSON Lines, in pandas with to_json(FILE, orient='records', lines=True)";
inline constexpr char weights[] =
    "give weights to --model or --init, and here text, JSON Lines or token files";
inline constexpr char other[] = "give text, JSON Lines or token files";
}  // namespace advice

/// The signature of a foreign format: the bytes `bytes` at offset `at` of the file.
struct ForeignMagic {
  std::size_t at;
  std::string_view bytes;
  ForeignKind kind;
};

/// Whether the bytes include control characters other than white space and escape. Text never includes them.
inline bool has_control_bytes(std::span<std::byte const> bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](std::byte value) {
    auto const c = static_cast<unsigned char>(value);
    return c < 0x20 && !(c >= 9 && c <= 13) && c != 0x1b;
  });
}

/// Returns the foreign format of a file of `size` bytes that begins with `bytes`, or a null kind if the
/// format is not certain. The file possibly holds raw token ids, which can have any bytes. So a signature
/// must have at least 5 bytes, or further bytes must have known values. Random bytes match gzip, JPEG or LZ4
/// about once in 10^12 files, and the other formats about once in 10^14 files or less often. The token ids of
/// a real text hardly ever match, because the bytes of a signature, read as 16-bit ids, are rare tokens. The
/// exception is the signature of zstd, which has four bytes. It is safe because one of its two 16-bit ids is
/// beyond GPT-2's vocabulary.
inline ForeignKind foreign_kind(std::span<std::byte const> bytes, std::size_t size) {
  using namespace std::string_view_literals;
  std::string_view const all(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (all.size() < 16) return {};
  auto const byte = [&](std::size_t at) { return static_cast<unsigned char>(all[at]); };
  auto const u64 = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, all.data() + at, sizeof value);
    return value;
  };
  static constexpr ForeignMagic magics[] = {
      {0,
       "\x93NUMPY"sv,
       {"a NumPy array (.npy)",
        "write its ids as raw uint16 with numpy.load(FILE).astype('uint16').tofile('ids.bin')"}},
      {0, "\x89PNG\r\n\x1a\n"sv, {"a PNG image", advice::other}},
      {0, "GIF87a"sv, {"a GIF image", advice::other}},
      {0, "GIF89a"sv, {"a GIF image", advice::other}},
      {6, "JFIF\0"sv, {"a JPEG image", advice::other}},
      {6, "Exif\0"sv, {"a JPEG image", advice::other}},
      {8, "WEBPVP8"sv, {"a WebP image", advice::other}},
      {8, "WAVEfmt"sv, {"a sound file (WAV)", advice::other}},
      {0, "OggS\0\2"sv, {"a sound file (Ogg)", advice::other}},
      {0, "\xfd\x37zXZ\0"sv, {"compressed with xz", advice::unpack}},
      {4, "1AY&SY"sv, {"compressed with bzip2", advice::unpack}},
      {0,
       "\x28\xb5\x2f\xfd"sv,
       {"compressed with zstd", "unpack it with unzstd, or make a token file of it with prepare"}},
      {0, "\xff\6\0\0sNaPpY"sv, {"compressed with snappy", advice::unpack}},
      {0, "7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", advice::unpack}},
      {0, "Rar!\x1a\7"sv, {"a RAR archive", advice::unpack}},
      {257, "ustar\0"sv, {"a tar archive", advice::unpack}},
      {257, "ustar "sv, {"a tar archive", advice::unpack}},
      {0, "ARROW1\0\0"sv, {"an Arrow file", advice::export_rows}},
      {0, "\x89HDF\r\n\x1a\n"sv, {"an HDF5 file", advice::export_rows}},
      {0, "SQLite format 3\0"sv, {"an SQLite database", advice::export_rows}},
      {0, "MMIDIDX\0\0"sv, {"an index of Megatron", "give the .bin file of ids that belongs to it"}},
      {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {"an old Office document", advice::other}},
      {0,
       "\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"sv,
       {"a Python pickle (an old PyTorch file)", advice::weights}}};
  for (ForeignMagic const& magic : magics)
    if (all.size() > magic.at && all.substr(magic.at).starts_with(magic.bytes)) return magic.kind;
  // ELF: four magic bytes, then one byte each for the word size (1 or 2), the byte order (1 or 2) and the
  // version (1).
  if (all.starts_with("\x7f"
                      "ELF"sv) &&
      (byte(4) == 1 || byte(4) == 2) && (byte(5) == 1 || byte(5) == 2) && byte(6) == 1)
    return {"a program or library (ELF)", advice::other};
  // gzip: the magic has only three bytes. So the flags (none, or a file name), the compression level and the
  // operating system must have known values too.
  if (all.starts_with("\x1f\x8b\x08"sv) && (byte(3) == 0 || byte(3) == 8) &&
      (byte(8) == 0 || byte(8) == 2 || byte(8) == 4) && (byte(9) <= 13 || byte(9) == 255))
    return {"compressed with gzip", "unpack it with gunzip, or make a token file of it with prepare"};
  // zip: four magic bytes, a version below 6.4, and a compression method: stored or deflated. PyTorch files
  // and .npz files are zip archives.
  if (all.starts_with("PK\x03\x04"sv) && byte(4) < 64 && byte(5) <= 3 && (byte(8) == 0 || byte(8) == 8) &&
      byte(9) == 0)
    return {"a zip archive (as .npz and PyTorch files are)", advice::unpack};
  // LZ4: four magic bytes, then two bytes with version 1 and zeros in their reserved bits.
  if (all.starts_with("\x04\x22\x4d\x18"sv) && (byte(4) & 0xc2) == 0x40 && (byte(5) & 0x8f) == 0)
    return {"compressed with lz4", advice::unpack};
  // Parquet: four magic bytes, then the type of a page and the start of the page's size in Thrift's encoding.
  if (all.starts_with("PAR1\x15"sv) && byte(5) <= 6 && byte(5) % 2 == 0 && byte(6) == 0x15)
    return {"a Parquet file", advice::export_rows};
  if (all.starts_with("Obj\1"sv) && all.substr(0, 256).find("avro.") != all.npos)
    return {"an Avro file", advice::export_rows};
  if (all.starts_with("GGUF"sv) && byte(4) >= 1 && byte(4) <= 3 && byte(5) == 0 && byte(6) == 0 &&
      byte(7) == 0)
    return {"a GGUF file (weights)", advice::weights};
  if (all.starts_with("%PDF-"sv) && byte(6) == '.' && (byte(8) == '\r' || byte(8) == '\n'))
    return {"a PDF document", advice::other};
  // safetensors: eight bytes with the length of the header, then the header. The header must fit in the file,
  // begin with {" and, if `bytes` includes its end, end with }.
  if (all.substr(8, 2) == "{\""sv && u64(0) >= 2 && u64(0) <= std::min<std::uint64_t>(size - 8, 1 << 27)) {
    std::size_t const length = static_cast<std::size_t>(u64(0));
    std::size_t const last = all.substr(8, length).find_last_not_of(' ');
    if (length > all.size() - 8 || (last != all.npos && all[8 + last] == '}'))
      return {"a safetensors file (weights)", advice::weights};
  }
  // pickle: protocol 4 or 5, whose first frame must fit in the file. If `bytes` is the whole file, the last
  // byte must be the opcode STOP.
  if ((all.starts_with("\x80\x04\x95"sv) || all.starts_with("\x80\x05\x95"sv)) && u64(3) <= size - 11 &&
      (size > all.size() || all.back() == '.'))
    return {"a Python pickle", advice::weights};
  return {};
}

/// Returns "UTF-16" or "UTF-32" if a text has this encoding, else null. UTF-32 must have a byte order mark.
/// UTF-16 must have a byte order mark and an ASCII character, or it must consist only of ASCII characters, at
/// least 8. Checks the first 1024 16-bit units.
inline char const* utf16_name(std::string_view bytes) {
  using namespace std::string_view_literals;
  if (bytes.starts_with("\xff\xfe\0\0"sv) || bytes.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  std::size_t const units = std::min<std::size_t>(bytes.size() / 2, 1024);
  for (std::size_t low = 0; low <= 1; ++low) {  // index of a unit's low byte: little endian, then big
    bool const marked = bytes.starts_with(low == 0 ? "\xff\xfe"sv : "\xfe\xff"sv);
    std::size_t ascii = 0;
    for (std::size_t unit = 0; unit < units; ++unit) {
      char const value = bytes[2 * unit + low];
      ascii +=
          bytes[2 * unit + 1 - low] == 0 && (value >= ' ' || value == '\n' || value == '\r' || value == '\t');
    }
    if (marked ? ascii > 0 : units >= 8 && ascii == units) return "UTF-16";
  }
  return nullptr;
}

/// Returns the foreign format of a file that should hold text, or a null kind. Text has no control
/// characters. If the file has some, a short signature at its start is enough to recognize the format.
inline ForeignKind foreign_to_text(std::span<std::byte const> bytes, std::size_t size) {
  using namespace std::string_view_literals;
  if (ForeignKind const sure = foreign_kind(bytes, size); sure.what != nullptr) return sure;
  std::string_view const all(reinterpret_cast<char const*>(bytes.data()), bytes.size());
  if (all.starts_with("\x88\xd8\x34\x01"sv) || all.starts_with("\xa1\xd9\x34\x01"sv))
    return {"a token file of llm.c", "rename it to a name that ends in .bin"};
  std::int32_t magic = 0;
  if (all.size() >= sizeof magic) std::memcpy(&magic, all.data(), sizeof magic);
  if (char const* const what = foreign_magic(magic)) return {what, advice::weights};
  if (char const* const encoding = utf16_name(all))
    return encoding[4] == '3'
               ? ForeignKind{"text in UTF-32", "convert it to UTF-8: iconv -f UTF-32 -t UTF-8 FILE > NEW"}
               : ForeignKind{"text in UTF-16", "convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW"};
  if (!has_control_bytes(bytes)) return {};
  static constexpr ForeignMagic magics[] = {
      {0,
       "\x1f\x8b"sv,
       {"compressed with gzip", "unpack it with gunzip, or make a token file of it with prepare"}},
      {0, "\x1f\x9d"sv, {"compressed with compress (.Z)", advice::unpack}},
      {0, "BZh"sv, {"compressed with bzip2", advice::unpack}},
      {0, "\x04\x22\x4d\x18"sv, {"compressed with lz4", advice::unpack}},
      {0, "LZIP"sv, {"compressed with lzip", advice::unpack}},
      {0, "\x5d\0\0"sv, {"compressed with lzma", advice::unpack}},
      {0, "PK\3\4"sv, {"a zip archive (as .npz and PyTorch files are)", advice::unpack}},
      {0, "PK\5\6"sv, {"an empty zip archive", advice::other}},
      {0, "PAR1"sv, {"a Parquet file", advice::export_rows}},
      {0, "\xff\xff\xff\xff"sv, {"an Arrow stream", advice::export_rows}},
      {0, "FEA1"sv, {"a Feather file", advice::export_rows}},
      {0, "ORC"sv, {"an ORC file", advice::export_rows}},
      {0, "%PDF-"sv, {"a PDF document", advice::other}},
      {0, "\xff\xd8\xff"sv, {"a JPEG image", advice::other}},
      {0, "II*\0"sv, {"a TIFF image", advice::other}},
      {0, "MM\0*"sv, {"a TIFF image", advice::other}},
      {4, "ftyp"sv, {"a film or sound file (MP4)", advice::other}},
      {0, "\x1a\x45\xdf\xa3"sv, {"a film (Matroska)", advice::other}},
      {0, "ID3"sv, {"a sound file (MP3)", advice::other}},
      {0, "fLaC"sv, {"a sound file (FLAC)", advice::other}},
      {0, "\x80\2"sv, {"a Python pickle", advice::weights}},
      {0, "\x80\3"sv, {"a Python pickle", advice::weights}},
      {0, "\x80\4"sv, {"a Python pickle", advice::weights}},
      {0, "\x80\5"sv, {"a Python pickle", advice::weights}},
      {0, "\0asm"sv, {"a program (WebAssembly)", advice::other}},
      {0, "MZ"sv, {"a program (Windows)", advice::other}}};
  for (ForeignMagic const& one : magics)
    if (all.size() > one.at && all.substr(one.at).starts_with(one.bytes)) return one.kind;
  return {};
}

}  // namespace detail

/// The number of bytes at the start of a file in which `nul_in_text` searches for a NUL. Text contains no
/// NUL.
inline constexpr std::size_t text_probe_bytes = 4096;

namespace detail {

/// Returns the index of the first NUL byte among the first `text_probe_bytes` bytes, or -1 if there is none.
inline std::int64_t nul_in_text(std::span<std::byte const> bytes) {
  std::size_t const probe = std::min(bytes.size(), text_probe_bytes);
  for (std::size_t at = 0; at < probe; ++at)
    if (bytes[at] == std::byte{0}) return static_cast<std::int64_t>(at);
  return -1;
}

}  // namespace detail

/// Throws Error(data) if a file of `size` bytes that begins with `bytes` is certainly not text. `name` is the
/// name of the file, for the message.
inline void need_text(std::span<std::byte const> bytes, std::size_t size, std::string const& name) {
  if (detail::ForeignKind const kind = detail::foreign_to_text(bytes, size); kind.what != nullptr)
    throw_error(ErrorKind::data, {name, ": is ", kind.what, "; ", kind.advice});
  if (std::int64_t const at = detail::nul_in_text(bytes); at >= 0)
    throw_error(ErrorKind::data,
                {name, ": holds a NUL byte at ", at, ", so it is not text; ", detail::advice::other});
}

namespace detail {

/// Whether the bytes are certainly text and not raw ids. The first 4096 bytes must be printable ASCII or
/// white space, with at least 8 different values.
///
/// Random ids hardly ever look like text: of GPT-2's 50257 ids, fewer than one in five consist of two such
/// bytes. At least 32 ids (64 bytes) are needed, and all of them match in one of 10^22 files. The ids of a
/// real text never match, because frequent tokens are small numbers, whose high byte is not printable. A file
/// with fewer than 8 different values possibly repeats a few ids, so the result is false.
inline bool is_plain_text(std::span<std::byte const> bytes) {
  if (bytes.size() < 64) return false;
  std::array<bool, 128> seen{};
  int kinds = 0;
  for (std::byte const value : bytes.first(std::min<std::size_t>(bytes.size(), 4096))) {
    auto const c = static_cast<unsigned char>(value);
    if (!(c >= 0x20 && c < 0x7f) && c != '\n' && c != '\r' && c != '\t') return false;
    kinds += !std::exchange(seen[c], true);
  }
  return kinds >= 8;
}

/// Returns the size in bytes of an id (2, 4 or 8) in a file that begins with `bytes` and has no header. The
/// result is 8 or 4 if all ids of this size are below 2^20 and, in at least half of them, the lower 16 bits
/// are a large number. Read as 16-bit ids, the bytes of this file would alternate between large numbers and
/// numbers below 16. Ids of real text never do this. At least 16 ids are needed. In all other cases the
/// result is 2.
inline std::size_t raw_id_bytes(std::span<std::byte const> bytes) {
  for (std::size_t width = 8; width >= 4; width /= 2) {
    std::size_t const ids = bytes.size() / width;
    auto const id_at = [&](std::size_t at) {
      std::uint64_t id = 0;
      std::memcpy(&id, bytes.data() + at * width, width);
      return id;
    };
    std::uint64_t max_high_half = 0, above_max = 0, kinds = 0;
    std::array<bool, 1 << 16> seen{};
    for (std::size_t at = 0; at < ids; ++at) {
      max_high_half = std::max(max_high_half, id_at(at) >> 16);
      kinds += !std::exchange(seen[id_at(at) & 0xffff], true);
    }
    for (std::size_t at = 0; at < ids; ++at) above_max += (id_at(at) & 0xffff) > max_high_half;
    if (ids >= 16 && max_high_half <= 15 && 2 * above_max >= ids && kinds >= 4) return width;
  }
  return 2;
}

}  // namespace detail

/// The number of bytes at the start of a file that are enough to recognize its format.
inline constexpr std::size_t token_head_bytes = 64 * 1024;

/// Returns the format and position of the tokens in a `.bin` file of `file_size` bytes. `bytes` are its first
/// `token_head_bytes` bytes. The magic number decides the format; a file without a magic number is raw
/// uint16. Checks the header against the size of the file. Throws Error(data) that starts with `name`.
inline TokenLayout token_layout(std::span<std::byte const> bytes, std::size_t file_size,
                                std::string const& name) {
  constexpr std::size_t header_bytes = 1024;  // 256 int32 values
  auto const refuse = [&](std::initializer_list<Word> words) {
    throw_error(ErrorKind::data, {name, ": ", sentence(words)});
  };
  auto const header = [&](std::size_t index) {
    std::int32_t value = 0;
    std::memcpy(&value, bytes.data() + index * sizeof value, sizeof value);
    return value;
  };
  std::string const size = files::with_commas(static_cast<std::int64_t>(file_size));
  if (bytes.empty()) refuse({"the token file is empty"});

  std::int32_t const magic = bytes.size() >= sizeof(std::int32_t) ? header(0) : 0;
  if (char const* const what = detail::foreign_magic(magic); what != nullptr)
    refuse({"is ", what, " of llm.c, magic ", magic,
            ", not tokens; training data has magic 20240520 or 20240801, or no header"});
  bool const gpt2 = magic == 20240520;
  if (!gpt2 && magic != 20240801) {
    if (detail::ForeignKind const kind = detail::foreign_kind(bytes, file_size); kind.what != nullptr)
      refuse({"is ", kind.what, ", not tokens; ", kind.advice});
    if (detail::is_plain_text(bytes))
      refuse({"is text, not tokens; rename it to .txt to use its bytes as tokens"});
    if (file_size % 2 != 0)
      refuse({"holds ", size,
              " bytes, an odd number, but raw token files have 2 bytes per token; the file is cut short or "
              "is not a token file (text must not be named .bin)"});
    if (bytes.size() >= 12 && bytes.size() >= std::min(file_size, header_bytes) && header(2) > 0 &&
        (file_size == header_bytes + 2 * static_cast<std::size_t>(header(2)) ||
         file_size == header_bytes + 4 * static_cast<std::size_t>(header(2))))
      refuse({"has llm.c's header for ", files::with_commas(header(2)), " tokens, but its magic is ", magic,
              " and version ", header(1),
              "; training data has magic 20240520 (version 1) or 20240801 (version 7); write it again"});
    if (std::size_t const width = detail::raw_id_bytes(bytes); width > 2)
      refuse({"holds ids that are ", static_cast<std::int64_t>(8 * width),
              "-bit integers, but a file without llm.c's header must hold 16-bit ones; convert them with "
              "numpy.fromfile(FILE, '",
              width == 4 ? "uint32" : "uint64",
              "').astype('uint16').tofile('ids.bin'), or write the header if an id is above 65535"});
    return {TokenFormat::u16, 0, static_cast<std::int64_t>(file_size / 2)};
  }

  if (file_size < header_bytes)
    refuse({"is cut short: the header of a token file has 1,024 bytes, and the file has ", size});
  std::int32_t const version = header(1);
  std::int32_t const expected_version = gpt2 ? 1 : 7;
  if (version != expected_version)
    refuse({"token file with magic ", magic, " has version ", version, ", but only version ",
            expected_version, " can be read; write it again with a matching tool"});
  TokenFormat const format = gpt2 ? TokenFormat::u16 : TokenFormat::u32;
  std::int64_t const tokens = header(2);
  std::int64_t const held = static_cast<std::int64_t>(file_size - header_bytes);
  std::int64_t const width = bytes_per_token(format);
  if (tokens < 0 || tokens * width != held)
    refuse({"its header gives ", files::with_commas(tokens), " tokens, but it holds ",
            files::with_commas(held / width), held % width != 0 ? " and a part of one" : "", "; the file is ",
            tokens * width > held ? "cut short" : "damaged or has data after its tokens"});
  if (tokens == 0) refuse({"the token file holds no tokens"});
  return {format, header_bytes, tokens};
}

namespace detail {

/// Returns the index of the first value that is at least `limit`, or -1 if there is none. Cost: memory speed.
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
