// SPDX-License-Identifier: Apache-2.0
// Lists the collectives and sizes that the benchmarks of collectives measure on the CPU and on GPUs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/dtype.hpp"

namespace collectives {

namespace ts = tessera;
using ts::Move;

inline constexpr Move moves[] = {Move::all_to_all, Move::all_gather, Move::gather,
                                 Move::broadcast,  Move::all_reduce, Move::reduce_scatter};

/// The sizes in bytes: 1 KiB to 256 MiB, each four times the one before.
inline std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> all;
  for (std::int64_t bytes = 1 << 10; bytes <= 256 << 20; bytes *= 4) all.push_back(bytes);
  return all;
}

/// Divides a buffer of `bytes` bytes into `ranks` equal parts, and returns the number of bytes of a part.
/// Rounds down to a multiple of 16, so that a part has whole values of any format.
inline std::int64_t piece_of(std::int64_t bytes, int ranks) { return bytes / ranks / 16 * 16; }

/// Calls one collective with `bytes` bytes in total. Broadcast and all-reduce use one buffer of `bytes`
/// bytes. The other collectives use one equal part of `bytes` for each rank. Sums are in fp32.
inline void call(ts::comm::Transport& transport, Move move, std::byte* send, std::byte* recv,
                 std::int64_t bytes) {
  bool const whole = move == Move::broadcast || move == Move::all_reduce;
  bool const rooted = move == Move::broadcast || move == Move::gather;
  transport.run(move,
                move == Move::barrier ? 0
                : whole               ? bytes
                                      : piece_of(bytes, transport.world()),
                send, whole ? send : recv, {"bench"}, {}, rooted ? 0 : -1, ts::DType::f32);
}

/// Returns the bus bandwidth of a collective divided by its algorithm bandwidth. The algorithm bandwidth is
/// the size of the whole buffer divided by the time. The bus bandwidth does not depend on the number of ranks
/// if the links between them are the limit, so it can be compared with the rate of a link. The factors are
/// from NVIDIA's nccl-tests (doc/PERFORMANCE.md, and src/gather.cu for gather). They do not apply to
/// all-reduce in the network switch (NVLink SHARP), which moves fewer bytes.
inline double bus_factor(Move move, int ranks) {
  double const share = static_cast<double>(ranks - 1) / ranks;
  switch (move) {
    case Move::all_reduce:
      return 2.0 * share;
    case Move::all_to_all:
    case Move::all_gather:
    case Move::gather:
    case Move::reduce_scatter:
      return share;
    case Move::broadcast:
    case Move::barrier:
    case Move::send:
    case Move::receive:
    case Move::none:
    case Move::copy:
      break;
  }
  return 1.0;
}

/// Sets the counters algorithm_bytes_per_second and bus_bytes_per_second of a benchmark whose iterations are
/// single collectives.
inline void count_bytes(benchmark::State& state, Move move, std::int64_t bytes, int ranks) {
  using benchmark::Counter;
  bool const whole = move == Move::broadcast || move == Move::all_reduce;
  double const moved = static_cast<double>(whole ? bytes : piece_of(bytes, ranks) * ranks) *
                       static_cast<double>(state.iterations());
  state.counters["algorithm_bytes_per_second"] = Counter(moved, Counter::kIsRate, Counter::OneK::kIs1024);
  state.counters["bus_bytes_per_second"] =
      Counter(moved * bus_factor(move, ranks), Counter::kIsRate, Counter::OneK::kIs1024);
}

}  // namespace collectives
