// SPDX-License-Identifier: Apache-2.0
// Provides StreamCapture, the CUDA graph that a stream captures now.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cuda_runtime.h>
#include <initializer_list>
#include <vector>

#include "tessera/backend/cuda/runtime/error.cuh"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The CUDA graph that a stream captures now, if it captures one. An object is valid until the next call that
/// uses the stream.
class StreamCapture {
 public:
  /// A node that `add_branch` has added, and the number of the capture.
  struct Branch {
    unsigned long long capture = 0;
    cudaGraphNode_t node = nullptr;
  };

  explicit StreamCapture(cudaStream_t stream) {
    require(cudaStreamGetCaptureInfo(stream, &status_, &id_, &graph_, &before_, nullptr, &count_),
            "cudaStreamGetCaptureInfo");
  }
  bool active() const noexcept { return status_ == cudaStreamCaptureStatusActive; }

  /// Adds a kernel of one thread to the graph. It runs after the work that the stream has captured so far,
  /// and after the nodes `last` that belong to this graph. Later work of the stream does not wait for the
  /// kernel. If the kernel were in the stream, this work would wait until the kernel gets a multiprocessor.
  /// Stores the new node in each of `last`.
  void add_branch(void* kernel, void** arguments, std::initializer_list<Branch*> last) const {
    std::vector<cudaGraphNode_t> after(before_, before_ + count_);
    for (Branch const* const branch : last)
      if (branch->node && branch->capture == id_ &&
          std::find(after.begin(), after.end(), branch->node) == after.end())
        after.push_back(branch->node);
    cudaKernelNodeParams node{};
    node.func = kernel;
    node.gridDim = node.blockDim = dim3(1);
    node.kernelParams = arguments;
    Branch added{id_, nullptr};
    require(cudaGraphAddKernelNode(&added.node, graph_, after.data(), after.size(), &node),
            "cudaGraphAddKernelNode");
    for (Branch* const branch : last) *branch = added;
  }

 private:
  cudaStreamCaptureStatus status_ = cudaStreamCaptureStatusNone;
  unsigned long long id_ = 0;
  cudaGraph_t graph_ = nullptr;
  cudaGraphNode_t const* before_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
