// SPDX-License-Identifier: Apache-2.0
// Provides events around the entries of a step, which measure when each entry ran.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <utility>
#include <vector>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/core/operation.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Records a pair of events for each entry that a step runs, and one pair for the step. In a graph they are
/// event record nodes, so every launch records them again. The times of a launch must be reported before the
/// next launch. Device times are converted to the host's clock through a reference event: of several events
/// that the host waited for, the one with the shortest delay. Times of different steps and ranks are off by
/// up to that delay.
class EntryEvents {
 public:
  /// Creates the events for a step that runs `instances` entries. Waits for all earlier work of the stream.
  void start(EntryTimer& timer, std::size_t instances, cudaStream_t stream) {
    while (pairs_.size() < instances + 1)  // [0]: the step
      pairs_.push_back({make_event(cudaEventDefault), make_event(cudaEventDefault), -1});
    constexpr int tries = 5;
    for (std::int64_t least = 0, attempt = 0; attempt < tries; ++attempt) {
      Event event = make_event(cudaEventDefault);
      std::int64_t const before = timer.now();
      require(cudaEventRecord(event.get(), stream), "cudaEventRecord");
      require(cudaEventSynchronize(event.get()), "cudaEventSynchronize");
      std::int64_t const heard = timer.now();
      if (attempt > 0 && heard - before >= least) continue;
      least = heard - before;
      origin_ = std::move(event);
      began_ = heard;
    }
  }

  /// Records the start of an entry. Call it first for the step (entry -1), then for its entries in order. For
  /// a graph, it is called only once, at capture.
  cudaError_t begin(int entry, cudaStream_t stream, bool in_graph) noexcept {
    if (entry < 0) walked_ = 0;
    pairs_[walked_].entry = entry;
    return record(pairs_[walked_++].begin, stream, in_graph);
  }
  cudaError_t end(cudaStream_t stream, bool in_graph) noexcept {
    return record(pairs_[walked_ - 1].end, stream, in_graph);
  }
  cudaError_t end_step(cudaStream_t stream, bool in_graph) noexcept {
    return record(pairs_[0].end, stream, in_graph);
  }

  /// Reports the times of a step that has ended. `timer` is null if the step was not timed. Throws
  /// Error(failed) if a time cannot be read.
  void report(EntryTimer* timer) const {
    if (!timer) return;
    for (std::size_t instance = 1; instance < walked_; ++instance)
      timer->ran(pairs_[instance].entry, time_of(pairs_[instance].begin), time_of(pairs_[instance].end));
    timer->ran(-1, time_of(pairs_[0].begin), time_of(pairs_[0].end));
  }

 private:
  struct Pair {
    Event begin, end;
    int entry;
  };
  /// cudaEventRecordExternal is valid only during capture.
  static cudaError_t record(Event const& event, cudaStream_t stream, bool in_graph) noexcept {
    return cudaEventRecordWithFlags(event.get(), stream,
                                    in_graph ? cudaEventRecordExternal : cudaEventRecordDefault);
  }
  std::int64_t time_of(Event const& event) const {
    float milliseconds = 0.0f;
    require(cudaEventElapsedTime(&milliseconds, origin_.get(), event.get()), "cudaEventElapsedTime");
    return began_ + std::llround(static_cast<double>(milliseconds) * 1e6);
  }

  Event origin_;
  std::int64_t began_ = 0;  // the host's time when it saw origin_ complete, in ns
  std::vector<Pair> pairs_;
  std::size_t walked_ = 0;  // pairs used by the last step
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
