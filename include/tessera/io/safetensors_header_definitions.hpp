// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/safetensors_header.hpp. Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/safetensors_header.hpp"

namespace tessera {
inline namespace v0 {

namespace detail {

TESSERA_INLINE std::string shape_text(std::span<std::int64_t const> shape) {
  constexpr std::size_t most = 8;
  std::string text = "[";
  for (std::int64_t const extent : shape.first(std::min(shape.size(), most)))
    text += (text.size() > 1 ? ", " : "") + std::to_string(extent);
  if (shape.size() > most) text += ", ... " + with_commas(static_cast<std::int64_t>(shape.size())) + " dims";
  return text + "]";
}

TESSERA_INLINE void append_names(std::string& text, char const* what, std::vector<std::string> const& names) {
  constexpr std::size_t most = 3;
  if (names.empty()) return;
  text += what;
  for (std::size_t i = 0; i < std::min(most, names.size()); ++i) text += (i == 0 ? " " : ", ") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  text += "; ";
}

/// Handles the events of the JSON parser. A valid header has this form, with any number of tensors:
/// {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ...,
///  "__metadata__": {"k": "v", ...}}
///
/// Like the Python package safetensors, this class ignores all other fields of a tensor and accepts null as
/// the value of __metadata__. If two tensors or two metadata keys have the same name, the last one counts.
class SafetensorsEvents : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsEvents(SafetensorsHeader& header, std::string const& file) : header_(header), file_(file) {}

  bool null() override {
    if (place_ == Place::top && key_ == metadata_key) return true;
    return ignored() || refuse("null");
  }
  bool boolean(bool) override { return ignored() || refuse("a truth value"); }
  bool number_integer(number_integer_t value) override {
    return ignored() || refuse("the number " + std::to_string(value));
  }
  bool number_float(number_float_t, string_t const& text) override {
    return ignored() || refuse("the number " + text);
  }
  bool binary(binary_t&) override { return refuse("binary data"); }
  bool number_unsigned(number_unsigned_t value) override {
    if (ignored()) return true;
    if (place_ != Place::array) return refuse("the number " + std::to_string(value));
    if (value > static_cast<number_unsigned_t>(INT64_MAX))
      return refuse("the huge number " + std::to_string(value));
    numbers_.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  bool string(string_t& value) override {
    if (ignored()) return true;
    if (place_ == Place::metadata) {
      header_.metadata[key_] = value;
      return true;
    }
    if (place_ != Place::entry || key_ != "dtype") return refuse("the string \"" + printable(value) + "\"");
    auto const* const known = std::find_if(safetensors_types.begin(), safetensors_types.end(),
                                           [&](SafetensorsType const& type) { return type.name == value; });
    if (known == safetensors_types.end())
      fail(where() + " has the unknown dtype \"" + printable(value) + "\"");
    entry_.type = known->name;
    return true;
  }

  bool start_object(std::size_t) override {
    if (ignored()) return ++ignored_depth_, true;
    switch (place_) {
      case Place::outside:
        place_ = Place::top;
        return true;
      case Place::top:
        place_ = key_ == metadata_key ? Place::metadata : Place::entry;
        entry_ = {};
        entry_.name = key_;
        fields_.clear();
        return true;
      default:
        return refuse("an object");
    }
  }
  bool end_object() override {
    if (ignored_depth_ > 0) return --ignored_depth_, true;
    if (place_ == Place::top) {
      place_ = Place::outside;
      return true;
    }
    if (place_ == Place::entry) {
      for (char const* const field : {"dtype", "shape", "data_offsets"})
        if (std::find(fields_.begin(), fields_.end(), field) == fields_.end())
          fail(where() + " lacks the field " + field);
      auto const [at, fresh] = places_.try_emplace(entry_.name, header_.entries.size());
      if (fresh)
        header_.entries.push_back(std::move(entry_));
      else
        header_.entries[at->second] = std::move(entry_);
    }
    place_ = Place::top;
    key_.clear();
    return true;
  }
  bool start_array(std::size_t) override {
    if (ignored()) return ++ignored_depth_, true;
    if (place_ != Place::entry || (key_ != "shape" && key_ != "data_offsets")) return refuse("an array");
    place_ = Place::array;
    numbers_.clear();
    return true;
  }
  bool end_array() override {
    if (ignored_depth_ > 0) return --ignored_depth_, true;
    place_ = Place::entry;
    if (key_ == "shape") {
      entry_.shape = numbers_;
      return true;
    }
    if (numbers_.size() != 2)
      fail(where() + " has data_offsets with " + std::to_string(numbers_.size()) + " numbers, 2 are needed");
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }
  bool key(string_t& value) override {
    if (ignored_depth_ > 0) return true;
    key_ = value;
    if (place_ == Place::top && key_ == metadata_key && std::exchange(has_metadata_, true))
      fail("the name __metadata__ appears twice");
    if (place_ != Place::entry || !known_field()) return true;
    if (std::find(fields_.begin(), fields_.end(), value) != fields_.end())
      fail(where() + " has the field " + value + " twice");
    fields_.push_back(value);
    return true;
  }
  bool parse_error(std::size_t position, std::string const&,
                   nlohmann::json::exception const& error) override {
    std::string_view text = error.what();
    if (auto const end_of_id = text.find("] "); end_of_id != text.npos) text.remove_prefix(end_of_id + 2);
    fail("the header is not valid JSON, byte " + std::to_string(position) + ": " + printable(text));
  }

 private:
  enum class Place { outside, top, metadata, entry, array };
  static constexpr std::string_view metadata_key = "__metadata__";

  bool known_field() const { return key_ == "dtype" || key_ == "shape" || key_ == "data_offsets"; }
  /// Whether the parser is inside a field of a tensor that is not dtype, shape or data_offsets. Such fields
  /// are ignored.
  bool ignored() const { return ignored_depth_ > 0 || (place_ == Place::entry && !known_field()); }
  [[noreturn]] void fail(std::string const& text) const { throw Error(ErrorKind::data, file_ + ": " + text); }
  std::string where() const { return "tensor " + printable(entry_.name); }
  bool refuse(std::string const& what) const {
    std::string const found = " is " + what;
    switch (place_) {
      case Place::outside:
        fail("the header" + found + ", an object is needed");
      case Place::top:
        fail("tensor " + printable(key_) + found + ", an object is needed");
      case Place::metadata:
        fail("__metadata__ key " + printable(key_) + found + ", a string is needed");
      case Place::entry:
        fail(where() + ": field " + key_ + found);
      case Place::array:
        fail(where() + ": an element of " + key_ + found + ", a whole number of 0 or more is needed");
    }
    return false;
  }

  SafetensorsHeader& header_;
  std::string const& file_;
  Place place_ = Place::outside;
  std::string key_;
  SafetensorsEntry entry_;
  std::vector<std::string> fields_;
  std::map<std::string, std::size_t> places_;  // name of a tensor -> its index in header_.entries
  std::vector<std::int64_t> numbers_;
  std::size_t ignored_depth_ = 0;
  bool has_metadata_ = false;
};

/// Throws Error(data) if the shape and type of a tensor do not match its byte range, or if the tensors leave
/// gaps or overlap. `data_bytes` is the size of the file after the header.
inline void check_safetensors_layout(SafetensorsHeader const& header, std::int64_t data_bytes,
                                     std::string const& file) {
  auto const fail = [&](SafetensorsEntry const& entry, std::string const& text) {
    throw Error(ErrorKind::data, file + ": tensor " + printable(entry.name) + " " + text);
  };
  auto const range = [](SafetensorsEntry const& entry) {
    return "bytes " + std::to_string(entry.begin) + " to " + std::to_string(entry.end);
  };
  std::vector<SafetensorsEntry const*> by_offset;
  for (SafetensorsEntry const& entry : header.entries) {
    auto const* const type = std::find_if(safetensors_types.begin(), safetensors_types.end(),
                                          [&](SafetensorsType const& t) { return t.name == entry.type; });
    if (entry.begin > entry.end) fail(entry, "has data_offsets that run backwards, " + range(entry));
    if (entry.end > data_bytes)
      fail(entry, "needs " + range(entry) + ", the file holds " + std::to_string(data_bytes) +
                      " bytes of data; it is cut short or damaged");
    std::int64_t bits = type->bits;
    bool overflow = false;
    bool empty = false;
    for (std::int64_t const extent : entry.shape) {
      empty = empty || extent == 0;
      overflow = __builtin_mul_overflow(bits, extent, &bits) || overflow;
    }
    if (overflow && !empty) fail(entry, "has a shape too large to count, " + shape_text(entry.shape));
    if (empty) bits = 0;
    if (bits % 8 != 0)
      fail(entry, "of shape " + shape_text(entry.shape) + " and dtype " + std::string(entry.type) +
                      " does not end with a whole byte");
    std::int64_t const bytes = bits / 8;
    if (bytes != entry.end - entry.begin)
      fail(entry, "of shape " + shape_text(entry.shape) + " and dtype " + std::string(entry.type) +
                      " takes " + std::to_string(bytes) + " bytes, its data_offsets give " +
                      std::to_string(entry.end - entry.begin));
    by_offset.push_back(&entry);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](SafetensorsEntry const* a, SafetensorsEntry const* b) {
    return std::pair(a->begin, a->end) < std::pair(b->begin, b->end);
  });
  std::int64_t covered = 0;
  SafetensorsEntry const* before = nullptr;
  for (SafetensorsEntry const* const entry : by_offset) {
    if (entry->begin < covered)
      fail(*entry,
           "at " + range(*entry) + " overlaps tensor " + printable(before->name) + " at " + range(*before));
    if (entry->begin > covered)
      fail(*entry, "begins at byte " + std::to_string(entry->begin) + " and leaves a hole from byte " +
                       std::to_string(covered));
    covered = entry->end;
    before = entry;
  }
  if (covered != data_bytes)
    throw Error(ErrorKind::data, file + ": the tensors take " + std::to_string(covered) +
                                     " bytes, the file holds " + std::to_string(data_bytes) +
                                     " bytes of data; the rest belongs to no tensor");
}

}  // namespace detail

TESSERA_INLINE std::size_t safetensors_start(std::span<std::byte const> first) {
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof length);
  return sizeof length + (length > detail::safetensors_header_limit ? 0 : static_cast<std::size_t>(length));
}

TESSERA_INLINE SafetensorsHeader parse_safetensors(std::span<std::byte const> bytes, std::size_t size,
                                                   std::string const& file) {
  auto const fail = [&](std::string const& text) { throw Error(ErrorKind::data, file + ": " + text); };
  std::uint64_t length = 0;
  if (bytes.size() < sizeof length)
    fail("is not a safetensors file: it holds " + std::to_string(bytes.size()) +
         " bytes, and the length of the header alone takes 8");
  std::memcpy(&length, bytes.data(), sizeof length);
  if (length > detail::safetensors_header_limit)
    fail("its first 8 bytes say that the header has " + std::to_string(length) + " bytes, the limit is " +
         std::to_string(detail::safetensors_header_limit) + "; this is probably not a safetensors file");
  if (length > bytes.size() - sizeof length)
    fail("its first 8 bytes say that the header has " + std::to_string(length) + " bytes, but only " +
         std::to_string(size - sizeof length) + " bytes follow; the file is cut short");
  auto const* const text = reinterpret_cast<char const*>(bytes.data() + sizeof length);
  std::string_view const json(text, length);
  constexpr std::string_view white_space = " \t\n\r";
  std::size_t const first = json.find_first_not_of(white_space);
  if (first == json.npos || json[first] != '{')
    fail("the header does not begin with {, so this is not a safetensors file");

  SafetensorsHeader header;
  header.data_offset = static_cast<std::int64_t>(sizeof length + length);
  detail::SafetensorsEvents events(header, file);
  nlohmann::json::sax_parse(text, text + length, &events);
  // The parser stops at a NUL byte as if the text ended there, so this code checks that the header ends with
  // }.
  if (json[json.find_last_not_of(white_space)] != '}' || json.find('\0') != json.npos)
    fail(
        "the header has data other than white space after its JSON; the file is damaged, copy "
        "it again");
  detail::check_safetensors_layout(header, static_cast<std::int64_t>(size) - header.data_offset, file);
  std::sort(header.entries.begin(), header.entries.end(),
            [](SafetensorsEntry const& a, SafetensorsEntry const& b) { return a.name < b.name; });
  return header;
}

TESSERA_INLINE SafetensorsHeader parse_safetensors(std::span<std::byte const> bytes,
                                                   std::string const& file) {
  return parse_safetensors(bytes, bytes.size(), file);
}

}  // namespace v0
}  // namespace tessera
