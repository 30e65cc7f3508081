// SPDX-License-Identifier: Apache-2.0
// Provides the context of a GPU: streams for the lanes of a step, a workspace, cuBLASLt, CUDA graphs, and the
// first failure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cublasLt.h>
#include <cuda_runtime.h>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/backend/cuda/attention_cudnn.hpp"
#include "tessera/backend/cuda/blas.cuh"
#include "tessera/backend/cuda/budget.hpp"
#include "tessera/backend/cuda/device.cuh"
#include "tessera/backend/cuda/entry_events.cuh"
#include "tessera/backend/cuda/error.cuh"
#include "tessera/backend/cuda/handles.cuh"
#include "tessera/backend/cuda/host_worker.hpp"
#include "tessera/backend/cuda/memory.cuh"
#include "tessera/backend/cuda/row_sums.hpp"
#include "tessera/backend/cuda/stream_memory.cuh"
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
  /// Bytes of workspace for micro-batches of `tokens` tokens and matrix products in a format.
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
    // All lanes but Lane::gradients have priority on the device, since other entries wait for them.
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      lanes_[lane] = cuda::make_stream(lane == static_cast<std::size_t>(Lane::gradients) ? 0 : -1);
    for (cuda::Event& event : joins_) event = cuda::make_event();
    for (Arrival& arrival : arrivals_) {
      arrival.begun = cuda::make_event(cudaEventDefault);
      arrival.memory = Arena<cuda::PinnedMemory>(arrival_bytes);
    }
    for (cuda::Event& event : ends_) event = cuda::make_event(cudaEventDefault);
    for (Upload& upload : uploads_) upload.done = cuda::make_event();
    batch_memory_ = cuda::batch_memory_operation();
    signal_memory_ = Arena<cuda::PinnedMemory>(sizeof(cuda::HostSignal) * lane_count);
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      signals_[lane] = ::new (signal_memory_.base() + lane * sizeof(cuda::HostSignal)) cuda::HostSignal;
    cublasLtHandle_t blas = nullptr;
    cuda::require(cublasLtCreate(&blas), "cublasLtCreate");
    blas_ = cuda::Blas(blas);
    plans_ = cuda::BlasPlans(blas, blas_bytes < workspace.size() ? blas_bytes : workspace.size());
    workspaces_[0] = parts_of(workspace);
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;

  /// Gives Lane::gradients a workspace of its own, as large as the other one, since operations of both lanes
  /// run at the same time.
  void set_gradients_workspace(std::span<std::byte> workspace) noexcept {
    workspaces_[1] = parts_of(workspace);
  }

  /// Allocates the events of `entries` entries and the memory for uploads of `upload_bytes` bytes before the
  /// first step.
  void reserve(std::size_t entries, std::size_t upload_bytes) {
    if (recorder_) return;
    while (marks_.size() < entries) marks_.push_back(cuda::make_event());
    for (Upload& upload : uploads_) upload.make_room(upload_bytes);
  }

  /// The stream of the current lane, on which operations are enqueued.
  cudaStream_t stream() const noexcept { return lanes_[lane_].get(); }
  void* native_stream() const noexcept { return stream(); }
  cuda::BlasPlans& plans() noexcept { return plans_; }
  /// cuDNN's attention and its plans in programs that link tessera::cudnn; null in others.
  cuda::CudnnAttention* cudnn_attention() {
    if (auto const make = cuda::CudnnAttention::maker(); make && !cudnn_attention_) cudnn_attention_ = make();
    return cudnn_attention_.get();
  }
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

  /// Sums over rows that wait for the end of the open batch (ops::RowSumBatch).
  cuda::RowSums& row_sums() noexcept { return row_sums_; }
  bool collects_row_sums() const noexcept { return row_sum_batches_ > 0; }
  void open_row_sums() noexcept { ++row_sum_batches_; }
  /// Says whether the outermost batch has ended.
  bool close_row_sums() noexcept { return --row_sum_batches_ == 0; }

  /// Keeps the first failure. `what` is a string literal.
  template <class Status>
  void check(Status status, char const* what) noexcept {
    if (cuda::succeeded(status) || failure_) return;
    failure_ = std::string("CUDA: ") + what + " failed: " + cuda::text_of(status);
  }
  /// Throws Error(failed) with the first failure, or the exception of a host task.
  void raise() const {
    if (failure_) throw Error(ErrorKind::failed, *failure_);
    host_failure_.raise();
  }

  /// `begin` directs later operations to a lane, after the entries in `waits`, until `end`. `end` records an
  /// event if other entries wait for this one. Entries are numbered from 0 and below the number reserved;
  /// `waits` names entries that were enqueued before.
  void begin(int entry, Lane lane, std::span<int const> waits) noexcept {
    if (recorder_) return;
    lane_ = static_cast<std::size_t>(lane);
    for (int const other : waits)
      check(cudaStreamWaitEvent(stream(), marks_[static_cast<std::size_t>(other)].get(), 0),
            "cudaStreamWaitEvent");
    if (timer_) check(times_.begin(entry, stream(), recording_), "cudaEventRecord");
  }
  void end(int entry, bool signals) noexcept {
    if (recorder_) return;
    if (timer_) check(times_.end(stream(), recording_), "cudaEventRecord");
    if (signals)
      check(cudaEventRecord(marks_[static_cast<std::size_t>(entry)].get(), stream()), "cudaEventRecord");
    lane_ = 0;
  }

  /// Until `end_timing`, records an event before and after each entry of a step of so many instances. The
  /// step has a graph of its own, so that the graphs of other steps have no events. Waits for all work
  /// enqueued before. When the step has ended, `report_times` passes the times to the timer.
  void begin_timing(EntryTimer& timer, std::int64_t instances) {
    times_.start(timer, static_cast<std::size_t>(instances), lanes_[0].get());
    timer_ = &timer;
  }
  void end_timing() noexcept { timed_ = std::exchange(timer_, nullptr); }
  void report_times() { times_.report(std::exchange(timed_, nullptr)); }

  /// Enqueues a program of entries over all lanes, between two points of the compute lane. With `graph`, its
  /// first run is captured as a CUDA graph, instantiated and launched. Every later run is one launch, so the
  /// body must enqueue the same work every time. Returns whether the body ran.
  template <class F>
  bool replay(std::size_t program, bool graph, F&& body) {
    if (!graph || recorder_) {
      fork();
      body();
      join();
      return true;
    }
    Recorded& recorded = recorded_[timer_ ? 2 : program];
    bool const first = !recorded.graph;
    if (first) recorded = captured(body);
    if (!recorded.graph) return first;
    for (std::size_t lane = 0; lane < lane_count; ++lane)
      if (recorded.host_tasks[lane] > 0) desks_[lane]->worker.expect(recorded.host_tasks[lane]);
    check(cudaGraphLaunch(recorded.graph.get(), lanes_[0].get()), "cudaGraphLaunch");
    return first;
  }

  /// Enqueues host code in the order of the lane, in graphs too. Other lanes and their host tasks go on.
  /// `work` runs on a thread of the lane and must not call CUDA. On Lane::host it gets the context of the
  /// host with its threads. On other lanes it gets a context of that one thread, since such work mostly
  /// waits, for example for a disk. `raise` rethrows its exceptions. The object at `data` must live as long
  /// as the step may be repeated. The pointer identifies the task: a pointer given again is the same task.
  /// Fails on a GPU or driver without stream-memory operations.
  void host_task(Operation const& operation, void (*work)(Context<Cpu>& host, void* data),
                 void* data) noexcept {
    enqueue(operation, [&] {
      try {
        std::optional<Desk>& desk = desks_[lane_];
        if (!desk) desk.emplace(*signals_[lane_]);
        Context<Cpu>& host = lane_ == static_cast<std::size_t>(Lane::host) ? host_ : desk->own;
        auto const task =
            host_tasks_.try_emplace(data, cuda::HostTask{work, data, &host, &host_failure_}).first;
        if (recording_)
          ++recording_->host_tasks[lane_];
        else
          desk->worker.expect(1);
        hand_over(task->second, *signals_[lane_]);
      } catch (std::exception const& error) {
        failure_ = error.what();
      }
    });
  }

  /// Copies host bytes to the device in the order of the compute lane. `from` may be reused at once. Waits
  /// only for the eighth upload before this one. Allocates pinned memory if an upload is larger than
  /// reserved.
  void upload(void* to, void const* from, std::size_t bytes) noexcept {
    if (forbidden("upload")) return;
    Upload& next = uploads_[next_upload_];
    next_upload_ = (next_upload_ + 1) % uploads_.size();
    check(cudaEventSynchronize(next.done.get()), "cudaEventSynchronize");
    if (failure_) return;
    try {
      next.make_room(bytes);
    } catch (Error const& error) {
      failure_ = error.what();
      return;
    }
    std::memcpy(next.memory.base(), from, bytes);
    check(cudaMemcpyAsync(to, next.memory.base(), bytes, cudaMemcpyHostToDevice, lanes_[0].get()),
          "cudaMemcpyAsync");
    check(cudaEventRecord(next.done.get(), lanes_[0].get()), "cudaEventRecord");
  }

  // ---- results that the host reads later ------------------------------------------------------------------

  /// A step may still run when the call that enqueued it returns.
  static constexpr bool immediate = false;
  /// The number of results that may be pending, and the bytes of each.
  static constexpr std::size_t arrival_slots = 4;
  static constexpr std::int64_t arrival_bytes = 4096;

  /// Marks the beginning of a slot's step. The slot's last result must have been read.
  void mark_begin(int slot) noexcept {
    check(cudaEventRecord(arrivals_[static_cast<std::size_t>(slot)].begun.get(), lanes_[0].get()),
          "cudaEventRecord");
  }
  /// Marks the end of the step, and starts to copy up to arrival_bytes to the host.
  void begin_readback(int slot, void const* from, std::size_t bytes) noexcept {
    Arrival& arrival = arrivals_[static_cast<std::size_t>(slot)];
    check(cudaMemcpyAsync(arrival.memory.base(), from, bytes, cudaMemcpyDeviceToHost, lanes_[0].get()),
          "cudaMemcpyAsync");
    arrival.before = last_end_ ? last_end_ : arrival.begun.get();
    arrival.ended = last_end_ = ends_[next_end_].get();
    next_end_ = (next_end_ + 1) % ends_.size();
    check(cudaEventRecord(arrival.ended, lanes_[0].get()), "cudaEventRecord");
  }
  /// Whether the step has ended; a failure counts as an end.
  bool arrived(int slot) noexcept {
    cudaError_t const status = cudaEventQuery(arrivals_[static_cast<std::size_t>(slot)].ended);
    if (status == cudaErrorNotReady && !failure_) return false;
    if (status != cudaErrorNotReady) check(status, "a step");
    return true;
  }
  std::byte const* readback(int slot) const noexcept {
    return arrivals_[static_cast<std::size_t>(slot)].memory.base();
  }
  /// The time from mark_begin to begin_readback, on the device's clock.
  double seconds(int slot) noexcept {
    Arrival const& arrival = arrivals_[static_cast<std::size_t>(slot)];
    return elapsed(arrival.begun.get(), arrival.ended);
  }
  /// The time from the last begin_readback to this one, on the device's clock. For the first step, the time
  /// from its mark_begin.
  double interval(int slot) noexcept {
    Arrival const& arrival = arrivals_[static_cast<std::size_t>(slot)];
    return elapsed(arrival.before, arrival.ended);
  }

  // ---- outside steps --------------------------------------------------------------------------------------

  /// Returns bytes of the device in memory that the host can read, or `from` itself if that is host memory.
  /// Waits for all enqueued work. Valid until the next such call.
  std::byte const* host_view(void const* from, std::size_t bytes) {
    if (forbidden("host_view")) return static_cast<std::byte const*>(from);
    synchronize();
    raise();
    if (is_host(from)) return static_cast<std::byte const*>(from);
    view_.resize(bytes);
    cuda::require(cudaMemcpy(view_.data(), from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return view_.data();
  }
  /// Returns zeroed host memory in which the caller prepares bytes for the device, or `to` itself if that is
  /// host memory. `unstage` copies the bytes to the device and waits for the copy, as `clear` waits for its
  /// zeros.
  std::byte* stage(void* to, std::size_t bytes) {
    if (forbidden("stage") || is_host(to)) return static_cast<std::byte*>(to);
    staged_.emplace_back(bytes);
    return staged_.back().data();
  }
  void unstage(void* to, std::byte const* staged, std::size_t bytes) {
    if (forbidden("unstage") || to == staged) return;
    cuda::require(cudaMemcpy(to, staged, bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    await_default_stream();
    std::erase_if(staged_, [&](std::vector<std::byte> const& each) { return each.data() == staged; });
  }
  /// These two use the caller's `room` as the host memory. They too return a pointer to host memory as it is.
  std::byte const* host_view(void const* from, std::size_t bytes, std::byte* room) {
    if (forbidden("host_view")) return static_cast<std::byte const*>(from);
    synchronize();
    raise();
    if (is_host(from)) return static_cast<std::byte const*>(from);
    cuda::require(cudaMemcpy(room, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return room;
  }
  std::byte* stage(void* to, std::size_t bytes, std::byte* room) {
    if (forbidden("stage") || is_host(to)) return static_cast<std::byte*>(to);
    std::memset(room, 0, bytes);
    return room;
  }
  /// The following functions copy state to pinned memory between steps (`copy`, then `end_copies`), on a
  /// separate stream. A copy from host memory has ended when `copy` returns. Every later step waits for the
  /// copies right before its updates (`await_copies`), in graphs too. `copied` says whether they have ended;
  /// any thread may call it with the device current. `reserve_copies` must come before the first step.
  void reserve_copies() {
    copies_ = cuda::make_stream();
    copied_ = cuda::make_event();
    end_copies();
  }
  void copy(void* to, void const* from, std::size_t bytes) {
    if (forbidden("copy")) return;
    if (is_host(from)) return host_.copy(to, from, bytes);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, copies_.get()), "cudaMemcpyAsync");
  }
  void end_copies() {
    check(cudaEventRecord(copied_.get(), copies_.get()), "cudaEventRecord");
    raise();
  }
  bool copied() const {
    cudaError_t const status = cudaEventQuery(copied_.get());
    if (status != cudaErrorNotReady) cuda::require(status, "a copy of state");
    return status != cudaErrorNotReady;
  }
  void await_copies() noexcept {
    if (recorder_ || !copies_) return;
    check(cudaStreamWaitEvent(stream(), copied_.get(), recording_ ? cudaEventWaitExternal : 0),
          "cudaStreamWaitEvent");
  }
  void clear(void* to, std::size_t bytes) {
    if (forbidden("clear")) return;
    if (is_host(to))
      std::memset(to, 0, bytes);
    else
      cuda::require(cudaMemset(to, 0, bytes), "cudaMemset");
    await_default_stream();
  }
  /// The context of the host. Its threads prepare staged bytes and run host tasks.
  Context<Cpu>& host() noexcept { return host_; }

  /// Whether all enqueued work has ended; a failure counts as an end.
  bool finished() noexcept {
    if (recorder_) return true;
    for (cuda::Stream const& lane : lanes_) {
      cudaError_t const status = cudaStreamQuery(lane.get());
      if (status == cudaErrorNotReady) return false;
      check(status, "a step");
    }
    return !copies_ || cudaStreamQuery(copies_.get()) != cudaErrorNotReady;
  }
  /// Waits for all enqueued work without a time limit; `finished` polls instead. A step never calls it.
  void synchronize() noexcept {
    if (forbidden("synchronize")) return;
    for (cuda::Stream const& lane : lanes_) check(cudaStreamSynchronize(lane.get()), "a step");
    if (copies_) check(cudaStreamSynchronize(copies_.get()), "a copy of state");
  }

 private:
  struct Workspace {
    std::span<std::byte> whole, pieces;
  };
  Workspace parts_of(std::span<std::byte> bytes) const noexcept {
    if (piece_terms(math().product) == 0 || bytes.size() < blas_bytes) return {bytes, {}};
    return {bytes.first(blas_bytes), bytes.subspan(blas_bytes)};
  }
  Workspace const& of_lane() const noexcept {
    return workspaces_[lane_ == static_cast<std::size_t>(Lane::gradients)];
  }

  /// The pending result of one step.
  struct Arrival {
    cuda::Event begun;
    cudaEvent_t ended = nullptr, before = nullptr;  // not owned; the interval begins at `before`
    Arena<cuda::PinnedMemory> memory;
  };
  struct Upload {
    cuda::Event done;
    Arena<cuda::PinnedMemory> memory;

    void make_room(std::size_t bytes) {
      if (memory.bytes() < static_cast<std::int64_t>(bytes))
        memory = Arena<cuda::PinnedMemory>(static_cast<std::int64_t>(bytes));
    }
  };
  /// The worker of the host tasks of one lane, and its own context.
  struct Desk {
    explicit Desk(cuda::HostSignal& signal) : worker(signal) {}
    Context<Cpu> own{1, {}};
    cuda::HostWorker worker;
  };
  /// A program as a graph, and the number of host tasks of each lane in it.
  struct Recorded {
    cuda::Graph graph;
    std::array<std::uint32_t, lane_count> host_tasks{};
  };

  /// Enqueues the lane's part of the protocol (host_worker.hpp), as one node of a graph.
  void hand_over(cuda::HostTask const& task, cuda::HostSignal& signal) noexcept {
    if (batch_memory_)
      check(cuda::hand_over(batch_memory_, stream(), task, signal), "cuStreamBatchMemOp");
    else
      failure_ =
          "host work in a step needs 64-bit stream-memory operations, which this GPU or its driver "
          "lacks; use offload none";
  }

  double elapsed(cudaEvent_t from, cudaEvent_t to) noexcept {
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, from, to), "cudaEventElapsedTime");
    return static_cast<double>(milliseconds) * 1e-3;
  }

  /// With a recorder, reports a call that a step must not make, and returns true.
  bool forbidden(char const* what) noexcept {
    if (recorder_) recorder_->violation(what);
    return recorder_ != nullptr;
  }

  /// Waits for the default stream, since no lane does. Fills, and copies from memory that is not pinned, may
  /// still run when their call returns.
  static void await_default_stream() {
    cuda::require(cudaStreamSynchronize(cudaStreamLegacy), "cudaStreamSynchronize");
  }

  static bool is_host(void const* pointer) {
    cudaPointerAttributes about{};
    cuda::require(cudaPointerGetAttributes(&about, pointer), "cudaPointerGetAttributes");
    return about.type != cudaMemoryTypeDevice;
  }

  /// `fork` makes all lanes start after the earlier work of the compute lane. `join` makes the compute lane
  /// wait for all lanes.
  void fork() noexcept {
    if (timer_) check(times_.begin(-1, lanes_[0].get(), recording_), "cudaEventRecord");
    check(cudaEventRecord(joins_[0].get(), lanes_[0].get()), "cudaEventRecord");
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane)
      check(cudaStreamWaitEvent(lanes_[lane].get(), joins_[0].get(), 0), "cudaStreamWaitEvent");
  }
  void join() noexcept {
    for (std::size_t lane = 1; lane < lanes_.size(); ++lane) {
      check(cudaEventRecord(joins_[lane].get(), lanes_[lane].get()), "cudaEventRecord");
      check(cudaStreamWaitEvent(lanes_[0].get(), joins_[lane].get(), 0), "cudaStreamWaitEvent");
    }
    if (timer_) check(times_.end_step(lanes_[0].get(), recording_), "cudaEventRecord");
  }

  template <class F>
  Recorded captured(F& body) {
    Recorded result;
    check(cudaStreamBeginCapture(lanes_[0].get(), cudaStreamCaptureModeThreadLocal),
          "cudaStreamBeginCapture");
    cudaGraph_t recorded = nullptr;
    recording_ = &result;
    try {
      fork();
      body();
      join();
      recording_ = nullptr;
    } catch (...) {
      recording_ = nullptr;
      cudaStreamEndCapture(lanes_[0].get(), &recorded);
      if (recorded) cudaGraphDestroy(recorded);
      throw;
    }
    check(cudaStreamEndCapture(lanes_[0].get(), &recorded), "cudaStreamEndCapture");
    cudaGraphExec_t runnable = nullptr;
    if (!failure_) check(cudaGraphInstantiate(&runnable, recorded, 0), "cudaGraphInstantiate");
    if (recorded) cudaGraphDestroy(recorded);
    result.graph = cuda::Graph(runnable);
    return result;
  }

  Recorder* recorder_;
  std::array<Workspace, 2> workspaces_;  // [1]: for Lane::gradients
  std::array<cuda::Stream, lane_count> lanes_;
  std::array<cuda::Event, lane_count> joins_;  // [0]: of the fork
  std::size_t lane_ = 0;
  cuda::RowSums row_sums_;
  int row_sum_batches_ = 0;  // open ones, one within the other
  cuda::Blas blas_;
  cuda::BlasPlans plans_;
  std::unique_ptr<cuda::CudnnAttention> cudnn_attention_;
  std::vector<cuda::Event> marks_;  // by entry
  cuda::EntryEvents times_;
  EntryTimer *timer_ = nullptr,
             *timed_ = nullptr;       // timer_: while a step is enqueued; timed_: from then until its report
  std::array<Recorded, 3> recorded_;  // training, evaluation, timed training
  Recorded* recording_ = nullptr;     // while a program is captured
  std::array<Arrival, arrival_slots> arrivals_;
  std::array<cuda::Event, arrival_slots + 1> ends_;  // a ring: one per pending step, and the step before
  cudaEvent_t last_end_ = nullptr;
  std::size_t next_end_ = 0;
  std::array<Upload, 8> uploads_;
  std::size_t next_upload_ = 0;
  cuda::Stream copies_;
  cuda::Event copied_;
  std::vector<std::byte> view_;
  std::vector<std::vector<std::byte>> staged_;
  std::optional<std::string> failure_;
  Context<Cpu> host_;
  decltype(&cuStreamBatchMemOp) batch_memory_ = nullptr;  // null: this GPU lacks it
  cuda::HostFailure host_failure_;
  std::map<void*, cuda::HostTask> host_tasks_;
  Arena<cuda::PinnedMemory> signal_memory_;
  std::array<cuda::HostSignal*, lane_count> signals_{};  // in signal_memory_
  std::array<std::optional<Desk>, lane_count> desks_;  // destroyed first: their threads use the other members
};

}  // namespace v0
}  // namespace tessera
