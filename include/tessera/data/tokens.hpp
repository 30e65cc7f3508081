// SPDX-License-Identifier: Apache-2.0
// Provides training data from text files, folders of text files, token files, and tokens in memory.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <dirent.h>
#include <initializer_list>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/data/token_file.hpp"
#include "tessera/detail/sort.hpp"

namespace tessera {
inline namespace v0 {

/// The path that is read if the user gives none: the texts of the Debian package `fortunes`.
inline constexpr char const* default_data_path = "/usr/share/games/fortunes";

struct TokenOptions {
  /// The vocabulary size. Every token must be below it. 0: the `default_vocabulary` of the format of the
  /// files.
  std::int64_t vocabulary = 0;
};

/// The position of one sample, such as a line or a document: tokens first..first+tokens-1 of the source.
struct Record {
  std::int64_t first = 0;
  std::int64_t tokens = 0;
};

/// One long, read-only sequence of tokens. The tokens are read from the files when they are needed.
///
/// A file whose name ends in `.bin` is a token file. Its format is given by the magic number of llm.c's
/// header: 20240520 for uint16, 20240801 for uint32. Without a magic number, the file is raw uint16. A `.bin`
/// file that is certainly something else, such as text or wider ids, is refused. Every other named file is
/// text, and its bytes are the tokens. Compressed files, images, tables and UTF-16 are recognized by their
/// first bytes and refused. A text file with a NUL in its first 4096 bytes is refused too. All other bytes
/// are allowed. For a folder, the text files in it and its subfolders are read in the byte order of their
/// paths. In a folder, hidden files, symbolic links, empty files and files that are not text are skipped and
/// counted. Several paths are concatenated. Text and token files cannot be mixed.
///
/// Opening checks every file and every token, so a later read fails only if a file was truncated or replaced.
/// Cost: one pass over the tokens at memory speed; none for text with a vocabulary of 256 or more. Files up
/// to 64 KiB are copied into memory. Of the larger files, the first 256 stay open, and each read opens the
/// others again. Several threads may read at the same time. Move-only.
class TokenSource {
 public:
  /// Opens `paths`, or `default_data_path` if `paths` is empty. Throws Error(data) that names the file.
  static TokenSource open(std::span<std::string const> paths, TokenOptions options = {}) {
    TokenSource source;
    if (paths.empty()) {
      if (::access(default_data_path, F_OK) != 0)
        throw_error(ErrorKind::data,
                    {"no data: the default ", default_data_path,
                     " does not exist; install the package fortunes, or name a file or folder "
                     "with --data"});
      source.add(default_data_path);
    }
    for (auto const& path : paths) source.add(path);
    source.finish(options);
    return source;
  }

  static TokenSource open(std::initializer_list<std::string> paths, TokenOptions options = {}) {
    return open(std::span<std::string const>(paths.begin(), paths.size()), options);
  }
  static TokenSource open(std::string const& path, TokenOptions options = {}) {
    return open(std::span<std::string const>(&path, 1), options);
  }
  /// If the second argument is not a TokenOptions, this overload makes the compiler print one short error.
  /// Without it, compilers list every function.
  template <class Fields = TokenOptions>
  // clang-format off
  static TokenSource open(std::string const&, ...) = delete;  // tessera: a field is misspelt or has another type. Write TokenOptions{...}, and the compiler names the field. See docs/trainer.md.
  // clang-format on

  /// Returns a source of tokens that the program made itself. `name` is the name of the source in errors.
  static TokenSource from_memory(std::vector<std::uint32_t> tokens, TokenOptions options = {},
                                 std::string name = "memory") {
    if (tokens.empty()) throw_error(ErrorKind::data, {name, ": there are no tokens"});
    TokenSource source;
    source.format_ = TokenFormat::u32;
    source.memory_ = std::move(tokens);
    source.append(name, {}, 0, static_cast<std::int64_t>(source.memory_.size()));
    source.names_.push_back(std::move(name));
    source.finish(options);
    return source;
  }

  TokenSource(TokenSource&&) = default;
  TokenSource& operator=(TokenSource&&) = default;

  /// Returns the number of tokens.
  std::int64_t size() const noexcept { return size_; }
  /// Returns the vocabulary size: the requested one, or the default of the format. Every token is below it.
  std::int64_t vocabulary() const noexcept { return vocabulary_; }
  TokenFormat format() const noexcept { return format_; }
  std::int64_t files() const noexcept { return static_cast<std::int64_t>(segments_.size()); }
  /// Returns the number of entries of folders that were skipped.
  std::int64_t skipped() const noexcept { return skipped_; }
  /// Return the name of a file, and the index of its first token. `file_begin(files())` is the number of all
  /// tokens.
  std::string const& file_name(std::int64_t file) const { return at(file).name; }
  std::int64_t file_begin(std::int64_t file) const { return file == files() ? size_ : at(file).first; }

  /// Makes each record a sample of a Loader. Without this call, samples are consecutive ranges of equal
  /// length. `left_out` is the number of records that were too short, for `description`. Throws Error(data)
  /// if `records` is empty. Throws Error(usage) if a record has fewer than two tokens or is not within the
  /// source. Must be called before a Loader of this source is constructed.
  void divide(std::vector<Record> records, std::int64_t left_out = 0) {
    if (records.empty())
      throw_error(
          ErrorKind::data,
          {name(),
           ": every record has fewer than two tokens, so there is nothing to predict; give other data"});
    for (Record const& record : records)
      if (record.first < 0 || record.tokens < 2 || record.tokens > size_ - record.first)
        throw_error(ErrorKind::usage, {name(), ": got a record of ", record.tokens, " tokens from token ",
                                       record.first, ", but the number of tokens is ", size_});
    records_ = std::move(records);
    left_out_ = left_out;
  }
  /// Returns the records that are the samples. The list is empty if samples are ranges of equal length.
  std::span<Record const> records() const noexcept { return {records_.data(), records_.size()}; }
  /// Returns the paths as the user gave them, for messages: "a.txt, b.txt".
  std::string name() const {
    std::string text;
    for (auto const& name : names_) text.append(text.empty() ? "" : ", ").append(name);
    return text;
  }

  /// Returns a description such as "43 files, 2,576,674 bytes, 86 skipped" or "train.bin, 1,000,000 tokens
  /// (uint16) in 1,200 records".
  std::string description() const {
    std::string const what =
        files() == 1 ? segments_.front().name : sentence({files::with_commas(files()), " files"});
    std::string const kind =
        format_ == TokenFormat::bytes ? " bytes" : sentence({" tokens (", name_of(format_), ")"});
    std::string const rest = skipped_ > 0 ? sentence({", ", files::with_commas(skipped_), " skipped"}) : "";
    std::string text = sentence({what, ", ", files::with_commas(size_), kind, rest});
    if (!records_.empty())
      text += sentence({" in ", files::with_commas(static_cast<std::int64_t>(records_.size())), " records"});
    if (left_out_ > 0) text += sentence({", ", files::with_commas(left_out_), " too short"});
    return text;
  }

  /// Copies tokens first..first+out.size()-1 to `out`. Throws Error(usage) if they do not exist, and
  /// Error(data) that names the file if it was truncated or replaced after it was opened.
  void read(std::int64_t first, std::span<std::int32_t> out) const {
    if (first < 0 || first > size_ || static_cast<std::int64_t>(out.size()) > size_ - first)
      throw_error(ErrorKind::usage,
                  {name(), ": tokens ", first, " to ", first + static_cast<std::int64_t>(out.size()),
                   " were requested, but the number of tokens is ", size_});
    auto segment = std::upper_bound(segments_.begin(), segments_.end(), first,
                                    [](std::int64_t at, Segment const& s) { return at < s.first; }) -
                   1;
    for (std::size_t done = 0; done < out.size(); ++segment) {
      std::int64_t const start = first + static_cast<std::int64_t>(done) - segment->first;
      std::int64_t const count =
          std::min(segment->count - start, static_cast<std::int64_t>(out.size() - done));
      copy(*segment, start, count, out.data() + done);
      done += static_cast<std::size_t>(count);
    }
  }

 private:
  static constexpr std::int64_t kept_open = 256;

  /// The tokens of one file, or the tokens of a source in memory.
  struct Segment {
    std::string name;
    files::FileReader file;  // empty if the tokens are in memory_
    std::size_t offset;      // byte offset of the first token in the file
    std::int64_t first;      // index of the first token in the source
    std::int64_t count;
  };

  TokenSource() = default;

  Segment const& at(std::int64_t file) const { return segments_[static_cast<std::size_t>(file)]; }

  void copy(Segment const& from, std::int64_t start, std::int64_t count, std::int32_t* out) const {
    switch (format_) {
      case TokenFormat::bytes:
        return widen<std::uint8_t>(from, start, count, out);
      case TokenFormat::u16:
        return widen<std::uint16_t>(from, start, count, out);
      case TokenFormat::u32:
        return widen<std::uint32_t>(from, start, count, out);
    }
  }

  template <class T>
  void widen(Segment const& from, std::int64_t start, std::int64_t count, std::int32_t* out) const {
    std::array<T, 16384 / sizeof(T)> block;
    for (std::int64_t done = 0; done < count;) {
      std::int64_t const some = std::min(count - done, static_cast<std::int64_t>(block.size()));
      load(from, start + done, some, block.data());
      for (std::int64_t i = 0; i < some; ++i)
        out[done + i] = static_cast<std::int32_t>(block[static_cast<std::size_t>(i)]);
      done += some;
    }
  }

  /// Reads tokens of a segment. T is the type of the tokens in the file.
  template <class T>
  void load(Segment const& from, std::int64_t start, std::int64_t count, T* out) const {
    auto const at = static_cast<std::size_t>(start), size = static_cast<std::size_t>(count) * sizeof(T);
    if (memory_.empty())
      from.file.read(from.offset + at * sizeof(T), out, size);
    else
      std::memcpy(out, memory_.data() + at, size);
  }

  void append(std::string const& name, files::FileReader&& file, std::size_t offset, std::int64_t tokens) {
    if (file.is_open()) ++open_;
    segments_.push_back({name, std::move(file), offset, size_, tokens});
    size_ += tokens;
  }

  void add(std::string const& path) {
    std::string const name = files::path_text(path);
    if (path.empty()) throw_error(ErrorKind::data, {"an empty data path was given; name a file or a folder"});
    names_.push_back(std::string(name));
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) {
      set_format(TokenFormat::bytes, name);
      add_folder(path, name);
      return;
    }
    files::FileReader file(path, open_ < kept_open);
    if (file.size() == 0) throw_error(ErrorKind::data, {name, ": the file is empty"});
    TokenLayout layout{TokenFormat::bytes, 0, static_cast<std::int64_t>(file.size())};
    std::vector<std::byte> bytes(std::min(file.size(), token_head_bytes));
    file.read(0, bytes.data(), bytes.size());
    std::span<std::byte const> const head(bytes.data(), bytes.size());
    if (path.ends_with(".bin"))
      layout = token_layout(head, file.size(), name);
    else
      need_text(head, file.size(), name);
    set_format(layout.format, name);
    append(name, std::move(file), layout.offset, layout.tokens);
  }

  void set_format(TokenFormat format, std::string const& name) {
    if (!segments_.empty() && format != format_)
      throw_error(ErrorKind::data,
                  {name, ": holds ", name_of(format), " tokens, but ", segments_.front().name, " holds ",
                   name_of(format_), "; use files of the same kind"});
    format_ = format;
  }

  void add_folder(std::string const& folder, std::string const& name) {
    std::int64_t const skipped_before = skipped_;
    std::size_t const segments_before = segments_.size();
    std::vector<std::string> files;
    collect(folder, files);
    auto const order = detail::sorted_indices(
        files.size(), [&](std::size_t a, std::size_t b) { return files[a] < files[b]; });
    for (std::size_t const index : order) {
      std::string const& path = files[index];
      files::FileReader file(path, open_ < kept_open);
      std::array<std::byte, text_probe_bytes> start;
      std::span<std::byte const> const head(start.data(), std::min(file.size(), start.size()));
      file.read(0, start.data(), head.size());
      if (head.empty() || detail::nul_in_text(head) >= 0 ||
          detail::foreign_to_text(head, file.size()).what != nullptr) {
        ++skipped_;
        continue;
      }
      auto const size = static_cast<std::int64_t>(file.size());
      append(files::path_text(path), std::move(file), 0, size);
    }
    if (segments_.size() == segments_before)
      throw_error(ErrorKind::data, {name, ": the folder holds no text (", skipped_ - skipped_before,
                                    " entries skipped: hidden, links, empty or binary); name token files "
                                    "themselves, not their folder"});
  }

  /// Collects the regular files below `folder` that are not hidden. Counts links, devices and hidden entries
  /// as skipped. Uses system calls, because compiling <filesystem> takes longer than compiling the rest of
  /// this header.
  void collect(std::string const& folder, std::vector<std::string>& files) {
    auto const fail = [&](int code) {
      throw_error(ErrorKind::data,
                  {files::path_text(folder), ": cannot read the folder (", files::errno_text(code), ")"});
    };
    struct Open {
      DIR* entries;
      ~Open() {
        if (entries) ::closedir(entries);
      }
    } const open{::opendir(folder.c_str())};
    if (!open.entries) fail(errno);
    // At the end of the folder, readdir returns null and does not change errno. So errno is 0 after the loop
    // unless readdir failed.
    errno = 0;
    for (dirent const* entry; (entry = ::readdir(open.entries)) != nullptr; errno = 0) {
      std::string_view const name = entry->d_name;
      if (name == "." || name == "..") continue;
      std::string path = folder;
      path.append(folder.ends_with('/') ? "" : "/").append(name);
      struct stat status {};
      if (::lstat(path.c_str(), &status) != 0 && errno != ENOENT) fail(errno);
      bool const hidden = name.starts_with('.');
      if (!hidden && S_ISDIR(status.st_mode))
        collect(path, files);
      else if (!hidden && S_ISREG(status.st_mode))
        files.push_back(std::move(path));
      else
        ++skipped_;
    }
    if (errno != 0) fail(errno);
  }

  /// Sets the vocabulary size and checks that every token is below it.
  void finish(TokenOptions options) {
    constexpr std::int64_t largest = std::numeric_limits<std::int32_t>::max();
    if (options.vocabulary < 0 || options.vocabulary > largest)
      throw_error(ErrorKind::usage,
                  {"the vocabulary is ", options.vocabulary, ", it must be 1 to 2147483647"});
    vocabulary_ = options.vocabulary > 0 ? options.vocabulary : default_vocabulary(format_);
    for (auto const& segment : segments_) {
      std::int64_t const index = first_beyond(segment);
      if (index < 0) continue;
      std::int64_t const token = token_at(segment, index);
      std::string const advice =
          token < largest ? sentence({"; give --vocabulary ", token + 1, " or more, or other data"})
                          : ", and no vocabulary reaches it; give other data";
      throw_error(ErrorKind::data, {segment.name, ": token ", token, " at index ", index,
                                    " is beyond the vocabulary of ", vocabulary_, advice});
    }
  }

  std::int64_t first_beyond(Segment const& segment) const {
    if (vocabulary_ >> (8 * bytes_per_token(format_)) > 0) return -1;
    constexpr std::int64_t size = 1 << 14;
    std::array<std::uint32_t, size> block;
    for (std::int64_t start = 0; start < segment.count; start += size) {
      std::int64_t const some = std::min(segment.count - start, size);
      copy(segment, start, some, reinterpret_cast<std::int32_t*>(block.data()));
      std::int64_t const index = detail::first_at_or_above(block.data(), some, vocabulary_);
      if (index >= 0) return start + index;
    }
    return -1;
  }

  std::int64_t token_at(Segment const& segment, std::int64_t index) const {
    std::int32_t token = 0;
    copy(segment, index, 1, &token);
    return static_cast<std::uint32_t>(token);
  }

  std::vector<std::uint32_t> memory_;
  std::vector<Segment> segments_;  // sorted by their first token
  std::vector<Record> records_;
  std::vector<std::string> names_;
  TokenFormat format_ = TokenFormat::bytes;
  std::int64_t size_ = 0;
  std::int64_t vocabulary_ = 0;
  std::int64_t skipped_ = 0;
  std::int64_t left_out_ = 0;
  std::int64_t open_ = 0;  // number of segments whose file is open
};

}  // namespace v0
}  // namespace tessera
