// SPDX-License-Identifier: Apache-2.0
#include "info/measure_collectives.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/core/place.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/device_probe.hpp"

#include "results/statistics.hpp"

namespace programs {
using namespace tessera;
namespace info {
namespace {

/// Returns the collectives to time. Sums are of fp32 values. The size of the whole buffer of a collective is
/// rounded up, so that each rank has whole values.
std::vector<comm::Request> requests_of(Device device, int ranks) {
  constexpr std::int64_t kib = 1024, mib = 1024 * kib;
  std::vector<std::int64_t> all = {4 * kib, 64 * kib, mib, 4 * mib, 16 * mib, 64 * mib, 256 * mib};
  if (info_of(device).on_cores) all = {4 * kib, 64 * kib, mib, 4 * mib};
  std::vector<comm::Request> requests;
  for (std::int64_t const bytes : all)
    for (Move const move : {Move::all_gather, Move::reduce_scatter, Move::all_to_all, Move::gather,
                            Move::all_reduce, Move::broadcast}) {
      comm::Request request;
      request.move = move;
      std::int64_t const values = bytes / 4,
                         pieces = static_cast<std::int64_t>(cli::whole_bytes(move, ranks, 1));
      request.bytes = (values + pieces - 1) / pieces * 4;
      if (move == Move::gather || move == Move::broadcast) request.root = 0;
      requests.push_back(request);
    }
  return requests;
}

/// Returns the seconds of each collective between ranks on the CPU: the median of several rounds.
std::vector<double> host_seconds(comm::Comm const& comm, std::span<comm::Request const> requests) {
  using Clock = std::chrono::steady_clock;
  comm::Transport& transport = comm.transport();
  std::int64_t largest = 0;
  for (comm::Request const& request : requests) largest = std::max(largest, request.bytes * comm.world());
  std::vector<float> send(static_cast<std::size_t>(largest) / sizeof(float)), receive(send.size());
  std::vector<double> all;
  for (comm::Request const& request : requests) {
    constexpr int rounds = 5, calls = 3;
    bool const one_buffer = request.move == Move::all_reduce || request.move == Move::broadcast;
    void* const from = one_buffer ? receive.data() : send.data();
    std::vector<double> took;
    for (int round = 0; round < rounds + 1; ++round) {
      transport.barrier({"measure"});
      auto const start = Clock::now();
      for (int call = 0; call < calls; ++call)
        transport.run(request.move, request.bytes, from, receive.data(), {"measure"}, {}, request.root,
                      request.dtype);
      double const seconds = std::chrono::duration<double>(Clock::now() - start).count() / calls;
      if (round > 0) took.push_back(seconds);  // the first round touches the memory
    }
    all.push_back(cli::median(took));
  }
  return all;
}

}  // namespace

void time_collectives(RecipeTable const& recipe, int ranks, cli::CollectiveTimes& times) {
  if (ranks < 2) return;
  std::vector<comm::Request> const requests = requests_of(recipe.device, ranks);
  run_ranks(recipe, ranks, [&](comm::Comm& comm) {
    std::vector<double> const seconds = info_of(recipe.device).on_cores
                                            ? host_seconds(comm, requests)
                                            : device_collective_seconds(comm, requests);
    if (!comm.is_root()) return;
    for (std::size_t at = 0; at < seconds.size(); ++at)
      if (seconds[at] > 0)
        times.add({requests[at].move, ranks,
                   cli::whole_bytes(requests[at].move, ranks, static_cast<double>(requests[at].bytes)),
                   seconds[at]});
  });
}

}  // namespace info
}  // namespace programs
