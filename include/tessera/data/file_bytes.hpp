// SPDX-License-Identifier: Apache-2.0
// The bytes of a file to read: mapped into memory, or copied when the file is small.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <span>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"

namespace tessera::inline v0 {

namespace detail {

/// The system's words for an errno.
inline std::string errno_text(int code) { return std::generic_category().message(code); }

/// 1234567 as "1,234,567".
inline std::string with_commas(std::int64_t number) {
  std::string const digits = std::to_string(number);
  std::size_t const sign = number < 0 ? 1 : 0;
  std::string text;
  for (std::size_t at = 0; at < digits.size(); ++at) {
    if (at > sign && (digits.size() - at) % 3 == 0) text += ',';
    text += digits[at];
  }
  return text;
}

/// A name fit for one line of text: control bytes as \xNN, and cut after `limit` bytes.
inline std::string printable(std::string_view name, std::size_t limit = 200) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (char const c : name.substr(0, limit)) {
    auto const byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte != 0x7f)
      text += c;
    else
      text.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
  }
  return name.size() > limit ? text + "..." : text;
}

/// A path for a message, whole.
inline std::string path_text(std::string const& path) { return printable(path, path.size()); }

/// An open file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }

  int get() const noexcept { return number_; }
  int release() noexcept { return std::exchange(number_, -1); }
  explicit operator bool() const noexcept { return number_ >= 0; }

 private:
  int number_;
};

}  // namespace detail

/// A file's bytes, read-only. Files above 64 KiB are mapped (no copy, pages come when they are touched),
/// smaller ones are copied, so that a folder of many files does not run out of mappings. The start is aligned
/// to 16 bytes. The file must not be cut short while it is open. Move-only.
class FileBytes {
 public:
  FileBytes() = default;
  FileBytes(FileBytes&& other) noexcept { swap(other); }
  FileBytes& operator=(FileBytes&& other) noexcept {
    swap(other);
    return *this;
  }
  ~FileBytes() {
    if (mapping_ != nullptr) ::munmap(mapping_, size_);
  }

  /// Throws Error(data) that names the path when it is missing, no regular file, or cannot be read.
  static FileBytes open(std::string const& path) {
    std::string const name = detail::path_text(path);
    auto const fail = [&](std::string const& what, int code) {
      throw Error(ErrorKind::data, name + ": cannot " + what + " (" + detail::errno_text(code) + ")");
    };
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) {
      if (errno == ENOENT) throw Error(ErrorKind::data, name + ": no such file; check the path");
      fail("look at the file", errno);
    }
    if (S_ISDIR(status.st_mode)) throw Error(ErrorKind::data, name + ": is a folder, a file is needed here");
    if (!S_ISREG(status.st_mode))
      throw Error(ErrorKind::data, name + ": is not a regular file; copy its contents to a file first");
    detail::Descriptor const file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) fail("open for reading", errno);
    if (::fstat(file.get(), &status) != 0) fail("look at the file", errno);

    FileBytes bytes;
    bytes.size_ = static_cast<std::size_t>(status.st_size);
    if (bytes.size_ > copied_below) {
      void* const mapping = ::mmap(nullptr, bytes.size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
      if (mapping == MAP_FAILED) fail("map " + std::to_string(bytes.size_) + " bytes", errno);
      bytes.mapping_ = mapping;
      return bytes;
    }
    bytes.copy_.resize(bytes.size_);
    std::size_t done = 0;
    while (done < bytes.size_) {
      ssize_t const got = ::read(file.get(), bytes.copy_.data() + done, bytes.size_ - done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("read", errno);
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    bytes.size_ = done;
    bytes.copy_.resize(done);
    return bytes;
  }

  std::byte const* data() const noexcept {
    return mapping_ != nullptr ? static_cast<std::byte const*>(mapping_) : copy_.data();
  }
  std::size_t size() const noexcept { return size_; }
  std::span<std::byte const> span() const noexcept { return {data(), size_}; }

 private:
  static constexpr std::size_t copied_below = 64 * 1024;

  void swap(FileBytes& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(size_, other.size_);
    copy_.swap(other.copy_);
  }

  void* mapping_ = nullptr;
  std::size_t size_ = 0;
  std::vector<std::byte> copy_;
};

}  // namespace tessera::inline v0
