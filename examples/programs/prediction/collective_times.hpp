// SPDX-License-Identifier: Apache-2.0
// Stores the measured times of collectives between the devices of one host, and estimates the times of other
// sizes, numbers of ranks and kinds of collectives.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "tessera/comm/request.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// An estimated time of an entry, fitted to the measured times of similar entries.
struct Estimate {
  double seconds = 0;
  bool guessed = false;  ///< no entry of its kind, or no similar number of ranks, was measured
};

/// The time of one collective, with nothing else on the devices. `bytes` is the size of the whole buffer: in
/// an all_gather, a gather, a reduce_scatter and an all_to_all, the parts of all ranks together.
struct TimedCollective {
  Move kind = Move::none;
  int ranks = 2;
  double bytes = 0;
  double seconds = 0;
};

/// Returns the number of bytes of the whole buffer of a collective, as in TimedCollective. If the collective
/// divides the buffer into one part for each rank, `bytes` is the size of a part. Otherwise `bytes` is
/// already the size of the whole buffer.
double whole_bytes(Move kind, int ranks, double bytes);

/// The times of collectives on one kind of host.
///
/// At a measured number of ranks, the time follows the line alpha + beta * bytes through the two measured
/// sizes next to it. The time for other numbers of ranks and for other kinds follows from the ring model of
/// NCCL's tests (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md). In this model every
/// link carries 2 (n-1) / n of the buffer in an all_reduce of n ranks, (n-1) / n in an all_gather, a
/// reduce_scatter, a gather and an all_to_all, and the whole buffer in a broadcast. The latency alpha grows
/// with the number of steps of the ring, which is n - 1, or 2 (n-1) in an all_reduce.
///
/// The model is applied to the times of the next larger measured number of ranks, or of the largest one if no
/// larger one was measured. For a ring this is exact. An interpolation between two numbers of ranks is not,
/// because (n-1) / n is not linear in n. The smaller number is not used either, because more ranks possibly
/// use a slower link.
class CollectiveTimes {
 public:
  /// The text about the origin of the times, and the name of the link between the devices.
  std::string source, link;
  bool scaled = false;    ///< computed from the data sheet of the link; false: measured
  double error_pct = 20;  ///< the expected error of a time in percent
  /// The share of a device's speed that a computation loses while a collective runs, because the collective
  /// occupies multiprocessors, memory bandwidth and power. The default is the mean over trainings of 124M
  /// parameters on two H100.
  double slowdown = 0.25;
  /// The share of its speed that a collective loses while a computation runs. The default is the mean of an
  /// all-gather (0.50) and a reduce-scatter (0.39) of 120 MiB next to matrix products on two H100.
  double collective_slowdown = 0.45;

  bool empty() const { return points_.empty(); }
  std::vector<TimedCollective> const& points() const { return points_; }
  void add(TimedCollective const& point);

  /// Returns the estimated time of one collective between `ranks` ranks. `bytes` is the size of the whole
  /// buffer. If `shares` is true, ranks share the cores of a CPU, so that the bandwidth of one rank falls
  /// with the number of ranks. The result is guessed if this kind was not measured. Needs at least one point.
  Estimate seconds(Move kind, int ranks, double bytes, bool shares) const;

 private:
  std::vector<TimedCollective> points_;  // sorted by kind, ranks and bytes
};

/// The network between hosts.
struct Network {
  std::string link, source;  ///< the name of the network, and a text about the origin of its figures
  /// the bandwidth of a host's network in one direction, divided by the number of its devices in use
  double bytes_per_s = 0;
  double latency_s = 0;   ///< the latency of a step of a ring from one host to the next
  double error_pct = 50;  ///< the expected error of a time in percent

  /// Returns the estimated seconds of a collective between `ranks` ranks with `on_host` ranks on each host.
  /// `bytes` is the size of the whole buffer, and `within` is the estimated time if the ranks were on one
  /// host. The ring model of CollectiveTimes applies: the slower one of both links limits the transfer, and
  /// the ranks of a host use their shares of the network together. The latency of the network is added for
  /// each step between two hosts, as in src/graph/tuning.cc of NVIDIA/nccl.
  double seconds(Move kind, int ranks, int on_host, double bytes, double within) const;
};

/// Reads the value of the key `network`. Throws Error(data) with the fault if it is damaged.
Network network_from(nlohmann::ordered_json const& json);
/// Returns the value of the key `network`.
nlohmann::ordered_json json_of(Network const& network);

/// Returns the text of the value of the key `collectives` in a file of machine times, with one point per
/// line.
std::string text_of(CollectiveTimes const& times);
/// Reads the value of the key `collectives`. Throws Error(data) with the fault if it is damaged.
CollectiveTimes collectives_from(nlohmann::ordered_json const& json);

}  // namespace cli
}  // namespace programs
