// SPDX-License-Identifier: Apache-2.0
// Measures collectives between ranks that are threads of one process. The time is one rank's wall time per
// call. algorithm_bytes_per_second is the number of bytes in the benchmark's name divided by this time.
// sent_bytes_per_second is the number of bytes that one rank sends, as a mean over the ranks, divided by this
// time.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/comm/run.hpp"

#include "context.hpp"

namespace {

namespace ts = tessera;
using ts::Move;
using ts::comm::Transport;

/// Calls one collective with `bytes` bytes in total. Broadcast and all-reduce use one buffer of `bytes`
/// bytes. The other collectives use one equal part of `bytes` for each rank.
void call(Transport& transport, Move collective, std::byte* send, std::byte* recv, std::int64_t bytes) {
  std::int64_t const piece = bytes / transport.world();
  switch (collective) {
    case Move::all_to_all:
      return transport.all_to_all(send, recv, piece, {"bench"});
    case Move::all_gather:
      return transport.all_gather(send, recv, piece, {"bench"});
    case Move::gather:
      return transport.gather(0, send, recv, piece, {"bench"});
    case Move::broadcast:
      return transport.broadcast(0, send, bytes, {"bench"});
    case Move::all_reduce:
      return transport.all_reduce(ts::DType::f32, send, bytes / 4, {"bench"});
    case Move::reduce_scatter:
      return transport.reduce_scatter(ts::DType::f32, send, recv, piece / 4, {"bench"});
    case Move::barrier:
      return transport.barrier({"bench"});
    case Move::send:  // point-to-point moves between two ranks are not measured
    case Move::receive:
    case Move::none:
    case Move::copy:
      return;
  }
}

/// Starts the ranks once for all iterations. The time is measured from one barrier to the next. So it does
/// not include the start of threads and the first access to memory.
void collective(benchmark::State& state, Move which) {
  int const ranks = static_cast<int>(state.range(0));
  std::int64_t const bytes = state.range(1);
  auto const calls = static_cast<std::int64_t>(state.max_iterations);
  std::vector<ts::comm::Traffic> traffic(static_cast<std::size_t>(ranks));
  while (state.KeepRunningBatch(calls)) {
    double seconds = 0;
    ts::run(ranks, [&](ts::comm::Comm& comm) {
      Transport& transport = comm.transport();
      std::vector<std::byte> send(static_cast<std::size_t>(bytes)), recv(static_cast<std::size_t>(bytes));
      call(transport, which, send.data(), recv.data(), bytes);
      transport.barrier();
      transport.reset_traffic();
      auto const start = std::chrono::steady_clock::now();
      for (std::int64_t round = 0; round < calls; ++round)
        call(transport, which, send.data(), recv.data(), bytes);
      transport.barrier();
      if (comm.is_root())
        seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      traffic[static_cast<std::size_t>(comm.rank())] = transport.traffic();
    });
    state.SetIterationTime(seconds);
  }
  double sent = 0;
  double waiting = 0;
  for (auto const& rank : traffic) {
    sent += static_cast<double>(rank.bytes_sent) / ranks;
    waiting += rank.waiting / ranks;
  }
  using benchmark::Counter;
  state.counters["algorithm_bytes_per_second"] =
      Counter(static_cast<double>(bytes * calls), Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["sent_bytes_per_second"] = Counter(sent, Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["waiting_us"] = waiting / static_cast<double>(calls) * 1e6;
}

void sizes(benchmark::internal::Benchmark* family) {
  family->ArgNames({"ranks", "bytes"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (std::int64_t ranks : {2, 4})
    for (std::int64_t kib : {4, 64, 1024, 16384, 65536}) family->Args({ranks, kib << 10});
}

void no_sizes(benchmark::internal::Benchmark* family) {
  family->ArgNames({"ranks", "bytes"})->UseManualTime()->Unit(benchmark::kMicrosecond);
  for (std::int64_t ranks : {2, 4, 8}) family->Args({ranks, 0});
}

BENCHMARK_CAPTURE(collective, barrier, Move::barrier)->Apply(no_sizes);
BENCHMARK_CAPTURE(collective, all_to_all, Move::all_to_all)->Apply(sizes);
BENCHMARK_CAPTURE(collective, all_gather, Move::all_gather)->Apply(sizes);
BENCHMARK_CAPTURE(collective, gather, Move::gather)->Apply(sizes);
BENCHMARK_CAPTURE(collective, broadcast, Move::broadcast)->Apply(sizes);
BENCHMARK_CAPTURE(collective, all_reduce, Move::all_reduce)->Apply(sizes);
BENCHMARK_CAPTURE(collective, reduce_scatter, Move::reduce_scatter)->Apply(sizes);

}  // namespace
