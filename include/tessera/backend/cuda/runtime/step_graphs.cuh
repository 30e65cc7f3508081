// SPDX-License-Identifier: Apache-2.0
// Captures the entries of a step as a CUDA graph. Later steps launch the graph.
#pragma once

#include <array>
#include <cstddef>
#include <cuda_runtime.h>

#include "tessera/backend/cuda/runtime/failure.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"
#include "tessera/backend/cuda/runtime/host_tasks.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// Owns the CUDA graphs of one context. Graph 0 is a training step, graph 1 is an evaluation step, and graph
/// 2 is a training step with events that time its entries.
class StepGraphs {
 public:
  static constexpr std::size_t timed_training = 2;

  explicit StepGraphs(FirstFailure& failure) : failure_(failure) {}

  bool recording() const noexcept { return recording_ != nullptr; }
  /// Returns the number of host tasks of each lane in the graph that is being captured, or null outside a
  /// capture.
  HostTasks::Counts* counts() noexcept { return recording_ ? &recording_->host_tasks : nullptr; }

  /// Launches the graph number `program` on `stream`. The first call runs `body` and captures the work that
  /// `body` enqueues as the graph. Before each launch, the workers of `tasks` are told to expect the graph's
  /// host tasks. Returns whether `body` ran.
  template <class F>
  bool replay(std::size_t program, cudaStream_t stream, HostTasks& tasks, F&& body) {
    Recorded& recorded = recorded_[program];
    bool const first = !recorded.graph;
    if (first) recorded = captured(stream, body);
    if (!recorded.graph) return first;
    tasks.expect(recorded.host_tasks);
    failure_.check(cudaGraphLaunch(recorded.graph.get(), stream), "cudaGraphLaunch");
    return first;
  }

 private:
  struct Recorded {
    Graph graph;
    HostTasks::Counts host_tasks{};
  };

  template <class F>
  Recorded captured(cudaStream_t stream, F& body) {
    Recorded result;
    failure_.check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                   "cudaStreamBeginCapture");
    cudaGraph_t recorded = nullptr;
    recording_ = &result;
    try {
      body();
      recording_ = nullptr;
    } catch (...) {
      recording_ = nullptr;
      cudaStreamEndCapture(stream, &recorded);
      if (recorded) cudaGraphDestroy(recorded);
      throw;
    }
    failure_.check(cudaStreamEndCapture(stream, &recorded), "cudaStreamEndCapture");
    cudaGraphExec_t runnable = nullptr;
    if (!failure_) failure_.check(cudaGraphInstantiate(&runnable, recorded, 0), "cudaGraphInstantiate");
    if (recorded) cudaGraphDestroy(recorded);
    result.graph = Graph(runnable);
    return result;
  }

  FirstFailure& failure_;
  std::array<Recorded, 3> recorded_;
  Recorded* recording_ = nullptr;  // the graph that is being captured, or null
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
