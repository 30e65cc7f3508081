// SPDX-License-Identifier: Apache-2.0
// Writes files atomically, and checks in advance whether a file can be written.
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

/// Throws Error(failed) with the text "PATH: cannot WHAT (REASON)". REASON is the system's text for the errno
/// value `code`. For some values of `code`, advice to the user follows.
[[noreturn]] void file_error(std::filesystem::path const& path, std::string_view what, int code);

/// Returns the folder that contains `path`.
std::filesystem::path folder_of(std::filesystem::path const& path);

/// Writes all `size` bytes to the descriptor `file`, and continues after interruptions and short writes.
/// `path` is for messages.
void write_all(int file, void const* data, std::size_t size, std::filesystem::path const& path);

/// Locks an open file or folder against other runs until the descriptor is closed. Throws Error(failed) if
/// another run holds the lock. Has no effect on a file system without locks.
void lock_for_run(int file, std::filesystem::path const& path);

/// Removes the temporary files that killed processes left in `folder`. A running process holds a lock on its
/// temporary file, and other containers see this lock too. A file that cannot be locked stays.
void sweep_temporaries(std::filesystem::path const& folder);

/// An output path, and the state of the file at this path.
struct Destination {
  std::filesystem::path path;  ///< the path after following a link to a file
  bool exists = false;
  bool stream = false;  ///< the path is a device or a pipe, so bytes are written to it directly
  ::mode_t mode = 0;
};

/// Returns the state of an output path. Throws Error(failed or usage) if a file cannot be written there.
Destination inspect_destination(std::filesystem::path const& path);

/// Opens a device or a pipe for writing, without waiting for a reader. On failure the result is empty and
/// errno holds the reason.
Descriptor open_stream(std::filesystem::path const& path);

}  // namespace files

/// Throws Error(failed), which names the path, if a file cannot be written at `path` now. The folder must
/// exist and accept new files, and the name must be valid. An existing file must be replaceable and must not
/// be locked by another run. Leaves no file behind and creates no folder.
void check_writable(std::filesystem::path const& path);

/// Throws Error(failed) if `folder` cannot be used for output: it must be a folder that accepts new files, or
/// it must be possible to create it. If it does not exist, the nearest existing folder above it is checked.
/// Creates nothing.
void check_writable_folder(std::filesystem::path const& folder);

/// A file that will be written, and its size.
struct PlannedFile {
  std::filesystem::path path;
  std::int64_t bytes = 0;
  /// Whether the old file is emptied before the new bytes are written, so that its space counts as free. If
  /// false, the old file exists until the new one is complete.
  bool in_place = false;
  std::filesystem::path named = {};  ///< the path that messages show; empty: `path`
};

/// Throws Error(failed) with path, bytes needed and bytes free if a disk has too little free space for all of
/// the files that it will hold. Devices and pipes need no space. If a file system does not report its free
/// space, the check passes.
void check_free_space(std::vector<PlannedFile> const& files);

/// Creates `folder` and the folders above it, if they do not exist. Throws Error(failed) that names `folder`.
void make_folder(std::filesystem::path const& folder);

/// Writes a file so that it appears completely or not at all. Bytes go to a temporary file in the same
/// folder. `commit()` syncs the temporary file, renames it over the old file and syncs the folder. Without
/// `commit()`, the destructor removes the temporary file, and the old file does not change. If a process is
/// killed, its temporary file remains until the next AtomicFile in that folder removes it. If the path is a
/// link to a file, the linked file is replaced. Devices and /dev/stdout get their bytes directly. Dangling
/// links, named pipes and sockets are rejected. Errors are Error(failed) with path, operation and the
/// system's reason. Not thread-safe.
class AtomicFile {
 public:
  /// Throws Error(failed) if the folder does not exist or cannot be written.
  explicit AtomicFile(std::filesystem::path path);
  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&&) = delete;
  ~AtomicFile();

  std::filesystem::path const& path() const noexcept { return path_; }
  /// Returns the number of bytes written so far.
  std::int64_t size() const noexcept { return written_; }

  void write(void const* data, std::size_t size);
  void write(std::string_view text) { write(text.data(), text.size()); }

  /// Makes the file appear under its name. When this returns, the file is on disk. No writes are allowed
  /// afterwards.
  void commit();

 private:
  static constexpr std::size_t buffer_bytes = 256 * 1024;

  void flush();
  void close();

  std::filesystem::path path_;
  files::Destination destination_;
  files::Descriptor file_;
  std::filesystem::path temporary_;  // the path of the temporary file; empty: nothing to remove
  std::string buffer_;
  std::int64_t written_ = 0;
};

/// Writes `bytes` to the file `path`, through an AtomicFile.
void write_file(std::filesystem::path const& path, std::string_view bytes);

}  // namespace v0
}  // namespace tessera

#if defined(TESSERA_INCLUDE_DEFINITIONS)
#include "tessera/io/file_definitions.hpp"
#endif
