// SPDX-License-Identifier: Apache-2.0
// Measures when each entry of a step ran, with CUDA events before and after the entry. An entry is one
// computation or one transfer.
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

/// Records a pair of events for each entry that a step runs, and one pair for the whole step. If the step is
/// captured as a CUDA graph, the events are event record nodes, so every launch of the graph records them
/// again. Call `report` for one launch before the next launch. CUDA measures only the time between two
/// events. So `start` records a reference event, waits for it, and reads the host's clock. The reported time
/// of an event is this clock value plus the device's time between the reference event and the event. `start`
/// records five reference events and keeps the one for which the host waited the shortest time. The reported
/// times of different steps and ranks can differ by up to this waiting time.
class EntryEvents {
 public:
  /// Creates the events for a step that runs `instances` entries, and records the reference event on
  /// `stream`. Waits for all earlier work of the stream.
  void start(EntryTimer& timer, std::size_t instances, cudaStream_t stream) {
    while (pairs_.size() < instances + 1)  // pairs_[0] is the pair of the step
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

  /// Records the start of the entry `entry` on `stream`. The entry -1 is the whole step. Call `begin` first
  /// with -1, and then with the step's entries in the order in which they run. `in_graph` says whether the
  /// stream is being captured as a graph. A launch of the graph does not need another call.
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

  /// Passes the start and end time of each entry, and of the step, to `timer`. The step must have ended. Does
  /// nothing if `timer` is null, which means that the step was not timed. Throws Error(failed) if a time
  /// cannot be read.
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
  /// Records an event. During a capture, cudaEventRecordExternal makes the record a node of the graph; at
  /// other times this flag is invalid.
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
  std::size_t walked_ = 0;  // the number of elements of pairs_ that the last step used
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
