// SPDX-License-Identifier: Apache-2.0
// Implements the search for input files, and reads files that are possibly compressed with gzip or zstd.
#include "text/input.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <new>
#include <span>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <zlib.h>
#include <zstd.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/data/token_file.hpp"
#include "tessera/io/json_lines.hpp"

namespace programs {
using namespace tessera;
namespace text {

namespace {

constexpr std::size_t buffer_bytes = 256 * 1024;

/// Reads a file, or standard input, through a buffer. `head` returns the first bytes without consuming them.
class RawBytes {
 public:
  explicit RawBytes(std::string const& path)
      : name_(path == "-" ? "standard input" : files::path_text(path)) {
    if (path != "-") {
      struct stat status {};
      file_ = files::open_regular(path, status);
    }
    buffer_.resize(buffer_bytes);
  }

  std::string const& name() const { return name_; }
  std::int64_t consumed() const { return consumed_; }

  /// Returns the unread part of the buffer. If this part is empty, first reads the next bytes of the file.
  /// Returns an empty text at the end of the file.
  std::string_view next() {
    if (begin_ == end_) begin_ = end_ = 0, load();
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void consume(std::size_t bytes) { begin_ += bytes; }
  /// Returns the first bytes of the file, up to `size`, without consuming them. Call it before any byte is
  /// consumed.
  std::string_view head(std::size_t size) {
    while (end_ < size && load()) {
    }
    return {buffer_.data(), std::min(size, end_)};
  }
  bool seek(std::int64_t bytes) {
    struct stat status {};
    return file_ && ::fstat(file_.get(), &status) == 0 && bytes <= status.st_size &&
           ::lseek(file_.get(), static_cast<::off_t>(bytes), SEEK_SET) >= 0 &&
           (begin_ = end_ = 0, consumed_ = bytes, true);
  }
  [[noreturn]] void refuse(std::string_view what) const { throw_error(ErrorKind::data, {name_, ": ", what}); }

 private:
  bool load() {
    for (;;) {
      ssize_t const got =
          ::read(file_ ? file_.get() : STDIN_FILENO, buffer_.data() + end_, buffer_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) refuse("cannot read (" + files::errno_text(errno) + ")");
      end_ += static_cast<std::size_t>(got);
      consumed_ += got;
      return got > 0;
    }
  }

  std::string name_;
  files::Descriptor file_;
  std::string buffer_;
  std::size_t begin_ = 0, end_ = 0;
  std::int64_t consumed_ = 0;
};

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(RawBytes raw) : raw_(std::move(raw)) {}
  std::size_t read(char* out, std::size_t size) override {
    std::string_view const bytes = raw_.next().substr(0, size);
    if (!bytes.empty()) std::memcpy(out, bytes.data(), bytes.size());
    raw_.consume(bytes.size());
    return bytes.size();
  }
  bool skip(std::int64_t bytes) override { return raw_.seek(bytes) || ByteStream::skip(bytes); }
  std::int64_t consumed() const override { return raw_.consumed(); }

 private:
  RawBytes raw_;
};

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(RawBytes raw) : raw_(std::move(raw)) {
    if (::inflateInit2(&state_, 15 + 16) != Z_OK) throw std::bad_alloc();
  }
  GzipStream(GzipStream const&) = delete;
  ~GzipStream() override { ::inflateEnd(&state_); }

  std::size_t read(char* out, std::size_t size) override {
    for (std::size_t const most = std::min<std::size_t>(size, 1 << 30); size > 0;) {
      std::string_view const bytes = raw_.next();
      if (bytes.empty()) {
        if (!between_) raw_.refuse("the gzip file is cut short; fetch it again");
        return 0;
      }
      if (between_ && ended_ && bytes[0] != '\x1f') raw_.refuse("holds other data after its gzip data");
      between_ = false;
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      state_.avail_in = static_cast<uInt>(bytes.size());
      state_.next_out = reinterpret_cast<Bytef*>(out);
      state_.avail_out = static_cast<uInt>(most);
      int const code = ::inflate(&state_, Z_NO_FLUSH);
      raw_.consume(bytes.size() - state_.avail_in);
      if (code == Z_MEM_ERROR) throw std::bad_alloc();
      if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        raw_.refuse("the gzip file is damaged; fetch it again");
      if (code == Z_STREAM_END) {  // another compressed stream possibly follows
        between_ = ended_ = true;
        ::inflateReset(&state_);
      }
      if (std::size_t const made = most - state_.avail_out; made > 0) return made;
    }
    return 0;
  }
  std::int64_t consumed() const override { return raw_.consumed(); }

 private:
  RawBytes raw_;
  z_stream state_{};
  bool between_ = true, ended_ = false;
};

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(RawBytes raw) : raw_(std::move(raw)), state_(::ZSTD_createDStream()) {
    if (state_ == nullptr) throw std::bad_alloc();
  }
  ZstdStream(ZstdStream const&) = delete;
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }

  std::size_t read(char* out, std::size_t size) override {
    while (size > 0) {
      std::string_view const bytes = raw_.next();
      ZSTD_inBuffer from{bytes.data(), bytes.size(), 0};
      ZSTD_outBuffer to{out, size, 0};
      bool const was_inside = left_ != 0;
      if (bytes.empty() && !was_inside) return 0;
      std::size_t const code = ::ZSTD_decompressStream(state_, &to, &from);
      raw_.consume(from.pos);
      if (::ZSTD_isError(code))
        raw_.refuse(std::string("the zstd file is damaged or cannot be unpacked (") +
                    ::ZSTD_getErrorName(code) + "); fetch it again");
      left_ = code;
      if (to.pos > 0) return to.pos;
      if (bytes.empty() && left_ != 0) raw_.refuse("the zstd file is cut short; fetch it again");
    }
    return 0;
  }
  std::int64_t consumed() const override { return raw_.consumed(); }

 private:
  RawBytes raw_;
  ZSTD_DStream* state_;
  std::size_t left_ = 0;  // not 0 inside a zstd frame
};

/// Decompresses a stream. `head` returns its first decompressed bytes without consuming them.
class PeekedStream final : public ByteStream {
 public:
  explicit PeekedStream(std::unique_ptr<ByteStream> stream) : stream_(std::move(stream)) {
    fill(*stream_, head_, text_probe_bytes);
  }
  std::string_view head() const { return head_; }

  std::size_t read(char* out, std::size_t size) override {
    std::string_view const bytes = std::string_view(head_).substr(head_read_, size);
    if (bytes.empty()) return stream_->read(out, size);
    std::memcpy(out, bytes.data(), bytes.size());
    head_read_ += bytes.size();
    return bytes.size();
  }
  std::int64_t consumed() const override { return stream_->consumed(); }

 private:
  std::unique_ptr<ByteStream> stream_;
  std::string head_;
  std::size_t head_read_ = 0;
};

enum class Ending { jsonl, json, other };

/// Returns the format that the ending of a file name implies. Ignores case and the suffixes .gz and .zst.
Ending ending_of(std::string name) {
  for (char& c : name) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (char const* packed : {".gz", ".zst"})
    if (name.ends_with(packed)) name.resize(name.size() - std::strlen(packed));
  if (name.ends_with(".jsonl") || name.ends_with(".ndjson")) return Ending::jsonl;
  return name.ends_with(".json") ? Ending::json : Ending::other;
}

/// The contents of a file whose name ends in .json.
enum class JsonKind {
  text,     ///< the file begins with neither an object nor an array
  objects,  ///< several objects, one per line
  object,   ///< one object on the only line that is not blank
  other     ///< an array, or an object that spans several lines
};

/// Returns the kind of a .json file. Reads the file up to its second line that is not blank.
JsonKind json_kind(std::string const& path) {
  constexpr std::size_t most = 256 * 1024 * 1024;
  constexpr std::string_view blank = " \t\r\n";
  auto const stream = ByteStream::open(path);
  std::string bytes;
  std::size_t begin = 0, end = 0;
  for (bool more = true;;) {
    if (bytes.starts_with("\xef\xbb\xbf")) begin = 3;
    begin = std::min(bytes.find_first_not_of(blank, begin), bytes.size());
    end = bytes.find('\n', begin);
    if (begin < bytes.size() && bytes[begin] != '{')
      return bytes[begin] == '[' ? JsonKind::other : JsonKind::text;
    if (end != bytes.npos && bytes.find_first_not_of(blank, end) != bytes.npos) break;
    if (!more || bytes.size() >= most) break;
    more = fill(*stream, bytes, bytes.size() + std::max<std::size_t>(bytes.size(), buffer_bytes));
  }
  if (begin == bytes.size()) return JsonKind::text;
  if (!json_lines::is_object_line(std::string_view(bytes).substr(begin, end - begin))) return JsonKind::other;
  bool const several = end != bytes.npos && bytes.find_first_not_of(blank, end) != bytes.npos;
  return several ? JsonKind::objects : JsonKind::object;
}

}  // namespace

bool ByteStream::skip(std::int64_t bytes) {
  std::string buffer(static_cast<std::size_t>(std::min<std::int64_t>(bytes, 1 << 16)), '\0');
  while (bytes > 0) {
    std::size_t const got = read(buffer.data(), static_cast<std::size_t>(std::min<std::int64_t>(
                                                    bytes, static_cast<std::int64_t>(buffer.size()))));
    if (got == 0) return false;
    bytes -= static_cast<std::int64_t>(got);
  }
  return true;
}

std::unique_ptr<ByteStream> ByteStream::open(std::string const& path) {
  RawBytes raw(path);
  std::string const name = raw.name();
  auto const check = [&](std::string_view head) {
    need_text(std::as_bytes(std::span(head)), std::size_t{1} << 62, name);
  };
  std::string_view const first = raw.head(text_probe_bytes);
  std::unique_ptr<ByteStream> packed;
  if (first.starts_with("\x1f\x8b"))
    packed = std::make_unique<GzipStream>(std::move(raw));
  else if (first.starts_with("\x28\xb5\x2f\xfd"))
    packed = std::make_unique<ZstdStream>(std::move(raw));
  else
    return check(first), std::make_unique<PlainStream>(std::move(raw));
  auto stream = std::make_unique<PeekedStream>(std::move(packed));
  check(stream->head());
  return stream;
}

bool fill(ByteStream& stream, std::string& out, std::size_t size) {
  while (out.size() < size) {
    std::size_t const had = out.size(), most = std::min<std::size_t>(size - had, 1 << 20);
    out.resize(had + most);
    std::size_t const got = stream.read(out.data() + had, most);
    out.resize(had + got);
    if (got == 0) return false;
  }
  return true;
}

std::int64_t Inputs::bytes() const {
  std::int64_t sum = 0;
  for (InputFile const& file : files) sum += file.size;
  return sum;
}

Inputs find_inputs(std::vector<std::string> const& paths, InputFormat format) {
  namespace fs = std::filesystem;
  Inputs inputs;
  auto const add = [&](std::string const& path, bool named) {
    InputFile file{path, format == InputFormat::records, 0, 0};
    Ending const ending = format == InputFormat::by_name ? ending_of(path) : Ending::other;
    if (ending == Ending::jsonl) file.records = true;
    if (ending == Ending::json) {
      JsonKind const kind = json_kind(path);
      // A .json file with one object is JSONL if the user named the file. If the user named only its folder,
      // the file is text, like the other files of the folder. This suits a folder of source code, for
      // example.
      file.records = kind == JsonKind::objects || (kind == JsonKind::object && named);
      if (kind == JsonKind::other && named)
        throw Error(ErrorKind::data, files::path_text(path) +
                                         ": its first line is not a whole JSON object; write JSON Lines, one "
                                         "object a line, or name it .txt if it is text");
    }
    struct stat status {};
    if (path != "-" && ::stat(path.c_str(), &status) == 0) {
      file.size = status.st_size;
      file.changed = status.st_mtim.tv_sec * std::int64_t{1000000000} + status.st_mtim.tv_nsec;
    }
    inputs.files.push_back(std::move(file));
  };
  for (std::string const& path : paths) {
    std::error_code code;
    if (path == "-" || !fs::is_directory(path, code)) {
      if (path.ends_with(".bin"))
        throw Error(ErrorKind::data, files::path_text(path) +
                                         ": has the name of a token file (.bin); give text, or rename it");
      if (path != "-") (void)ByteStream::open(path);  // an unreadable file is an error now, not after hours
      add(path, true);
      continue;
    }
    std::vector<std::string> found;
    fs::recursive_directory_iterator entry(path, code), end;
    for (; !code && entry != end; entry.increment(code)) {
      bool const hidden = entry->path().filename().native().starts_with('.');
      if (hidden && entry->is_directory()) entry.disable_recursion_pending();
      if (!hidden && !entry->is_symlink() && entry->is_directory()) continue;
      if (!hidden && !entry->is_symlink() && entry->is_regular_file())
        found.push_back(entry->path().string());
      else
        ++inputs.skipped;
    }
    if (code)
      throw Error(ErrorKind::data,
                  files::path_text(path) + ": cannot read the folder (" + code.message() + ")");
    std::sort(found.begin(), found.end());
    std::size_t const before = inputs.files.size();
    for (std::string const& name : found) {
      std::string head;
      try {
        fill(*ByteStream::open(name), head, 1);
      } catch (Error const&) {
        head.clear();  // the file has another format or is damaged
      }
      if (head.empty())
        ++inputs.skipped;
      else
        add(name, false);
    }
    if (inputs.files.size() == before)
      throw Error(ErrorKind::data, files::path_text(path) + ": the folder holds no text (" +
                                       std::to_string(inputs.skipped) +
                                       " entries skipped: hidden, links, empty or binary)");
  }
  return inputs;
}

}  // namespace text
}  // namespace programs
