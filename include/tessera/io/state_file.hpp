// SPDX-License-Identifier: Apache-2.0
// Defines the interface through which a trainer accesses a rank's file for state on a disk. The code that
// reads and writes disks (io/nvme_file.hpp) is separate, so that a program without such state does not
// compile it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {
inline namespace v0 {

/// Reads and writes state on a disk. Offsets, bytes and addresses are multiples of disk_block. A call returns
/// when its bytes are transferred, and throws Error(failed) with path, offset, bytes and reason.
class StateFile {
 public:
  virtual ~StateFile() = default;
  virtual void read(std::int64_t offset, void* to, std::int64_t bytes) = 0;
  virtual void write(std::int64_t offset, void const* from, std::int64_t bytes) = 0;
  /// Returns the total bytes transferred since construction.
  virtual std::int64_t bytes_read() const noexcept = 0;
  virtual std::int64_t bytes_written() const noexcept = 0;
  /// Returns the offset after the last byte ever read or written.
  virtual std::int64_t high_water() const noexcept = 0;
  /// Describes how the file is read and written, for results.
  virtual std::string description() const = 0;
};

/// Creates a rank's file of `bytes` bytes in a folder.
using OpenStateFile = std::unique_ptr<StateFile> (*)(std::string const& folder, int rank, std::int64_t bytes);

/// The function that creates the state files of a place, or null if the place has none. <tessera/nvme.hpp>
/// defines it for Nvme.
template <class Place>
inline constexpr OpenStateFile open_state_file = nullptr;

}  // namespace v0
}  // namespace tessera
