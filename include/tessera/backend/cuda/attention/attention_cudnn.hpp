// SPDX-License-Identifier: Apache-2.0
// Declares the interface to cuDNN's attention. Programs that link tessera::cudnn compile attention_cudnn.cpp,
// which registers itself here. It is the only source that includes cuDNN's headers.
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

/// The shape of one causal attention over whole sequences, for which cuDNN makes a plan. Strides are the
/// distances between rows, in values. The rows of out and dout have heads * head values.
struct CudnnShape {
  DType type = DType::f16;
  std::int64_t samples = 0, sequence = 0, heads = 0, group = 1, head = 0;
  std::int64_t q_stride = 0, kv_stride = 0;
  std::int64_t dq_stride = 0, dkv_stride = 0;  ///< only for the backward pass

  friend constexpr auto operator<=>(CudnnShape const&, CudnnShape const&) = default;
};

/// Device addresses of 16-bit values, except logsumexp (samples, heads, sequence), which is fp32. Operands
/// that a pass does not use are null. Forward writes out and logsumexp, backward writes dq, dk and dv.
struct CudnnOperands {
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *logsumexp = nullptr;
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// cuDNN's attention on one GPU. It makes a plan at the first use of a shape, also during stream capture, and
/// keeps it. Only one thread at a time may use an object. Both passes enqueue on a stream (cudaStream_t) and
/// use no device memory beyond `workspace`: if necessary they run groups of samples, then groups of heads,
/// one after another. They return an empty string, or a sentence that explains why cuDNN cannot run; the
/// enqueued work is then incomplete.
class CudnnAttention {
 public:
  using Make = std::unique_ptr<CudnnAttention> (*)();
  /// Registers the function that makes these objects; attention_cudnn.cpp calls it before main. maker()
  /// returns that function, or null in a program that does not link tessera::cudnn. Any thread may call it.
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

/// The outcome of a pass, for Context::check.
struct CudnnOutcome {
  std::string reason;  ///< empty: the pass is enqueued
};
inline bool succeeded(CudnnOutcome const& outcome) { return outcome.reason.empty(); }
inline std::string text_of(CudnnOutcome const& outcome) { return outcome.reason; }

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
