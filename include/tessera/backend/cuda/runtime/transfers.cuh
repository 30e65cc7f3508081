// SPDX-License-Identifier: Apache-2.0
// Provides the transfers between a GPU and the host: inputs of a step, its results, state between steps.
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

/// Copies small inputs to the device through a ring of pinned memory.
class Uploads {
 public:
  explicit Uploads(FirstFailure& failure) : failure_(failure) {}

  void open() {
    for (Upload& upload : ring_) upload.done = make_event();
  }
  void reserve(std::size_t bytes) {
    for (Upload& upload : ring_) upload.grow(bytes);
  }
  /// `from` may be reused at once. Waits only for the eighth upload before this one. Allocates pinned memory
  /// if an upload is larger than reserved.
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

/// Reads results of steps back to the host later, and measures each step on the device's clock.
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
  /// Marks the end of the slot's step, and starts to copy its result.
  void begin(int slot, void const* from, std::size_t bytes, cudaStream_t stream) noexcept {
    Slot& of = at(slot);
    failure_.check(cudaMemcpyAsync(of.memory.base(), from, bytes, cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync");
    of.before = last_end_ ? last_end_ : of.begun.get();
    of.ended = last_end_ = ends_[next_end_].get();
    next_end_ = (next_end_ + 1) % ends_.size();
    failure_.check(cudaEventRecord(of.ended, stream), "cudaEventRecord");
  }
  /// Whether the step has ended; a failure counts as an end.
  bool arrived(int slot) noexcept {
    cudaError_t const status = cudaEventQuery(at(slot).ended);
    if (status == cudaErrorNotReady && !failure_) return false;
    if (status != cudaErrorNotReady) failure_.check(status, "a step");
    return true;
  }
  std::byte const* result(int slot) const noexcept {
    return slots_[static_cast<std::size_t>(slot)].memory.base();
  }
  /// The time from mark_begin to `begin`, in seconds.
  double seconds(int slot) noexcept { return elapsed(at(slot).begun.get(), at(slot).ended); }
  /// The time from the last `begin` of any slot to the one of this slot; for the first step, from mark_begin.
  double interval(int slot) noexcept { return elapsed(at(slot).before, at(slot).ended); }

 private:
  /// The pending result of one step.
  struct Slot {
    Event begun;
    cudaEvent_t ended = nullptr, before = nullptr;  // not owned; the interval begins at `before`
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
  std::array<Event, slots + 1> ends_;  // a ring: one per pending step, and the step before
  cudaEvent_t last_end_ = nullptr;
  std::size_t next_end_ = 0;
};

inline bool is_host(void const* pointer) {
  cudaPointerAttributes about{};
  require(cudaPointerGetAttributes(&about, pointer), "cudaPointerGetAttributes");
  return about.type != cudaMemoryTypeDevice;
}

/// Copies bytes between steps, and waits for the copy. Either side may be host memory. Synchronizes the
/// default stream, since no lane waits for it and a copy from pageable memory may still run when cudaMemcpy
/// returns.
inline void copy_and_wait(void* to, void const* from, std::size_t bytes) {
  require(cudaMemcpy(to, from, bytes, cudaMemcpyDefault), "cudaMemcpy");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}
/// Sets bytes to zero between steps, and waits for completion.
inline void clear_and_wait(void* to, std::size_t bytes) {
  if (is_host(to))
    std::memset(to, 0, bytes);
  else
    require(cudaMemset(to, 0, bytes), "cudaMemset");
  require(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
}

/// Copies of state to pinned memory between steps, on a separate stream.
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
  /// Whether the copies before the last mark have ended. Any thread may call it if the device is current.
  bool ended() const {
    cudaError_t const status = cudaEventQuery(ended_.get());
    if (status != cudaErrorNotReady) require(status, "a copy of state");
    return status != cudaErrorNotReady;
  }
  /// Makes a stream wait for the copies; if the stream is captured, at each launch of the graph.
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
