// SPDX-License-Identifier: Apache-2.0
// Provides shared parts of the NCCL tests: data, every collective, and the errors of the ranks after one rank
// is lost.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <netinet/in.h>
#include <numeric>
#include <optional>
#include <random>
#include <signal.h>
#include <spawn.h>
#include <stdexcept>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/environment.hpp"
#include "tessera/comm/nccl.cuh"
#include "tessera/comm/run.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/core/error.hpp"

#include "device/skip.hpp"

extern char** environ;

namespace {

namespace ts = tessera;
using namespace std::chrono_literals;
using ts::Move;
using ts::comm::CollectiveId;
using ts::comm::Comm;
using ts::comm::ProcessGroup;
using ts::comm::Transport;
using Bytes = std::vector<std::byte>;
using Clock = std::chrono::steady_clock;

/// Device memory. The destructor frees it.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) : bytes_(static_cast<std::int64_t>(bytes)) {
    void* memory = nullptr;
    ts::cuda::require(cudaMalloc(&memory, bytes), "cudaMalloc");
    memory_.reset(memory, &cudaFree);
  }
  std::byte* data() const { return static_cast<std::byte*>(memory_.get()); }
  /// Gives the other ranks access until the result is destroyed.
  std::shared_ptr<void> share(Transport& transport, std::uint64_t layout = 1) const {
    return transport.share(memory_, data(), bytes_, layout);
  }

 private:
  std::int64_t bytes_;
  std::shared_ptr<void> memory_;
};

bool holds(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A description of one collective call: the operation, the number format, and the size.
struct Case {
  Move move;
  ts::DType dtype;
  std::int64_t count;  ///< elements of the part of one rank
  int root;
  bool in_place;

  std::int64_t piece() const { return count * static_cast<std::int64_t>(size_of(dtype)); }
  std::string text() const {
    return std::string(name_of(move)) + " of " + std::to_string(count) + " " + std::string(name_of(dtype)) +
           ", root " + std::to_string(root) + (in_place ? ", in place" : "");
  }
};

std::vector<Case> all_cases(int world) {
  std::vector<Case> cases;
  for (std::int64_t const count : {0, 1, 7, 1023, 4099, (1 << 18) + 3}) {
    int const last = world - 1;
    cases.push_back({Move::all_to_all, ts::DType::f32, count, -1, false});
    cases.push_back({Move::all_to_all, ts::DType::f16, count, -1, false});
    for (bool const in_place : {false, true}) {
      cases.push_back({Move::all_gather, ts::DType::bf16, count, -1, in_place});
      cases.push_back({Move::gather, ts::DType::f16, count, last, in_place});
      cases.push_back({Move::gather, ts::DType::f64, count, 0, in_place});
      for (ts::DType const dtype : {ts::DType::f32, ts::DType::f16, ts::DType::bf16, ts::DType::f64})
        cases.push_back({Move::reduce_scatter, dtype, count, -1, in_place});
    }
    for (ts::DType const dtype :
         {ts::DType::f32, ts::DType::f16, ts::DType::bf16, ts::DType::f64, ts::DType::tf32})
      cases.push_back({Move::all_reduce, dtype, count, -1, true});
    cases.push_back({Move::broadcast, ts::DType::f16, count, last, true});
    cases.push_back({Move::broadcast, ts::DType::f32, count, 0, true});
    cases.push_back({Move::barrier, ts::DType::f32, 0, -1, false});
  }
  return cases;
}

/// The send and receive buffers of one rank for one collective. `send` has small integers, whose sums are
/// exact in every number format and order. The memory for results is filled with bytes 0xff.
struct Buffers {
  Bytes send, recv;

  Buffers() = default;
  Buffers(Case const& of, int rank, int world, unsigned seed) {
    auto const whole = static_cast<std::size_t>(of.piece() * world);
    send.assign(whole, std::byte{0xff});
    recv.assign(whole, std::byte{0xff});
    std::mt19937 random(seed * 64 + static_cast<unsigned>(rank));
    std::uniform_int_distribution<int> small(-8, 8);
    auto const put = [&](auto zero) {
      using T = decltype(zero);
      for (std::size_t at = 0; at + sizeof(T) <= whole; at += sizeof(T)) {
        T const value = static_cast<T>(static_cast<float>(small(random)));
        std::memcpy(send.data() + at, &value, sizeof value);
      }
    };
    switch (of.dtype) {
      case ts::DType::f64:
        put(double{});
        break;
      case ts::DType::f16:
        put(ts::half{});
        break;
      case ts::DType::bf16:
        put(ts::bfloat16{});
        break;
      default:
        put(float{});
    }
    if (!of.in_place) return;
    // If a collective works in place, its result overwrites its data. For a reduce_scatter this buffer is
    // `send`, which already has the data. For all other collectives it is `recv`, so the data is copied to
    // `recv` here.
    if (of.move == Move::all_gather || of.move == Move::gather) {
      auto const at = static_cast<std::size_t>(rank * of.piece());
      std::copy_n(send.begin(), of.piece(), recv.begin() + static_cast<std::ptrdiff_t>(at));
    } else if (of.move != Move::reduce_scatter) {
      recv = send;
    }
  }
  bool operator==(Buffers const&) const = default;
};

void perform(Transport& transport, Case const& what, std::byte* send, std::byte* recv,
             ProcessGroup const& peers) {
  std::int64_t const own = peers.index_of(transport.rank()) * what.piece();
  CollectiveId const id{"test", "unit"};
  switch (what.move) {
    case Move::all_to_all:
      return transport.all_to_all(send, recv, what.piece(), id, 0, peers);
    case Move::all_gather:
      return transport.all_gather(what.in_place ? recv + own : send, recv, what.piece(), id, peers);
    case Move::gather:
      return transport.gather(what.root, what.in_place ? recv + own : send, recv, what.piece(), id, peers);
    case Move::broadcast:
      return transport.broadcast(what.root, recv, what.piece(), id, peers);
    case Move::all_reduce:
      return transport.all_reduce(what.dtype, recv, what.count, id, peers);
    case Move::reduce_scatter:
      return transport.reduce_scatter(what.dtype, send, what.in_place ? send + own : recv, what.count, id,
                                      peers);
    default:
      transport.barrier(id);
  }
}

/// A function that returns the process group of the rank `rank`: the ranks with which it communicates.
using GroupOf = std::function<ProcessGroup(int rank)>;

/// The expected results of a list of collectives: the data of every rank after each collective, as
/// buffers[rank][index of the collective], and the traffic of every rank. The library's collectives between
/// CPU threads compute them.
struct Expected {
  std::vector<std::vector<Buffers>> buffers;
  std::vector<ts::comm::Traffic> traffic;
};

Expected expected_of(int world, int count, std::vector<Case> const& cases, unsigned seed,
                     GroupOf const& group_of) {
  Expected result;
  result.buffers.resize(static_cast<std::size_t>(world));
  result.traffic.resize(static_cast<std::size_t>(world));
  ts::run(world, [&](Comm& comm) {
    auto const rank = static_cast<std::size_t>(comm.rank());
    for (std::size_t index = 0; index < cases.size(); ++index) {
      ProcessGroup const peers = comm.transport().over(group_of(comm.rank()));
      Buffers own(cases[index], peers.index_of(comm.rank()), count, seed + static_cast<unsigned>(index));
      perform(comm.transport(), cases[index], own.send.data(), own.recv.data(), peers);
      result.buffers[rank].push_back(std::move(own));
    }
    result.traffic[rank] = comm.transport().traffic();
  });
  return result;
}

Expected expected_of(int world, std::vector<Case> const& cases, unsigned seed) {
  return expected_of(world, world, cases, seed, [](int) { return ProcessGroup{}; });
}

/// The buffers of one rank for all collectives of a list, in one allocation on the rank's GPU.
class OnDevice {
 public:
  OnDevice(std::vector<Case> const& cases, int rank, int world, unsigned seed) {
    std::size_t bytes = 0;
    for (std::size_t index = 0; index < cases.size(); ++index) {
      start_.emplace_back(cases[index], rank, world, seed + static_cast<unsigned>(index));
      at_.push_back(bytes);
      bytes += 2 * padded_bytes(start_.back());
    }
    memory_.emplace(bytes);
  }
  /// Gives the other ranks access to the buffers until the result is destroyed.
  std::shared_ptr<void> share(Transport& transport) const { return memory_->share(transport); }
  std::byte* send(std::size_t index) const { return memory_->data() + at_[index]; }
  std::byte* recv(std::size_t index) const { return send(index) + padded_bytes(start_[index]); }
  void reset() const {
    for (std::size_t index = 0; index < start_.size(); ++index) {
      upload(send(index), start_[index].send);
      upload(recv(index), start_[index].recv);
    }
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // other GPUs write to the memory
  }
  Buffers now(std::size_t index) const {
    Buffers result = start_[index];
    download(result.send, send(index));
    download(result.recv, recv(index));
    return result;
  }

 private:
  static std::size_t padded_bytes(Buffers const& of) { return (of.send.size() + 511) / 256 * 256; }
  static void upload(std::byte* to, Bytes const& from) {
    ts::cuda::require(cudaMemcpy(to, from.data(), from.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  static void download(Bytes& to, std::byte const* from) {
    ts::cuda::require(cudaMemcpy(to.data(), from, to.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
  }
  std::vector<Buffers> start_;
  std::vector<std::size_t> at_;
  std::optional<DeviceBytes> memory_;
};

/// Collects descriptions of differences. All ranks can call add() at the same time.
class Differences {
 public:
  void add(int rank, std::string const& what) {
    std::lock_guard lock(mutex_);
    if (texts_.size() < 20) texts_.push_back("rank " + std::to_string(rank) + ": " + what);
  }
  std::string text() const {
    std::string all;
    for (auto const& text : texts_) all += text + "\n";
    return all;
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> texts_;
};

/// Waits for the stream as the library does before it reads the result of a step. The wait throws if a rank
/// is lost.
void finish(Transport& transport, cudaStream_t stream) {
  ts::cuda::Event const event = ts::cuda::make_event();
  ts::cuda::require(cudaEventRecord(event.get(), stream), "cudaEventRecord");
  transport.await(
      [&] {
        cudaError_t const status = cudaEventQuery(event.get());
        if (status != cudaErrorNotReady) ts::cuda::require(status, "cudaEventQuery");
        return status == cudaSuccess;
      },
      "the test");
}

/// Returns a CUDA graph of the work that body() enqueues on the stream.
ts::cuda::Graph capture(cudaStream_t stream, std::function<void()> const& body) {
  ts::cuda::require(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                    "cudaStreamBeginCapture");
  cudaGraph_t graph = nullptr;
  try {
    body();
  } catch (...) {
    cudaStreamEndCapture(stream, &graph);
    if (graph) cudaGraphDestroy(graph);
    throw;
  }
  ts::cuda::require(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  cudaGraphExec_t exec = nullptr;
  cudaError_t const status = cudaGraphInstantiate(&exec, graph, 0);
  cudaGraphDestroy(graph);
  ts::cuda::require(status, "cudaGraphInstantiate");
  return ts::cuda::Graph(exec);
}

/// Runs all collectives of all_cases() on `world` GPUs. The GPUs are split into groups of `count` ranks, and
/// group_of(rank) returns the group of the rank `rank`. With `shared`, the ranks give each other access to
/// their device memory. Compares the results with the results of the library's collectives between CPU
/// threads.
void compare_with_threads(int world, int count, GroupOf const& group_of, int channel, bool shared) {
  CAPTURE(world);
  CAPTURE(channel);
  CAPTURE(shared);
  auto const cases = all_cases(count);
  unsigned const seed = std::random_device{}();
  CAPTURE(seed);
  Expected const expected = expected_of(world, count, cases, seed, group_of);
  Differences differences;
  ts::run_gpus(world, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank();
    ProcessGroup group = group_of(rank);
    group.channel = channel;
    ProcessGroup const peers = transport.over(group);
    int const index_in_group = peers.index_of(rank);
    auto const& mine = expected.buffers[static_cast<std::size_t>(rank)];
    auto const check = [&](std::string const& how, auto const& buffers) {
      for (std::size_t index = 0; index < cases.size(); ++index)
        if (!(buffers(index) == mine[index])) differences.add(rank, how + cases[index].text());
    };
    if (transport.name() != "nccl")
      differences.add(rank, "the transport is " + std::string(transport.name()));
    if (transport.local_rank() != rank) differences.add(rank, "it has another GPU");

    // First, each collective gets buffers in host memory.
    for (std::size_t index = 0; index < cases.size(); ++index) {
      Buffers own(cases[index], index_in_group, count, seed + static_cast<unsigned>(index));
      perform(transport, cases[index], own.send.data(), own.recv.data(), peers);
      if (!(own == mine[index])) differences.add(rank, "host memory: " + cases[index].text());
    }

    // Second, each collective gets buffers in device memory and is enqueued on a stream, without a CUDA
    // graph.
    ts::cuda::Stream const stream = ts::cuda::make_stream();
    OnDevice const device(cases, index_in_group, count, seed);
    std::shared_ptr<void> const access = shared ? device.share(transport) : nullptr;
    if (shared && !access) differences.add(rank, "its memory is not shared");
    device.reset();
    transport.barrier();  // other GPUs write into this rank's buffers, so all ranks must have called reset()
    transport.reset_traffic();
    auto const enqueue = [&] {
      transport.on_stream(stream.get());
      for (std::size_t index = 0; index < cases.size(); ++index)
        perform(transport, cases[index], device.send(index), device.recv(index), peers);
      transport.on_stream(nullptr);
    };
    enqueue();
    finish(transport, stream.get());
    check("stream: ", [&](std::size_t index) { return device.now(index); });
    auto const& traffic = expected.traffic[static_cast<std::size_t>(rank)];
    if (transport.traffic().bytes_sent != traffic.bytes_sent) differences.add(rank, "bytes sent");
    if (transport.traffic().collectives != traffic.collectives) differences.add(rank, "collectives");

    // Third, all collectives together are one grouped NCCL call.
    auto const enqueue_group = [&] {
      transport.begin_group();
      enqueue();
      transport.end_group();
    };
    device.reset();
    transport.barrier();  // other GPUs write into this rank's buffers, so all ranks must have called reset()
    transport.reset_traffic();
    enqueue_group();
    finish(transport, stream.get());
    check("group: ", [&](std::size_t index) { return device.now(index); });
    if (transport.traffic().calls != 1) differences.add(rank, "calls");

    // A group of only these four moves runs as copies if the memory is shared.
    std::vector<std::size_t> copied;
    for (std::size_t index = 0; index < cases.size(); ++index)
      if (Move const move = cases[index].move;
          cases[index].count > 0 && (move == Move::all_to_all || move == Move::all_gather ||
                                     move == Move::all_reduce || move == Move::reduce_scatter))
        copied.push_back(index);
    device.reset();
    transport.barrier();
    std::int64_t const before = transport.copied_calls();
    transport.on_stream(stream.get());
    transport.begin_group();
    for (std::size_t const index : copied)
      perform(transport, cases[index], device.send(index), device.recv(index), peers);
    transport.end_group();
    transport.on_stream(nullptr);
    finish(transport, stream.get());
    for (std::size_t const index : copied)
      if (!(device.now(index) == mine[index])) differences.add(rank, "batch: " + cases[index].text());
    if (transport.copied_calls() - before != (shared ? 1 : 0))
      differences.add(rank, "number of calls that used copies");

    // Fourth, a CUDA graph contains all collectives as separate NCCL calls, and a second graph contains them
    // as one grouped NCCL call. Each graph is launched three times.
    for (bool const grouped : {false, true}) {
      auto const graph = grouped ? capture(stream.get(), enqueue_group) : capture(stream.get(), enqueue);
      for (int replay = 0; replay < 3; ++replay) {
        device.reset();
        // Other GPUs write into this rank's buffers, so all ranks must have called reset().
        transport.barrier();
        ts::cuda::require(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
        finish(transport, stream.get());
        check((grouped ? "group's replay " : "replay ") + std::to_string(replay) + ": ",
              [&](std::size_t index) { return device.now(index); });
      }
      if (world > 1 && ts::comm::move_of(transport.word(rank)) != Move::barrier)
        differences.add(rank, "its word is not that of the last collective");
      if (!holds(transport.where((rank + 1) % world), "collective"))
        differences.add(rank, "where: " + transport.where((rank + 1) % world));
    }
    transport.barrier();
  });
  CHECK(differences.text() == "");
}
void compare_with_threads(int world, int channel = 0) {
  for (bool const shared : {false, true})
    if (!shared || world > 1)
      compare_with_threads(
          world, world, [](int) { return ProcessGroup{}; }, channel, shared);
}

/// The errors of a launch of several ranks in which a rank was lost: the errors that the ranks caught, and
/// the error that the caller of the launch got.
struct Outcome {
  struct Lost {
    int rank;
    std::string text;
    double seconds;  ///< from the call that failed to the exception
  };
  std::map<int, Lost> lost;  ///< PeerLost errors, by the rank that caught them
  std::string text;
  ts::ErrorKind kind = ts::ErrorKind::usage;
};

Outcome outcome_of(int world, std::function<void(Transport&)> const& body, double timeout) {
  Outcome outcome;
  std::mutex mutex;
  ts::RunOptions options;
  options.timeout = std::chrono::duration<double>(timeout);
  try {
    ts::run_gpus(
        world,
        [&](Comm& comm) {
          auto const start = Clock::now();
          try {
            body(comm.transport());
          } catch (ts::PeerLost const& lost) {
            std::lock_guard lock(mutex);
            outcome.lost[comm.rank()] = {lost.rank(), lost.what(), seconds_since(start)};
            throw;
          }
        },
        options);
  } catch (ts::Error const& error) {
    outcome.kind = error.kind();
    outcome.text = error.what();
  }
  return outcome;
}

struct Sum {
  explicit Sum(std::int64_t elements = 1 << 16)
      : count(elements),
        memory(static_cast<std::size_t>(elements) * sizeof(float)),
        stream(ts::cuda::make_stream()) {
    ts::cuda::require(cudaMemset(memory.data(), 0, static_cast<std::size_t>(elements) * sizeof(float)),
                      "cudaMemset");
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  void enqueue(Transport& transport, char const* unit) const {
    transport.on_stream(stream.get());
    transport.all_reduce(ts::DType::f32, memory.data(), count, {"reduce", unit, 3});
    transport.on_stream(nullptr);
  }
  std::int64_t count;
  DeviceBytes memory;
  ts::cuda::Stream stream;
};

/// Starts this program again as a child process that is one rank. It runs the test case "a rank that is a
/// process" with the environment variables that torchrun sets, and `mode` in TESSERA_NCCL_TEST. Returns its
/// process id.
pid_t start_child(int rank, int world, int port, std::string const& mode) {
  std::map<std::string, std::string> const set = {
      {"RANK", std::to_string(rank)},       {"WORLD_SIZE", std::to_string(world)},
      {"LOCAL_RANK", std::to_string(rank)}, {"LOCAL_WORLD_SIZE", std::to_string(world)},
      {"MASTER_ADDR", "127.0.0.1"},         {"MASTER_PORT", std::to_string(port)},
      {"TESSERA_NCCL_TEST", mode}};
  std::vector<std::string> variables;
  for (char** at = environ; *at; ++at) {
    std::string const variable = *at;
    if (!set.count(variable.substr(0, variable.find('=')))) variables.push_back(variable);
  }
  for (auto const& [name, value] : set) variables.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (auto& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  std::vector<std::string> words = {"nccl_child", "--no-skip", "--test-case=a rank that is a process"};
  std::vector<char*> arguments;
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  REQUIRE(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments.data(), environment.data()) == 0);
  return child;
}

/// Waits for a child process. Returns its exit code, or 128 plus the number of the signal that ended it.
/// After one minute, kills the child and returns -1.
int end_of(pid_t child) {
  auto const start = Clock::now();
  int status = 0;
  bool killed = false;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (!killed && seconds_since(start) > 60) killed = kill(child, SIGKILL) == 0;
    std::this_thread::sleep_for(10ms);
  }
  if (killed) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int free_port() {
  int const socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  REQUIRE(bind(socket, reinterpret_cast<sockaddr*>(&address), length) == 0);
  REQUIRE(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

}  // namespace
