// SPDX-License-Identifier: Apache-2.0
// Tests NvmeFile, the scratch file in which a rank keeps training state on a disk. The tests use every I/O
// engine and inject faults. A call must either return the data that was written before, or fail with an error
// of one line. Files that processes leave behind when they end must be removed.
#include "tessera/io/nvme_file.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <memory>
#include <new>
#include <sched.h>
#include <string>
#include <string_view>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/philox.hpp"

#include "support/file_support.hpp"

namespace {

namespace fs = std::filesystem;
using file_support::TemporaryFolder;
using tessera::IoRequest;
using tessera::NvmeFile;
using tessera::NvmeOptions;

constexpr std::int64_t block = 4096;

/// A buffer that is aligned to 4096 bytes. Each of its blocks of 4096 bytes has a different content. If
/// `seed` is 0, all bytes are 0.
class Bytes {
 public:
  explicit Bytes(std::int64_t size, unsigned char seed = 0)
      : size_(size),
        data_(static_cast<unsigned char*>(
            ::operator new (static_cast<std::size_t>(size), std::align_val_t{4096}))) {
    for (std::int64_t at = 0; at < size; ++at)
      data_[at] = static_cast<unsigned char>(seed == 0 ? 0 : seed + at + (at / 251) * 7);
  }
  Bytes(Bytes const&) = delete;
  Bytes& operator=(Bytes const&) = delete;
  ~Bytes() { ::operator delete (data_, std::align_val_t{4096}); }
  unsigned char* data() const { return data_; }
  std::int64_t size() const { return size_; }
  bool operator==(Bytes const& other) const {
    return size_ == other.size_ && std::memcmp(data_, other.data_, static_cast<std::size_t>(size_)) == 0;
  }

 private:
  std::int64_t size_;
  unsigned char* data_;
};

/// A fault that the I/O engine Faulty injects into one I/O request. `at` is the number of the request,
/// counted from 0. -1 means no fault.
struct Fault {
  std::int64_t at = -1;
  // If negative, the request fails with the error number -result and does not change the file. If positive,
  // the request reads or writes only this many bytes.
  std::int64_t result = 0;
};
Fault fault;
std::atomic<std::int64_t> requests_seen{0}, engines_opened{0};

class Faulty final : public tessera::IoEngine {
 public:
  explicit Faulty(int depth) : threads_(depth) {}
  static std::unique_ptr<tessera::IoEngine> open(int depth, std::string&) {
    ++engines_opened;
    return std::make_unique<Faulty>(depth);
  }
  std::string_view name() const noexcept override { return "faulty"; }
  void run(int file, bool write, IoRequest* requests, std::int64_t count) noexcept override {
    for (std::int64_t index = 0; index < count; ++index) {
      IoRequest request = requests[index];
      bool const hit = requests_seen++ == fault.at;
      if (!hit || fault.result > 0) {
        if (hit) request.bytes = fault.result / 512 * 512;  // disks move whole sectors of 512 bytes
        threads_.run(file, write, &request, 1);
      }
      requests[index].result = hit ? fault.result : request.result;
    }
  }

 private:
  tessera::IoThreads threads_;
};

void arm(Fault how) {
  fault = how;
  requests_seen = 0;
}

std::unique_ptr<tessera::IoEngine> refused(int, std::string& why_not) {
  why_not = "io_uring: Operation not permitted";
  return nullptr;
}

/// Returns the I/O engines that can run here: threads, and io_uring if the system permits it.
std::vector<tessera::OpenIoEngine> engines() {
  std::vector<tessera::OpenIoEngine> found{tessera::IoThreads::open};
  tessera::OpenIoEngine const preferred = tessera::preferred_io_engine.load();
  std::string why_not = "tessera::uring is not linked";
  if (preferred != nullptr && preferred(1, why_not) != nullptr)
    found.push_back(preferred);
  else
    MESSAGE("skipped: io_uring (", why_not, ")");
  return found;
}

}  // namespace

TEST_CASE("NVMe: what is written is read again, by every engine, in requests of any size") {
  TemporaryFolder const folder;
  for (tessera::OpenIoEngine const open : engines())
    for (auto const& [request, depth] :
         {std::pair<std::int64_t, int>{block, 1}, {3 * block, 4}, {1 << 20, 16}}) {
      Bytes const out(100 * block, 3), part(7 * block, 90);
      Bytes in(100 * block);
      {
        NvmeFile file({folder.path(), request, depth, open}, 2, 128 * block);
        CAPTURE(file.engine());
        CHECK((file.request_bytes() == request && file.depth() == depth && file.bytes() == 128 * block));
        file.write(28 * block, out.data(), out.size());
        file.read(28 * block, in.data(), in.size());
        CHECK(in == out);
        file.write(30 * block, part.data(), part.size());
        file.read(28 * block, in.data(), in.size());
        CHECK(std::memcmp(in.data() + 2 * block, part.data(), 7 * block) == 0);
        CHECK(std::memcmp(in.data() + 9 * block, out.data() + 9 * block, 91 * block) == 0);
        file.write(0, out.data(), 0);
        CHECK((file.bytes_written() == 107 * block && file.bytes_read() == 200 * block));
        CHECK(file.high_water() == 128 * block);
        CHECK(file.path().starts_with(folder.path().string() + "/tessera-scratch-" +
                                      std::to_string(::getpid()) + "-2-"));
        struct stat status {};
        CHECK((::stat(file.path().c_str(), &status) == 0 && status.st_size == 128 * block &&
               (status.st_mode & 0777u) == 0600));
        CHECK(status.st_blocks * 512 >= 128 * block);  // the file system has reserved the space of the file
      }
      CHECK(folder.entries() == 0);
    }
}

TEST_CASE("NVMe: the engine that was asked for, and why it is not the one that runs") {
  TemporaryFolder const folder;
  NvmeFile const threads({folder.path(), block, 2, refused}, 0, block);
  CHECK(threads.engine() == "threads: io_uring: Operation not permitted");
  CHECK(threads.description().starts_with("threads: io_uring: Operation not permitted, 2 requests of 4 KiB"));
  CHECK(file_support::has(threads.description(), "buffered") != threads.direct());
  NvmeFile const own({folder.path(), block, 2, Faulty::open}, 0, block);
  CHECK(own.engine() == "faulty");
  if (tessera::preferred_io_engine.load() == nullptr)
    CHECK(NvmeFile({folder.path(), block, 2}, 0, block).engine() == "threads: io_uring is not linked");
  else
    CHECK(file_support::has(NvmeFile({folder.path(), block, 2}, 0, block).engine(), "io_uring"));
}

TEST_CASE("NVMe: what is not a multiple of 4096, or not in the file, is refused") {
  TemporaryFolder const folder;
  NvmeFile file({folder.path(), block, 1}, 0, 4 * block);
  Bytes const bytes(8 * block);
  std::string const rule = "all must be multiples of 4096 within the file";
  CHECK_ERROR(usage, file.read(512, bytes.data(), block), "read 4,096 bytes at byte 512", file.path(), rule);
  CHECK_ERROR(usage, file.write(0, bytes.data() + 512, block), "write 4,096 bytes at byte 0", rule);
  CHECK_ERROR(usage, file.write(0, bytes.data(), 100), "write 100 bytes at byte 0", rule);
  CHECK_ERROR(usage, file.read(0, bytes.data(), 5 * block), "of a file of 16,384; ", rule);
  CHECK_ERROR(usage, file.read(-block, bytes.data(), block), rule);
  CHECK_ERROR(usage, file.read(4 * block, bytes.data(), block), rule);
  CHECK_ERROR(usage, file.read(0, bytes.data(), -block), rule);
  CHECK_ERROR(usage, NvmeFile({folder.path()}, 0, 100), "100 bytes");
  CHECK_ERROR(usage, NvmeFile({folder.path(), 100}, 0, block), "requests of 100 bytes");
  CHECK_ERROR(usage, NvmeFile({folder.path(), 0, 5000}, 0, block), "5000 requests at once");
  CHECK_ERROR(usage, NvmeFile({""}, 0, block), "needs a folder");
  CHECK(file.bytes_read() + file.bytes_written() == 0);
}

TEST_CASE("NVMe: interrupted and short requests are continued") {
  TemporaryFolder const folder;
  Bytes const out(16 * block, 5);
  NvmeFile file({folder.path(), 8 * block, 2, Faulty::open}, 0, 16 * block);
  for (std::int64_t const result : {std::int64_t{-EINTR}, 4 * block, 5 * block + 512, 7 * block + 4095})
    for (std::int64_t const at : {0, 1}) {
      CAPTURE(result);
      Bytes in(16 * block);
      arm({at, result});
      file.write(0, out.data(), out.size());
      CHECK(requests_seen == 3);
      arm({at, result});
      file.read(0, in.data(), in.size());
      CHECK(requests_seen == 3);
      CHECK(in == out);
    }
}

TEST_CASE("NVMe: what the system refuses is said with path, bytes, offset and reason") {
  TemporaryFolder const folder;
  Bytes const bytes(16 * block, 5);
  NvmeFile file({folder.path(), 8 * block, 2, Faulty::open}, 0, 16 * block);
  arm({1, -EIO});
  CHECK_ERROR(failed, file.read(0, bytes.data(), bytes.size()), file.path(),
              ": cannot read 32,768 bytes at byte 32,768 (Input/output error); the disk or its file system "
              "failed, see dmesg");
  arm({0, -ENOSPC});
  CHECK_ERROR(
      failed, file.write(0, bytes.data(), bytes.size()), file.path(),
      ": cannot write 32,768 bytes at byte 0 (No space left on device); the disk is full, free some space");
  arm({0, -ECANCELED});
  CHECK_ERROR(failed, file.write(0, bytes.data(), bytes.size()),
              "(Operation canceled); io_uring could not start a thread for it, raise ulimit -u");
  arm({0, 100});  // the request moves less than a block, although the file does not end there
  CHECK_ERROR(failed, file.write(0, bytes.data(), bytes.size()), "cannot write 32,768 bytes", "Input/output");
  arm({-1, 0});  // after the faults end, the file can still be used
  file.write(0, bytes.data(), bytes.size());
  Bytes in(16 * block);
  file.read(0, in.data(), in.size());
  CHECK(in == bytes);
}

TEST_CASE("NVMe: a file that was cut short is named, one that was removed goes on") {
  TemporaryFolder const folder;
  for (tessera::OpenIoEngine const open : engines()) {
    Bytes const bytes(16 * block, 9);
    Bytes in(16 * block);
    std::string path;
    {
      NvmeFile file({folder.path(), 8 * block, 2, open}, 0, 16 * block);
      path = file.path();
      file.write(0, bytes.data(), bytes.size());
      fs::remove(path);
      file.read(0, in.data(), in.size());
      CHECK(in == bytes);
      file_support::write(path, "another's");
    }
    CHECK(fs::exists(path));  // the path now belongs to a file of another program, which must be kept

    NvmeFile cut({folder.path(), 8 * block, 2, open}, 1, 16 * block);
    cut.write(0, bytes.data(), bytes.size());
    REQUIRE(::truncate(cut.path().c_str(), 3 * block + 100) == 0);
    for (bool const write : {false, true})
      CHECK_ERROR(failed, write ? cut.write(0, in.data(), block) : cut.read(0, in.data(), 8 * block),
                  cut.path(), "had 65,536 bytes and has 12,388 now", "leave scratch files alone");
  }
}

TEST_CASE("NVMe: a file that is cut while it is read ends in one sentence") {
  // NvmeFile checks the size of its file before each call. This test makes the file shorter during the call.
  static std::string path;
  struct Cutting final : tessera::IoEngine {
    tessera::IoThreads threads{1};
    static std::unique_ptr<tessera::IoEngine> open(int, std::string&) { return std::make_unique<Cutting>(); }
    std::string_view name() const noexcept override { return "cutting"; }
    void run(int file, bool write, IoRequest* requests, std::int64_t count) noexcept override {
      if (!write) (void)!::truncate(path.c_str(), block + 100);
      threads.run(file, write, requests, count);
    }
  };
  TemporaryFolder const folder;
  Bytes const bytes(8 * block, 1);
  NvmeFile file({folder.path(), 4 * block, 1, Cutting::open}, 0, 8 * block);
  path = file.path();
  CHECK_ERROR(failed, file.read(0, bytes.data(), bytes.size()), path, "had 32,768 bytes and has 4,196 now");
}

TEST_CASE("NVMe: folders that cannot hold a file are refused") {
  TemporaryFolder const folder;
  CHECK_ERROR(failed, NvmeFile({folder / "missing"}, 0, block), "missing: cannot open the folder",
              "needs an existing folder");
  file_support::write(folder / "file", "x");
  CHECK_ERROR(failed, NvmeFile({folder / "file"}, 0, block),
              "file: cannot open the folder (Not a directory)");
  fs::create_directory(folder / "read-only");
  fs::permissions(folder / "read-only", fs::perms(0555));
  auto const thrown =
      file_support::thrown_as_nobody([&] { NvmeFile file({folder / "read-only"}, 0, block); });
  CHECK(thrown.kind == tessera::ErrorKind::failed);
  CHECK_MESSAGE(file_support::has(thrown.text, "read-only: cannot create a scratch file (Permission denied)"),
                thrown.text);
}

TEST_CASE("NVMe: a file without room is refused with the bytes, and leaves nothing") {
  TemporaryFolder const folder;
  CHECK_ERROR(out_of_memory, NvmeFile({folder.path()}, 0, std::int64_t{1} << 60), folder.path().native(),
              "cannot reserve 1,152,921,504,606,846,976 bytes (No space left on device)",
              " are free; free some space");
  ::rlimit limit{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  ::rlimit const low{1 << 20, limit.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &low) == 0);
  CHECK_ERROR(failed, NvmeFile({folder.path()}, 0, 2 << 20),
              "needs 2,097,152 bytes, and this process may write "
              "files of at most 1,048,576 bytes; raise ulimit -f");
  ::setrlimit(RLIMIT_FSIZE, &limit);
  CHECK(folder.entries() == 0);
}

TEST_CASE("NVMe: file systems that hold little, or know neither O_DIRECT nor fallocate") {
  TemporaryFolder const folder;
  ::pid_t const child = ::fork();  // the child process gets its own mounts
  if (child == 0) {
    char const* const place = folder.path().c_str();
    if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("ramfs", place, "ramfs", 0, nullptr) != 0)
      ::_exit(77);
    Bytes const out(16 * block, 4);
    Bytes in(16 * block);
    {
      NvmeFile file({place, 4 * block, 2}, 0, 16 * block);
      file.write(0, out.data(), out.size());
      file.read(0, in.data(), in.size());
      if (file.direct() || !(in == out)) ::_exit(1);
    }
    if (::mount("tmpfs", place, "tmpfs", 0, "size=64k") != 0) ::_exit(77);
    auto const thrown = file_support::thrown_by([&] { NvmeFile file({place}, 0, 32 * block); });
    if (thrown.kind != tessera::ErrorKind::out_of_memory ||
        !file_support::has(thrown.text,
                           "cannot reserve 131,072 bytes (No space left on device), 65,536 are free"))
      ::_exit(2);
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  if (WEXITSTATUS(status) == 77)
    MESSAGE("skipped: no file system can be mounted here (root may)");
  else
    CHECK(WEXITSTATUS(status) == 0);
}

TEST_CASE("NVMe: dead processes' files are swept, live ones' and others' stay") {
  TemporaryFolder const folder;
  file_support::write(folder / "tessera-scratch-999999999-0-0.bin", "left by a killed process");
  file_support::write(folder / "tessera-scratch-1-2.bin", "not so named");
  file_support::write(folder / "tessera-scratch-1-2-x.bin", "not so named");
  file_support::write(folder / "notes.txt", "a user's");
  fs::create_directory(folder / "tessera-scratch-5-0-0.bin");
  fs::create_symlink("notes.txt", folder / "tessera-scratch-6-0-0.bin");
  REQUIRE(::mkfifo((folder / "tessera-scratch-7-0-0.bin").c_str(), 0600) == 0);

  int ready[2], go[2];
  REQUIRE((::pipe(ready) == 0 && ::pipe(go) == 0));
  ::pid_t const child = ::fork();  // the child process ends without removing its file
  if (child == 0) {
    auto* const file = new NvmeFile({folder.path(), block, 1}, 0, block);
    char byte = file->direct();
    (void)!::write(ready[1], &byte, 1);
    (void)!::read(go[0], &byte, 1);
    ::_exit(0);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  fs::path const others = folder / ("tessera-scratch-" + std::to_string(child) + "-0-0.bin");
  {
    NvmeFile const first({folder.path(), block, 1}, 0, block), second({folder.path(), block, 1}, 0, block);
    CHECK(first.path() != second.path());
    CHECK(fs::exists(first.path()));
    CHECK(fs::exists(others));
    CHECK_FALSE(fs::exists(folder / "tessera-scratch-999999999-0-0.bin"));
  }
  REQUIRE(::write(go[1], &byte, 1) == 1);
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  for (int const end : {ready[0], ready[1], go[0], go[1]}) ::close(end);
  CHECK(fs::exists(others));
  NvmeFile const third({folder.path(), block, 1}, 0, block);
  CHECK_FALSE(fs::exists(others));
  CHECK(folder.entries() == 7);
}

TEST_CASE("NVMe: ranks of one process, and threads of one rank, do not collide") {
  TemporaryFolder const folder;
  for (tessera::OpenIoEngine const open : engines()) {
    NvmeFile shared({folder.path(), 2 * block, 3, open}, 9, 4 * 16 * block);
    std::array<bool, 4> right{};
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        NvmeFile own({folder.path(), 3 * block, 2, open}, rank, 16 * block);
        Bytes const out(16 * block, static_cast<unsigned char>(rank * 40 + 1));
        Bytes in(16 * block), in_shared(16 * block);
        for (int round = 0; round < 5; ++round) {
          own.write(0, out.data(), out.size());
          shared.write(rank * out.size(), out.data(), out.size());
          own.read(0, in.data(), in.size());
          shared.read(rank * out.size(), in_shared.data(), in.size());
        }
        right[static_cast<std::size_t>(rank)] = in == out && in_shared == out;
      });
    for (std::thread& rank : ranks) rank.join();
    CHECK(right == std::array<bool, 4>{true, true, true, true});
    CHECK(shared.bytes_written() == 4 * 5 * 16 * block);
  }
  CHECK(folder.entries() == 0);
}

TEST_CASE("NVMe: a new file is zero, also after a trial and where killed processes left theirs") {
  TemporaryFolder const folder;
  constexpr std::int64_t size = std::int64_t{64} << 20;
  file_support::write(folder / "tessera-scratch-999999999-0-0.bin", std::string(1 << 20, 'x'));
  for (tessera::OpenIoEngine const open : engines()) {
    NvmeFile file({folder.path(), 0, 0, open}, 0, size);
    CHECK(file.high_water() == 0);
    Bytes const zeros(4 << 20);
    Bytes in(4 << 20, 1);
    for (std::int64_t at = 0; at < size; at += in.size()) {
      file.read(at, in.data(), in.size());
      CHECK(in == zeros);
    }
  }
}

TEST_CASE("NVMe: requests and their number are tried once for a folder, unless they are given") {
  TemporaryFolder const folder;
  arm({-1, 0});
  auto const opened = [&](NvmeOptions const& options, std::int64_t bytes) {
    engines_opened = 0;
    NvmeFile const file(options, 0, bytes);
    CHECK((file.request_bytes() >= 256 << 10 && file.request_bytes() <= 4 << 20));
    CHECK((file.depth() >= 1 && file.depth() <= 32));
    return engines_opened.load();
  };
  constexpr std::int64_t large = std::int64_t{64} << 20;
  NvmeOptions const open{folder.path(), 0, 0, Faulty::open};
  CHECK(opened(open, large - block) == 1);  // for a file this small, no trial of request sizes is made
  CHECK(opened(open, large) > 1);
  CHECK(opened(open, large) == 1);
  NvmeOptions const half{folder.path(), 512 << 10, 0, Faulty::open};
  CHECK(opened(half, large) > 1);
  CHECK(NvmeFile(half, 0, large).request_bytes() == 512 << 10);
  CHECK(opened({folder.path(), 512 << 10, 3, Faulty::open}, large) == 1);
  // This request of the trial fails; the failure is not reported, and no result of the trial is stored.
  arm({3, -EIO});
  TemporaryFolder const other;
  CHECK(opened({other.path(), 0, 0, Faulty::open}, large) > 1);
}
