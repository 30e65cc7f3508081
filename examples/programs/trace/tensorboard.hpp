// SPDX-License-Identifier: Apache-2.0
// Writes event files for TensorBoard: numbers of steps, and texts.
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

/// Writes one event file. The constructor creates the folder if it does not exist and gives the file a unique
/// name. Each call appends one record. If the write fails, the incomplete record is removed, so a reader sees
/// only complete records. Throws Error(failed) with the folder and the reason.
class EventFile {
 public:
  /// If `alone` is true and another training writes to the folder, throws Error(failed), because TensorBoard
  /// would mix the curves of the two trainings.
  explicit EventFile(std::filesystem::path const& folder, bool alone = false);

  /// Writes the named numbers of one step. Values that are not finite are left out.
  void scalars(std::int64_t step, std::vector<std::pair<std::string, double>> const& values);
  /// Writes a text in Markdown under the name `tag`.
  void text(std::string const& tag, std::string const& markdown);

  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  void put(std::string const& event);

  std::filesystem::path folder_, path_;
  files::Descriptor lock_, file_;
  ::off_t bytes_ = 0;
};

namespace detail {
/// Returns the CRC-32C (Castagnoli) of the bytes. Records of event files contain it in masked form.
std::uint32_t crc32c(std::string_view bytes);
}  // namespace detail

}  // namespace cli
}  // namespace programs
