// SPDX-License-Identifier: Apache-2.0
// Provides CUDA graphs for benchmarks that enqueue their own work.
#pragma once

#include <cuda_runtime.h>

#include "tessera/backend/cuda/runtime/error.cuh"
#include "tessera/backend/cuda/runtime/handles.cuh"

namespace gpu {

/// Returns the CUDA graph of the work that body() enqueues on the stream.
template <class F>
tessera::cuda::Graph captured(cudaStream_t stream, F const& body) {
  tessera::cuda::require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture");
  cudaGraph_t recorded = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream, &recorded);
    if (recorded) cudaGraphDestroy(recorded);
    throw;
  }
  tessera::cuda::require(cudaStreamEndCapture(stream, &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  cudaError_t const status = cudaGraphInstantiate(&graph, recorded, 0);
  cudaGraphDestroy(recorded);
  tessera::cuda::require(status, "cudaGraphInstantiate");
  return tessera::cuda::Graph(graph);
}

}  // namespace gpu
