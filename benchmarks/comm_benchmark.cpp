// SPDX-License-Identifier: Apache-2.0
// Measures collectives between ranks that are threads of one process. Benchmark names:
// collective/<collective>/ranks:<n>/bytes:<n>. The time is one rank's wall time per call.
// algorithm_bytes_per_second is the number of bytes in the benchmark's name divided by this time.
// bus_bytes_per_second is this rate times a factor (collectives::bus_factor). sent_bytes_per_second is the
// number of bytes that one rank sends, as a mean over the ranks, divided by this time.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/comm/run.hpp"
#include "tessera/tensor/arena.hpp"

#include "collectives.hpp"
#include "context.hpp"
#include "left_out.hpp"

namespace {

namespace ts = tessera;
using ts::Move;
using ts::comm::Transport;

/// Starts the ranks once for all iterations. The time is measured from one barrier to the next. So it does
/// not include the start of threads and the first access to memory.
void collective(benchmark::State& state, Move which, int ranks, std::int64_t bytes) {
  auto const calls = static_cast<std::int64_t>(state.max_iterations);
  std::vector<ts::comm::Traffic> traffic(static_cast<std::size_t>(ranks));
  while (state.KeepRunningBatch(calls)) {
    double seconds = 0;
    ts::run(ranks, [&](ts::comm::Comm& comm) {
      Transport& transport = comm.transport();
      std::vector<std::byte> send(static_cast<std::size_t>(bytes)), recv(static_cast<std::size_t>(bytes));
      auto const run = [&](std::int64_t count) {
        for (std::int64_t round = 0; round < count; ++round)
          collectives::call(transport, which, send.data(), recv.data(), bytes);
        transport.barrier();
      };
      run(1);
      transport.reset_traffic();
      auto const start = std::chrono::steady_clock::now();
      run(calls);
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
  collectives::count_bytes(state, which, bytes, ranks);
  state.counters["sent_bytes_per_second"] = Counter(sent, Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["waiting_us"] = waiting / static_cast<double>(calls) * 1e6;
}

void register_all() {
  left_out::List list;
  std::size_t registered = 0;
  std::int64_t const free = ts::HostMemory::available();
  auto const add = [&](Move move, int ranks, std::int64_t bytes) {
    left_out::Parts const name = {"collective/" + std::string(ts::name_of(move)),
                                  "/ranks:" + std::to_string(ranks), "/bytes:" + std::to_string(bytes)};
    if (2 * bytes * ranks > free) return list.add(name, "its buffers need more than the free memory");
    ++registered;
    benchmark::RegisterBenchmark(left_out::name_of(name).c_str(),
                                 [=](benchmark::State& state) { collective(state, move, ranks, bytes); })
        ->UseManualTime()
        ->Unit(benchmark::kMicrosecond);
  };
  for (int const ranks : {2, 4, 8}) add(Move::barrier, ranks, 0);
  for (Move const move : collectives::moves)
    for (int const ranks : {2, 4})
      for (std::int64_t const bytes : collectives::sizes()) add(move, ranks, bytes);
  list.print("comm_benchmark", registered);
}

}  // namespace

int main(int argc, char** argv) {
  register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
