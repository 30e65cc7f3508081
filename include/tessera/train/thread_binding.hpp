// SPDX-License-Identifier: Apache-2.0
// Divides the cores of a host among its ranks, for the option bind_threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tessera/comm/communicator.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/train/options.hpp"
#include "tessera/train/planning.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// The cores and the threads of one rank.
struct RankCores {
  int ranks = 1;               ///< the ranks that have the same affinity mask on the same host
  int threads = 1;             ///< the threads that compute
  affinity::Cores share;       ///< the cores to which all threads of the rank are bound; empty: not bound
  affinity::Cores of_workers;  ///< the core of each computing thread; empty: they have no core of their own
};

/// Returns part `index` of `count` equal parts of some cores. The parts are disjoint.
inline affinity::Cores part_of(affinity::Cores const& cores, int index, int count) {
  auto const at = [&](int part) {
    return cores.begin() + static_cast<std::ptrdiff_t>(cores.size() * static_cast<std::size_t>(part) /
                                                       static_cast<std::size_t>(count));
  };
  affinity::Cores part(at(index), at(index + 1));
  std::sort(part.begin(), part.end());
  return part;
}

/// NUMA nodes with the cores of each node that are in an affinity mask.
using NodeCores = std::vector<std::pair<int, affinity::Cores>>;

/// Returns the cores of the node `node`, or no cores if `nodes` does not have the node.
inline affinity::Cores cores_at(NodeCores const& nodes, int node) {
  auto const found =
      std::find_if(nodes.begin(), nodes.end(), [node](auto const& each) { return each.first == node; });
  return node >= 0 && found != nodes.end() ? found->second : affinity::Cores();
}

/// Returns whether each rank uses the cores of its own node: `nodes` has cores of the nodes of all ranks.
inline bool divides_by_nodes(NodeCores const& nodes, std::vector<int> const& near) {
  return std::none_of(near.begin(), near.end(), [&](int node) { return cores_at(nodes, node).empty(); });
}

/// Returns the cores of one rank. `nodes` has the NUMA nodes of the affinity mask with their cores. `near`
/// has for each rank with this mask the node of its GPU, or -1 if it is not known. `index` is the position of
/// the rank in `near`. If the nodes of all ranks are known, each rank gets cores of its own node. Otherwise
/// the ranks divide the cores of the mask among them (BindThreads::cores), or the nodes (BindThreads::numa).
inline affinity::Cores share_of(BindThreads bind, NodeCores const& nodes, std::vector<int> const& near,
                                int index) {
  if (bind == BindThreads::none) return {};
  if (divides_by_nodes(nodes, near)) {
    int const node = near[static_cast<std::size_t>(index)];
    affinity::Cores const all = cores_at(nodes, node);
    if (bind == BindThreads::numa) return all;
    return part_of(all, static_cast<int>(std::count(near.begin(), near.begin() + index, node)),
                   static_cast<int>(std::count(near.begin(), near.end(), node)));
  }
  auto const count = near.size(), at = static_cast<std::size_t>(index);
  std::size_t first = 0, end = nodes.size();
  if (bind == BindThreads::numa) {
    first = at * nodes.size() / count;
    end = std::max(first + 1, (at + 1) * nodes.size() / count);
  }
  affinity::Cores cores;
  for (std::size_t node = first; node < end; ++node)
    cores.insert(cores.end(), nodes[node].second.begin(), nodes[node].second.end());
  if (bind == BindThreads::cores) return part_of(cores, index, static_cast<int>(count));
  std::sort(cores.begin(), cores.end());
  return cores;
}

/// Throws Error(config) if the ranks have more threads than cores and each thread should have its own core.
/// `cores` are the cores and threads of the rank `rank`, and the other arguments are as in `share_of`.
inline void check_cores(RankCores const& cores, NodeCores const& nodes, std::vector<int> const& near,
                        int index, int rank) {
  if (cores.threads <= static_cast<int>(cores.share.size())) return;
  bool const by_nodes = divides_by_nodes(nodes, near);
  int const node = near[static_cast<std::size_t>(index)];
  auto const ranks = by_nodes ? static_cast<int>(std::count(near.begin(), near.end(), node)) : cores.ranks;
  affinity::Cores all;
  for (auto const& [of, some] : nodes)
    if (!by_nodes || of == node) all.insert(all.end(), some.begin(), some.end());
  std::sort(all.begin(), all.end());
  std::string const of_node = by_nodes ? " of NUMA node " + std::to_string(node) : std::string();
  throw_error(ErrorKind::config,
              {"options: bind_threads cores (programs: --bind-threads) needs ", ranks * cores.threads,
               " cores", of_node, by_nodes ? " (ranks with a GPU at this node " : " (ranks ", ranks,
               " x threads ", cores.threads, "), but the affinity mask has ", all.size(),
               by_nodes ? " cores of this node (" : " (", affinity::text_of(all),
               "); choose fewer threads or ranks, give the program more cores (taskset, numactl, or "
               "--cpus-per-task of SLURM), or choose bind_threads numa"},
              rank);
}

/// Returns the cores of this rank. `node` is the NUMA node of its device, or -1 if it is not known. All ranks
/// must call this function together. Costs one all-gather of 16 bytes. Throws Error(config) if the ranks have
/// more threads than cores and each thread should have its own core.
inline RankCores cores_of_rank(TrainerOptions const& options, comm::Transport& transport, int node) {
  struct Given {
    std::uint64_t mask;  // a hash of the host and its mask
    std::int64_t node;
  };
  affinity::Cores const mask = affinity::allowed_cores();
  std::string const host = affinity::detail::line_of("/proc/sys/kernel/hostname") + ' ' +
                           affinity::detail::line_of("/proc/sys/kernel/random/boot_id");
  Given const own{std::hash<std::string>()(host + ' ' + affinity::text_of(mask)), node};
  std::vector<Given> all(static_cast<std::size_t>(transport.world()));
  transport.all_gather(&own, all.data(), sizeof own, {"agree", "cores of the ranks"});
  std::vector<int> near;
  int index = 0;
  for (int rank = 0; rank < transport.world(); ++rank) {
    Given const& other = all[static_cast<std::size_t>(rank)];
    if (rank == transport.rank()) index = static_cast<int>(near.size());
    if (other.mask == own.mask) near.push_back(static_cast<int>(other.node));
  }
  RankCores cores;
  cores.ranks = static_cast<int>(near.size());
  cores.threads = threads_of_rank(options.threads, cores.ranks);
  NodeCores const nodes = affinity::nodes_of(mask);
  cores.share = share_of(options.bind_threads, nodes, near, index);
  if (options.bind_threads != BindThreads::cores) return cores;
  int const most = static_cast<int>(cores.share.size());
  if (options.threads == 0 && most > 0) cores.threads = std::min(cores.threads, most);
  check_cores(cores, nodes, near, index, transport.rank());
  cores.of_workers = cores.share;
  return cores;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
