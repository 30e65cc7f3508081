// SPDX-License-Identifier: Apache-2.0
// Reads CPU time and memory from /proc: of all cores, and of a process with its descendants.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace programs {
namespace monitor {

/// A line of /proc/PID/stat.
struct ProcessLine {
  std::int64_t parent = 0;
  char state = '?';
  std::int64_t ticks = 0;    ///< CPU ticks, including children that ended and were waited for
  std::int64_t started = 0;  ///< start time, which distinguishes processes with the same id
  std::int64_t pages = 0;    ///< resident
};
/// Parses such a line. The process name in brackets may contain any characters, also brackets.
std::optional<ProcessLine> parse_process(std::string_view text);

/// Ticks of all cores since the system started, from the first line of /proc/stat.
struct SystemTicks {
  std::int64_t busy = 0, all = 0;
};
std::optional<SystemTicks> parse_system(std::string_view text);

/// A process and its descendants. A descendant is found if its parent still ran when both were listed.
class ProcessTree {
 public:
  /// `root` is the process id; 0 watches no process. `proc` is the mount point of procfs.
  explicit ProcessTree(std::int64_t root, std::string proc = "/proc");

  /// Returns whether the root process is still running. Detects that its id was reused.
  bool alive() const;

  struct Use {
    std::int64_t ticks = 0, pages = 0, processes = 0;
  };
  /// Returns the sums of CPU time and memory over the tree; nullopt if the root has ended.
  std::optional<Use> read();

 private:
  std::optional<ProcessLine> line_of(std::int64_t pid) const;

  std::int64_t root_;
  std::string proc_;
  std::int64_t started_ = 0;
  std::map<std::int64_t, bool> known_;  ///< ids seen so far, and whether they belong to the tree
};

/// Measures the CPU use of all cores and of a process tree since the previous reading, and the tree's memory.
/// The kernel counts in ticks of usually 10 ms, so readings should be several ticks apart.
class CpuUse {
 public:
  explicit CpuUse(std::int64_t root, std::string proc = "/proc");

  struct Reading {
    std::optional<double> util_pct, process_util_pct;  ///< absent in the first reading
    std::optional<std::int64_t> process_bytes, processes;
  };
  Reading read();
  bool alive() const { return tree_.alive(); }

 private:
  std::string proc_;
  ProcessTree tree_;
  std::optional<SystemTicks> system_;
  std::optional<std::int64_t> ticks_;
};

}  // namespace monitor
}  // namespace programs
