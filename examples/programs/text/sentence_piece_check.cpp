// SPDX-License-Identifier: Apache-2.0
// Checks the parts of a SentencePiece model that libsentencepiece does not validate. Without these checks, a
// damaged model could make the library abort the program or read out of bounds.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/core/error.hpp"

#include "text/sentence_piece.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

/// Reads the fields of a protocol buffers message one after another.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : rest_(bytes) {}

  /// Reads the next field into `field` and `bytes`. Returns false at the end of the message. If the bytes are
  /// not a valid message, sets `broken` and returns false.
  bool next() {
    std::uint64_t tag = 0, size = 0;
    if (rest_.empty() || !number(tag)) return false;
    field = tag >> 3;
    bytes = {};
    std::uint64_t ignored = 0;
    switch (tag & 7) {
      case 0:
        return number(ignored);
      case 1:
        return skip(8);
      case 2:
        return number(size) && skip(size);
      case 5:
        return skip(4);
      default:
        return broken = true, false;
    }
  }

  std::uint64_t field = 0;
  std::string_view bytes;  ///< contents of a string, bytes or message field
  bool broken = false;

 private:
  bool number(std::uint64_t& value) {
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      auto const byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return true;
    }
    return broken = true, false;
  }
  bool skip(std::uint64_t size) {
    if (size > rest_.size()) return broken = true, false;
    bytes = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return true;
  }

  std::string_view rest_;
};

/// Whether a normalizer's rules never refer to a position outside their own bytes. The rules consist of a
/// double-array trie in the format of darts-clone, and of the replacement texts to which the trie refers.
bool is_complete(std::string_view rules) {
  std::uint32_t size = 0;
  if (rules.empty()) return true;
  if (rules.size() < sizeof size) return false;
  std::memcpy(&size, rules.data(), sizeof size);
  rules.remove_prefix(sizeof size);
  if (size >= rules.size() || size % sizeof(std::uint32_t) != 0 || size == 0) return false;
  std::string_view const texts = rules.substr(size);
  if (texts.back() != '\0') return false;
  std::vector<std::uint32_t> units(size / sizeof(std::uint32_t));
  std::memcpy(units.data(), rules.data(), size);

  std::vector<bool> seen(units.size());
  std::vector<std::size_t> open{0};
  while (!open.empty()) {
    std::size_t const at = open.back();
    open.pop_back();
    if (seen[at]) continue;
    seen[at] = true;
    std::uint32_t const unit = units[at];
    std::size_t const base = at ^ (std::size_t{unit >> 10} << ((unit & (1u << 9)) >> 6));
    if ((base | 0xff) >= units.size()) return false;
    if ((unit >> 8 & 1) != 0 && (units[base] & 0x7fffffffu) >= texts.size()) return false;
    for (std::size_t label = 0; label < 256; ++label)
      if ((units[base ^ label] & 0x800000ffu) == label) open.push_back(base ^ label);
  }
  return true;
}

}  // namespace

void check_sentence_piece_model(std::string_view bytes, std::string const& name) {
  auto const refuse = [&](std::string_view what) {
    throw Error(ErrorKind::data,
                name + ": " + std::string(what) + "; the file is damaged or not a SentencePiece model");
  };
  constexpr std::uint64_t piece_field = 1, normalizer_field = 3, denormalizer_field = 5;
  Fields model(bytes);
  for (std::int64_t piece = 0; model.next();) {
    Fields parts(model.bytes);
    if (model.field == piece_field) {
      while (parts.next())
        if (parts.field == 1 && (parts.bytes.empty() || parts.bytes.find('\0') != parts.bytes.npos))
          refuse("piece " + std::to_string(piece) + " is empty or holds a NUL");
      ++piece;
    } else if (model.field == normalizer_field || model.field == denormalizer_field) {
      while (parts.next())
        if (parts.field == 2 && !is_complete(parts.bytes))
          refuse("the rules of its normalizer are incomplete");
    }
    if (parts.broken) model.broken = true;
    if (model.broken) break;
  }
  if (model.broken) refuse("its bytes are not a protobuf message");
}

}  // namespace text
}  // namespace programs
