// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of a file, all at once or in parts.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/core/descriptor.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

namespace files {

/// Returns the system's message for an errno value.
inline std::string errno_text(int code) { return std::generic_category().message(code); }

/// Returns a number with commas between groups of three digits: 1234567 becomes "1,234,567".
inline std::string with_commas(std::int64_t number) {
  std::string const digits = sentence({number});
  std::size_t const sign = number < 0 ? 1 : 0;
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > sign && (digits.size() - at) % 3 == 0) text.append(",");
    text.append(digits, at, 1);
  }
  return text;
}

/// Returns a value for printing. A NaN loses its sign, so that it prints as "nan" and not as "-nan".
inline double plain(double value) {
  return value != value ? std::numeric_limits<double>::quiet_NaN() : value;
}

/// Returns the size in bytes of the UTF-8 character at the start of `text` if this character can corrupt the
/// output of a terminal. Otherwise returns 0. Such characters are control characters (one or two bytes), and
/// characters that break lines, change the direction of text or are invisible (three bytes).
inline std::size_t control_bytes(std::string_view text) {
  auto const byte = [&](std::size_t at) {
    return at < text.size() ? static_cast<unsigned char>(text[at]) : 0;
  };
  if (byte(0) < 0x20 || byte(0) == 0x7f) return 1;
  if (byte(0) == 0xc2 && byte(1) >= 0x80 && byte(1) < 0xa0) return 2;  // U+0080 to U+009F
  bool const general = byte(0) == 0xe2 && byte(1) == 0x80 &&
                       (byte(2) == 0x8b || byte(2) == 0x8e || byte(2) == 0x8f ||  // U+200B, U+200E, U+200F
                        (byte(2) >= 0xa8 && byte(2) <= 0xae));                    // U+2028 to U+202E
  bool const isolates =
      byte(0) == 0xe2 && byte(1) == 0x81 && byte(2) >= 0xa6 && byte(2) <= 0xa9;  // U+2066 to U+2069
  bool const mark = byte(0) == 0xef && byte(1) == 0xbb && byte(2) == 0xbf;       // U+FEFF
  return general || isolates || mark ? 3 : 0;
}

/// Returns a name in a form that is safe to print on one line. Each byte of a control character (see
/// `control_bytes`) becomes \xNN. After about `limit` bytes, the name is cut between two characters and ends
/// with "...".
inline std::string printable(std::string_view name, std::size_t limit = 200) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (int back = 0; back < 3 && limit > 0 && limit < name.size() &&
                     (static_cast<unsigned char>(name[limit]) & 0xc0) == 0x80;
       ++back)
    --limit;
  std::string_view const shown = name.substr(0, limit);
  for (std::size_t at = 0, escaped = 0; at < shown.size(); ++at) {
    if (escaped == 0) escaped = control_bytes(shown.substr(at));
    auto const byte = static_cast<unsigned char>(shown[at]);
    if (escaped == 0) {
      text += shown[at];
    } else {
      text.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
      --escaped;
    }
  }
  return name.size() > limit ? text + "..." : text;
}

/// Returns a path in the form of `printable`, without cutting it. For messages.
inline std::string path_text(std::string const& path) { return printable(path, path.size()); }

[[noreturn]] inline void read_error(std::string const& path, char const* what, int code) {
  throw_error(ErrorKind::data, {path_text(path), ": cannot ", what, " (", errno_text(code), ")"});
}

/// Opens a regular file for reading, returns its descriptor and stores its status in `status`. Throws
/// Error(data) that names the path.
inline Descriptor open_regular(std::string const& path, struct stat& status) {
  auto const refuse = [&](char const* what) { throw_error(ErrorKind::data, {path_text(path), what}); };
  if (::stat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) refuse(": no such file; check the path");
    read_error(path, "get the status of the file", errno);
  }
  if (S_ISDIR(status.st_mode)) refuse(": is a folder; give a file");
  if (!S_ISREG(status.st_mode)) refuse(": is not a regular file; copy its contents to a file first");
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) read_error(path, "open for reading", errno);
  if (::fstat(file.get(), &status) != 0) read_error(path, "get the status of the file", errno);
  return file;
}

/// Reads `size` bytes of the descriptor `file` from byte `offset` into `out`. Continues after interruptions
/// and short reads. Returns the number of bytes read, which is less than `size` only at the end of the file.
/// `path` is for messages.
inline std::size_t read_all(int file, std::size_t offset, void* out, std::size_t size,
                            std::string const& path) {
  std::size_t done = 0;
  while (done < size) {
    ssize_t const got =
        ::pread(file, static_cast<char*>(out) + done, size - done, static_cast<::off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) read_error(path, "read", errno);
    if (got == 0) break;
    done += static_cast<std::size_t>(got);
  }
  return done;
}

/// Throws Error(data) if the bytes are a Git LFS pointer: a few lines of text that Git LFS stores in place of
/// a large file. `start` are all bytes of the file.
inline void refuse_pointer(std::string const& path, std::span<std::byte const> start) {
  constexpr std::string_view first = "version https://git-lfs.github.com/spec/";
  if (start.size() > 1024 || start.size() < first.size() ||
      std::memcmp(start.data(), first.data(), first.size()) != 0)
    return;
  throw_error(ErrorKind::data,
              {path_text(path),
               ": is a pointer of Git LFS, not the file itself; run git lfs pull where it was cloned"});
}

/// Files up to this size in bytes are copied into memory. So a folder of many small files needs few
/// descriptors.
inline constexpr std::size_t copied_up_to = 64 * 1024;

/// Reads parts of a file during a run. If another process truncates the file, a read throws an error; a
/// memory mapping would crash the process instead. Small files are copied into memory. Several threads may
/// read. Move-only.
class FileReader {
 public:
  /// Constructs a reader without a file.
  FileReader() = default;
  /// Opens the file `path`. Throws Error(data) that names the path if it is missing, is not a regular file,
  /// or cannot be read. If `keep_open` is false, the file is closed, and each `read` opens it again. This
  /// does not apply to small files, which are copied.
  FileReader(std::string path, bool keep_open) : path_(std::move(path)) {
    struct stat status {};
    Descriptor file = open_regular(path_, status);
    size_ = static_cast<std::size_t>(status.st_size);
    device_ = status.st_dev;
    inode_ = status.st_ino;
    copied_ = size_ <= copied_up_to;
    if (copied_) {
      copy_.resize(size_);
      size_ = read_all(file.get(), 0, copy_.data(), size_, path_);
      copy_.resize(size_);
      refuse_pointer(path_, {copy_.data(), size_});
    } else if (keep_open) {
      file_ = std::move(file);
    }
  }

  std::string const& path() const noexcept { return path_; }
  std::size_t size() const noexcept { return size_; }
  /// Whether this reader keeps the file open.
  bool is_open() const noexcept { return static_cast<bool>(file_); }

  /// Copies bytes offset..offset+size-1 of the file to `out`. They must be within the size that the file had
  /// when it was opened. Throws Error(data) that names the file if the file was truncated or replaced since
  /// then.
  void read(std::size_t offset, void* out, std::size_t size) const {
    if (copied_) {
      if (size > 0) std::memcpy(out, copy_.data() + offset, size);
      return;
    }
    struct stat status {};
    Descriptor const again = file_ ? Descriptor() : open_regular(path_, status);
    if (again && (status.st_dev != device_ || status.st_ino != inode_))
      throw_error(
          ErrorKind::data,
          {path_text(path_), ": was replaced after it was opened; do not change data while a run reads it"});
    int const file = file_ ? file_.get() : again.get();
    if (read_all(file, offset, out, size, path_) == size) return;
    refuse_short(file);
  }

 private:
  [[noreturn]] void refuse_short(int file) const {
    struct stat status {};
    bool const known = ::fstat(file, &status) == 0;
    throw_error(ErrorKind::data, {path_text(path_), ": was truncated while it was read: it had ",
                                  with_commas(static_cast<std::int64_t>(size_)), " bytes and has ",
                                  known ? with_commas(status.st_size) : "fewer",
                                  " now; do not change data while a run reads it"});
  }

  std::string path_;
  std::size_t size_ = 0;
  ::dev_t device_ = 0;
  ::ino_t inode_ = 0;
  bool copied_ = false;
  std::vector<std::byte> copy_;
  Descriptor file_;
};

}  // namespace files
namespace detail {
using namespace files;
}  // namespace detail

/// Holds all bytes of a small file, such as an index of safetensors files. Move-only.
class FileBytes {
 public:
  FileBytes() = default;
  FileBytes(FileBytes&&) noexcept = default;
  FileBytes& operator=(FileBytes&&) noexcept = default;

  /// Reads the file `path`. Throws Error(data) that names the path if it is missing, is not a regular file,
  /// or cannot be read.
  static FileBytes open(std::string const& path) {
    struct stat status {};
    files::Descriptor const file = files::open_regular(path, status);
    FileBytes bytes;
    bytes.copy_.resize(static_cast<std::size_t>(status.st_size));
    bytes.copy_.resize(files::read_all(file.get(), 0, bytes.copy_.data(), bytes.copy_.size(), path));
    files::refuse_pointer(path, bytes.span());
    return bytes;
  }

  std::byte const* data() const noexcept { return copy_.data(); }
  std::size_t size() const noexcept { return copy_.size(); }
  std::span<std::byte const> span() const noexcept { return {data(), size()}; }

 private:
  std::vector<std::byte> copy_;
};

}  // namespace v0
}  // namespace tessera
