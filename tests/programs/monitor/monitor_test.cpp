// SPDX-License-Identifier: Apache-2.0
// Tests the parts of the program `monitor` that do not depend on a clock: summaries of values, the times at
// which samples are due, and the data about processes that the kernel reports.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "monitor/columns.hpp"
#include "monitor/files.hpp"
#include "monitor/processes.hpp"
#include "monitor/sampler.hpp"

namespace fs = std::filesystem;
namespace monitor = programs::monitor;

namespace {

/// A temporary folder with files in the format of /proc.
struct Proc {
  fs::path folder = fs::temp_directory_path() / ("tessera-proc-" + std::to_string(::getpid()));
  Proc() { fs::create_directories(folder); }
  ~Proc() { fs::remove_all(folder); }
  void write(std::string const& name, std::string const& text) const {
    fs::create_directories((folder / name).parent_path());
    std::ofstream(folder / name) << text;
  }
  /// Adds a process to the folder. `ticks` is its CPU time in clock ticks. `pages` is its memory in pages.
  void process(int pid, int parent, int ticks, int pages, std::string const& name = "a) R (b",
               char state = 'S') const {
    write(std::to_string(pid) + "/stat", std::to_string(pid) + " (" + name + ") " + state + " " +
                                             std::to_string(parent) + " 1 1 0 -1 4194304 9 9 9 9 " +
                                             std::to_string(ticks) + " 1 2 3 20 0 1 0 " +
                                             std::to_string(7000 + pid) + " 123456 " + std::to_string(pages) +
                                             " 18446744073709551615 1 1\n");
  }
};

std::string text_of(fs::path const& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a column's summary is that of the values as they are written") {
  monitor::Counts counts(1);
  CHECK_FALSE(counts.summary());
  CHECK(counts.add(1.04).dump() == "1.0");
  for (double const value : {4.0, 2.0, 2.0}) counts.add(value);
  auto const even = counts.summary().value();
  CHECK(even.samples == 4);
  CHECK(even.mean == doctest::Approx(2.25));
  CHECK(even.std == doctest::Approx(1.2583057));
  CHECK(even.min == 1.0);
  CHECK(even.max == 4.0);
  CHECK(even.median == 2.0);
  counts.add(100.0);
  counts.add(-3.0);
  CHECK(counts.summary()->median == 2.0);
  counts.add(3.0);
  counts.add(3.0);
  CHECK(counts.summary()->median == 2.5);  // all values are now -3 1 2 2 3 3 4 100
  monitor::Counts whole(0);
  CHECK(whole.add(61.0).dump() == "61");
  CHECK(whole.summary()->std == 0.0);
}

TEST_CASE("deadlines do not drift, and what is left out is counted") {
  monitor::Deadlines deadlines(10);
  for (std::int64_t at = 0; at < 100; ++at) {
    CHECK(deadlines.next() == at * 10);
    deadlines.taken(at * 10 + (at % 2 == 0 ? 9 : 3));
  }
  CHECK(deadlines.samples() == 100);
  CHECK(deadlines.late() == 0);
  deadlines.taken(1010);  // due at 1000; a delay of one interval is not late
  CHECK(deadlines.late() == 0);
  CHECK(deadlines.next() == 1010);
  deadlines.taken(1035);
  CHECK(deadlines.late() == 1);
  CHECK(deadlines.missed() == 2);
  CHECK(deadlines.next() == 1040);
}

TEST_CASE("lines of the kernel") {
  auto const line = monitor::parse_process(
      "17 (a) R 4 (x) S 12 1 1 0 -1 4194304 9 9 9 9 50 6 70 8 20 0 3 0 9000 123 456 18446744073709551615 "
      "1\n");
  REQUIRE(line);
  CHECK(line->state == 'S');
  CHECK(line->parent == 12);
  CHECK(line->ticks == 134);
  CHECK(line->started == 9000);
  CHECK(line->pages == 456);
  CHECK_FALSE(monitor::parse_process("17 (sh) S 12 1"));
  CHECK_FALSE(monitor::parse_process(""));
  auto const system = monitor::parse_system("cpu  10 20 30 400 50 6 7 8 9 10\ncpu0 1 2 3\n");
  REQUIRE(system);
  CHECK(system->busy == 81);
  CHECK(system->all == 531);
  CHECK_FALSE(monitor::parse_system("intr 1 2 3"));
}

TEST_CASE("a tree is the process and its descendants, whatever their ids") {
  Proc const proc;
  proc.process(50, 1, 100, 10);
  proc.process(40, 60, 1000, 3);  // a grandchild with a lower id, which is read before its parent
  proc.process(60, 50, 10, 2);
  proc.process(70, 1, 5, 5);
  monitor::ProcessTree tree(50, proc.folder.string());
  CHECK(tree.alive());
  auto use = tree.read().value();
  CHECK(use.processes == 3);
  CHECK(use.ticks == 1110 + 3 * 6);
  CHECK(use.pages == 15);
  fs::remove_all(proc.folder / "40");
  proc.process(80, 60, 0, 1);
  use = tree.read().value();
  CHECK(use.processes == 3);
  CHECK(use.pages == 13);
  proc.process(50, 1, 100, 10, "zombie", 'Z');
  CHECK_FALSE(tree.alive());
  CHECK_FALSE(tree.read());
  CHECK_FALSE(monitor::ProcessTree(51, proc.folder.string()).alive());
}

TEST_CASE("shares of all cores between two readings") {
  Proc const proc;
  proc.write("stat", "cpu  100 0 0 300 0 0 0 0 0 0\n");
  proc.process(50, 1, 40, 10);
  monitor::CpuUse use(50, proc.folder.string());
  auto reading = use.read();
  CHECK_FALSE(reading.util_pct);
  CHECK_FALSE(reading.process_util_pct);
  CHECK(reading.process_bytes == 10 * ::sysconf(_SC_PAGESIZE));
  CHECK(reading.processes == 1);
  proc.write("stat", "cpu  160 0 0 340 0 0 0 0 0 0\n");
  proc.process(50, 1, 65, 10);
  reading = use.read();
  CHECK(reading.util_pct == doctest::Approx(60.0));
  CHECK(reading.process_util_pct == doctest::Approx(25.0));
  fs::remove_all(proc.folder / "50");
  // Since the last reading, the clock has not advanced by a tick, and the process has ended.
  reading = use.read();
  CHECK_FALSE(reading.util_pct);
  CHECK_FALSE(reading.process_bytes);
  monitor::CpuUse none(0, proc.folder.string());
  CHECK_FALSE(none.read().processes);
}

TEST_CASE("readings of the cores do not drift") {
  Proc const proc;
  proc.process(50, 1, 100, 10);
  programs::nvml::Library const none("libno-such-nvml.so.1");
  constexpr std::size_t memory = 4;  // the index of a column that has a value in every reading
  monitor::Sampler same(none, monitor::CpuUse(50, proc.folder.string()), 100, 100);
  for (std::int64_t at = 0; at < 100; ++at)
    CHECK_FALSE(same.take(at * 100 + (at % 2 == 0 ? 40 : 3), 0.0)[memory].is_null());
  monitor::Sampler tenth(none, monitor::CpuUse(50, proc.folder.string()), 10, 100);
  for (std::int64_t at = 0; at < 1000; ++at)
    CHECK(tenth.take(at * 10 + at % 5, 0.0)[memory].is_null() == (at % 10 != 0));
  CHECK_FALSE(tenth.take(10095, 0.0)[memory].is_null());
  CHECK(tenth.take(10100, 0.0)[memory].is_null());  // only 5 ms after the last reading
  CHECK_FALSE(tenth.take(10200, 0.0)[memory].is_null());
}

TEST_CASE("a growing file is whole after every write") {
  Proc const folder;
  fs::path const path = folder.folder / "rows.json";
  monitor::GrowingFile file(path);
  monitor::GrowingFile const second(path);
  REQUIRE(second.error());
  CHECK(std::string(second.error()->what()).find("another run writes there") != std::string::npos);
  file.add("[1");
  file.write("]\n", false);
  CHECK(text_of(path) == "[1]\n");
  file.add(",2");
  file.write("]\n", false);
  CHECK(text_of(path) == "[1,2]\n");
  file.write(", 3]\n", true);
  CHECK(text_of(path) == "[1,2, 3]\n");
  CHECK_FALSE(file.error());
  monitor::GrowingFile full("/dev/full");
  full.add("x");
  full.write("y", false);
  REQUIRE(full.error());
  CHECK(std::string(full.error()->what()).find("/dev/full: cannot write") == 0);
  full.write("y", true);  // only the first error is reported; nothing is thrown
}
