// SPDX-License-Identifier: Apache-2.0
// The door to cuDNN's attention, for programs that link tessera::cudnn: attention_cudnn.cpp is then compiled
// into them, registers itself here, and is the only source that includes cuDNN's headers.
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

/// An attention of whole sequences, each query on the keys up to its own position, as cuDNN plans it. Strides
/// are values between rows; the rows of out and dout are heads * head wide.
struct CudnnShape {
  DType type = DType::f16;
  std::int64_t samples = 0, sequence = 0, heads = 0, group = 1, head = 0;
  std::int64_t q_stride = 0, kv_stride = 0;
  std::int64_t dq_stride = 0, dkv_stride = 0;  ///< of the backward pass alone

  friend constexpr auto operator<=>(CudnnShape const&, CudnnShape const&) = default;
};

/// Device addresses: 16-bit values, but logsumexp (samples, heads, sequence) in fp32. What a pass does not
/// take is null. `out` and `logsumexp` are written by the forward pass, what begins with d by the backward.
struct CudnnOperands {
  void *q = nullptr, *k = nullptr, *v = nullptr, *out = nullptr, *logsumexp = nullptr;
  void *dout = nullptr, *dq = nullptr, *dk = nullptr, *dv = nullptr;
};

/// cuDNN's attention on one GPU, with the plans of the shapes that it has met: a plan is made at its shape's
/// first use, also while a stream is captured. Used by one thread at a time. Both passes enqueue on a stream
/// (cudaStream_t) and use no device memory beyond `workspace`; samples, then heads, go in pieces that fit.
/// They return nothing or, in a sentence, why cuDNN cannot; then what was enqueued is not complete.
class CudnnAttention {
 public:
  using Make = std::unique_ptr<CudnnAttention> (*)();
  /// attention_cudnn.cpp offers the function that makes these objects before main. Any thread may ask for it;
  /// a program that does not link tessera::cudnn gets null.
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

/// Whether Attention<Cudnn> is part of this program.
inline bool has_cudnn_attention() noexcept { return CudnnAttention::maker() != nullptr; }

/// The outcome of a pass, for Context::check.
struct CudnnOutcome {
  std::string reason;  ///< empty: it is enqueued
};
inline bool succeeded(CudnnOutcome const& outcome) { return outcome.reason.empty(); }
inline std::string text_of(CudnnOutcome const& outcome) { return outcome.reason; }

}  // namespace cuda
}  // namespace v0
}  // namespace tessera
