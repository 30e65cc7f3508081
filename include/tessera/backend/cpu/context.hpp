// SPDX-License-Identifier: Apache-2.0
// The CPU's context: operations run inline, on the pool, within a workspace that is given once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "tessera/backend/cpu/pool.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"

namespace tessera::inline v0 {

/// Runs operations on the CPU: `enqueue` returns when the work is done. A step allocates nothing: whatever an
/// operation needs is in the workspace, a fixed budget for each worker that serves every shape and type.
template <>
class Context<Cpu> {
 public:
  using place_type = Cpu;
  /// What one worker has: packed operands, tiles of sums, attention's tiles.
  static constexpr std::size_t scratch_bytes = std::size_t{3} << 20;

  /// Bytes of workspace that a context with this many threads needs.
  static constexpr std::size_t workspace_bytes(int threads) {
    return static_cast<std::size_t>(threads < 1 ? 1 : threads) * scratch_bytes + alignment;
  }

  /// `workspace` stays the caller's and must outlive the context; with a recorder it may be empty. Throws
  /// Error(usage) when it is too small.
  Context(int threads, std::span<std::byte> workspace, Recorder* recorder = nullptr)
      : recorder_(recorder), pool_(recorder ? 1 : threads) {
    if (recorder) return;
    if (workspace.size() < workspace_bytes(pool_.threads()))
      throw Error(ErrorKind::usage, "the CPU context has " + std::to_string(workspace.size()) +
                                        " bytes of workspace for " + std::to_string(pool_.threads()) +
                                        " threads, which need " +
                                        std::to_string(workspace_bytes(pool_.threads())) +
                                        ": size it with workspace_bytes(threads)");
    auto const address = reinterpret_cast<std::uintptr_t>(workspace.data());
    scratch_ = workspace.data() + (alignment - address % alignment) % alignment;
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  cpu::ThreadPool& pool() noexcept { return pool_; }

  /// This worker's own memory, aligned to 64 bytes; its content lasts until the operation ends.
  std::span<std::byte> worker_scratch(int worker) noexcept {
    return {scratch_ + static_cast<std::size_t>(worker) * scratch_bytes, scratch_bytes};
  }

  Recorder* recorder() const noexcept { return recorder_; }

  /// Runs the body now, or reports the operation to the recorder instead.
  template <class F>
  void enqueue(Operation const& operation, F&& body) noexcept {
    if (recorder_)
      recorder_->operation(operation);
    else
      std::forward<F>(body)();
  }

  /// Host code that joins a step in the order of its lane: runs after everything enqueued before it, and
  /// before everything enqueued after. The only way for it. Here, inline; `work` receives the context of the
  /// host.
  template <class F>
  void host_task(Operation const& operation, F&& work) noexcept {
    enqueue(operation, [&] { work(*this); });
  }

  /// Everything enqueued is done: nothing to wait for here. A step never calls it.
  void synchronize() noexcept {
    if (recorder_) recorder_->violation("synchronize");
  }

 private:
  static constexpr std::size_t alignment = 64;
  Recorder* recorder_;
  cpu::ThreadPool pool_;
  std::byte* scratch_ = nullptr;
};

}  // namespace tessera::inline v0
