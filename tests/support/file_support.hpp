// SPDX-License-Identifier: Apache-2.0
// Provides the common code of the file tests: a temporary folder that its destructor removes, functions that
// write and read files, and checks of the error that a call throws.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <stdlib.h>
#include <string>
#include <string_view>
#include <type_traits>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

namespace file_support {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "tessera-test-").string() + std::string(6, 'X');
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    std::filesystem::permissions(path_, std::filesystem::perms(0755));
  }
  TemporaryFolder(TemporaryFolder const&) = delete;
  TemporaryFolder& operator=(TemporaryFolder const&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  std::filesystem::path const& path() const { return path_; }
  std::filesystem::path operator/(std::string_view name) const { return path_ / name; }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline std::filesystem::path write(std::filesystem::path const& path, std::string_view bytes) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  REQUIRE(file.good());
  return path;
}

inline std::string read(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file.good());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

/// Returns the bytes of a number or of a vector of numbers.
template <class T>
std::string bytes_of(T const& value) {
  if constexpr (std::is_arithmetic_v<T>)
    return {reinterpret_cast<char const*>(&value), sizeof value};
  else
    return {reinterpret_cast<char const*>(value.data()), value.size() * sizeof(value[0])};
}

/// The kind and the text of the tessera::Error that a call threw. If the call threw no error, the text is
/// "nothing was thrown".
struct Thrown {
  tessera::ErrorKind kind = tessera::ErrorKind::failed;
  std::string text = "nothing was thrown";
};

template <class Work>
Thrown thrown_by(Work&& work) {
  try {
    work();
  } catch (tessera::Error const& error) {
    return {error.kind(), error.what()};
  }
  return {};
}

/// Calls `work` and returns the kind and the text of the Error that it threw. Root may access every file, so
/// a process of root calls `work` as the user `nobody`.
template <class Work>
Thrown thrown_as_nobody(Work&& work) {
  bool const root = ::geteuid() == 0;
  if (root) REQUIRE(::seteuid(65534) == 0);
  auto thrown = thrown_by(work);
  if (root) REQUIRE(::seteuid(0) == 0);
  return thrown;
}

/// Returns `text` with its first `from` replaced by `to`. The test fails if `text` has no `from`.
inline std::string replaced(std::string text, std::string_view from, std::string_view to) {
  auto const at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

inline bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace file_support

/// Checks that `expression` throws an Error of the kind `error_kind`. The further arguments are strings. The
/// text of the error must be one line and must contain each of these strings.
#define CHECK_ERROR(error_kind, expression, ...)                                                       \
  do {                                                                                                 \
    auto const thrown_error = file_support::thrown_by([&] { (void)(expression); });                    \
    CHECK_MESSAGE(thrown_error.kind == tessera::ErrorKind::error_kind, thrown_error.text);             \
    CHECK_MESSAGE(thrown_error.text.find('\n') == std::string::npos, thrown_error.text);               \
    for (std::string const& expected_part : std::initializer_list<std::string>{__VA_ARGS__})           \
      CHECK_MESSAGE(file_support::has(thrown_error.text, expected_part), thrown_error.text, " lacks ", \
                    expected_part);                                                                    \
  } while (false)
