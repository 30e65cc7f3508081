// SPDX-License-Identifier: Apache-2.0
// Provides the context of the CPU, which runs operations immediately on a thread pool. The caller provides
// the workspace (scratch memory).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "tessera/backend/cpu/pool.hpp"
#include "tessera/backend/math.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/detail/affinity.hpp"

namespace tessera {
inline namespace v0 {

/// Runs operations on the CPU; `enqueue` returns when the work is done. A step allocates no memory:
/// operations use only the workspace. Each worker has a fixed part of the workspace, which is enough for
/// every shape and type.
template <>
class Context<Cpu> : public MathChannel {
 public:
  using place_type = Cpu;
  /// The size of one worker's scratch memory, in bytes. It contains packed operands, tiles of sums, and the
  /// tiles of attention.
  static constexpr std::size_t scratch_bytes = std::size_t{3} << 20;

  /// Returns the number of bytes of workspace that a context with this many threads needs. It does not depend
  /// on the number of tokens.
  static constexpr std::size_t workspace_bytes(int threads, std::int64_t /*tokens*/ = 0,
                                               DType /*product*/ = DType::f32) {
    return static_cast<std::size_t>(threads < 1 ? 1 : threads) * scratch_bytes + alignment;
  }

  /// Makes the device of a rank the current device of this thread. There is only one CPU device, so this
  /// function does nothing.
  static void select(int /*device*/) {}
  /// Returns -1, for an unknown NUMA node: the CPU belongs to all nodes.
  static int numa_node(int /*device*/) { return -1; }

  /// Creates a context whose operations use `workspace`. The caller owns `workspace`, which must outlive the
  /// context. A context with a recorder reports operations and does not run them. `workspace` may be empty if
  /// there is a recorder, or if only elementwise operations run. Throws Error(usage) if there is no recorder
  /// and a workspace that is not empty has less than workspace_bytes(threads) bytes. If `cores` is not empty,
  /// each worker but the caller's thread runs on its own core (ThreadPool).
  Context(int threads, std::span<std::byte> workspace, Recorder* recorder = nullptr, Math const& math = {},
          affinity::Cores cores = {})
      : MathChannel(math), recorder_(recorder), pool_(recorder ? 1 : threads, std::move(cores)) {
    if (recorder || workspace.empty()) return;
    if (workspace.size() < workspace_bytes(pool_.threads()))
      throw_error(ErrorKind::usage,
                  {"the CPU context has ", workspace.size(), " bytes of workspace for ", pool_.threads(),
                   " threads, which need ", workspace_bytes(pool_.threads()),
                   ": size it with workspace_bytes(threads)"});
    auto const address = reinterpret_cast<std::uintptr_t>(workspace.data());
    scratch_ = workspace.data() + (alignment - address % alignment) % alignment;
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  cpu::ThreadPool& pool() noexcept { return pool_; }

  /// Returns the scratch memory of one worker, aligned to 64 bytes. The contents of the scratch memory last
  /// until the operation ends.
  std::span<std::byte> worker_scratch(int worker) noexcept {
    return {scratch_ + static_cast<std::size_t>(worker) * scratch_bytes, scratch_bytes};
  }

  Recorder* recorder() const noexcept { return recorder_; }

  /// Runs `body` immediately. If there is a recorder, reports the operation to it instead.
  template <class F>
  void enqueue(Operation const& operation, F&& body) noexcept {
    if (recorder_)
      recorder_->operation(operation);
    else
      std::forward<F>(body)();
  }

  /// Runs host code as part of a step, in the order of its lane (queue): after everything that is enqueued
  /// before it on the lane, and before everything that is enqueued after it. A step may run host code only
  /// through this function. On the CPU the code runs immediately, and exceptions of `work` propagate. `work`
  /// receives the context of the host, and `data`. The object at `data` must live as long as the step may be
  /// repeated.
  void host_task(Operation const& operation, void (*work)(Context<Cpu>& host, void* data), void* data) {
    if (recorder_)
      recorder_->operation(operation);
    else
      work(*this, data);
  }

  // ---- functions for asynchronous devices; on the CPU, the work of a call is done when the call returns ---

  /// A step is done when the call that enqueues it returns, so the results of the step can be read
  /// immediately.
  static constexpr bool immediate = true;
  static constexpr std::size_t arrival_slots = 0;
  /// Allocates in advance what steps need. The CPU needs nothing, so this function does nothing.
  void reserve(std::size_t /*entries*/, std::size_t /*upload_bytes*/) noexcept {}
  /// `begin` and `end` enclose an entry of a step: one computation or one transfer. A GPU selects the entry's
  /// stream and waits for the entries in `waits`. The CPU only measures the entry's time.
  void begin(int /*entry*/, Lane, std::span<int const> /*waits*/) noexcept {
    if (timer_) entry_begun_ = timer_->now();
  }
  void end(int entry, bool /*signals*/) noexcept {
    if (timer_) timer_->ran(entry, entry_begun_, timer_->now());
  }
  /// From this call until `end_timing`, the context reports the start and the end of each entry to `timer`.
  void begin_timing(EntryTimer& timer, std::int64_t /*instances*/) noexcept {
    timer_ = &timer;
    step_begun_ = timer.now();
  }
  void end_timing() noexcept {
    timer_->ran(-1, step_begun_, timer_->now());
    timer_ = nullptr;
  }
  /// Returns the stream on which communication of device buffers is enqueued, or null if the buffers are host
  /// memory.
  void* native_stream() const noexcept { return nullptr; }
  /// Enqueues the work of a step by a call of `body`. `body` must enqueue the same work in every step. A GPU
  /// may launch a recorded graph instead of calling `body`. Returns whether `body` ran.
  template <class F>
  bool replay(std::size_t /*program*/, bool /*graph*/, F&& body) {
    std::forward<F>(body)();
    return true;
  }
  /// Copies host bytes to device memory, in the order of the compute lane. The caller may change `from` when
  /// the function returns.
  void upload(void* to, void const* from, std::size_t bytes) noexcept {
    if (!forbidden("upload")) std::memcpy(to, from, bytes);
  }

  // ---- functions that must be called only between steps; on the CPU, device memory is host memory --------

  /// Copies bytes from the device to the host, after all enqueued work has ended.
  void read(void const* from, void* to, std::size_t bytes) {
    if (!forbidden("read")) std::memcpy(to, from, bytes);
  }
  /// Copies bytes from the host to the device, and waits for the copy.
  void write(void* to, void const* from, std::size_t bytes) {
    if (!forbidden("write")) std::memcpy(to, from, bytes);
  }
  /// Returns a pointer through which the host can read bytes of the device, after all enqueued work. The CPU
  /// returns `from`. A GPU may copy the bytes to the caller's buffer `room` and return `room`.
  std::byte const* host_view(void const* from, std::size_t /*bytes*/, std::byte* /*room*/) {
    forbidden("host_view");
    return static_cast<std::byte const*>(from);
  }
  /// Returns host memory in which the caller prepares new contents for `to`. The function `unstage` then
  /// writes these contents to `to`. The CPU returns `to` itself. A GPU may return the caller's buffer `room`.
  std::byte* stage(void* to, std::size_t /*bytes*/, std::byte* /*room*/) {
    forbidden("stage");
    return static_cast<std::byte*>(to);
  }
  void unstage(void* /*to*/, std::byte const* /*staged*/, std::size_t /*bytes*/) { forbidden("unstage"); }
  /// The following functions copy state to host memory between steps. `copy` begins a copy. Updates of later
  /// steps wait until all copies have ended. `copied` returns whether all copies have ended; any thread may
  /// call it. On the CPU, a copy uses all threads and has ended when `copy` returns.
  void reserve_copies() noexcept {}
  void copy(void* to, void const* from, std::size_t bytes) noexcept {
    if (forbidden("copy")) return;
    constexpr std::size_t part = std::size_t{1} << 20;
    pool_.parallel_for(static_cast<std::int64_t>((bytes + part - 1) / part), [&](std::int64_t task, int) {
      std::size_t const begin = static_cast<std::size_t>(task) * part;
      std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<std::byte const*>(from) + begin,
                  begin + part < bytes ? part : bytes - begin);
    });
  }
  void end_copies() noexcept {}
  bool copied() const noexcept { return true; }
  void await_copies() noexcept {}
  void clear(void* to, std::size_t bytes) {
    if (!forbidden("clear")) std::memset(to, 0, bytes);
  }
  /// Returns the context of the host. Its threads prepare staged bytes and run host tasks.
  Context<Cpu>& host() noexcept { return *this; }

  /// Whether all enqueued work is done: always, on the CPU. A step calls neither `finished` nor
  /// `synchronize`.
  bool finished() const noexcept { return true; }
  void synchronize() noexcept { forbidden("synchronize"); }

 private:
  /// Whether the context has a recorder. If so, tells the recorder that the step called the function `what`,
  /// which is forbidden during a step.
  bool forbidden(char const* what) noexcept {
    if (recorder_) recorder_->violation(what);
    return recorder_ != nullptr;
  }

  static constexpr std::size_t alignment = 64;
  Recorder* recorder_;
  cpu::ThreadPool pool_;
  std::byte* scratch_ = nullptr;
  EntryTimer* timer_ = nullptr;
  std::int64_t step_begun_ = 0, entry_begun_ = 0;
};

}  // namespace v0
}  // namespace tessera
