// SPDX-License-Identifier: Apache-2.0
// Declares the interface to cuDNN's attention. A program that links tessera::cudnn contains
// attention_cudnn.cpp, which registers its implementation here. No other source includes cuDNN's headers.
#pragma once

#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "tessera/core/dtype.hpp"

namespace tessera {
inline namespace v0 {
namespace cuda {

/// The shape of a causal attention over whole sequences. cuDNN makes a plan for each shape. `heads` is the
/// number of query heads, `group` is the number of query heads that share a key head, and `head` is the
/// number of channels of a head. Strides are the distances between rows, in values. The rows of out and dout
/// have heads * head values.
struct CudnnShape {
  DType type = DType::f16;
  std::int64_t samples = 0, sequence = 0, heads = 0, group = 1, head = 0;
  std::int64_t q_stride = 0, kv_stride = 0;
  std::int64_t dq_stride = 0, dkv_stride = 0;  ///< only for the backward pass

  friend constexpr auto operator<=>(CudnnShape const&, CudnnShape const&) = default;
};

/// The device addresses of a pass's operands. All have 16-bit values, except logsumexp (samples, heads,
/// sequence), which is fp32. Operands that a pass does not use are null. Forward writes out and logsumexp;
/// backward writes dq, dk and dv.
struct CudnnOperands {
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *logsumexp = nullptr;
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// Runs cuDNN's attention on one GPU. It makes a plan when a shape is first used, also during stream capture,
/// and keeps it. Only one thread at a time may use an object. Both passes enqueue work on `stream` (a
/// cudaStream_t). They use no device memory beyond `workspace`. If the workspace is too small for the whole
/// pass, they run groups of samples, or else groups of heads, one after another. On success they return an
/// empty string. If cuDNN cannot run the pass, they return an error message that explains why; the enqueued
/// work is then incomplete.
class CudnnAttention {
 public:
  using Make = std::unique_ptr<CudnnAttention> (*)();
  /// `offer` registers the function that creates objects of the implementation; attention_cudnn.cpp calls it
  /// before main. `maker` returns the registered function, or null in a program that does not link
  /// tessera::cudnn. Any thread may call `maker`.
  static bool offer(Make make) noexcept {
    slot().store(make);
    return true;
  }
  static Make maker() noexcept { return slot().load(); }

  virtual ~CudnnAttention() = default;
  virtual std::string forward(CudnnShape const& shape, CudnnOperands const& at, void* stream,
                              std::span<std::byte> workspace) noexcept = 0;
  virtual std::string backward(CudnnShape const& shape, CudnnOperands const& at, void* stream,
                               std::span<std::byte> workspace) noexcept = 0;

 private:
  static std::atomic<Make>& slot() noexcept {
    static std::atomic<Make> make{nullptr};
    return make;
  }
};

/// Whether this program links cuDNN's attention.
inline bool has_cudnn_attention() noexcept { return CudnnAttention::maker() != nullptr; }

/// The outcome of a cuDNN pass, which Context::check accepts as a status.
struct CudnnOutcome {
  std::string reason;  ///< why cuDNN cannot run; empty if the pass is enqueued
};
inline bool succeeded(CudnnOutcome const& outcome) { return outcome.reason.empty(); }
inline std::string text_of(CudnnOutcome const& outcome) { return outcome.reason; }

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
