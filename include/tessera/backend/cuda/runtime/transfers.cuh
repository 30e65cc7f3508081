// SPDX-License-Identifier: Apache-2.0
// Provides the transfers between a GPU and the host: uploads of a step's inputs, readbacks of its results,
// and copies of state between steps.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <vector>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/failure.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/backend/cuda/runtime/memory.cuh"
#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Copies small inputs to the device through pinned memory. It uses a ring of eight buffers, so that up to
/// eight copies can be in flight.
class Uploads {
 public:
  explicit Uploads(FirstFailure& failure) : failure_(failure) {}

  void open() {
    for (Upload& upload : ring_) upload.done = make_event();
  }
  void reserve(std::size_t bytes) {
    for (Upload& upload : ring_) upload.grow(bytes);
  }
  /// Copies `bytes` bytes of the host to the device in the order of `stream`. The caller may overwrite `from`
  /// as soon as the call returns. The call waits only until the eighth upload before this one has ended. It
  /// allocates pinned memory only if `bytes` exceeds the bytes of `reserve`.
  void upload(void* to, void const* from, std::size_t bytes, cudaStream_t stream) noexcept {
    Upload& next = ring_[next_];
    next_ = (next_ + 1) % ring_.size();
    failure_.check(cudaEventSynchronize(next.done.get()), "cudaEventSynchronize");
    if (failure_) return;
    try {
      next.grow(bytes);
    } catch (Error const& error) {
      failure_.keep(error.what());
      return;
    }
    std::memcpy(next.memory.base(), from, bytes);
    failure_.check(cudaMemcpyAsync(to, next.memory.base(), bytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
    failure_.check(cudaEventRecord(next.done.get(), stream), "cudaEventRecord");
  }

 private:
  struct Upload {
    Event done;
    Arena<PinnedMemory> memory;

    void grow(std::size_t bytes) {
      if (memory.bytes() < static_cast<std::int64_t>(bytes))
        memory = Arena<PinnedMemory>(static_cast<std::int64_t>(bytes));
    }
  };

  FirstFailure& failure_;
  std::array<Upload, 8> ring_;
  std::size_t next_ = 0;
};

/// Copies results of steps to the host, and measures each step on the device's clock. Several results can be
/// pending. Each pending result has a slot.
class Readbacks {
 public:
  static constexpr std::size_t slots = 2 * info_of(Device::cuda).max_steps_in_flight;
  static constexpr std::int64_t bytes_of_slot = 4096;

  explicit Readbacks(FirstFailure& failure) : failure_(failure) {}

  void open() {
    for (Slot& slot : slots_) {
      slot.begun = make_event(cudaEventDefault);
      slot.memory = Arena<PinnedMemory>(bytes_of_slot);
    }
    for (Event& event : ends_) event = make_event(cudaEventDefault);
  }

  void mark_begin(int slot, cudaStream_t stream) noexcept {
    failure_.check(cudaEventRecord(at(slot).begun.get(), stream), "cudaEventRecord");
  }
  /// Marks the end of the slot's step, and starts to copy the step's result to the slot.
  void begin(int slot, void const* from, std::size_t bytes, cudaStream_t stream) noexcept {
    Slot& of = at(slot);
    failure_.check(cudaMemcpyAsync(of.memory.base(), from, bytes, cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync");
    of.before = last_end_ ? last_end_ : of.begun.get();
    of.ended = last_end_ = ends_[next_end_].get();
    next_end_ = (next_end_ + 1) % ends_.size();
    failure_.check(cudaEventRecord(of.ended, stream), "cudaEventRecord");
  }
  /// Whether the step of the slot has ended. A step that failed has ended too.
  bool arrived(int slot) noexcept {
    cudaError_t const status = cudaEventQuery(at(slot).ended);
    if (status == cudaErrorNotReady && !failure_) return false;
    if (status != cudaErrorNotReady) failure_.check(status, "a step");
    return true;
  }
  std::byte const* result(int slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].memory.base();
  }
  /// Returns the seconds from the slot's mark_begin to its `begin`.
  double seconds(int slot) noexcept { return elapsed(at(slot).begun.get(), at(slot).ended); }
  /// Returns the seconds from the `begin` of the step before, in any slot, to the `begin` of this slot. For
  /// the first step, returns the seconds from its mark_begin.
  double interval(int slot) noexcept { return elapsed(at(slot).before, at(slot).ended); }

 private:
  /// The memory of one pending result, and the events that measure its step.
  struct Slot {
    Event begun;
    // `ended` is an element of ends_. `before` is the end of the step before, or `begun` for the first step.
    // Both events have other owners.
    cudaEvent_t ended = nullptr, before = nullptr;
    Arena<PinnedMemory> memory;
  };
  Slot& at(int slot) noexcept { return slots_[static_cast<std::size_t>(slot)]; }

  double elapsed(cudaEvent_t from, cudaEvent_t to) noexcept {
    float milliseconds = 0.0f;
    failure_.check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

  FirstFailure& failure_;
  std::array<Slot, slots> slots_;
  // a ring of events that mark the ends of steps: one for each pending step, and one for the step before the
  // oldest pending step
  std::array<Event, slots + 1> ends_;
  cudaEvent_t last_end_ = nullptr;
  std::size_t next_end_ = 0;
};

inline bool is_host(void const* pointer) {
  cudaPointerAttributes about{};
  require(cudaPointerGetAttributes(&about, pointer), "cudaPointerGetAttributes");
  return about.type != cudaMemoryTypeDevice;
}

/// Copies bytes between steps, and waits for the copy. Each side is device or host memory. A copy from
/// pageable memory possibly still runs when cudaMemcpy returns, and no lane waits for the default stream. So
/// this function waits for the default stream.
inline void copy_and_wait(void* to, void const* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}
/// Sets `bytes` bytes of device or host memory to zero between steps, and waits for completion.
inline void clear_and_wait(void* to, std::size_t bytes) {
  if (is_host(to))
    std::memset(to, 0, bytes);
  else
    require(cudaMemset(to, 0, bytes), "cudaMemset");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

/// Copies state (weights and optimizer state) to pinned memory between steps, on a separate stream.
class StateCopies {
 public:
  explicit StateCopies(FirstFailure& failure) : failure_(failure) {}

  void open() {
    stream_ = make_stream();
    ended_ = make_event();
  }
  explicit operator bool() const noexcept { return static_cast<bool>(stream_); }
  void copy(void* to, void const* from, std::size_t bytes) noexcept {
    failure_.check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_.get()),
                   "cudaMemcpyAsync");
  }
  void mark_end() noexcept {
    failure_.check(cudaEventRecord(ended_.get(), stream_.get()), "cudaEventRecord");
  }
  /// Whether the copies before the last mark_end have ended. Any thread in which the GPU is current may call
  /// this function.
  bool ended() const {
    cudaError_t const status = cudaEventQuery(ended_.get());
    if (status != cudaErrorNotReady) require(status, "a copy of state");
    return status != cudaErrorNotReady;
  }
  /// Makes `stream` wait for the copies before the last mark_end. If the stream is being captured, each
  /// launch of the graph waits.
  void await(cudaStream_t stream, bool captured) noexcept {
    failure_.check(cudaStreamWaitEvent(stream, ended_.get(), captured ? cudaEventWaitExternal : 0),
                   "cudaStreamWaitEvent");
  }
  bool finished() const noexcept { return cudaStreamQuery(stream_.get()) != cudaErrorNotReady; }
  void synchronize() noexcept { failure_.check(cudaStreamSynchronize(stream_.get()), "a copy of state"); }

 private:
  FirstFailure& failure_;
  Stream stream_;
  Event ended_;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
