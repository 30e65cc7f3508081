// SPDX-License-Identifier: Apache-2.0
// Writes files whole or not at all, and checks in advance whether a file can be written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/data/file_bytes.hpp"

namespace tessera {
inline namespace v0 {

namespace files {

/// Throws Error(failed) with the text "PATH: cannot WHAT (ERRNO TEXT)", followed by advice for some error
/// codes.
[[noreturn]] void file_error(std::filesystem::path const& path, std::string_view what, int code);

/// Returns the folder that holds `path`.
std::filesystem::path folder_of(std::filesystem::path const& path);

/// Writes all bytes to a descriptor, and continues after interruptions and short writes.
void write_all(int file, void const* data, std::size_t size, std::filesystem::path const& path);

/// Locks an open file or folder against other runs until it is closed. Throws Error(failed) if another run
/// holds the lock. Has no effect on a file system without locks.
void lock_for_run(int file, std::filesystem::path const& path);

/// Removes the temporary files that killed processes left in `folder`. A running process holds a lock on its
/// temporary file, which is also visible from other containers. A file that cannot be locked stays.
void sweep_temporaries(std::filesystem::path const& folder);

/// The current state of a path to write to.
struct Destination {
  std::filesystem::path path;  ///< after following a link to a file
  bool exists = false;
  bool stream = false;  ///< a device or a pipe: cannot be replaced, bytes are written directly
  ::mode_t mode = 0;
};

/// Inspects a path to write to. Throws Error(failed or usage) for a path that cannot be written.
Destination inspect_destination(std::filesystem::path const& path);

/// Opens a device or a pipe for writing, without waiting for a reader. On failure the result is empty and
/// errno holds the reason.
Descriptor open_stream(std::filesystem::path const& path);

}  // namespace files

/// Throws Error(failed), which names the path, unless a file can be written there now. The folder must exist
/// and accept new files, the name must be valid, and an existing file must be replaceable and not locked by
/// another run. Leaves no file behind and creates no folder.
void check_writable(std::filesystem::path const& path);

/// Throws Error(failed) unless `folder` is a folder that accepts new files, or can be created. If it does not
/// exist, the nearest existing folder above it is checked. Creates nothing.
void check_writable_folder(std::filesystem::path const& folder);

/// A file that will be written, and its size.
struct PlannedFile {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  bool in_place = false;             ///< the old file is emptied first; an AtomicFile keeps it until the end
  std::filesystem::path named = {};  ///< the path that messages show; empty: `path`
};

/// Throws Error(failed) with path, bytes needed and bytes free unless the disk space suffices for all of
/// these files together. Devices and pipes need no space. A file system that does not report its free space
/// is assumed to have enough.
void check_free_space(std::vector<PlannedFile> const& files);

/// Creates a folder and the folders above it, unless it exists. Throws Error(failed) that names it.
void make_folder(std::filesystem::path const& folder);

/// A file that appears whole or not at all. Bytes go to a temporary file in the same folder. `commit()` syncs
/// it, renames it over the old file and syncs the folder. Without a commit, an exception or the destructor
/// removes the temporary and the old file stays as it was. The next AtomicFile in that folder removes
/// temporary files that a killed process left. A link to a file is followed. Devices and /dev/stdout get
/// their bytes directly. Dangling links, named pipes and sockets are rejected. Errors are Error(failed) with
/// path, operation and the system's reason. Not thread-safe.
class AtomicFile {
 public:
  /// Throws when the folder does not exist or cannot be written.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  std::filesystem::path const& path() const noexcept { return path_; }
  /// Returns the number of bytes written so far.
  std::int64_t size() const noexcept { return written_; }

  void write(void const* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Makes the file appear under its name. It is on disk when this returns. No writes are allowed afterwards.
  void commit();

 private:
  static constexpr std::size_t buffer_bytes = 256 * 1024;

  void flush();
  void close();

  std::filesystem::path path_;
  files::Destination destination_;
  files::Descriptor file_;
  std::filesystem::path temporary_;  // empty: nothing to remove
  std::string buffer_;
  std::int64_t written_ = 0;
};

/// Writes `bytes` to `path`, whole or not at all.
void write_file(std::filesystem::path const& path, std::string_view bytes);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/file_definitions.hpp"
#endif
