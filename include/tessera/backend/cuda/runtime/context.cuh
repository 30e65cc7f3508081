// SPDX-License-Identifier: Apache-2.0
// Provides the context of a GPU, composed of the streams of a step's lanes, CUDA graphs, host tasks,
// transfers, workspaces and the plans of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cuda_runtime.h>
#include <exception>
#include <span>
#include <utility>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cuda/kernels/row_sums.hpp"
#include "tessera/backend/cuda/products/product_state.cuh"
#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/backend/cuda/runtime/device.cuh"
#include "tessera/backend/cuda/runtime/entry_events.cuh"
#include "tessera/backend/cuda/runtime/failure.cuh"
#include "tessera/backend/cuda/runtime/host_tasks.cuh"
#include "tessera/backend/cuda/runtime/lanes.cuh"
#include "tessera/backend/cuda/runtime/step_graphs.cuh"
#include "tessera/backend/cuda/runtime/transfers.cuh"
#include "tessera/backend/math.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"

namespace tessera {
inline namespace v0 {

/// Enqueues operations on one GPU. The functions that a step calls do not wait, throw or (after `reserve` and
/// the first step) allocate; `raise` throws the first failure later. Only one thread at a time may use a
/// context, with its device current. All enqueued work must have ended (`finished`) before the context is
/// destroyed.
template <>
class Context<Cuda> : public MathChannel {
 public:
  using place_type = Cuda;
  static constexpr std::size_t blas_bytes = cuda::blas_bytes;
  /// Returns the bytes of workspace for micro-batches of `tokens` tokens and matrix products in the format
  /// `product`.
  static constexpr std::size_t workspace_bytes(int /*threads*/, std::int64_t tokens,
                                               DType product = DType::f32) {
    return cuda::workspace_bytes(tokens, product);
  }
  /// Makes the GPU of a rank current for this thread. Throws Error(unsupported) if it cannot be used.
  static void select(int device) { cuda::select_device(device); }

  /// `workspace` is device memory that the caller owns. `threads` threads run host tasks. With a recorder,
  /// nothing is enqueued and the workspace may be empty.
  Context(int threads, std::span<std::byte> workspace, Recorder* recorder = nullptr, Math const& math = {})
      : MathChannel(math), recorder_(recorder), host_(threads, {}) {
    if (recorder) return;
    lanes_.open();
    readbacks_.open();
    uploads_.open();
    host_tasks_.open();
    products_.open(workspace.size());
    workspaces_.set(0, workspace, piece_terms(math.product) > 0);
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  /// Gives Lane::gradients its own workspace of the same size, since it runs at the same time as the compute
  /// lane.
  void set_gradients_workspace(std::span<std::byte> workspace) noexcept {
    workspaces_.set(1, workspace, piece_terms(math().product) > 0);
  }

  /// Allocates an event for each of `entries` entries, and pinned memory for uploads of at most
  /// `upload_bytes` bytes each. Call it before the first step.
  void reserve(std::size_t entries, std::size_t upload_bytes) {
    if (recorder_) return;
    lanes_.reserve(entries);
    uploads_.reserve(upload_bytes);
  }

  /// The stream of the current lane, on which operations are enqueued.
  cudaStream_t stream() const noexcept { return lanes_.stream(); }
  void* native_stream() const noexcept { return stream(); }
  cuda::BlasPlans& plans() noexcept { return products_.plans(); }
  /// cuDNN's attention and its plans in programs that link tessera::cudnn; null in other programs.
  cuda::CudnnAttention* cudnn_attention() { return products_.cudnn_attention(); }
  /// Device memory, aligned to 256 bytes. Its contents last until the operation ends. Only operations of the
  /// compute and gradients lanes may use it; each of these lanes has its own.
  std::span<std::byte> workspace() const noexcept { return of_lane().whole; }
  /// The part of the workspace for the pieces (bf16 splits) of products; empty if products have none.
  std::span<std::byte> pieces() const noexcept { return of_lane().pieces; }
  Recorder* recorder() const noexcept { return recorder_; }

  /// Runs a body that launches kernels or library calls on `stream()`. With a recorder, reports the operation
  /// instead. Does nothing after a failure.
  template <class F>
  void enqueue(Operation const& operation, F&& body) noexcept {
    if (recorder_) {
      recorder_->operation(operation);
      return;
    }
    if (failure_) return;
    std::forward<F>(body)();
    check(cudaGetLastError(), operation.name);
  }

  /// Sums over rows that are collected until the open batch ends (ops::RowSumBatch).
  cuda::RowSums& row_sums() noexcept { return row_sums_; }
  bool collects_row_sums() const noexcept { return row_sum_batches_ > 0; }
  void open_row_sums() noexcept { ++row_sum_batches_; }
  /// Returns whether the outermost batch has ended.
  bool close_row_sums() noexcept { return --row_sum_batches_ == 0; }

  /// Keeps the first failure. `what` is a string literal.
  template <class Status>
  void check(Status status, char const* what) noexcept {
    failure_.check(status, what);
  }
  /// Throws Error(failed) with the first failure, or the exception of a host task.
  void raise() const {
    failure_.raise();
    host_tasks_.raise();
  }

  /// `begin` and `end` enclose an entry of a step: one computation or one transfer. `begin` directs later
  /// operations to a lane and makes them wait for the entries in `waits`. `end` records an event if other
  /// entries wait for this one. Entries are numbered from 0 and below the number reserved; `waits` names
  /// entries that were enqueued before.
  void begin(int entry, Lane lane, std::span<int const> waits) noexcept {
    if (recorder_) return;
    lanes_.begin(lane, waits);
    if (timer_) check(times_.begin(entry, stream(), graphs_.recording()), "cudaEventRecord");
  }
  void end(int entry, bool signals) noexcept {
    if (recorder_) return;
    if (timer_) check(times_.end(stream(), graphs_.recording()), "cudaEventRecord");
    lanes_.end(entry, signals);
  }

  /// Until `end_timing`, records an event before and after each entry of a step. `instances` is the number of
  /// entries that the step runs. Timed steps use a separate graph, so that other graphs have no events. Waits
  /// for all work enqueued before. When the step has ended, `report_times` passes the times to the timer.
  void begin_timing(EntryTimer& timer, std::int64_t instances) {
    times_.start(timer, static_cast<std::size_t>(instances), lanes_.compute());
    timer_ = &timer;
  }
  void end_timing() noexcept { timed_ = std::exchange(timer_, nullptr); }
  void report_times() { times_.report(std::exchange(timed_, nullptr)); }

  /// Enqueues the entries of a step on all lanes. All lanes start after the earlier work of the compute lane,
  /// and the compute lane waits for their end. With `graph`, the first run of `program` is captured as a CUDA
  /// graph, instantiated and launched. Every later run is one launch, so the body must enqueue the same work
  /// every time. Returns whether the body ran.
  template <class F>
  bool replay(std::size_t program, bool graph, F&& body) {
    auto const enqueue_all = [&] {
      if (recorder_) {
        body();
        return;
      }
      if (timer_) check(times_.begin(-1, lanes_.compute(), graphs_.recording()), "cudaEventRecord");
      lanes_.fork();
      body();
      lanes_.join();
      if (timer_) check(times_.end_step(lanes_.compute(), graphs_.recording()), "cudaEventRecord");
    };
    if (graph && !recorder_)
      return graphs_.replay(timer_ ? cuda::StepGraphs::timed_training : program, lanes_.compute(),
                            host_tasks_, enqueue_all);
    enqueue_all();
    return true;
  }

  /// Enqueues host code in the order of the lane, in graphs too. Other lanes and their host tasks continue.
  /// `work` runs on a thread of the lane and must not call CUDA. On Lane::host it gets the context of the
  /// host with its threads. On other lanes it gets a context with only that thread, since such work mostly
  /// waits, for example for a disk. `raise` rethrows its exceptions. The object at `data` must live as long
  /// as the step may be repeated. The pointer identifies the task: the same pointer means the same task.
  /// Fails on a GPU or driver without stream-memory operations.
  void host_task(Operation const& operation, void (*work)(Context<Cpu>& host, void* data),
                 void* data) noexcept {
    enqueue(operation, [&] {
      try {
        host_tasks_.enqueue(lanes_.index(), stream(), host_, work, data, graphs_.counts());
      } catch (std::exception const& error) {
        failure_.keep(error.what());
      }
    });
  }

  /// Copies host bytes to the device in the order of the compute lane. `from` may be reused at once. Waits
  /// only for the eighth upload before this one. Allocates pinned memory if an upload is larger than
  /// reserved.
  void upload(void* to, void const* from, std::size_t bytes) noexcept {
    if (forbidden("upload")) return;
    uploads_.upload(to, from, bytes, lanes_.compute());
  }

  // ---- results that the host reads later ------------------------------------------------------------------

  /// A step may still run when the call that enqueued it returns.
  static constexpr bool immediate = false;
  /// The number of results that may be pending, and the bytes of each.
  static constexpr std::size_t arrival_slots = cuda::Readbacks::slots;
  static constexpr std::int64_t arrival_bytes = cuda::Readbacks::bytes_of_slot;

  /// Marks the beginning of a slot's step. The slot's last result must have been read.
  void mark_begin(int slot) noexcept { readbacks_.mark_begin(slot, lanes_.compute()); }
  /// Marks the end of the step, and starts to copy up to arrival_bytes to the host.
  void begin_readback(int slot, void const* from, std::size_t bytes) noexcept {
    readbacks_.begin(slot, from, bytes, lanes_.compute());
  }
  /// Whether the step has ended; a failure counts as an end.
  bool arrived(int slot) noexcept { return readbacks_.arrived(slot); }
  std::byte const* readback(int slot) const noexcept { return readbacks_.result(slot); }
  /// The time from mark_begin to begin_readback, on the device's clock.
  double seconds(int slot) noexcept { return readbacks_.seconds(slot); }
  /// The time from the last begin_readback to this one, on the device's clock. For the first step, the time
  /// from its mark_begin.
  double interval(int slot) noexcept { return readbacks_.interval(slot); }

  // ---- outside steps --------------------------------------------------------------------------------------

  /// Copies bytes of the device to the host. Waits for all enqueued work.
  void read(void const* from, void* to, std::size_t bytes) {
    if (forbidden("read")) return;
    synchronize();
    raise();
    cuda::copy_and_wait(to, from, bytes);
  }
  /// Copies bytes of the host to the device and waits for the copy, as `clear` waits for its zeros.
  void write(void* to, void const* from, std::size_t bytes) {
    if (!forbidden("write")) cuda::copy_and_wait(to, from, bytes);
  }
  /// Copies bytes of the device to the caller's buffer `buffer` and returns `buffer`. Returns `from` itself
  /// if that is host memory. Waits for all enqueued work.
  std::byte const* host_view(void const* from, std::size_t bytes, std::byte* buffer) {
    if (forbidden("host_view")) return static_cast<std::byte const*>(from);
    synchronize();
    raise();
    if (cuda::is_host(from)) return static_cast<std::byte const*>(from);
    cuda::copy_and_wait(buffer, from, bytes);
    return buffer;
  }
  /// Zeroes and returns the caller's buffer `buffer`, in which the caller prepares bytes for the device.
  /// Returns `to` itself if that is host memory. `unstage` copies the bytes to the device.
  std::byte* stage(void* to, std::size_t bytes, std::byte* buffer) {
    if (forbidden("stage") || cuda::is_host(to)) return static_cast<std::byte*>(to);
    std::memset(buffer, 0, bytes);
    return buffer;
  }
  void unstage(void* to, std::byte const* staged, std::size_t bytes) {
    if (to != staged) write(to, staged, bytes);
  }
  /// The following functions copy state to pinned memory between steps (`copy`, then `end_copies`), on a
  /// separate stream. A copy from host memory has ended when `copy` returns. Every later step waits for the
  /// copies right before its updates (`await_copies`), in graphs too. `copied` returns whether they have
  /// ended; any thread may call it with the device current. Call `reserve_copies` before the first step.
  void reserve_copies() {
    copies_.open();
    end_copies();
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    if (forbidden("copy")) return;
    if (cuda::is_host(from)) return host_.copy(to, from, bytes);
    copies_.copy(to, from, bytes);
  }
  void end_copies() {
    copies_.mark_end();
    raise();
  }
  bool copied() const { return copies_.ended(); }
  void await_copies() noexcept {
    if (!recorder_ && copies_) copies_.await(stream(), graphs_.recording());
  }
  void clear(void* to, std::size_t bytes) {
    if (!forbidden("clear")) cuda::clear_and_wait(to, bytes);
  }
  /// The context of the host. Its threads prepare staged bytes and run host tasks.
  Context<Cpu>& host() noexcept { return host_; }

  /// Whether all enqueued work has ended; a failure counts as an end.
  bool finished() noexcept { return recorder_ || (lanes_.finished() && (!copies_ || copies_.finished())); }
  /// Waits for all enqueued work without a time limit; `finished` polls instead. A step never calls it.
  void synchronize() noexcept {
    if (forbidden("synchronize")) return;
    lanes_.synchronize();
    if (copies_) copies_.synchronize();
  }

 private:
  cuda::Workspaces::Workspace const& of_lane() const noexcept {
    return workspaces_.at(lanes_.is(Lane::gradients) ? 1 : 0);
  }
  /// Returns whether the context has a recorder. If so, reports to it that a step called `what`, which is
  /// forbidden.
  bool forbidden(char const* what) noexcept {
    if (recorder_) recorder_->violation(what);
    return recorder_ != nullptr;
  }

  Recorder* recorder_;
  cuda::FirstFailure failure_;
  cuda::Workspaces workspaces_;
  cuda::Lanes lanes_{failure_};
  cuda::RowSums row_sums_;
  int row_sum_batches_ = 0;  // nesting depth of open batches
  cuda::ProductState products_;
  cuda::EntryEvents times_;
  EntryTimer *timer_ = nullptr,
             *timed_ = nullptr;  // timer_: while a step is enqueued; timed_: from then until its report
  cuda::StepGraphs graphs_{failure_};
  cuda::Readbacks readbacks_{failure_};
  cuda::Uploads uploads_{failure_};
  cuda::StateCopies copies_{failure_};
  Context<Cpu> host_;
  cuda::HostTasks host_tasks_{failure_};  // destroyed first: its threads use host_
};

}  // namespace v0
}  // namespace tessera
