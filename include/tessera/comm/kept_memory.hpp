// SPDX-License-Identifier: Apache-2.0
// Provides SharedDeviceMemory, device memory to which other ranks have access, and KeptMemory, such memory
// that ranks have given up while others can still write to it.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tessera/config.hpp"

namespace tessera {
inline namespace v0 {
namespace comm {
namespace detail {

/// Device memory that all ranks of a host have shared, as one rank sees it.
class SharedDeviceMemory {
 public:
  SharedDeviceMemory() = default;
  SharedDeviceMemory(SharedDeviceMemory const&) = delete;
  SharedDeviceMemory& operator=(SharedDeviceMemory const&) = delete;
  virtual ~SharedDeviceMemory() = default;

  /// Returns whether all collectives of this rank outside CUDA graphs are complete. Ignores CUDA graphs; the
  /// caller must have waited for them.
  virtual bool is_idle() const noexcept = 0;
  /// Ends the access of this rank to the memory of the others, and tells them so. All collectives must be
  /// complete.
  virtual void close() noexcept = 0;
  /// Returns whether the rank `rank` has called `close`.
  virtual bool closed_by(int rank) const noexcept = 0;
};

/// Shared memory that ranks have given up, but to which other ranks can still write. Any thread may use it.
class KeptMemory {
 public:
  explicit KeptMemory(int world) : world_(world) {}

  void add(std::shared_ptr<SharedDeviceMemory> memory) {
    std::lock_guard const lock(mutex_);
    kept_.push_back(std::move(memory));
    any_ = true;
  }
  /// Ends the access of this rank to the memory of the others. All memory must be this rank's.
  void close() {
    std::lock_guard const lock(mutex_);
    for (auto const& memory : kept_) memory->close();
  }
  /// Ends the access of each rank whose collectives have become complete.
  void close_idle() {
    if (!any_) return;
    std::lock_guard const lock(mutex_);
    for (auto const& memory : kept_)
      if (memory->is_idle()) memory->close();
  }
  /// Frees the memory to which no rank has access.
  void free_closed() {
    if (!any_) return;
    std::vector<std::shared_ptr<SharedDeviceMemory>> closed;  // destroyed without the lock
    std::lock_guard const lock(mutex_);
    auto const still_open = std::stable_partition(kept_.begin(), kept_.end(), [this](auto const& memory) {
      for (int rank = 0; rank < world_; ++rank)
        if (!memory->closed_by(rank)) return true;
      return false;
    });
    closed.assign(still_open, kept_.end());
    kept_.erase(still_open, kept_.end());
    any_ = !kept_.empty();
  }
  bool empty() const { return !any_; }

 private:
  int const world_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<SharedDeviceMemory>> kept_;
  std::atomic<bool> any_{false};
};

}  // namespace detail
}  // namespace comm
}  // namespace v0
}  // namespace tessera
