// SPDX-License-Identifier: Apache-2.0
// Event files that TensorBoard reads: numbers over steps, and texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/io/file.hpp"

namespace tessera {
inline namespace v0 {
namespace cli {

/// One event file of its own name in a folder, which is created. Every call is one write, so a reader sees
/// whole records only. Errors are Error(failed) with path and reason.
class EventFile {
 public:
  explicit EventFile(std::filesystem::path const& folder);

  /// Numbers of one step. What is not finite is left out.
  void scalars(std::int64_t step, std::vector<std::pair<std::string, double>> const& values);
  /// A text, in Markdown.
  void text(std::string const& tag, std::string const& markdown);

  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  void put(std::string const& event);

  std::filesystem::path path_;
  v0::detail::Descriptor file_;
};

namespace detail {
/// CRC-32C (Castagnoli), as the records of event files carry it.
std::uint32_t crc32c(std::string_view bytes);
}  // namespace detail

}  // namespace cli
}  // namespace v0
}  // namespace tessera
