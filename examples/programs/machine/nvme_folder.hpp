// SPDX-License-Identifier: Apache-2.0
// Provides the folder for training state on NVMe: the one that --nvme-path names, or a temporary one below
// TMPDIR.
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

/// Returns the parent of temporary folders: TMPDIR or /tmp.
inline std::filesystem::path temporary_path() {
  char const* const given = std::getenv("TMPDIR");
  return given != nullptr && *given != '\0' ? given : "/tmp";
}

/// Holds the folder for state files while a program runs. Removes a temporary folder in the destructor. A
/// lock marks the folder as in use, so that a later program can remove the folder of a killed one.
class NvmeFolder {
 public:
  /// Uses the folder `given`. If it is empty and `needed` is true, makes a temporary folder. Throws Error,
  /// which names --nvme-path or TMPDIR, if no files can be created there.
  NvmeFolder(std::filesystem::path const& given, bool needed) : path_(given) {
    if (given.empty() && !needed) return;
    check_nvme_path(given);
    try {
      if (given.empty())
        make_fresh();
      else
        check_writable_folder(given);
      // Removes files of killed runs, so that they do not reduce the free space.
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

  /// Returns the path; empty if no state is kept in files.
  std::filesystem::path const& path() const noexcept { return path_; }

 private:
  static constexpr std::string_view prefix = "tessera-nvme-";

  /// Opens and locks a folder that belongs to this user. Returns an empty descriptor if the folder is already
  /// locked or no longer exists.
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
         ++attempt) {  // another program may remove it before the lock
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
