// SPDX-License-Identifier: Apache-2.0
// Provides helpers for the fuzz targets: a check of the kind and the text of an error, and files in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>

#include "tessera/core/error.hpp"

namespace fuzz {

inline std::string_view text_of(std::uint8_t const* input, std::size_t size) {
  return {reinterpret_cast<char const*>(input), size};
}

/// Aborts the program unless the text of `error` is one line and the kind of `error` is one of `kinds`.
inline void check(tessera::Error const& error,
                  std::initializer_list<tessera::ErrorKind> kinds = {tessera::ErrorKind::data}) {
  for (tessera::ErrorKind const kind : kinds)
    if (error.kind() == kind && std::strchr(error.what(), '\n') == nullptr) return;
  std::abort();
}

/// Replaces the content of the only in-memory file of this process by `bytes`. Returns the path of the file.
inline std::string const& file_of(std::string_view bytes) {
  static int const file = ::memfd_create("input", 0);
  static std::string const path = "/proc/self/fd/" + std::to_string(file);
  if (::ftruncate(file, 0) != 0 ||
      ::pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return path;
}

/// A folder in memory, whose name has the id of the process. The folder is removed at the end of the process.
class Folder {
 public:
  Folder() : path_("/dev/shm/tessera-fuzz-" + std::to_string(::getpid())) {
    std::filesystem::create_directories(path_);
  }
  Folder(Folder const&) = delete;
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path_, code);
  }

  std::filesystem::path const& path() const { return path_; }
  void write(std::filesystem::path const& name, std::string_view bytes) const {
    std::FILE* const file = std::fopen((path_ / name).c_str(), "wb");
    if (file == nullptr || std::fwrite(bytes.data(), 1, bytes.size(), file) != bytes.size() ||
        std::fclose(file) != 0)
      std::abort();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace fuzz
