// SPDX-License-Identifier: Apache-2.0
// Defines the interface through which a trainer reads and writes a rank's state on a disk. The implementation
// (io/nvme_file.hpp) is in a separate header, so a program that keeps no state on a disk does not compile it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {
inline namespace v0 {

/// A file on a disk that holds state. Offsets, sizes in bytes and addresses must be multiples of disk_block
/// (4096). `read` and `write` return when their bytes are transferred. They throw Error(failed) with path,
/// offset, bytes and reason.
class StateFile {
 public:
  virtual ~StateFile() = default;
  virtual void read(std::int64_t offset, void* to, std::int64_t bytes) = 0;
  virtual void write(std::int64_t offset, void const* from, std::int64_t bytes) = 0;
  /// Return the total number of bytes read and written since construction.
  virtual std::int64_t bytes_read() const noexcept = 0;
  virtual std::int64_t bytes_written() const noexcept = 0;
  /// Returns the end offset of the part of the file that was ever read or written.
  virtual std::int64_t high_water() const noexcept = 0;
  /// Returns a text about how the file is read and written, for results.
  virtual std::string description() const = 0;
};

/// The type of a function that creates the file of rank `rank`, with `bytes` bytes, in `folder`.
using OpenStateFile = std::unique_ptr<StateFile> (*)(std::string const& folder, int rank, std::int64_t bytes);

/// The function that creates the state files of the memory tier `Place`, or null if the tier has no files.
/// <tessera/nvme.hpp> defines it for Nvme.
template <class Place>
inline constexpr OpenStateFile open_state_file = nullptr;

}  // namespace v0
}  // namespace tessera
