// SPDX-License-Identifier: Apache-2.0
// Writes event files for TensorBoard: numbers over steps, and texts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

#include "tessera/io/file.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// Writes one event file. The constructor creates the folder if needed and gives the file a unique name. Each
/// call appends one record, or removes a partial record if the write fails, so a reader sees complete records
/// only. Throws Error(failed) with the folder and the reason.
class EventFile {
 public:
  /// With `alone`, throws if another run is writing to the folder, because TensorBoard would mix their
  /// curves.
  explicit EventFile(std::filesystem::path const& folder, bool alone = false);

  /// Writes the numbers of one step. Non-finite values are left out.
  void scalars(std::int64_t step, std::vector<std::pair<std::string, double>> const& values);
  /// Writes a text in Markdown.
  void text(std::string const& tag, std::string const& markdown);

  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  void put(std::string const& event);

  std::filesystem::path folder_, path_;
  files::Descriptor lock_, file_;
  ::off_t bytes_ = 0;
};

namespace detail {
/// Returns the CRC-32C (Castagnoli) that event file records use.
std::uint32_t crc32c(std::string_view bytes);
}  // namespace detail

}  // namespace cli
}  // namespace programs
