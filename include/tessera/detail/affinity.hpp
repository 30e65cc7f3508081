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
#include <mutex>
#include <pthread.h>
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

/// The binding of one thread. All `BoundThread` objects of the thread share it.
struct Binding {
  pthread_t thread = pthread_self();  // the bound thread
  std::mutex mutex;                   // guards the members below
  bool ended = false;                 // the thread ends, so `thread` must not be used
  Cores before;                       // the mask of the thread before it was bound
  Cores share;                        // all cores of the rank to which the thread belongs
  int holders = 0;                    // the number of BoundThread objects of the thread
};

/// Owns the binding of the calling thread, and marks it as ended when the thread ends. A thread that still
/// restores the mask holds the mutex, so the bound thread cannot end before this is done.
struct BindingOfThread {
  BindingOfThread() = default;
  BindingOfThread(BindingOfThread const&) = delete;
  BindingOfThread& operator=(BindingOfThread const&) = delete;
  ~BindingOfThread() {
    if (!shared) return;
    std::lock_guard const lock(shared->mutex);
    shared->ended = true;
  }
  std::shared_ptr<Binding> shared;  // null: this thread was never bound
};
inline thread_local BindingOfThread binding;

/// An empty mask of the system for the cores 0 to `most` - 1. `set` is null if the allocation failed.
struct SystemMask {
  explicit SystemMask(std::size_t most) : bytes(CPU_ALLOC_SIZE(most)), set(CPU_ALLOC(most)) {
    if (set) CPU_ZERO_S(bytes, set);
  }
  SystemMask(SystemMask const&) = delete;
  SystemMask& operator=(SystemMask const&) = delete;
  ~SystemMask() { CPU_FREE(set); }
  std::size_t bytes;
  cpu_set_t* set;
};

/// Returns the affinity mask of the calling thread. Returns no cores if the system does not report it.
inline Cores mask_of_thread() {
  for (std::size_t most = 1024; most <= 1 << 20; most *= 4) {
    SystemMask const mask(most);
    if (!mask.set) break;
    if (::sched_getaffinity(0, mask.bytes, mask.set) != 0) {
      if (errno == EINVAL) continue;  // the system has more than `most` cores
      break;
    }
    Cores cores;
    for (std::size_t core = 0; core < most; ++core)
      if (CPU_ISSET_S(core, mask.bytes, mask.set)) cores.push_back(static_cast<int>(core));
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
  if (auto const& binding = detail::binding.shared) {
    std::lock_guard const lock(binding->mutex);
    if (binding->holders > 0) return binding->before;
  }
  Cores cores = detail::mask_of_thread();
  if (cores.empty())
    for (int core = 0; core < static_cast<int>(std::max(1u, std::thread::hardware_concurrency())); ++core)
      cores.push_back(core);
  return cores;
}

/// Returns the number of `allowed_cores`, at least 1.
inline int core_count() { return static_cast<int>(allowed_cores().size()); }

/// Sets the affinity mask of a thread, by default of the calling one. Returns 0, or the error number of the
/// system if it refuses the mask. Does nothing if `cores` is empty.
inline int bind_thread(Cores const& cores, pthread_t thread = pthread_self()) noexcept {
  if (cores.empty()) return 0;
  detail::SystemMask const mask(static_cast<std::size_t>(cores.back()) + 1);
  if (!mask.set) return ENOMEM;
  for (int const core : cores) CPU_SET_S(static_cast<std::size_t>(core), mask.bytes, mask.set);
  return pthread_setaffinity_np(thread, mask.bytes, mask.set);
}

/// Returns all cores of the rank to which the calling thread belongs, or no cores if Tessera has not bound
/// this thread. A thread that helps the rank, but does not compute, binds itself to these cores. Otherwise it
/// would inherit the one core of the thread that starts it.
inline Cores helper_cores() {
  auto const& binding = detail::binding.shared;
  if (!binding) return {};
  std::lock_guard const lock(binding->mutex);
  return binding->share;
}

/// Binds the thread that constructs this object to cores. When the last such object of the thread is
/// destroyed, restores the mask that the thread had before. Any thread may destroy the object. If the bound
/// thread has ended before, its mask is not restored.
class BoundThread {
 public:
  /// Binds the thread to `share`, the cores of its rank. Does nothing if `share` is empty.
  explicit BoundThread(Cores const& share) {
    if (share.empty()) return;
    Cores before = allowed_cores();
    auto& binding = detail::binding.shared;
    if (!binding) binding = std::make_shared<detail::Binding>();
    std::lock_guard const lock(binding->mutex);
    error_ = bind_thread(share);
    if (error_ != 0) return;
    if (binding->holders++ == 0) binding->before = std::move(before);
    binding->share = share;
    binding_ = binding;
  }
  BoundThread(BoundThread const&) = delete;
  BoundThread& operator=(BoundThread const&) = delete;
  ~BoundThread() {
    if (!binding_) return;
    std::lock_guard const lock(binding_->mutex);
    if (--binding_->holders > 0) return;
    binding_->share.clear();
    if (!binding_->ended) (void)bind_thread(binding_->before, binding_->thread);
  }

  /// Returns 0, or the error number of the system if it refused the mask.
  int error() const noexcept { return error_; }

 private:
  std::shared_ptr<detail::Binding> binding_;  // null: this object binds no thread
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
