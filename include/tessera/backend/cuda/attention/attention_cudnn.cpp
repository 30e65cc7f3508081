// SPDX-License-Identifier: Apache-2.0
// Implements attention with the library cuDNN. If a program links the CMake target tessera::cudnn, CMake
// compiles this source into the program, and the source registers its implementation before main. It has only
// host code, because cuDNN contains the kernels.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#ifndef CUDNN_FRONTEND_SKIP_JSON_LIB
#define CUDNN_FRONTEND_SKIP_JSON_LIB  // the frontend needs its JSON library only to write plans to files
#endif
#include <cudnn_frontend.h>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"

namespace {

namespace frontend = cudnn_frontend;
using tessera::cuda::CudnnOperands;
using tessera::cuda::CudnnShape;

/// The oldest version of cuDNN that this library supports. Its backward pass accepts any sequence length
/// directly. Older versions copy the lengths from host memory.
constexpr std::size_t oldest_version = 91600;

std::string version_text(std::size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// A failure of cuDNN or of its frontend. Only this source throws and catches it.
struct Failed {
  std::string reason;
};
void require(frontend::error_t status) {
  if (status.is_bad()) throw Failed{status.get_message()};
}
void require(cudnnStatus_t status, char const* what) {
  if (status != CUDNN_STATUS_SUCCESS) throw Failed{std::string(what) + ": " + cudnnGetErrorString(status)};
}

/// While an object of this class exists, its thread may make calls that stream capture forbids. The
/// constructor of Plan needs such calls, because it loads kernels.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureMode(RelaxedCaptureMode const&) = delete;
  RelaxedCaptureMode& operator=(RelaxedCaptureMode const&) = delete;
  ~RelaxedCaptureMode() { cudaThreadExchangeStreamCaptureMode(&mode_); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

enum class Pass : int { forward, backward };

/// The ids of the tensors in a cuDNN graph. A cuDNN graph describes the computation of one Plan.
enum Tensor : std::int64_t { q = 1, k, v, out, logsumexp, dout, dq, dk, dv };

/// The part of an attention that one plan runs at once: some samples with all key heads, or some key heads of
/// one sample.
struct Piece {
  std::int64_t samples, key_heads;
};

/// A cuDNN plan: the compiled forward or backward pass of attention over one Piece of a shape. `run` enqueues
/// it.
class Plan {
 public:
  Plan(cudnnHandle_t handle, Pass pass, CudnnShape const& shape, Piece piece)
      : shape_(shape), piece_(piece), graph_(std::make_unique<frontend::graph::Graph>()) {
    graph_
        ->set_io_data_type(shape.type == tessera::DType::bf16 ? frontend::DataType_t::BFLOAT16
                                                              : frontend::DataType_t::HALF)
        .set_intermediate_data_type(frontend::DataType_t::FLOAT)
        .set_compute_data_type(frontend::DataType_t::FLOAT);
    auto const scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head)));
    Operand const x_q = input(q, query_heads(), shape.q_stride),
                  x_k = input(k, piece.key_heads, shape.kv_stride),
                  x_v = input(v, piece.key_heads, shape.kv_stride);
    if (pass == Pass::forward) {
      auto const results = graph_->sdpa(x_q, x_k, x_v,
                                        frontend::graph::SDPA_attributes()
                                            .set_name("attention_forward")
                                            .set_generate_stats(true)
                                            .set_causal_mask(true)
                                            .set_attn_scale(scale));
      output(*results[0], out, query_heads(), width());
      results[1]->set_output(true).set_uid(logsumexp).set_data_type(frontend::DataType_t::FLOAT);
      results[1]->set_dim(sum_dims()).set_stride(sum_strides());
    } else {
      Operand const sums = graph_->tensor(frontend::graph::Tensor_attributes()
                                              .set_name("logsumexp")
                                              .set_uid(logsumexp)
                                              .set_dim(sum_dims())
                                              .set_stride(sum_strides())
                                              .set_data_type(frontend::DataType_t::FLOAT));
      auto const results = graph_->sdpa_backward(x_q, x_k, x_v, input(out, query_heads(), width()),
                                                 input(dout, query_heads(), width()), sums,
                                                 frontend::graph::SDPA_backward_attributes()
                                                     .set_name("attention_backward")
                                                     .set_causal_mask(true)
                                                     .set_attn_scale(scale));
      output(*results[0], dq, query_heads(), shape.dq_stride);
      output(*results[1], dk, piece.key_heads, shape.dkv_stride);
      output(*results[2], dv, piece.key_heads, shape.dkv_stride);
    }
    require(graph_->build(handle, {frontend::HeurMode_t::A, frontend::HeurMode_t::FALLBACK}));
    std::int64_t bytes = 0;
    require(graph_->get_workspace_size(bytes));
    workspace_bytes_ = bytes;
  }

  std::int64_t workspace_bytes() const { return workspace_bytes_; }

  /// Enqueues the pass on the piece that starts at `sample` and `key_head`.
  void run(cudnnHandle_t handle, CudnnOperands const& at, std::int64_t sample, std::int64_t key_head,
           std::span<std::byte> workspace) const {
    std::int64_t const row = sample * shape_.sequence, query_head = key_head * shape_.group;
    auto const queries = [&](void* data, std::int64_t stride) {
      return moved(data, 2 * (row * stride + query_head * shape_.head));
    };
    auto const keys = [&](void* data, std::int64_t stride) {
      return moved(data, 2 * (row * stride + key_head * shape_.head));
    };
    std::unordered_map<std::int64_t, void*> addresses{
        {q, queries(at.q, shape_.q_stride)},
        {k, keys(at.k, shape_.kv_stride)},
        {v, keys(at.v, shape_.kv_stride)},
        {out, queries(at.out, width())},
        {logsumexp, moved(at.logsumexp, 4 * (sample * shape_.heads + query_head) * shape_.sequence)}};
    if (at.dout) {
      addresses.emplace(dout, queries(at.dout, width()));
      addresses.emplace(dq, queries(at.dq, shape_.dq_stride));
      addresses.emplace(dk, keys(at.dk, shape_.dkv_stride));
      addresses.emplace(dv, keys(at.dv, shape_.dkv_stride));
    }
    require(graph_->execute(handle, addresses, workspace.data()));
  }

 private:
  using Operand = std::shared_ptr<frontend::graph::Tensor_attributes>;
  using Numbers = std::vector<std::int64_t>;

  static void* moved(void* data, std::int64_t bytes) { return static_cast<std::byte*>(data) + bytes; }

  std::int64_t query_heads() const { return piece_.key_heads * shape_.group; }
  std::int64_t width() const { return shape_.heads * shape_.head; }
  /// Returns dimensions in cuDNN's order: samples, heads, rows, channels. The order in memory is given by
  /// `strides`.
  Numbers dims(std::int64_t heads) const { return {piece_.samples, heads, shape_.sequence, shape_.head}; }
  Numbers strides(std::int64_t row) const { return {shape_.sequence * row, shape_.head, row, 1}; }
  Numbers sum_dims() const { return {piece_.samples, query_heads(), shape_.sequence, 1}; }
  /// Returns the strides of logsumexp. A piece has all heads or only one sample, so its part of logsumexp has
  /// no gaps, as cuDNN requires.
  Numbers sum_strides() const { return {query_heads() * shape_.sequence, shape_.sequence, 1, 1}; }

  Operand input(Tensor name, std::int64_t heads, std::int64_t row) {
    return graph_->tensor(
        frontend::graph::Tensor_attributes().set_uid(name).set_dim(dims(heads)).set_stride(strides(row)));
  }
  void output(frontend::graph::Tensor_attributes& of, Tensor name, std::int64_t heads,
              std::int64_t row) const {
    of.set_output(true).set_uid(name).set_dim(dims(heads)).set_stride(strides(row));
  }

  CudnnShape shape_;
  Piece piece_;
  std::unique_ptr<frontend::graph::Graph> graph_;
  std::int64_t workspace_bytes_ = 0;
};

/// The cuDNN plans of one pass over a shape. The plan `piece` runs pieces of the full size. If the last piece
/// is smaller, the plan `last` runs it.
struct Plans {
  std::optional<Plan> piece, last;
  Piece size{};
};

class Cudnn final : public tessera::cuda::CudnnAttention {
 public:
  Cudnn() {
    RelaxedCaptureMode const relaxed;
    version_ = cudnnGetVersion();
    if (version_ < oldest_version)
      unusable_ = "cuDNN " + version_text(version_) + " is older than " + version_text(oldest_version);
    else if (cudnnStatus_t const status = cudnnCreate(&handle_); status != CUDNN_STATUS_SUCCESS)
      unusable_ = std::string("cudnnCreate: ") + cudnnGetErrorString(status);
  }
  Cudnn(Cudnn const&) = delete;
  Cudnn& operator=(Cudnn const&) = delete;
  ~Cudnn() override {
    plans_.clear();
    if (handle_) cudnnDestroy(handle_);
  }

  std::string forward(CudnnShape const& shape, CudnnOperands const& at, void* stream,
                      std::span<std::byte> workspace) noexcept override {
    return enqueue(Pass::forward, shape, at, stream, workspace);
  }
  std::string backward(CudnnShape const& shape, CudnnOperands const& at, void* stream,
                       std::span<std::byte> workspace) noexcept override {
    return enqueue(Pass::backward, shape, at, stream, workspace);
  }

 private:
  std::string enqueue(Pass pass, CudnnShape const& shape, CudnnOperands const& at, void* stream,
                      std::span<std::byte> workspace) noexcept {
    try {
      if (!unusable_.empty()) throw Failed{unusable_};
      check(shape, at);
      require(cudnnSetStream(handle_, static_cast<cudaStream_t>(stream)), "cudnnSetStream");
      Plans const& plans = plans_of(pass, shape, static_cast<std::int64_t>(workspace.size()));
      for (std::int64_t sample = 0; sample < shape.samples; sample += plans.size.samples)
        for (std::int64_t head = 0; head < shape.heads / shape.group; head += plans.size.key_heads) {
          bool const full_piece = sample + plans.size.samples <= shape.samples &&
                                  head + plans.size.key_heads <= shape.heads / shape.group;
          (full_piece ? plans.piece : plans.last)->run(handle_, at, sample, head, workspace);
        }
      return {};
    } catch (Failed const& failed) {
      return refusal(shape, failed.reason);
    } catch (std::exception const& error) {
      return refusal(shape, error.what());
    }
  }

  static std::string refusal(CudnnShape const& shape, std::string const& reason) {
    return "cuDNN does not support " + std::string(name_of(shape.type)) + " attention with " +
           std::to_string(shape.samples) + " x " + std::to_string(shape.sequence) + " positions, " +
           std::to_string(shape.heads) + " heads of " + std::to_string(shape.head) + " channels, " +
           std::to_string(shape.heads / shape.group) + " key heads (" + reason +
           "); use attention auto or fused";
  }

  /// Throws Failed if the operands are neither fp16 nor bf16, or if strides or addresses are not aligned.
  /// cuDNN's kernels load 16 bytes at a time and do not check the alignment themselves.
  static void check(CudnnShape const& shape, CudnnOperands const& at) {
    if (shape.type != tessera::DType::f16 && shape.type != tessera::DType::bf16)
      throw Failed{"the operands must be fp16 or bf16"};
    for (std::int64_t const number :
         {shape.head, shape.q_stride, shape.kv_stride, shape.dq_stride, shape.dkv_stride})
      if (number % 8 != 0) throw Failed{"the channels of a head and the row strides must be multiples of 8"};
    for (void const* const data : {at.q, at.k, at.v, at.out, at.dout, at.dq, at.dk, at.dv})
      if (reinterpret_cast<std::uintptr_t>(data) % 16 != 0)
        throw Failed{"the addresses of operands must be multiples of 16 bytes"};
  }

  /// Divides `all` samples or heads into equal parts, as few as possible, such that one part fits into a
  /// workspace of `limit` bytes. need_of(part) returns the bytes of workspace for a part of size `part`.
  /// Returns the size of a part, or 0 if even one sample or head does not fit.
  template <class Need>
  static std::int64_t largest_part(std::int64_t all, std::int64_t limit, Need const& need_of) {
    for (std::int64_t part = all; part > 0;) {
      std::int64_t const need = need_of(part);
      if (need <= limit) return part;
      // assumes that the need is proportional to the part
      std::int64_t const fit = std::min(part - 1, part * limit / need);
      if (fit == 0) return 0;
      std::int64_t const parts = (all + fit - 1) / fit;
      part = (all + parts - 1) / parts;
    }
    return 0;
  }

  /// Returns the cuDNN plans of the pass `pass` over the shape `shape`. The first call for a pass and a shape
  /// makes the plans. If the workspace of `workspace` bytes suffices, a piece has all samples. Otherwise it
  /// has as many samples as fit, or, if not even one sample fits, some key heads of one sample.
  Plans const& plans_of(Pass pass, CudnnShape const& shape, std::int64_t workspace) {
    Plans& plans = plans_[{pass, shape, workspace}];
    if (plans.piece) return plans;
    RelaxedCaptureMode const relaxed;
    std::int64_t const key_heads = shape.heads / shape.group;
    std::optional<Plan> plan;
    auto const need_of = [&](Piece piece) {
      plan.emplace(handle_, pass, shape, piece);
      return plan->workspace_bytes();
    };
    std::int64_t const samples = largest_part(shape.samples, workspace, [&](std::int64_t part) {
      return need_of({part, key_heads});
    });
    std::int64_t const heads =
        samples > 0 ? key_heads : largest_part(key_heads, workspace, [&](std::int64_t part) {
          return need_of({1, part});
        });
    if (heads == 0)
      throw Failed{"one key head needs " + std::to_string(plan->workspace_bytes()) +
                   " bytes of workspace, but the size of the workspace is " + std::to_string(workspace)};
    plans.size = {std::max<std::int64_t>(samples, 1), heads};
    Piece const last{samples > 0 ? shape.samples % samples : 1, key_heads % heads};
    if (samples > 0 && last.samples > 0) plans.last.emplace(handle_, pass, shape, Piece{last.samples, heads});
    if (samples == 0 && last.key_heads > 0) plans.last.emplace(handle_, pass, shape, last);
    plans.piece = std::move(plan);
    return plans;
  }

  std::size_t version_ = 0;
  std::string unusable_;
  cudnnHandle_t handle_ = nullptr;
  std::map<std::tuple<Pass, CudnnShape, std::int64_t>, Plans> plans_;
};

std::unique_ptr<tessera::cuda::CudnnAttention> make() { return std::make_unique<Cudnn>(); }

[[maybe_unused]] bool const registered = tessera::cuda::CudnnAttention::offer(make);

}  // namespace
