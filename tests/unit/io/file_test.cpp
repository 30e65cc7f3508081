// SPDX-License-Identifier: Apache-2.0
// Tests files that the library writes either completely or not at all. Covers commit, files that are never
// committed, failed writes, links, devices, and errors that are found before anything is written.
#include "tessera/io/file.hpp"

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/data/file_bytes.hpp"
#include "tessera/io/step_log.hpp"

#include "support/file_support.hpp"

namespace ts = tessera;
using file_support::read;
using file_support::TemporaryFolder;
using file_support::thrown_as_nobody;
using file_support::write;

namespace {

/// Limits the size of every file that this process writes to `bytes` bytes. A write beyond the limit fails,
/// as it does on a full disk. The destructor restores the previous limit.
class SizeLimit {
 public:
  explicit SizeLimit(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    rlimit const limit{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~SizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

}  // namespace

TEST_CASE("a file appears at commit and not before") {
  TemporaryFolder folder;
  auto const path = folder / "out.txt";
  std::string const large(1'000'000, 'x');
  {
    ts::AtomicFile file(path);
    file.write("hello ");
    file.write(large);
    file.write(" end");
    CHECK(file.size() == 1'000'010);
    CHECK(file.path() == path);
    CHECK(!std::filesystem::exists(path));
    file.commit();
    CHECK(read(path) == "hello " + large + " end");
    CHECK_ERROR(usage, file.commit(), "out.txt", "already committed");
  }
  CHECK(read(path).size() == 1'000'010);
  CHECK(folder.entries() == 1);
  struct stat status {};
  REQUIRE(::stat(path.c_str(), &status) == 0);
  ::mode_t const mask = ::umask(0);
  ::umask(mask);
  CHECK((status.st_mode & 0777u) == (0666u & ~mask));
}

TEST_CASE("without a commit the old file stays and nothing is left") {
  TemporaryFolder folder;
  auto const path = write(folder / "out.txt", "old");
  {
    ts::AtomicFile file(path);
    file.write(std::string(600'000, 'n'));
    CHECK(folder.entries() == 2);
  }
  CHECK(read(path) == "old");
  CHECK(folder.entries() == 1);
  try {
    ts::AtomicFile file(path);
    file.write("new");
    throw std::runtime_error("in the middle");
  } catch (std::runtime_error const&) {
  }
  CHECK(read(path) == "old");
  CHECK(folder.entries() == 1);
  {
    ts::AtomicFile first(path);
    first.write("moved");
    ts::AtomicFile second(std::move(first));
    second.write("!");
    second.commit();
  }
  CHECK(read(path) == "moved!");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a write that fails names path and reason and leaves the old file") {
  TemporaryFolder folder;
  auto const path = write(folder / "out.bin", "old");
  {
    SizeLimit const limit(100'000);
    CHECK_ERROR(failed, ts::write_file(path, std::string(300'000, 'x')), "out.bin: cannot write",
                "File too large");
    CHECK_ERROR(failed, ts::write_file(path, std::string(200'000, 'x')),
                "out.bin: cannot write");  // only the write during the commit fails
  }
  CHECK(read(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a process killed while it writes leaves a whole file") {
  TemporaryFolder folder;
  std::size_t const size = 400'000;
  auto const path = write(folder / "out.bin", std::string(size, 'a'));
  for (int kill = 0; kill < 20; ++kill) {
    ::pid_t const child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      for (char letter = 'b';; letter = letter == 'z' ? 'b' : static_cast<char>(letter + 1)) {
        ts::AtomicFile file(path);
        std::string const piece(1000, letter);
        for (std::size_t written = 0; written < size; written += piece.size()) file.write(piece);
        file.commit();
      }
    }
    ::usleep(static_cast<::useconds_t>(500 + 700 * kill));
    REQUIRE(::kill(child, SIGKILL) == 0);
    REQUIRE(::waitpid(child, nullptr, 0) == child);
    std::string const text = read(path);
    CHECK(text.size() == size);
    CHECK(text.find_first_not_of(text[0]) == std::string::npos);
  }
}

TEST_CASE("what a killed process left is swept by the next file there and nothing else is") {
  TemporaryFolder folder;
  ::pid_t const child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ts::AtomicFile file(folder / "out.bin");
    file.write(std::string(400'000, 'x'));
    ::kill(::getpid(), SIGKILL);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  CHECK(folder.entries() == 1);
  ts::check_writable(folder / "out.bin");
  CHECK(folder.entries() == 1);
  for (char const* name : {".tessera-1-0123456789abcdef", ".tessera-1-0123456789abcdeg.tmp",
                           ".tessera--0123456789abcdef.tmp", ".tessera-1x-0123456789abcdef.tmp",
                           ".tessera-1-0123456789abcdef0.tmp", "tessera-1-0123456789abcdef.tmp"})
    write(folder / name, "of somebody else");
  std::filesystem::create_directory(folder / ".tessera-1-0123456789abcde0.tmp");
  std::filesystem::create_symlink("nowhere", folder / ".tessera-1-0123456789abcde1.tmp");
  write(folder / ".tessera-1-0123456789abcde2.tmp", "of a process that is gone");
  std::size_t const others = 8;
  ts::AtomicFile first(folder / "first");
  CHECK(folder.entries() == others + 1);
  {
    ts::AtomicFile second(folder / "second");  // must not remove the temporary file of `first`
    CHECK(folder.entries() == others + 2);
    second.commit();
  }
  first.write("whole");
  first.commit();
  CHECK(read(folder / "first") == "whole");
  CHECK(folder.entries() == others + 2);
}

TEST_CASE("files for which there is no room are refused with their bytes") {
  TemporaryFolder folder;
  std::int64_t const huge = std::int64_t{1} << 61;
  auto const save = folder / "save", log = folder / "log";
  ts::check_free_space({{save, 1}, {log, 1, true}});
  CHECK_ERROR(failed, ts::check_free_space({{save, huge}}),
              "save: needs 2,305,843,009,213,693,952 bytes, and ",
              " are free on its disk; free some space or write elsewhere");
  CHECK_ERROR(failed, ts::check_free_space({{save, 1}, {log, huge, true}}),
              "log: needs 2,305,843,009,213,693,953 bytes, together with " + save.string() + ", and ");
  ts::check_free_space({{"/dev/null", huge}});
  CHECK_ERROR(failed, ts::check_free_space({{folder / "no/file", 1}}), "no/file: cannot write, the folder");
  CHECK(folder.entries() == 0);
}

TEST_CASE("a full disk is reported as one") {
  if (!std::filesystem::exists("/dev/full")) return;
  CHECK_ERROR(failed, ts::write_file("/dev/full", "text"), "/dev/full: cannot write",
              "No space left on device", "the disk is full");
}

TEST_CASE("devices and pipes get their bytes directly") {
  ts::write_file("/dev/null", "text");
  CHECK(std::filesystem::is_character_file("/dev/null"));
  ts::check_writable("/dev/null");
}

TEST_CASE("a link is followed and the mode of the old file kept") {
  TemporaryFolder folder;
  auto const target = write(folder / "sub/target", "old");
  ::chmod(target.c_str(), 0640);
  std::filesystem::create_symlink("sub/target", folder / "link");
  ts::write_file(folder / "link", "new");
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(read(target) == "new");
  struct stat status {};
  REQUIRE(::stat(target.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777u) == 0640u);
}

TEST_CASE("a pipe or socket by its name and a link to nothing are refused without waiting") {
  TemporaryFolder folder;
  auto const pipe = folder / "pipe", plug = folder / "socket", link = folder / "link";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  int const socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  REQUIRE(plug.native().copy(address.sun_path, sizeof address.sun_path - 1) == plug.native().size());
  REQUIRE(::bind(socket, reinterpret_cast<sockaddr const*>(&address), sizeof address) == 0);
  std::filesystem::create_symlink("nowhere", link);
  for (auto const& refused : {std::function<void(std::filesystem::path const&)>(ts::check_writable),
                              {[](std::filesystem::path const& path) { ts::write_file(path, "text"); }},
                              {[](std::filesystem::path const& path) { ts::JsonlLog log(path); }}}) {
    CHECK_ERROR(failed, refused(pipe), "pipe: is a named pipe", "give the name of a file");
    CHECK_ERROR(failed, refused(plug), "socket: is a socket", "give the name of a file");
    CHECK_ERROR(failed, refused(link), "link: is a link to nowhere, which does not exist");
  }
  ::close(socket);
  CHECK(std::filesystem::is_symlink(link));
  CHECK(folder.entries() == 3);
}

TEST_CASE("an open pipe is written as /dev/stdout is, and one without a reader is an error") {
  // SIGPIPE would end the process at a write to a pipe without a reader. If the signal is ignored, the write
  // fails instead.
  auto* const before = std::signal(SIGPIPE, SIG_IGN);
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  std::string const path = "/dev/fd/" + std::to_string(ends[1]);
  ts::check_writable(path);
  ts::write_file(path, "text");
  char text[8] = {};
  CHECK(::read(ends[0], text, sizeof text) == 4);
  CHECK(std::string(text) == "text");
  ::close(ends[0]);
  CHECK_ERROR(failed, ts::write_file(path, "text"), path.c_str(),
              "cannot");  // depending on the system, either open or write fails
  ::close(ends[1]);
  std::signal(SIGPIPE, before);
}

TEST_CASE("a path that cannot be written is refused early and leaves nothing") {
  TemporaryFolder folder;
  ts::check_writable(folder / "new.json");
  CHECK(folder.entries() == 0);
  ts::check_writable(write(folder / "old.json", "old"));
  CHECK(read(folder / "old.json") == "old");
  CHECK(folder.entries() == 1);

  CHECK_ERROR(failed, ts::check_writable(folder / "no/such/out.json"), "no/such/out.json: cannot write",
              "does not exist", "create it first");
  CHECK(!std::filesystem::exists(folder / "no"));
  CHECK_ERROR(failed, ts::check_writable(folder.path()), "is a folder");
  CHECK_ERROR(failed, ts::check_writable(folder / "new/"), "new/: is a folder that does not exist");
  CHECK_ERROR(usage, ts::check_writable(""), "empty output path");
  CHECK_ERROR(failed, ts::check_writable(folder / "old.json/out"), "old.json/out: cannot write",
              "Not a directory");
  CHECK_ERROR(failed, ts::check_writable(folder / std::string(300, 'n')), "nnn: cannot write",
              "File name too long");
  CHECK_ERROR(failed, ts::AtomicFile(folder / "no/out.json"), "no/out.json", "does not exist");
  CHECK(folder.entries() == 1);

  ::chmod(folder.path().c_str(), 0555);
  auto const closed = thrown_as_nobody([&] { ts::check_writable(folder / "new.json"); });
  auto const file = thrown_as_nobody([&] { ts::write_file(folder / "new.json", "x"); });
  ::chmod((folder / "old.json").c_str(), 0444);
  auto const old = thrown_as_nobody([&] { ts::check_writable(folder / "old.json"); });
  ::chmod(folder.path().c_str(), 0755);
  CHECK(closed.kind == ts::ErrorKind::failed);
  CHECK(file_support::has(closed.text, "new.json: cannot create a file in its folder (Permission denied)"));
  CHECK(file_support::has(closed.text, "give a path that may be written"));
  CHECK(file_support::has(file.text, "new.json: cannot create a file in its folder (Permission denied)"));
  CHECK(file_support::has(old.text, "old.json: cannot write (Permission denied)"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("output folders are checked without creating them") {
  TemporaryFolder folder;
  ts::check_writable_folder(folder.path());
  ts::check_writable_folder(folder / "a/b/c");
  CHECK(folder.entries() == 0);
  CHECK_ERROR(failed, ts::check_writable_folder(write(folder / "file", "x")), "file: cannot be used",
              "not a folder");
  CHECK_ERROR(failed, ts::check_writable_folder(folder / "file/below"), "file/below: cannot be used");
  CHECK_ERROR(usage, ts::check_writable_folder(""), "empty output folder");
  ::chmod(folder.path().c_str(), 0555);
  auto const closed = thrown_as_nobody([&] { ts::check_writable_folder(folder / "a/b"); });
  ::chmod(folder.path().c_str(), 0755);
  CHECK(file_support::has(closed.text, "a/b: cannot create files in " + folder.path().string()));
  ::chmod(folder.path().c_str(), 0600);
  auto const hidden = thrown_as_nobody([&] { ts::check_writable_folder(folder / "a/b"); });
  ::chmod(folder.path().c_str(), 0755);
  CHECK(file_support::has(
      hidden.text, "a/b: cannot get the status of " + (folder / "a/b").string() + " (Permission denied)"));
  ts::make_folder(folder / "a/b/c");
  ts::make_folder(folder / "a/b/c");
  CHECK(std::filesystem::is_directory(folder / "a/b/c"));
  CHECK_ERROR(failed, ts::make_folder(folder / "file"), "file: cannot create the folder", "Not a directory");
  CHECK_ERROR(failed, ts::make_folder(folder / "file/x"), "file/x: cannot create the folder");
}

TEST_CASE("the bytes of a file are all of them") {
  TemporaryFolder folder;
  for (std::size_t const size : {0u, 1u, 65'536u, 65'537u, 300'000u}) {
    std::string text(size, '\0');
    for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7);
    auto bytes = ts::FileBytes::open(write(folder / "f", text));
    ts::FileBytes const moved = std::move(bytes);
    CHECK(std::string(reinterpret_cast<char const*>(moved.data()), moved.size()) == text);
  }
  CHECK_ERROR(data, ts::FileBytes::open(folder.path()), "is a folder");
}

TEST_CASE("numbers and names in messages") {
  CHECK(ts::files::with_commas(0) == "0");
  CHECK(ts::files::with_commas(999) == "999");
  CHECK(ts::files::with_commas(1000) == "1,000");
  CHECK(ts::files::with_commas(2'590'123) == "2,590,123");
  CHECK(ts::files::with_commas(-123) == "-123");
  CHECK(ts::files::with_commas(-1234) == "-1,234");
  CHECK(ts::files::printable("a\nb\x7f") == "a\\x0ab\\x7f");
  CHECK(ts::files::printable("\xc2\x9b"
                             "2J") == "\\xc2\\x9b2J");  // U+009B is the control character CSI
  CHECK(ts::files::printable("\xe2\x80\xae"
                             "cba") == "\\xe2\\x80\\xaecba");  // U+202E switches to right-to-left text
  CHECK(ts::files::printable("\xef\xbb\xbf#version") == "\\xef\\xbb\\xbf#version");
  CHECK(ts::files::printable("\xc2\xa0\xc3\xa9\xe2\x80\x8d\xe2\x80\x94") ==
        "\xc2\xa0\xc3\xa9\xe2\x80\x8d\xe2\x80\x94");
  CHECK(ts::files::printable(std::string(300, 'a')) == std::string(200, 'a') + "...");
}

TEST_CASE("a log line is on the disk when write returns") {
  TemporaryFolder folder;
  auto const path = write(folder / "log.jsonl", "old line\n");
  {
    ts::JsonlLog log(path);
    log.note({{"event", "start"}, {"ranks", 2}});
    CHECK(read(path) == "{\"event\":\"start\",\"ranks\":2}\n");
    log.write({.step = 1,
               .loss = 5.5,
               .grad_norm = 0.25,
               .lr = 1e-3,
               .scale = 65536,
               .tokens_per_sec = 1000,
               .ms = 2});
    log.write({.step = 2,
               .loss = 0.1,
               .grad_norm = std::numeric_limits<double>::infinity(),
               .skipped = true,
               .ms = 0.1 + 0.2});
    CHECK(read(path) ==
          "{\"event\":\"start\",\"ranks\":2}\n"
          "{\"step\":1,\"loss\":5.5,\"grad_norm\":0.25,\"lr\":0.001,\"scale\":65536.0,\"skipped\":false,"
          "\"tokens_per_sec\":1000.0,\"ms\":2.0}\n"
          "{\"step\":2,\"loss\":0.1,\"grad_norm\":null,\"lr\":0.0,\"scale\":1.0,\"skipped\":true,"
          "\"tokens_per_sec\":0.0,\"ms\":0.30000000000000004}\n");
    CHECK_ERROR(usage, log.note({{"step", 3}}), "log.jsonl", "without the field step");
    CHECK_ERROR(usage, log.note("text"), "must be a JSON object");
  }
  ts::JsonlLog(path, true).note({{"event", "again"}});
  CHECK(read(path).ends_with("}\n{\"event\":\"again\"}\n"));
  CHECK_ERROR(failed, ts::JsonlLog(folder / "no/log.jsonl"), "no/log.jsonl", "does not exist");
  if (std::filesystem::exists("/dev/full"))
    CHECK_ERROR(failed, ts::JsonlLog("/dev/full").note({{"a", 1}}), "/dev/full: cannot write",
                "the disk is full");
}

TEST_CASE("a log that a run writes is no other's") {
  TemporaryFolder folder;
  auto const path = folder / "log.jsonl";
  {
    ts::JsonlLog log(path);
    log.note({{"event", "start"}});
    for (bool const append : {false, true})
      CHECK_ERROR(failed, ts::JsonlLog(path, append), "log.jsonl: another run writes there", "another name");
    CHECK_ERROR(failed, ts::check_writable(path), "log.jsonl: another run writes there");
    CHECK(read(path) == "{\"event\":\"start\"}\n");
  }
  ts::check_writable(path);
  ts::JsonlLog(path, true).note({{"event", "again"}});
  CHECK(read(path) == "{\"event\":\"start\"}\n{\"event\":\"again\"}\n");
}

TEST_CASE("a full disk under a log leaves whole lines, and the log goes on when there is room") {
  TemporaryFolder folder;
  auto const path = folder / "log.jsonl";
  ts::JsonlLog log(path);
  log.note({{"event", "start"}});
  {
    SizeLimit const limit(50);  // the next line does not fit into 50 bytes
    CHECK_ERROR(failed, log.write({.step = 1, .loss = 5.5}), "log.jsonl: cannot write");
    CHECK(read(path) == "{\"event\":\"start\"}\n");
    CHECK_ERROR(failed, log.write({.step = 2, .loss = 5.25}), "log.jsonl: cannot write");
  }
  log.note({{"event", "again"}});
  CHECK(read(path) == "{\"event\":\"start\"}\n{\"event\":\"again\"}\n");
}
