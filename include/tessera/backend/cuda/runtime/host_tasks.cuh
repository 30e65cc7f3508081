// SPDX-License-Identifier: Apache-2.0
// Provides host tasks. A host task is a function that runs on a thread of the host, in the order of a lane (a
// stream).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <map>
#include <new>
#include <optional>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cuda/runtime/failure.cuh"
#include "tessera/backend/cuda/runtime/host_worker.hpp"
#include "tessera/backend/cuda/runtime/memory.cuh"
#include "tessera/backend/cuda/runtime/stream_memory.cuh"
#include "tessera/core/operation.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Runs the host tasks of one context. A lane gets its own worker thread when its first task is enqueued. All
/// enqueued tasks must have ended before the object is destroyed.
class HostTasks {
 public:
  /// For each lane, the number of host tasks that a captured graph contains.
  using Counts = std::array<std::uint32_t, lane_count>;

  explicit HostTasks(FirstFailure& failure) : failure_(failure) {}

  /// Looks up the driver's stream-memory operations, and allocates the words through which lanes and their
  /// workers signal each other. Call it once, before the first task.
  void open() {
    batch_memory_ = batch_memory_operation();
    signal_memory_ = Arena<PinnedMemory>(sizeof(HostSignal) * lane_count);
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      signals_[lane] = ::new (signal_memory_.base() + lane * sizeof(HostSignal)) HostSignal;
  }

  /// Enqueues the call work(context, data) in the lane `lane`, whose stream is `stream`. On Lane::host the
  /// context is `host`. On every other lane it is a context with one thread, the lane's worker. If the stream
  /// is being captured as a graph, `counts` must be the graph's counts. `enqueue` adds the task to `counts`,
  /// and `expect` announces the task to the worker before each launch of the graph. If no capture is active,
  /// `counts` must be null, and `enqueue` itself announces the task to the worker.
  void enqueue(std::size_t lane, cudaStream_t stream, Context<Cpu>& host,
               void (*work)(Context<Cpu>& host, void* data), void* data, Counts* counts) {
    std::optional<LaneWorker>& lane_worker = lane_workers_[lane];
    if (!lane_worker) lane_worker.emplace(*signals_[lane]);
    Context<Cpu>& own = lane == static_cast<std::size_t>(Lane::host) ? host : lane_worker->own;
    auto const task = tasks_.try_emplace(data, HostTask{work, data, &own, &thrown_}).first;
    if (counts)
      ++(*counts)[lane];
    else
      lane_worker->worker.expect(1);
    if (batch_memory_)
      failure_.check(hand_over(batch_memory_, stream, task->second, *signals_[lane]), "cuStreamBatchMemOp");
    else
      failure_.keep(
          "host work in a step needs 64-bit stream-memory operations, which this GPU or its driver "
          "lacks; use offload none");
  }
  /// Announces to the workers the tasks of a graph that is about to be launched. `counts` are the graph's
  /// counts.
  void expect(Counts const& counts) noexcept {
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      if (counts[lane] > 0) lane_workers_[lane]->worker.expect(counts[lane]);
  }
  /// Rethrows the first exception that a task threw, if there is one.
  void raise() const { thrown_.raise(); }

 private:
  /// The worker thread of one lane, and a context with only that thread.
  struct LaneWorker {
    explicit LaneWorker(HostSignal& signal) : worker(signal) {}
    Context<Cpu> own{1, {}};
    HostWorker worker;
  };

  FirstFailure& failure_;
  // null if the GPU or its driver lacks this operation
  decltype(&cuStreamBatchMemOp) batch_memory_ = nullptr;
  HostFailure thrown_;
  std::map<void*, HostTask> tasks_;
  Arena<PinnedMemory> signal_memory_;
  std::array<HostSignal*, lane_count> signals_{};  // in signal_memory_
  std::array<std::optional<LaneWorker>, lane_count>
      lane_workers_;  // destroyed first: their threads use the other members
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
