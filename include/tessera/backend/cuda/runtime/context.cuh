// SPDX-License-Identifier: Apache-2.0
// Provides the context of a GPU, through which one rank enqueues its operations. It consists of the streams
// of a step's lanes, CUDA graphs, host tasks, transfers, workspaces, and plans of products (choices of
// cuBLASLt algorithms).
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

/// Enqueues operations on one GPU. The functions that a step calls do not wait and do not throw; `raise`
/// throws the first failure later. After `reserve` and the first step, these functions do not allocate memory
/// either. One function differs: `upload` sometimes waits or allocates memory, as its comment explains. Only
/// one thread at a time may use a context, and the context's GPU must be current in this thread. All enqueued
/// work must have ended (`finished`) before the context is destroyed.
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
  /// Makes the GPU `device` current for this thread. Throws Error(unsupported) if the program cannot use it.
  static void select(int device) { cuda::select_device(device); }
  /// Returns the NUMA node next to the GPU `device`, as Linux reports it, or -1 if it is not known.
  static int numa_node(int device) { return cuda::numa_node(device); }

  /// Creates a context in which operations use `workspace`, device memory that the caller owns, and host
  /// tasks use `threads` threads. `math` is the arithmetic of the operations. If there is a recorder, each
  /// operation is reported to it instead of enqueued, and the workspace may be empty. If `cores` is not
  /// empty, each thread of host tasks but the first runs on its own core (ThreadPool).
  Context(int threads, std::span<std::byte> workspace, Recorder* recorder = nullptr, Math const& math = {},
          affinity::Cores cores = {})
      : MathChannel(math), recorder_(recorder), host_(threads, {}, nullptr, {}, std::move(cores)) {
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

  /// Sets the workspace of Lane::gradients. It must be as large as the workspace that the constructor
  /// receives. Lane::gradients runs at the same time as the compute lane, so the two lanes cannot share a
  /// workspace.
  void set_gradients_workspace(std::span<std::byte> workspace) noexcept {
    workspaces_.set(1, workspace, piece_terms(math().product) > 0);
  }

  /// Allocates an event for each of the `entries` entries of a step, and pinned memory for uploads of at most
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
  /// Returns the object that runs cuDNN's attention, or null if the program does not link tessera::cudnn.
  cuda::CudnnAttention* cudnn_attention() { return products_.cudnn_attention(); }
  /// Returns the workspace of the current lane: device memory, aligned to 256 bytes, whose contents last
  /// until the operation ends. Only operations of the compute lane and of Lane::gradients may use it. Each of
  /// these two lanes has its own workspace.
  std::span<std::byte> workspace() const noexcept { return of_lane().whole; }
  /// Returns the part of the workspace that holds pieces: the bfloat16 summands into which products split
  /// fp32 operands. It is empty if the format of the products has no pieces.
  std::span<std::byte> pieces() const noexcept { return of_lane().pieces; }
  Recorder* recorder() const noexcept { return recorder_; }

  /// Calls `body`, which launches kernels or library calls on `stream()`. If a launch fails, the failure is
  /// kept with the name of the operation. With a recorder, reports the operation instead of calling `body`.
  /// Does nothing after an earlier failure.
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

  /// Returns the list of pending sums over rows. While a batch of row sums (ops::RowSumBatch) is open,
  /// operations add their sums to this list and do not compute them. One kernel launch computes all sums of
  /// the list when the list is full, and when the outermost batch ends.
  cuda::RowSums& row_sums() noexcept { return row_sums_; }
  bool collects_row_sums() const noexcept { return row_sum_batches_ > 0; }
  void open_row_sums() noexcept { ++row_sum_batches_; }
  /// Closes the innermost open batch. Returns whether it was the outermost one.
  bool close_row_sums() noexcept { return --row_sum_batches_ == 0; }

  /// If `status` is an error, keeps it as the failure of the call `what`, unless an earlier failure is kept.
  template <class Status>
  void check(Status status, char const* what) noexcept {
    failure_.check(status, what);
  }
  /// Throws Error(failed) with the first failure, or rethrows the first exception of a host task. Returns if
  /// there is neither.
  void raise() const {
    failure_.raise();
    host_tasks_.raise();
  }

  /// `begin` and `end` enclose the operations of one entry of a step: one computation or one transfer.
  /// `begin` directs the operations to the lane `lane` and makes them wait for the entries in `waits`, which
  /// must have been enqueued before. `end` records an event if other entries wait for this one (`signals`).
  /// Entries are numbered from 0; the number is less than the `entries` of `reserve`.
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

  /// Times the step that is enqueued between begin_timing and end_timing, with an event before and after each
  /// entry. `instances` is the number of entries that the step runs. When the step has ended, `report_times`
  /// passes the times to `timer`. Timed steps have their own CUDA graph, so the graph of untimed steps
  /// contains no timing events. begin_timing waits for all earlier work of the compute lane.
  void begin_timing(EntryTimer& timer, std::int64_t instances) {
    times_.start(timer, static_cast<std::size_t>(instances), lanes_.compute());
    timer_ = &timer;
  }
  void end_timing() noexcept { timed_ = std::exchange(timer_, nullptr); }
  void report_times() { times_.report(std::exchange(timed_, nullptr)); }

  /// Calls `body`, which enqueues the entries of a step on all lanes. All lanes start after the earlier work
  /// of the compute lane, and the compute lane waits for their end. If `graph` is true, only the first call
  /// with the number `program` (0 for training, 1 for evaluation) calls `body`. The first call captures the
  /// work as a CUDA graph and launches the graph. Every later call launches this graph, so all steps with one
  /// number must consist of identical work. Returns whether `body` ran.
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

  /// Enqueues the host function work(host, data) in the order of the current lane, in graphs too. Other lanes
  /// and their host tasks continue. `work` runs on a thread of the lane and must not call CUDA. On Lane::host
  /// it gets the host's context with all its threads. On other lanes it gets a context with only its own
  /// thread, because `work` mostly waits there, for example for a disk. `raise` rethrows an exception of
  /// `work`. The object at `data` must live as long as the step can be repeated. The pointer `data`
  /// identifies the task, so each task needs its own object. Fails on a GPU or driver without stream-memory
  /// operations.
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

  /// Copies `bytes` bytes of the host to the device in the order of the compute lane. The caller may
  /// overwrite `from` as soon as the call returns. The call waits only until the eighth upload before this
  /// one has ended. It allocates pinned memory only if `bytes` exceeds the `upload_bytes` of `reserve`.
  void upload(void* to, void const* from, std::size_t bytes) noexcept {
    if (forbidden("upload")) return;
    uploads_.upload(to, from, bytes, lanes_.compute());
  }

  // ---- results that the host reads later ------------------------------------------------------------------

  /// False: a step possibly still runs when the call that enqueued it returns.
  static constexpr bool immediate = false;
  /// A slot is pinned host memory for the result of one step. There are arrival_slots slots of arrival_bytes
  /// bytes each, so this number of results can be pending.
  static constexpr std::size_t arrival_slots = cuda::Readbacks::slots;
  static constexpr std::int64_t arrival_bytes = cuda::Readbacks::bytes_of_slot;

  /// Marks the beginning of the step whose result goes to `slot`. The earlier result in the slot must have
  /// been read.
  void mark_begin(int slot) noexcept { readbacks_.mark_begin(slot, lanes_.compute()); }
  /// Marks the end of the step, and starts to copy its result to the slot: `bytes` bytes (at most
  /// arrival_bytes) at the device address `from`.
  void begin_readback(int slot, void const* from, std::size_t bytes) noexcept {
    readbacks_.begin(slot, from, bytes, lanes_.compute());
  }
  /// Whether the step whose result goes to `slot` has ended. A step that failed has ended too.
  bool arrived(int slot) noexcept { return readbacks_.arrived(slot); }
  std::byte const* readback(int slot) const noexcept { return readbacks_.result(slot); }
  /// Returns the seconds from mark_begin(slot) to begin_readback(slot, ...), on the device's clock.
  double seconds(int slot) noexcept { return readbacks_.seconds(slot); }
  /// Returns the seconds from the begin_readback of the previous step to the begin_readback of this slot, on
  /// the device's clock. For the first step, returns the seconds from its mark_begin to its begin_readback.
  double interval(int slot) noexcept { return readbacks_.interval(slot); }

  // ---- outside steps --------------------------------------------------------------------------------------

  /// Copies `bytes` bytes of the device to the host. Waits for all enqueued work.
  void read(void const* from, void* to, std::size_t bytes) {
    if (forbidden("read")) return;
    synchronize();
    raise();
    cuda::copy_and_wait(to, from, bytes);
  }
  /// Copies bytes of the host to the device, and waits for the copy.
  void write(void* to, void const* from, std::size_t bytes) {
    if (!forbidden("write")) cuda::copy_and_wait(to, from, bytes);
  }
  /// Returns a host address at which the bytes at `from` can be read. If `from` is host memory, returns
  /// `from` itself. If `from` is device memory, copies the bytes to the caller's buffer `buffer` and returns
  /// `buffer`. Waits for all enqueued work.
  std::byte const* host_view(void const* from, std::size_t bytes, std::byte* buffer) {
    if (forbidden("host_view")) return static_cast<std::byte const*>(from);
    synchronize();
    raise();
    if (cuda::is_host(from)) return static_cast<std::byte const*>(from);
    cuda::copy_and_wait(buffer, from, bytes);
    return buffer;
  }
  /// Returns a host address at which the caller prepares bytes for `to`. If `to` is host memory, returns `to`
  /// itself. If `to` is device memory, sets the caller's buffer `buffer` to zero and returns `buffer`. When
  /// the bytes are ready, the caller passes the returned address to `unstage`, which copies them to `to` if
  /// necessary.
  std::byte* stage(void* to, std::size_t bytes, std::byte* buffer) {
    if (forbidden("stage") || cuda::is_host(to)) return static_cast<std::byte*>(to);
    std::memset(buffer, 0, bytes);
    return buffer;
  }
  void unstage(void* to, std::byte const* staged, std::size_t bytes) {
    if (to != staged) write(to, staged, bytes);
  }
  /// The following functions copy state (weights and optimizer state) to pinned memory between steps, on a
  /// separate stream. Call `reserve_copies` before the first step. To copy, call `copy` for each array and
  /// then `end_copies`. A copy from host memory has ended when `copy` returns. Every later step calls
  /// `await_copies`, so that its updates wait for the copies; this works in CUDA graphs too. `copied` returns
  /// whether the copies have ended. Any thread in which the GPU is current may call `copied`.
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
  /// Sets bytes of the device or of the host to zero, and waits for completion.
  void clear(void* to, std::size_t bytes) {
    if (!forbidden("clear")) cuda::clear_and_wait(to, bytes);
  }
  /// The context of the host. Its threads prepare staged bytes and run host tasks.
  Context<Cpu>& host() noexcept { return host_; }

  /// Whether all enqueued work has ended. Work that failed has ended too.
  bool finished() noexcept { return recorder_ || (lanes_.finished() && (!copies_ || copies_.finished())); }
  /// Waits for all enqueued work, however long it takes. A caller with a time limit polls `finished` instead.
  /// A step never calls this function.
  void synchronize() noexcept {
    if (forbidden("synchronize")) return;
    lanes_.synchronize();
    if (copies_) copies_.synchronize();
  }

 private:
  cuda::Workspaces::Workspace const& of_lane() const noexcept {
    return workspaces_.at(lanes_.is(Lane::gradients) ? 1 : 0);
  }
  /// Returns whether the context has a recorder. If so, reports to the recorder that a step called `what`, a
  /// function that steps must not call.
  bool forbidden(char const* what) noexcept {
    if (recorder_) recorder_->violation(what);
    return recorder_ != nullptr;
  }

  Recorder* recorder_;
  cuda::FirstFailure failure_;
  cuda::Workspaces workspaces_;
  cuda::Lanes lanes_{failure_};
  cuda::RowSums row_sums_;
  int row_sum_batches_ = 0;  // the number of open batches, one inside the other
  cuda::ProductState products_;
  cuda::EntryEvents times_;
  EntryTimer *timer_ = nullptr,
             *timed_ = nullptr;  // timer_: set by begin_timing; timed_: set by end_timing until report_times
  cuda::StepGraphs graphs_{failure_};
  cuda::Readbacks readbacks_{failure_};
  cuda::Uploads uploads_{failure_};
  cuda::StateCopies copies_{failure_};
  Context<Cpu> host_;
  cuda::HostTasks host_tasks_{failure_};  // destroyed first: its threads use host_
};

}  // namespace v0
}  // namespace tessera
