// SPDX-License-Identifier: Apache-2.0
// The file of a rank for state that lies on a disk, as the store uses it. Apart from what reads and writes
// disks (io/nvme_file.hpp), which a program without such state does not compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace tessera {
inline namespace v0 {

/// Offsets, bytes and addresses are multiples of disk_block. A call returns when its bytes are in their
/// place, and throws Error(failed) with path, offset, bytes and reason.
class StateFile {
 public:
  virtual ~StateFile() = default;
  virtual void read(std::int64_t offset, void* to, std::int64_t bytes) = 0;
  virtual void write(std::int64_t offset, void const* from, std::int64_t bytes) = 0;
  /// Since construction.
  virtual std::int64_t bytes_read() const noexcept = 0;
  virtual std::int64_t bytes_written() const noexcept = 0;
  /// One past the last byte ever read or written.
  virtual std::int64_t high_water() const noexcept = 0;
  /// What reads and writes, in words, for results.
  virtual std::string description() const = 0;
};

/// Makes a rank's file of so many bytes in a folder.
using OpenStateFile = std::unique_ptr<StateFile> (*)(std::string const& folder, int rank, std::int64_t bytes);

/// How the files of a place are made; <tessera/nvme.hpp> says it for Nvme.
template <class Place>
inline constexpr OpenStateFile open_state_file = nullptr;

}  // namespace v0
}  // namespace tessera
