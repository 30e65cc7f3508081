// SPDX-License-Identifier: Apache-2.0
// Provides the CUDA streams of a step's lanes (queues), and the events that order them.
#pragma once

#include <array>
#include <cstddef>
#include <cuda_runtime.h>
#include <span>
#include <vector>

#include "tessera/backend/cuda/runtime/failure.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/core/operation.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// One stream for each lane, and the current lane. Only `synchronize` waits.
class Lanes {
 public:
  explicit Lanes(FirstFailure& failure) : failure_(failure) {}

  /// Makes the streams. All lanes but Lane::gradients have priority on the device, since other lanes often
  /// wait for their results.
  void open() {
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      streams_[lane] = make_stream(lane == static_cast<std::size_t>(Lane::gradients) ? 0 : -1);
    for (Event& event : joins_) event = make_event();
  }
  /// Creates the events of so many entries.
  void reserve(std::size_t entries) {
    while (marks_.size() < entries) marks_.push_back(make_event());
  }

  std::size_t index() const noexcept { return lane_; }
  bool is(Lane lane) const noexcept { return lane_ == static_cast<std::size_t>(lane); }
  cudaStream_t stream() const noexcept { return streams_[lane_].get(); }
  cudaStream_t compute() const noexcept { return streams_[0].get(); }

  /// Makes a lane the current one. Its later work waits for the entries in `waits`.
  void begin(Lane lane, std::span<int const> waits) noexcept {
    lane_ = static_cast<std::size_t>(lane);
    for (int const entry : waits)
      failure_.check(cudaStreamWaitEvent(stream(), marks_[static_cast<std::size_t>(entry)].get(), 0),
                     "cudaStreamWaitEvent");
  }
  /// Marks the end of an entry if other entries wait for it, and makes the compute lane the current one.
  void end(int entry, bool signals) noexcept {
    if (signals)
      failure_.check(cudaEventRecord(marks_[static_cast<std::size_t>(entry)].get(), stream()),
                     "cudaEventRecord");
    lane_ = 0;
  }

  /// `fork` makes all lanes start after the earlier work of the compute lane. `join` makes the compute lane
  /// wait for all lanes.
  void fork() noexcept {
    failure_.check(cudaEventRecord(joins_[0].get(), compute()), "cudaEventRecord");
    for (std::size_t lane = 1; lane < streams_.size(); ++lane)
      failure_.check(cudaStreamWaitEvent(streams_[lane].get(), joins_[0].get(), 0), "cudaStreamWaitEvent");
  }
  void join() noexcept {
    for (std::size_t lane = 1; lane < streams_.size(); ++lane) {
      failure_.check(cudaEventRecord(joins_[lane].get(), streams_[lane].get()), "cudaEventRecord");
      failure_.check(cudaStreamWaitEvent(compute(), joins_[lane].get(), 0), "cudaStreamWaitEvent");
    }
  }

  /// Whether all enqueued work has ended; a failure counts as an end.
  bool finished() noexcept {
    for (Stream const& stream : streams_) {
      cudaError_t const status = cudaStreamQuery(stream.get());
      if (status == cudaErrorNotReady) return false;
      failure_.check(status, "a step");
    }
    return true;
  }
  void synchronize() noexcept {
    for (Stream const& stream : streams_) failure_.check(cudaStreamSynchronize(stream.get()), "a step");
  }

 private:
  FirstFailure& failure_;
  std::array<Stream, lane_count> streams_;
  std::array<Event, lane_count> joins_;  // [0]: recorded by fork; others: by join
  std::vector<Event> marks_;             // indexed by entry
  std::size_t lane_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
