// SPDX-License-Identifier: Apache-2.0
// Opens data whose samples are records: lines of text, objects of JSON Lines, or documents of a token file.
// Needs nlohmann-json.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/tokens.hpp"
#include "tessera/io/json_lines.hpp"

namespace tessera {
inline namespace v0 {

/// The kind of a sample. `tokens`: a part of the token stream; all such samples have the same length.
/// `lines`: a line of text. `records`: a JSON object on one line, or a document of a token file.
enum class SamplesAre : std::uint8_t { tokens, lines, records };

/// A function that appends the tokens of `text` to `tokens`.
using RecordEncoder = std::function<void(std::string_view text, std::vector<std::uint32_t>& tokens)>;

struct RecordOptions {
  std::int64_t vocabulary = 0;  ///< vocabulary size; 0: not given, as in TokenOptions
  std::string field = "text";   ///< the field of a JSON object to train on
  std::int64_t separator = -1;  ///< the token that ends a document; negative: the default of the file format
  RecordEncoder encode = {};    ///< the tokenizer; empty: each byte is a token
};

/// Returns a note for messages, such as " (3 x invalid UTF-8 as U+FFFD)". `replaced` is the number of invalid
/// byte sequences that were replaced by U+FFFD. If it is 0, the note is empty.
inline std::string replaced_text(std::int64_t replaced) {
  return replaced == 0 ? std::string()
                       : sentence({" (", files::with_commas(replaced), " x invalid UTF-8 as U+FFFD)"});
}

namespace detail {

/// A line or document of a TokenSource: the tokens first..first+tokens-1. `file` is the index of its file.
/// `number` is the number of the line or document in this file, counted from 1.
struct Stretch {
  std::int64_t file = 0, number = 0, first = 0, tokens = 0;
  std::int32_t before_end = -1;  ///< the token before the end token; -1 if there is none
};

/// Splits each file of `source` after each token `end`, and calls visit(Stretch) for each part. The last part
/// of a file possibly has no token `end`. If `with_end` is false, the parts do not include the token `end`.
/// Returns the number of tokens `end`.
template <class Visit>
std::int64_t for_each_stretch(TokenSource const& source, std::int64_t end, bool with_end, Visit&& visit) {
  std::vector<std::int32_t> block(1 << 14);
  std::int64_t ends = 0;
  for (std::int64_t file = 0; file < source.files(); ++file) {
    std::int64_t const stop = source.file_begin(file + 1);
    Stretch stretch{file, 1, source.file_begin(file), 0};
    std::int32_t before = -1;
    for (std::int64_t at = stretch.first; at < stop;) {
      std::int64_t const some = std::min(stop - at, static_cast<std::int64_t>(block.size()));
      source.read(at, std::span(block).first(static_cast<std::size_t>(some)));
      for (std::int64_t i = 0; i < some; ++i) {
        std::int32_t const token = block[static_cast<std::size_t>(i)];
        std::int32_t const previous = std::exchange(before, token);
        if (token != end) continue;
        ++ends;
        stretch.before_end = previous;
        stretch.tokens = at + i - stretch.first + (with_end ? 1 : 0);
        visit(std::as_const(stretch));
        stretch = {file, stretch.number + 1, at + i + 1, 0};
      }
      at += some;
    }
    stretch.tokens = stop - stretch.first;
    if (stretch.tokens > 0) visit(std::as_const(stretch));
  }
  return ends;
}

/// Collects the records of a source. Omits records with fewer than two tokens, which have no token to
/// predict, and counts them in `left_out`.
struct RecordList {
  std::vector<Record> records;
  std::int64_t left_out = 0;

  void add(std::int64_t first, std::int64_t tokens) {
    if (tokens >= 2)
      records.push_back({first, tokens});
    else
      ++left_out;
  }
};

/// Encodes the text of every line of `source`. Returns a new source that holds the tokens in memory, with
/// each line as a record. If `json` is true, the text is the field `options.field` of the JSON object on the
/// line.
inline TokenSource encoded_lines(TokenSource const& source, bool json, RecordOptions const& options) {
  std::vector<std::uint32_t> tokens;
  RecordList list;
  std::vector<std::int32_t> bytes;
  std::string text, storage;
  std::int64_t replaced = 0;
  for_each_stretch(source, '\n', false, [&](Stretch const& line) {
    bytes.resize(static_cast<std::size_t>(line.tokens));
    source.read(line.first, bytes);
    text.assign(bytes.begin(), bytes.end());
    if (line.before_end == '\r') text.pop_back();
    if (json) {
      if (text.find_first_not_of(" \t\r") == text.npos) return;
      text = field_of(text, options.field, sentence({source.file_name(line.file), ": line ", line.number}),
                      ", or give --samples-are lines", &replaced);
    } else if (repaired(text, storage, replaced).data() != text.data()) {
      text.swap(storage);
    }
    auto const first = static_cast<std::int64_t>(tokens.size());
    if (options.encode)
      options.encode(text, tokens);
    else
      for (char const c : text) tokens.push_back(static_cast<unsigned char>(c));
    list.add(first, static_cast<std::int64_t>(tokens.size()) - first);
  });
  if (tokens.empty())
    throw_error(ErrorKind::data, {source.name(), ": no record holds any text; give other data"});
  std::int64_t const vocabulary =
      options.vocabulary > 0 || options.encode ? options.vocabulary : source.vocabulary();
  TokenSource encoded = TokenSource::from_memory(std::move(tokens), {.vocabulary = vocabulary},
                                                 sentence({source.name(), replaced_text(replaced)}));
  encoded.divide(std::move(list.records), list.left_out);
  return encoded;
}

}  // namespace detail

/// Opens text files and folders of text files. Each line is a sample. The line end, LF or CR LF, is not part
/// of the line. Without `options.encode`, each byte is a token, and the tokens are read from the files when
/// they are needed. A line with fewer than two tokens is omitted and counted. Throws Error(data or usage)
/// that names the file.
inline TokenSource open_lines(std::span<std::string const> paths, RecordOptions const& options = {}) {
  TokenSource source = TokenSource::open(paths, {.vocabulary = options.encode ? 0 : options.vocabulary});
  if (source.format() != TokenFormat::bytes)
    throw_error(ErrorKind::usage,
                {source.name(), ": holds ", name_of(source.format()),
                 " tokens, which have no lines; give --samples-are records to use its documents"});
  if (options.encode) return detail::encoded_lines(source, false, options);
  detail::RecordList list;
  detail::for_each_stretch(source, '\n', false, [&](detail::Stretch const& line) {
    list.add(line.first, line.tokens - (line.before_end == '\r' ? 1 : 0));
  });
  source.divide(std::move(list.records), list.left_out);
  return source;
}

/// Opens files in which each record is a sample. In a token file (`.bin`), a record is a document. It ends
/// after a separator token, which is its last token, or at the end of the file. Other files are JSON Lines:
/// one object per line, with the text in the field `options.field`. Blank lines are skipped. Records with
/// fewer than two tokens are omitted and counted. Throws Error(data or usage) that names the file and the
/// line.
inline TokenSource open_records(std::span<std::string const> paths, RecordOptions const& options = {}) {
  bool const text = std::none_of(paths.begin(), paths.end(),
                                 [](std::string const& path) { return path.ends_with(".bin"); });
  TokenSource source = TokenSource::open(paths, {.vocabulary = text ? 0 : options.vocabulary});
  if (text) return detail::encoded_lines(source, true, options);
  if (options.encode)
    throw_error(
        ErrorKind::usage,
        {source.name(), ": already holds tokens, so a tokenizer cannot read it; give text, or no tokenizer"});
  // The default separators: 50256 is GPT-2's <|endoftext|>, 128000 is LLaMA 3's <|begin_of_text|>.
  std::int64_t const separator = options.separator >= 0                ? options.separator
                                 : source.format() == TokenFormat::u16 ? 50256
                                                                       : 128000;
  detail::RecordList list;
  std::int64_t const ends = detail::for_each_stretch(
      source, separator, true,
      [&](detail::Stretch const& document) { list.add(document.first, document.tokens); });
  if (ends == 0)
    throw_error(ErrorKind::data,
                {source.name(), ": contains no token ", separator,
                 ", the separator of documents; give --separator the token that ends a document"});
  source.divide(std::move(list.records), list.left_out);
  return source;
}

}  // namespace v0
}  // namespace tessera
