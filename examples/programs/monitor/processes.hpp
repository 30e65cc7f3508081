// SPDX-License-Identifier: Apache-2.0
// What the kernel counts of all cores and of a process with its descendants.
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
  std::int64_t ticks = 0;    ///< of CPU, with those of children that ended and were waited for
  std::int64_t started = 0;  ///< tells a process from a later one with its id
  std::int64_t pages = 0;    ///< resident
};
/// Reads one: the name in brackets may hold anything, brackets too.
std::optional<ProcessLine> parse_process(std::string_view text);

/// Ticks of all cores since the system started: the first line of /proc/stat.
struct SystemTicks {
  std::int64_t busy = 0, all = 0;
};
std::optional<SystemTicks> parse_system(std::string_view text);

/// A process and its descendants: those that are found while their parents live.
class ProcessTree {
 public:
  /// `root`: 0 watches none. `proc`: where the kernel shows processes.
  explicit ProcessTree(std::int64_t root, std::string proc = "/proc");

  /// Whether the root runs: not ended, nor replaced by another process with its id.
  bool alive() const;

  struct Use {
    std::int64_t ticks = 0, pages = 0, processes = 0;
  };
  /// Sums over the tree; nothing when the root has ended.
  std::optional<Use> read();

 private:
  std::optional<ProcessLine> line_of(std::int64_t pid) const;

  std::int64_t root_;
  std::string proc_;
  std::int64_t started_ = 0;
  std::map<std::int64_t, bool> known_;  ///< ids that were seen, and whether they belong to the tree
};

/// Shares of all cores between two readings, and what a tree holds. The kernel counts in ticks, mostly of 10
/// ms: readings should lie several of them apart.
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
