// SPDX-License-Identifier: Apache-2.0
// Reads from /proc the CPU time of all cores, and the CPU time and the memory of a process with its
// descendants.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace programs {
namespace monitor {

/// The fields of a line of /proc/PID/stat that are used.
struct ProcessLine {
  std::int64_t parent = 0;
  char state = '?';
  /// CPU time in clock ticks, including children that ended and for which the process waited
  std::int64_t ticks = 0;
  /// start time in clock ticks; differs from that of a later process with the same id
  std::int64_t started = 0;
  std::int64_t pages = 0;  ///< number of resident pages
};
/// Returns the fields of a line of /proc/PID/stat; nullopt if it is invalid. The process name in parentheses
/// may contain any characters, including parentheses.
std::optional<ProcessLine> parse_process(std::string_view text);

/// The clock ticks of all cores since the system started, from the first line of /proc/stat.
struct SystemTicks {
  std::int64_t busy = 0, all = 0;
};
std::optional<SystemTicks> parse_system(std::string_view text);

/// A process (the root) and its descendants. The tree is found from the parent id of each process. A
/// descendant is missed if its parent ended before any reading saw both of them.
class ProcessTree {
 public:
  /// `root` is the process id of the root; 0 watches no process. `proc` is the folder of procfs.
  explicit ProcessTree(std::int64_t root, std::string proc = "/proc");

  /// Returns whether the root process still runs. A later process with the same id does not count.
  bool alive() const;

  struct Use {
    std::int64_t ticks = 0, pages = 0, processes = 0;
  };
  /// Returns the sums of CPU ticks, pages and processes over the tree; nullopt if the root has ended.
  std::optional<Use> read();

 private:
  std::optional<ProcessLine> line_of(std::int64_t pid) const;

  std::int64_t root_;
  std::string proc_;
  std::int64_t started_ = 0;
  std::map<std::int64_t, bool> known_;  ///< whether a process id seen so far belongs to the tree
};

/// Measures the CPU use of all cores and of a process tree since the previous reading, and the memory of the
/// tree. The kernel counts in clock ticks of usually 10 ms, so readings should be several ticks apart.
class CpuUse {
 public:
  explicit CpuUse(std::int64_t root, std::string proc = "/proc");

  struct Reading {
    /// in percent of all cores; absent in the first reading
    std::optional<double> util_pct, process_util_pct;
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
