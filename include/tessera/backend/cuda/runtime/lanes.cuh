// SPDX-License-Identifier: Apache-2.0
// Provides Lanes: one CUDA stream for each lane of a step, and the events that order their work. A lane is a
// queue of a step's entries, which are computations and transfers.
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

/// Owns one stream for each lane (a queue of a step's entries). One lane is the current lane, on which
/// operations are enqueued. Only `synchronize` makes the host wait.
class Lanes {
 public:
  explicit Lanes(FirstFailure& failure) : failure_(failure) {}

  /// Creates the streams, and the events for `fork` and `join`. The stream of Lane::gradients has a lower
  /// priority than the others, because other lanes rarely wait for its results.
  void open() {
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      streams_[lane] = make_stream(lane == static_cast<std::size_t>(Lane::gradients) ? 0 : -1);
    for (Event& event : joins_) event = make_event();
  }
  /// Creates the events that `end` records, one for each of `entries` entries of a step.
  void reserve(std::size_t entries) {
    while (marks_.size() < entries) marks_.push_back(make_event());
  }

  std::size_t index() const noexcept { return lane_; }
  bool is(Lane lane) const noexcept { return lane_ == static_cast<std::size_t>(lane); }
  cudaStream_t stream() const noexcept { return streams_[lane_].get(); }
  cudaStream_t compute() const noexcept { return streams_[0].get(); }

  /// Makes `lane` the current lane. The later work of `lane` waits for the end of the entries in `waits`.
  void begin(Lane lane, std::span<int const> waits) noexcept {
    lane_ = static_cast<std::size_t>(lane);
    for (int const entry : waits)
      failure_.check(cudaStreamWaitEvent(stream(), marks_[static_cast<std::size_t>(entry)].get(), 0),
                     "cudaStreamWaitEvent");
  }
  /// Ends the entry `entry` and makes the compute lane the current one. If other entries wait for this entry
  /// (`signals`), records its event.
  void end(int entry, bool signals) noexcept {
    if (signals)
      failure_.check(cudaEventRecord(marks_[static_cast<std::size_t>(entry)].get(), stream()),
                     "cudaEventRecord");
    lane_ = 0;
  }

  /// `fork` makes all other lanes wait for the work that was enqueued on the compute lane. `join` makes the
  /// compute lane wait for the work that was enqueued on all other lanes.
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

  /// Whether the work of all lanes has ended. Work that failed has ended too.
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
  std::array<Event, lane_count> joins_;  // `fork` records joins_[0], `join` records the others
  std::vector<Event> marks_;             // the end of each entry, indexed by entry
  std::size_t lane_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
