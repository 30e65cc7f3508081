// SPDX-License-Identifier: Apache-2.0
// Provides the scratch file of one rank. It keeps optimizer state and gradients on a disk, and the rank reads
// and writes parts of it during a step.
#pragma once

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include "tessera/core/error.hpp"
#include "tessera/data/file_bytes.hpp"
#include "tessera/detail/host_memory.hpp"
#include "tessera/io/io_engine.hpp"
#include "tessera/io/io_pattern.hpp"
#include "tessera/io/state_file.hpp"
#include "tessera/tensor/arena.hpp"

namespace tessera {
inline namespace v0 {

/// The folder of a rank's scratch file, and the way in which the file is read and written.
struct NvmeOptions {
  std::string directory{};         ///< an existing folder that accepts new files
  std::int64_t request_bytes = 0;  ///< bytes per request, a multiple of 4096; 0: a short trial chooses
  int depth = 0;                   ///< number of requests that run at once; 0: the same trial chooses
  OpenIoEngine engine = nullptr;   ///< null: `preferred_io_engine`, or IoThreads if there is none
};

namespace detail {

/// Whether `name` has the form of ScratchFile's names: tessera-scratch-PID-RANK-NUMBER.bin.
inline bool is_scratch_name(std::string_view name) {
  constexpr std::string_view start = "tessera-scratch-", end = ".bin";
  if (!name.starts_with(start) || !name.ends_with(end)) return false;
  int dashes = 0;
  for (char const c : name.substr(start.size(), name.size() - start.size() - end.size())) {
    if (c != '-' && (c < '0' || c > '9')) return false;
    dashes += c == '-';
  }
  return dashes == 2;
}

/// A new file of fixed size, with its disk space reserved. The destructor removes the file. While the file is
/// open, it is locked. The lock tells other processes, including processes in other containers, that the file
/// is in use and must not be swept away.
class ScratchFile {
 public:
  /// Throws Error(failed) that names the folder or the file, or Error(out_of_memory) with the bytes needed
  /// and the bytes free.
  ScratchFile(std::string const& folder, int rank, std::int64_t bytes) : folder_(folder) {
    sweep(folder);
    create(rank);
    try {
      reserve(bytes);
    } catch (...) {
      remove();
      throw;
    }
    direct_ = enable_direct();
  }
  ScratchFile(ScratchFile const&) = delete;
  ScratchFile& operator=(ScratchFile const&) = delete;
  ~ScratchFile() { remove(); }

  int get() const noexcept { return file_.get(); }
  std::string const& path() const noexcept { return path_; }
  bool direct() const noexcept { return direct_; }

  /// Removes the files that killed processes left in a folder. If a file cannot be locked, it is in use or
  /// its file system has no locks, so the file stays.
  static void sweep(std::string const& folder) {
    ::DIR* const entries = ::opendir(folder.c_str());
    if (entries == nullptr) refuse(folder, "open the folder", errno);
    while (::dirent const* const entry = ::readdir(entries)) {
      if (!is_scratch_name(entry->d_name)) continue;
      Descriptor const file(
          ::openat(::dirfd(entries), entry->d_name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      struct stat status {};
      if (file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) &&
          ::flock(file.get(), LOCK_EX | LOCK_NB) == 0)
        ::unlinkat(::dirfd(entries), entry->d_name, 0);
    }
    ::closedir(entries);
  }

  /// Throws Error(failed) if the size of the file is not `bytes`.
  void check_size(std::int64_t bytes) const {
    struct stat status {};
    if (::fstat(file_.get(), &status) == 0 && status.st_size == bytes) return;
    throw Error(ErrorKind::failed, path_text(path_) + ": had " + with_commas(bytes) + " bytes and has " +
                                       with_commas(status.st_size) +
                                       " now; the state in it is lost, leave scratch files alone while a run "
                                       "uses them, and start the run again");
  }

 private:
  [[noreturn]] static void refuse(std::string const& folder, char const* what, int code) {
    std::string text = path_text(folder) + ": cannot " + what + " (" + errno_text(code) + ")";
    if (code == ENOENT || code == ENOTDIR)
      text += "; state on NVMe needs an existing folder, create it or name another";
    if (code == EACCES || code == EPERM || code == EROFS)
      text += "; state on NVMe needs a folder that may be written, name another";
    if (code == EMFILE || code == ENFILE) text += "; raise ulimit -n";
    throw Error(ErrorKind::failed, text);
  }

  void create(int rank) {
    std::string const start =
        folder_ + "/tessera-scratch-" + std::to_string(::getpid()) + "-" + std::to_string(rank) + "-";
    for (int number = 0;; ++number) {
      path_ = start + std::to_string(number) + ".bin";
      file_ = Descriptor(::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!file_ && errno == EEXIST && number < 1000000) continue;
      if (!file_) refuse(folder_, "create a scratch file", errno);
      // Between open and flock, another process possibly removed the file in `sweep`. In this case the loop
      // tries another name.
      struct stat status {};
      bool const locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
      if (locked || ::fstat(file_.get(), &status) != 0 || status.st_nlink == 0) continue;
      device_ = status.st_dev;
      inode_ = status.st_ino;
      return;
    }
  }

  void reserve(std::int64_t bytes) const {
    // If a file grows beyond this limit, the system kills the process instead of returning an error.
    ::rlimit limit{};
    if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        static_cast<std::uint64_t>(bytes) > limit.rlim_cur)
      throw Error(ErrorKind::failed, path_text(path_) + ": needs " + with_commas(bytes) +
                                         " bytes, and this process may write files of at most " +
                                         with_commas(static_cast<std::int64_t>(limit.rlim_cur)) +
                                         " bytes; raise ulimit -f");
    // The free space is checked before the reservation, because some file systems use up all of it before
    // they fail.
    std::int64_t const free = free_bytes(folder_);
    int code = free >= 0 && free < bytes ? ENOSPC : 0;
    if (code == 0 && bytes > 0) {
      while (::fallocate(file_.get(), 0, 0, bytes) != 0 && (code = errno) == EINTR) code = 0;
      if (code == EOPNOTSUPP || code == ENOSYS) code = ::ftruncate(file_.get(), bytes) == 0 ? 0 : errno;
    }
    if (code == 0) return;
    std::string const what =
        path_text(path_) + ": cannot reserve " + with_commas(bytes) + " bytes (" + errno_text(code) + ")";
    if (code != ENOSPC && code != EDQUOT && code != EFBIG)
      throw Error(ErrorKind::failed, what + "; name another folder for state on NVMe");
    throw Error(ErrorKind::out_of_memory,
                what + (free < 0 ? std::string() : ", " + with_commas(free) + " are free") +
                    "; free some space, name another folder for state on NVMe, or keep less state there");
  }

  /// Turns on O_DIRECT if a block can be written and read with it, and returns whether it is on. The test is
  /// needed because some file systems accept the flag and then fail at the first read.
  bool enable_direct() const {
    int const flags = ::fcntl(file_.get(), F_GETFL);
    if (::fcntl(file_.get(), F_SETFL, flags | O_DIRECT) != 0) return false;
    alignas(disk_block) std::byte block[disk_block] = {};
    struct stat status {};
    if (::fstat(file_.get(), &status) != 0 || status.st_size == 0 ||
        (::pwrite(file_.get(), block, disk_block, 0) == disk_block &&
         ::pread(file_.get(), block, disk_block, 0) == disk_block))
      return true;
    ::fcntl(file_.get(), F_SETFL, flags);
    return false;
  }

  /// Removes the file. Does nothing if its path no longer exists or is now the path of another file.
  void remove() const noexcept {
    struct stat status {};
    if (::lstat(path_.c_str(), &status) == 0 && status.st_dev == device_ && status.st_ino == inode_)
      ::unlink(path_.c_str());
  }

  std::string folder_, path_;
  Descriptor file_;
  ::dev_t device_ = 0;
  ::ino_t inode_ = 0;
  bool direct_ = false;
};

}  // namespace detail

/// A scratch file of fixed size in the folder NvmeOptions::directory. The file is zero at first, and the
/// destructor removes it. It bypasses the system's page cache (O_DIRECT) if the file system allows this.
/// Offsets, sizes and addresses must be multiples of 4096. Each `read` or `write` is split into requests,
/// which the engine runs concurrently, and returns when all of its bytes are transferred. Calls from several
/// threads run one after another. Cost: `depth` threads per file, or an io_uring ring. Errors are
/// Error(failed) with path, bytes, offset and the system's reason. If the disk has too little space, the
/// constructor throws Error(out_of_memory) with the bytes needed and the bytes free.
class NvmeFile final : public StateFile {
 public:
  NvmeFile(NvmeOptions const& options, int rank, std::int64_t bytes)
      : options_(checked(options, bytes)), bytes_(bytes), scratch_(options.directory, rank, bytes) {
    IoPattern const pattern = detail::choose_pattern(
        options_.directory, scratch_.get(), bytes, options_.engine, {options_.request_bytes, options_.depth});
    options_.request_bytes = pattern.request_bytes;
    options_.depth = pattern.depth;
    engine_ = open_io_engine(options_.engine, options_.depth, engine_name_);
  }
  /// Removes the scratch files that killed runs left in a folder.
  static void sweep(std::string const& folder) { detail::ScratchFile::sweep(folder); }
  NvmeFile(NvmeFile const&) = delete;
  NvmeFile& operator=(NvmeFile const&) = delete;

  void read(std::int64_t offset, void* to, std::int64_t bytes) override {
    transfer(false, offset, static_cast<std::byte*>(to), bytes);
  }
  void write(std::int64_t offset, void const* from, std::int64_t bytes) override {
    transfer(true, offset, static_cast<std::byte*>(const_cast<void*>(from)), bytes);
  }

  std::int64_t bytes() const noexcept { return bytes_; }
  /// Return the total number of bytes read and written since construction.
  std::int64_t bytes_read() const noexcept override { return moved_[0].load(std::memory_order_relaxed); }
  std::int64_t bytes_written() const noexcept override { return moved_[1].load(std::memory_order_relaxed); }
  /// Returns the end offset of the part of the file that was ever read or written.
  std::int64_t high_water() const noexcept override { return high_water_.load(std::memory_order_relaxed); }
  /// Returns the name of the engine in use, such as "io_uring". If another engine was preferred, the reason
  /// why it is not used follows: "threads: io_uring: Operation not permitted".
  std::string_view engine() const noexcept { return engine_name_; }
  /// Whether reads and writes bypass the system's page cache.
  bool direct() const noexcept { return scratch_.direct(); }
  /// Returns a text for results, such as "io_uring, 8 requests of 1024 KiB, buffered: no O_DIRECT here".
  std::string description() const override {
    return engine_name_ + ", " + std::to_string(depth()) + " requests of " +
           std::to_string(request_bytes() >> 10) + " KiB" + (direct() ? "" : ", buffered: no O_DIRECT here");
  }
  std::string const& path() const noexcept { return scratch_.path(); }
  std::int64_t request_bytes() const noexcept { return options_.request_bytes; }
  int depth() const noexcept { return options_.depth; }

 private:
  static NvmeOptions checked(NvmeOptions const& options, std::int64_t bytes) {
    auto const refuse = [](std::string const& text) { throw Error(ErrorKind::usage, text); };
    if (options.directory.empty()) refuse("state on NVMe needs a folder; name one");
    if (bytes < 0 || bytes % disk_block != 0)
      refuse("a scratch file of " + std::to_string(bytes) + " bytes; give a multiple of 4096");
    if (options.request_bytes < 0 || options.request_bytes % disk_block != 0 ||
        options.request_bytes > (std::int64_t{1} << 30))
      refuse("requests of " + std::to_string(options.request_bytes) +
             " bytes; give a multiple of 4096 up to 1 GiB, or 0");
    if (options.depth < 0 || options.depth > 1024)
      refuse(std::to_string(options.depth) + " requests at once; give 1 to 1024, or 0");
    return options;
  }

  void transfer(bool write, std::int64_t offset, std::byte* address, std::int64_t bytes) {
    auto const misaligned =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(address)) | offset | bytes;
    if (misaligned % disk_block != 0 || offset < 0 || bytes < 0 || bytes > bytes_ - offset)
      throw Error(ErrorKind::usage, files::path_text(path()) + ": asked to " +
                                        call_text(write, bytes, offset) + " at address " +
                                        std::to_string(reinterpret_cast<std::uintptr_t>(address)) +
                                        " of a file of " + files::with_commas(bytes_) +
                                        "; all must be multiples of 4096 within the file");
    std::lock_guard const lock(mutex_);
    scratch_.check_size(bytes_);  // reads of a truncated file would return zeros instead of state
    requests_.clear();
    for (std::int64_t done = 0; done < bytes; done += options_.request_bytes)
      requests_.push_back({address + done, offset + done, std::min(options_.request_bytes, bytes - done)});
    while (!requests_.empty()) {
      engine_->run(scratch_.get(), write, requests_.data(), static_cast<std::int64_t>(requests_.size()));
      std::size_t unfinished = 0;
      for (IoRequest const& request : requests_) {
        IoRequest const rest = rest_of(write, request);
        if (rest.bytes > 0) requests_[unfinished++] = rest;
      }
      requests_.resize(unfinished);
    }
    moved_[write].fetch_add(bytes, std::memory_order_relaxed);
    high_water_.store(std::max(high_water(), offset + bytes), std::memory_order_relaxed);
  }

  /// Returns the part of a finished request that must be transferred again. If the request was interrupted,
  /// this is the whole request. Otherwise it is the part after the last completely transferred block of 4096
  /// bytes; it has 0 bytes if nothing is left. Throws Error(failed) if the request failed.
  IoRequest rest_of(bool write, IoRequest request) const {
    if (request.result == -EINTR) return request;
    if (request.result < 0) fail(write, request, static_cast<int>(-request.result));
    std::int64_t const done =
        request.result >= request.bytes ? request.bytes : request.result / disk_block * disk_block;
    if (done == 0) {
      scratch_.check_size(bytes_);
      fail(write, request, EIO);
    }
    return {request.address + done, request.offset + done, request.bytes - done};
  }

  static std::string call_text(bool write, std::int64_t bytes, std::int64_t offset) {
    return (write ? "write " : "read ") + files::with_commas(bytes) + " bytes at byte " +
           files::with_commas(offset);
  }

  [[noreturn]] void fail(bool write, IoRequest const& request, int code) const {
    std::string text = files::path_text(path()) + ": cannot " +
                       call_text(write, request.bytes, request.offset) + " (" + files::errno_text(code) + ")";
    if (code == ENOSPC || code == EDQUOT)
      text += "; the disk is full, free some space or name another folder for state on NVMe";
    else if (code == EFBIG)
      text += "; raise ulimit -f";
    else if (code == ECANCELED)
      text += "; io_uring could not start a thread for it, raise ulimit -u";
    else
      text += "; the disk or its file system failed, see dmesg, or name another folder for state on NVMe";
    throw Error(ErrorKind::failed, text);
  }

  NvmeOptions options_;
  std::int64_t bytes_;
  detail::ScratchFile scratch_;
  std::string engine_name_;
  std::unique_ptr<IoEngine> engine_;
  std::mutex mutex_;
  std::vector<IoRequest> requests_;
  std::atomic<std::int64_t> moved_[2] = {0, 0}, high_water_{0};
};

template <>
inline constexpr OpenStateFile open_state_file<Nvme> =
    [](std::string const& folder, int rank, std::int64_t bytes) -> std::unique_ptr<StateFile> {
  return std::make_unique<NvmeFile>(NvmeOptions{.directory = folder}, rank, bytes);
};

}  // namespace v0
}  // namespace tessera
