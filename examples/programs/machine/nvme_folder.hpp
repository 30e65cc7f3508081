// SPDX-License-Identifier: Apache-2.0
// Provides the folder for training state on NVMe. This is the folder that --nvme-path names, or a temporary
// folder in TMPDIR.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"
#include "tessera/io/nvme_file.hpp"

#include "cli/command_line.hpp"

namespace programs {
using namespace tessera;
namespace cli {

inline void add_nvme_path_flag(CommandLine& line, std::filesystem::path& path) {
  line.path("--nvme-path", "FOLDER", path,
            "folder on a disk for state on NVMe; default: a new one in TMPDIR, removed at the end");
}

/// Throws Error(usage) if the value of --nvme-path is not a folder.
inline void check_nvme_path(std::filesystem::path const& path) {
  std::error_code code;
  if (!path.empty() && !std::filesystem::is_directory(path, code))
    throw Error(ErrorKind::usage,
                "--nvme-path " + files::path_text(path) + " is not a folder; create it, or name another one");
}

/// Returns the folder in which temporary folders are created: TMPDIR, or /tmp if TMPDIR is not set.
inline std::filesystem::path temporary_path() {
  char const* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

/// The folder for state files while a program runs. The destructor removes a temporary folder. A temporary
/// folder is locked while it is in use. If its program was killed, the lock is gone, so a later program
/// removes the folder.
class NvmeFolder {
 public:
  /// Uses the folder `given`. If `given` is empty and `needed` is true, makes a temporary folder. Throws
  /// Error if no files can be created there; the message names --nvme-path or TMPDIR.
  NvmeFolder(std::filesystem::path const& given, bool needed) : path_(given) {
    if (given.empty() && !needed) return;
    check_nvme_path(given);
    try {
      if (given.empty())
        make_fresh();
      else
        check_writable_folder(given);
      // Removes the files of killed runs, because they would reduce the free space.
      if (!given.empty() && needed) NvmeFile::sweep(given.native());
    } catch (Error const& error) {
      throw Error(error.kind(), std::string(given.empty() ? "TMPDIR " : "--nvme-path ") + error.what());
    }
  }
  NvmeFolder(NvmeFolder const&) = delete;
  NvmeFolder& operator=(NvmeFolder const&) = delete;
  ~NvmeFolder() {
    std::error_code ignored;
    if (lock_) std::filesystem::remove_all(path_, ignored);
  }

  /// Returns the path of the folder; empty if the program keeps no state in files.
  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  static constexpr std::string_view prefix = "tessera-nvme-";

  /// Opens and locks a folder that belongs to this user. Returns an empty descriptor if the folder is locked
  /// already or no longer exists. `without_locks_too` accepts a folder on a file system that has no locks.
  static files::Descriptor locked(std::filesystem::path const& folder, bool without_locks_too) {
    files::Descriptor file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat status {};
    bool const mine = file && ::flock(file.get(), LOCK_EX | LOCK_NB) == 0;
    bool const in_use = !mine && (errno == EWOULDBLOCK || !without_locks_too);
    if (!file || in_use || ::fstat(file.get(), &status) != 0 || status.st_uid != ::geteuid() ||
        status.st_nlink == 0)
      return files::Descriptor();
    return file;
  }

  void make_fresh() {
    std::filesystem::path const above = temporary_path();
    std::error_code code;
    std::filesystem::directory_iterator entry(above, code);
    for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
      if (!entry->path().filename().native().starts_with(prefix)) continue;
      std::error_code ignored;
      if (auto const left = locked(entry->path(), false)) std::filesystem::remove_all(entry->path(), ignored);
    }
    for (int attempt = 0; attempt < 10 && !lock_;
         // another program may remove the folder before it is locked, so there are several attempts
         ++attempt) {
      std::string name = (above / (std::string(prefix) + "XXXXXX")).native();
      if (::mkdtemp(name.data()) == nullptr) files::file_error(above, "create a folder in it", errno);
      path_ = name;
      lock_ = locked(path_, true);
    }
    if (!lock_) files::file_error(above, "lock a folder in it", errno);
  }

  std::filesystem::path path_;
  files::Descriptor lock_;
};

}  // namespace cli
}  // namespace programs
