// SPDX-License-Identifier: Apache-2.0
// Reports on which CPU cores a thread may run, and binds threads to cores. A core here is a logical CPU of
// Linux. A core has the same number as in /proc/cpuinfo and in taskset.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <sched.h>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace affinity {

/// Numbers of cores, in ascending order.
using Cores = std::vector<int>;

/// Returns the cores of a list such as "0-3,8", the form of Linux and of taskset. Stops at the first
/// character that does not belong to a list.
inline Cores cores_in(std::string_view list) {
  Cores cores;
  std::string const text(list);
  for (char const* at = text.c_str();;) {
    char* end = nullptr;
    long const first = std::strtol(at, &end, 10);
    if (end == at || first < 0) break;
    long last = first;
    if (*end == '-') {
      at = end + 1;
      last = std::strtol(at, &end, 10);
      if (end == at || last - first > 1 << 20) break;
    }
    for (long core = first; core <= last; ++core) cores.push_back(static_cast<int>(core));
    if (*end != ',') break;
    at = end + 1;
  }
  std::sort(cores.begin(), cores.end());
  cores.erase(std::unique(cores.begin(), cores.end()), cores.end());
  return cores;
}

/// Returns the list of some cores, such as "0-3,8"; "" for no cores.
inline std::string text_of(Cores const& cores) {
  std::string text;
  for (std::size_t from = 0, to = 0; from < cores.size(); from = to) {
    for (to = from + 1; to < cores.size() && cores[to] == cores[to - 1] + 1;) ++to;
    text += (text.empty() ? "" : ",") + std::to_string(cores[from]);
    if (to - from > 1) text += "-" + std::to_string(cores[to - 1]);
  }
  return text;
}

namespace detail {

/// The binding of one thread. Several `BoundThread` objects can exist for one thread.
struct Binding {
  Cores before;     // the mask of the thread before it was bound
  Cores share;      // all cores of the rank to which the thread belongs
  int holders = 0;  // the number of BoundThread objects of the thread
};
inline thread_local Binding binding;

/// An empty mask of the system for the cores 0 to `most` - 1. `set` is null if the allocation failed.
struct SystemMask {
  explicit SystemMask(std::size_t most)
      : bytes(CPU_ALLOC_SIZE(most)), set(CPU_ALLOC(most), [](cpu_set_t* allocated) { CPU_FREE(allocated); }) {
    if (set) CPU_ZERO_S(bytes, set.get());
  }
  std::size_t bytes;
  std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> set;
};

/// Returns the affinity mask of the calling thread. Returns no cores if the system does not report it.
inline Cores mask_of_thread() {
  for (std::size_t most = 1024; most <= 1 << 20; most *= 4) {
    SystemMask const mask(most);
    if (!mask.set) break;
    if (::sched_getaffinity(0, mask.bytes, mask.set.get()) != 0) {
      if (errno == EINVAL) continue;  // the system has more than `most` cores
      break;
    }
    Cores cores;
    for (std::size_t core = 0; core < most; ++core)
      if (CPU_ISSET_S(core, mask.bytes, mask.set.get())) cores.push_back(static_cast<int>(core));
    return cores;
  }
  return {};
}

/// Returns the first line of a file, or "" if it cannot be read.
inline std::string line_of(std::string const& path) {
  std::string line;
  if (std::FILE* const file = std::fopen(path.c_str(), "re")) {
    for (int c = 0; (c = std::fgetc(file)) != EOF && c != '\n';) line += static_cast<char>(c);
    std::fclose(file);
  }
  return line;
}

}  // namespace detail

/// Returns the cores on which the threads of this process may run, as set by taskset, numactl, SLURM or a
/// container. Reads the mask of the calling thread; if Tessera has bound this thread, returns its mask from
/// before. If the system does not report a mask, returns all cores of the machine. Costs a system call.
inline Cores allowed_cores() {
  if (detail::binding.holders > 0) return detail::binding.before;
  Cores cores = detail::mask_of_thread();
  if (cores.empty())
    for (int core = 0; core < static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); ++core)
      cores.push_back(core);
  return cores;
}

/// Returns the number of `allowed_cores`, at least 1.
inline int core_count() { return static_cast<int>(allowed_cores().size()); }

/// Sets the affinity mask of the calling thread. Returns 0, or the error number of the system if it refuses
/// the mask. Does nothing if `cores` is empty.
inline int bind_thread(Cores const& cores) noexcept {
  if (cores.empty()) return 0;
  detail::SystemMask const mask(static_cast<std::size_t>(cores.back()) + 1);
  if (!mask.set) return ENOMEM;
  for (int const core : cores) CPU_SET_S(static_cast<std::size_t>(core), mask.bytes, mask.set.get());
  return ::sched_setaffinity(0, mask.bytes, mask.set.get()) == 0 ? 0 : errno;
}

/// Returns all cores of the rank to which the calling thread belongs, or no cores if Tessera has not bound
/// this thread. A thread that helps the rank, but does not compute, binds itself to these cores. Otherwise it
/// would inherit the one core of the thread that starts it.
inline Cores helper_cores() { return detail::binding.share; }

/// Binds the thread that constructs this object to cores. When the last such object of the thread is
/// destroyed on the same thread, restores the mask that the thread had before.
class BoundThread {
 public:
  /// Binds the thread to `share`, the cores of its rank. Does nothing if `share` is empty.
  explicit BoundThread(Cores const& share) : thread_(std::this_thread::get_id()) {
    if (share.empty()) return;
    Cores before = allowed_cores();
    error_ = bind_thread(share);
    active_ = error_ == 0;
    if (!active_) return;
    detail::binding.before = std::move(before);
    detail::binding.share = share;
    ++detail::binding.holders;
  }
  BoundThread(BoundThread const&) = delete;
  BoundThread& operator=(BoundThread const&) = delete;
  ~BoundThread() {
    if (!active_ || thread_ != std::this_thread::get_id() || --detail::binding.holders > 0) return;
    detail::binding.share.clear();
    (void)bind_thread(detail::binding.before);
  }

  /// Returns 0, or the error number of the system if it refused the mask.
  int error() const noexcept { return error_; }

 private:
  std::thread::id thread_;
  bool active_ = false;
  int error_ = 0;
};

/// Returns the NUMA nodes that have some of `cores`, each with these cores, in the order of the nodes. If the
/// node of some cores is not known, these cores are the last element, with the node -1. `root` is the folder
/// of the system with the nodes.
inline std::vector<std::pair<int, Cores>> nodes_of(Cores const& cores,
                                                   std::string const& root = "/sys/devices/system/node") {
  std::vector<std::pair<int, Cores>> nodes;
  Cores rest = cores;
  for (int const node : cores_in(detail::line_of(root + "/online"))) {
    Cores const all = cores_in(detail::line_of(root + "/node" + std::to_string(node) + "/cpulist"));
    Cores here, others;
    std::set_intersection(rest.begin(), rest.end(), all.begin(), all.end(), std::back_inserter(here));
    std::set_difference(rest.begin(), rest.end(), all.begin(), all.end(), std::back_inserter(others));
    if (!here.empty()) nodes.emplace_back(node, std::move(here));
    rest = std::move(others);
  }
  if (!rest.empty()) nodes.emplace_back(-1, std::move(rest));
  return nodes;
}

}  // namespace affinity
}  // namespace v0
}  // namespace tessera
