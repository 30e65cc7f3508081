// SPDX-License-Identifier: Apache-2.0
// Defines the functions of io/file.hpp.
#pragma once

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <system_error>
#include <tuple>
#include <unistd.h>
#include <utility>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/io/file.hpp"

namespace tessera {
inline namespace v0 {

namespace files {

TESSERA_INLINE void file_error(std::filesystem::path const& path, std::string_view what, int code) {
  std::string text = path_text(path) + ": cannot " + std::string(what) + " (" + errno_text(code) + ")";
  if (code == ENOSPC || code == EDQUOT) text += "; the disk is full, free some space or write elsewhere";
  if (code == EACCES || code == EPERM || code == EROFS) text += "; give a path that may be written";
  throw Error(ErrorKind::failed, text);
}

TESSERA_INLINE std::filesystem::path folder_of(std::filesystem::path const& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

TESSERA_INLINE void write_all(int file, void const* data, std::size_t size,
                              std::filesystem::path const& path) {
  auto const* bytes = static_cast<char const*>(data);
  while (size > 0) {
    ssize_t const written = ::write(file, bytes, size);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) file_error(path, "write", errno);
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

TESSERA_INLINE void lock_for_run(int file, std::filesystem::path const& path) {
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw Error(ErrorKind::failed, path_text(path) +
                                       ": another run writes there; wait until it has ended, or "
                                       "give another name");
}

/// Whether `name` has the form of the names that `create_temporary` gives: .tessera-PID-16HEXDIGITS.tmp.
inline bool is_temporary_name(std::string_view name) {
  constexpr std::string_view start = ".tessera-", end = ".tmp";
  if (!name.starts_with(start) || !name.ends_with(end)) return false;
  std::string_view const middle = name.substr(start.size(), name.size() - start.size() - end.size());
  std::size_t const dash = middle.find('-');
  return dash != middle.npos && dash > 0 && middle.find_first_not_of("0123456789") == dash &&
         middle.size() == dash + 17 && middle.find_first_not_of("0123456789abcdef", dash + 1) == middle.npos;
}

TESSERA_INLINE void sweep_temporaries(std::filesystem::path const& folder) {
  std::error_code code;
  std::filesystem::directory_iterator entry(folder, code);
  for (; !code && entry != std::filesystem::directory_iterator(); entry.increment(code)) {
    if (!is_temporary_name(entry->path().filename().native())) continue;
    Descriptor const file(::open(entry->path().c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
        ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
      ::unlink(entry->path().c_str());
  }
}

/// Creates and locks a new file in `folder`. Returns its descriptor and its path. On failure the descriptor
/// is empty and errno holds the reason.
inline std::pair<Descriptor, std::filesystem::path> create_temporary(std::filesystem::path const& folder) {
  auto mix = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  for (int attempt = 0; attempt < 100; ++attempt) {
    mix = mix * 6364136223846793005u + static_cast<std::uint64_t>(::getpid());
    char name[64];
    std::snprintf(name, sizeof name, ".tessera-%ld-%016llx.tmp", static_cast<long>(::getpid()),
                  static_cast<unsigned long long>(mix));
    std::filesystem::path path = folder / name;
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file && errno == EEXIST) continue;
    if (!file) return {Descriptor(), std::move(path)};
    // Between open and flock, another process possibly removed the file in `sweep_temporaries`. In this case
    // the file has no links, and the loop tries another name. On a file system without locks,
    // sweep_temporaries removes nothing.
    struct stat status {};
    bool const locked = ::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!locked && ::fstat(file.get(), &status) == 0 && status.st_nlink > 0)
      return {std::move(file), std::move(path)};
  }
  errno = EAGAIN;
  return {Descriptor(), std::filesystem::path()};
}

/// Returns 1 if `file` is the standard output of this process, 2 if it is the standard error, else -1.
inline int standard_stream_to(struct stat const& file) {
  for (int const standard : {1, 2}) {
    struct stat status {};
    if (::fstat(standard, &status) == 0 && status.st_dev == file.st_dev && status.st_ino == file.st_ino)
      return standard;
  }
  return -1;
}

/// Whether `file` is a regular file to which the standard output or error of this process goes, as in
/// `program --json /dev/stdout > file`. Such a file is written like a stream, because replacing it would lose
/// the text that the program prints.
inline bool is_standard_output(struct stat const& file) {
  return S_ISREG(file.st_mode) && standard_stream_to(file) >= 0;
}

TESSERA_INLINE Destination inspect_destination(std::filesystem::path const& path) {
  if (path.empty()) throw Error(ErrorKind::usage, "an empty output path was given; name a file");
  Destination found{path};
  struct stat status {};
  std::error_code code;
  auto const refuse = [&](std::string const& what) {
    throw Error(ErrorKind::failed, path_text(path) + what);
  };
  if (::stat(path.c_str(), &status) == 0) {
    if (S_ISDIR(status.st_mode)) refuse(": is a folder; give the name of a file in it");
    if (S_ISSOCK(status.st_mode)) refuse(": is a socket; give the name of a file");
    // Only named pipes are refused. An inherited pipe, such as /dev/stdout, has no path.
    if (S_ISFIFO(status.st_mode) && std::filesystem::exists(std::filesystem::canonical(path, code), code))
      refuse(": is a named pipe, which may never have a reader; give the name of a file");
    found.exists = true;
    found.stream = !S_ISREG(status.st_mode) || is_standard_output(status);
    found.mode = status.st_mode & 07777u;
    if (!found.stream && std::filesystem::is_symlink(path, code)) {
      found.path = std::filesystem::canonical(path, code);
      if (code) file_error(path, "follow the link", code.value());
    }
    if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) != 0) file_error(path, "write", errno);
    return found;
  }
  int const reason = errno;
  if (reason != ENOENT) file_error(path, "write", reason);
  if (!path.has_filename()) refuse(": is a folder that does not exist; give the name of a file");
  if (std::filesystem::is_symlink(path, code))
    refuse(": is a link to " + path_text(std::filesystem::read_symlink(path, code)) +
           ", which does not exist; create that file first, or remove the link");
  std::filesystem::path const folder = folder_of(path);
  if (::stat(folder.c_str(), &status) != 0)
    throw Error(ErrorKind::failed, path_text(path) + ": cannot write, the folder " + path_text(folder) +
                                       " does not exist (" + errno_text(errno) + "); create it first");
  return found;
}

TESSERA_INLINE Descriptor open_stream(std::filesystem::path const& path) {
  struct stat status {};
  // The stream is duplicated instead of opened again, so that both descriptors share the file position.
  if (::stat(path.c_str(), &status) == 0 && is_standard_output(status))
    return Descriptor(::fcntl(standard_stream_to(status), F_DUPFD_CLOEXEC, 3));
  Descriptor file(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC));
  if (file) ::fcntl(file.get(), F_SETFL, 0);  // later writes wait for the reader; only the open must not wait
  return file;
}

}  // namespace files

TESSERA_INLINE void check_writable(std::filesystem::path const& path) {
  files::Destination const found = files::inspect_destination(path);
  if (found.stream) return;
  auto const [file, temporary] = files::create_temporary(files::folder_of(found.path));
  if (!file) files::file_error(path, "create a file in its folder", errno);
  ::unlink(temporary.c_str());
  if (found.exists) {
    files::Descriptor const old(::open(found.path.c_str(), O_WRONLY | O_CLOEXEC));
    if (old) files::lock_for_run(old.get(), path);
    return;
  }
  // The name is possibly too long or illegal. To check this, creates the file and removes it.
  files::Descriptor const named(::open(found.path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (named)
    ::unlink(found.path.c_str());
  else if (errno != EEXIST)
    files::file_error(path, "create the file", errno);
}

TESSERA_INLINE void check_writable_folder(std::filesystem::path const& folder) {
  if (folder.empty()) throw Error(ErrorKind::usage, "an empty output folder was given; name a folder");
  std::filesystem::path nearest = folder;
  std::error_code code;
  auto type = std::filesystem::status(nearest, code).type();
  while (type == std::filesystem::file_type::not_found) {
    std::filesystem::path const above = nearest.parent_path();
    if (above == nearest) break;
    nearest = above.empty() ? std::filesystem::path(".") : above;
    type = std::filesystem::status(nearest, code).type();
  }
  if (type == std::filesystem::file_type::none)
    files::file_error(folder, "get the status of " + files::path_text(nearest), code.value());
  if (type != std::filesystem::file_type::directory)
    throw Error(ErrorKind::failed, files::path_text(folder) + ": cannot be used as an output folder, " +
                                       files::path_text(nearest) + " is not a folder");
  auto const [file, temporary] = files::create_temporary(nearest);
  if (!file) files::file_error(folder, "create files in " + files::path_text(nearest), errno);
  ::unlink(temporary.c_str());
}

TESSERA_INLINE void check_free_space(std::vector<PlannedFile> const& files) {
  struct Use {
    ::dev_t device;
    std::int64_t bytes;
    std::filesystem::path path;
  };
  std::vector<Use> uses;
  for (PlannedFile const& file : files) {
    files::Destination const found = files::inspect_destination(file.path);
    std::filesystem::path const folder = files::folder_of(found.path);
    struct stat status {
    }, old{};
    struct statvfs disk {};
    if (found.stream || ::stat(folder.c_str(), &status) != 0 || ::statvfs(folder.c_str(), &disk) != 0 ||
        disk.f_blocks == 0)
      continue;
    auto const blocks = ::geteuid() == 0 ? disk.f_bfree : disk.f_bavail;
    double free = static_cast<double>(blocks) * static_cast<double>(disk.f_frsize);
    if (file.in_place && ::stat(found.path.c_str(), &old) == 0)
      free += 512.0 * static_cast<double>(old.st_blocks);
    std::filesystem::path const& named = file.named.empty() ? file.path : file.named;
    std::int64_t needed = file.bytes;
    std::string shared_with;
    for (Use const& use : uses)
      if (use.device == status.st_dev) {
        needed += use.bytes;
        shared_with = ", together with " + files::path_text(use.path);
      }
    if (static_cast<double>(needed) > free)
      throw Error(ErrorKind::failed, files::path_text(named) + ": needs " + files::with_commas(needed) +
                                         " bytes" + shared_with + ", and " +
                                         files::with_commas(static_cast<std::int64_t>(free)) +
                                         " are free on its disk; free some space or write elsewhere");
    uses.push_back({status.st_dev, file.bytes, named});
  }
}

TESSERA_INLINE void make_folder(std::filesystem::path const& folder) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (!code && !std::filesystem::is_directory(folder, code)) code.assign(ENOTDIR, std::generic_category());
  if (code) files::file_error(folder, "create the folder", code.value());
}

TESSERA_INLINE AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)), destination_(files::inspect_destination(path_)) {
  if (destination_.stream) {
    file_ = files::open_stream(path_);
    if (!file_) files::file_error(path_, "open for writing", errno);
  } else {
    files::sweep_temporaries(files::folder_of(destination_.path));
    std::tie(file_, temporary_) = files::create_temporary(files::folder_of(destination_.path));
    if (!file_) {
      temporary_.clear();
      files::file_error(path_, "create a file in its folder", errno);
    }
    if (destination_.exists) ::fchmod(file_.get(), destination_.mode);
  }
}

TESSERA_INLINE AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      destination_(std::move(other.destination_)),
      file_(std::move(other.file_)),
      temporary_(std::exchange(other.temporary_, {})),
      buffer_(std::move(other.buffer_)),
      written_(other.written_) {}

TESSERA_INLINE AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

TESSERA_INLINE void AtomicFile::write(void const* data, std::size_t size) {
  written_ += static_cast<std::int64_t>(size);
  if (buffer_.size() + size > buffer_bytes) flush();
  if (size >= buffer_bytes)
    files::write_all(file_.get(), data, size, path_);
  else
    buffer_.append(static_cast<char const*>(data), size);
}

TESSERA_INLINE void AtomicFile::commit() {
  if (!file_) throw Error(ErrorKind::usage, files::path_text(path_) + ": the file was already committed");
  flush();
  if (destination_.stream) {
    close();
    return;
  }
  if (::fsync(file_.get()) != 0) files::file_error(path_, "sync", errno);
  if (::rename(temporary_.c_str(), destination_.path.c_str()) != 0) files::file_error(path_, "rename", errno);
  temporary_.clear();
  close();  // after the rename, because the lock must be held until then
  std::filesystem::path const folder = files::folder_of(destination_.path);
  files::Descriptor const directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  // Some file systems cannot sync a folder. The file is complete even then.
  if (directory && ::fsync(directory.get()) != 0 && errno != EINVAL && errno != ENOTSUP)
    files::file_error(folder, "sync the folder", errno);
}

TESSERA_INLINE void AtomicFile::flush() {
  files::write_all(file_.get(), buffer_.data(), buffer_.size(), path_);
  buffer_.clear();
}

TESSERA_INLINE void AtomicFile::close() {
  if (::close(file_.release()) != 0 && errno != EINTR) files::file_error(path_, "close", errno);
}

TESSERA_INLINE void write_file(std::filesystem::path const& path, std::string_view bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

}  // namespace v0
}  // namespace tessera
