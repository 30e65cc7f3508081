// SPDX-License-Identifier: Apache-2.0
// Provides communicators that use NCCL, with one GPU per rank. Ranks are threads of one process (`run_gpus`)
// or processes of a launcher.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdlib>
#include <cuda_runtime.h>
#include <functional>
#include <memory>
#include <nccl.h>
#include <string>
#include <vector>

#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/environment.hpp"
#include "tessera/comm/launch.hpp"
#include "tessera/comm/nccl_link.cuh"
#include "tessera/comm/nccl_transport.cuh"
#include "tessera/comm/run.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

namespace comm {

/// Returns the number of GPUs that this process sees. Throws Error(unsupported) with the reason if there are
/// none.
inline int count_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) Context<Cuda>::select(0);  // throws
  return count;
}

namespace detail {

/// Returns the index of the GPU that this process uses: its local rank, or 0 if the launcher shows each
/// process only one GPU. `devices` is the number of GPUs that this process sees. Throws Error(config) if the
/// local rank is unknown, and Error(unsupported) if there are too few GPUs.
inline int device_of(LaunchEnvironment const& launch, int devices) {
  if (devices == 1 && launch.world > 1) return 0;
  if (launch.local_rank < 0)
    throw Error(ErrorKind::config,
                describe(launch) +
                    " does not say which GPU this rank has: its rank on this host is unknown; " +
                    "set MPI_LOCALRANKID or SLURM_LOCALID, or show each process one GPU only",
                launch.rank);
  if (launch.local_rank >= devices)
    throw Error(ErrorKind::unsupported,
                describe(launch) + ": this host has " + std::to_string(devices) +
                    (devices == 1 ? " GPU" : " GPUs") + "; start at most that many ranks on it",
                launch.rank);
  return launch.local_rank;
}

inline ncclUniqueId make_id() {
  ncclUniqueId id{};
  ncclResult_t const status = ncclGetUniqueId(&id);
  if (status != ncclSuccess)
    throw Error(ErrorKind::failed, "NCCL: ncclGetUniqueId failed: " + text_of(status, nullptr));
  return id;
}

/// Returns the host name and the PCI address of a GPU, which identify it among all GPUs of a launch.
inline std::string gpu_name(int device, Member const& member) {
  char address[32] = {};
  cudaDeviceGetPCIBusId(address, sizeof address, device);
  return member.host + " " + member.machine.substr(0, member.machine.find(':')) + " " + address;
}

}  // namespace detail

/// Returns a communicator between the processes of a launch, with one GPU for each process. The caller must
/// have called launch->begin(). All ranks of the launch must call this function together. It makes the GPU of
/// this process current for the calling thread. Throws Error(unsupported) if there is no GPU for this rank,
/// Error(config) if two ranks have the same GPU, and PeerLost if a rank is lost.
inline Comm nccl(std::shared_ptr<Launch> const& launch, NcclOptions const& options = {}) {
  int const rank = launch->rank(), device = detail::device_of(launch->environment(), count_gpus());
  auto const states = std::make_shared<detail::LaunchRankStates>(launch);
  auto const transport = std::make_shared<Nccl>(states, rank, device, options.timeout);
  std::vector<std::string> const gpus = launch->all_gather(
      detail::gpu_name(device, launch->members()[static_cast<std::size_t>(rank)]), "compare their GPUs");
  for (std::size_t one = 0; one < gpus.size(); ++one)
    for (std::size_t other = 0; other < one; ++other)
      if (gpus[one] == gpus[other])
        throw_error(
            ErrorKind::config,
            {launch->name(static_cast<int>(other)), " and ", launch->name(static_cast<int>(one)),
             " have the same GPU, ", gpus[one],
             "; start at most one rank for each GPU, and let the launcher number the ranks of a host"},
            rank);
  // NCCL would choose an interface by itself, and ranks on other hosts possibly cannot reach it.
  if (std::string const interface = launch->network_interface(); !interface.empty())
    ::setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), /*overwrite=*/0);
  ncclUniqueId id{};
  if (rank == 0) id = detail::make_id();
  std::string const text =
      launch->all_gather({id.internal, sizeof id.internal}, "connect their GPUs").front();
  std::copy_n(text.data(), std::min(text.size(), sizeof id.internal), id.internal);
  transport->connect(id, "");
  return Comm(transport);
}

/// Returns the communicator of this process, with one GPU for each process. Without a launcher it is a world
/// of one rank. With a launcher, all ranks must call this function together. Its first call connects the
/// processes as from_environment does. Throws the errors of from_environment and of `nccl`.
inline Comm nccl_from_environment(NcclOptions const& options = {}) {
  std::shared_ptr<Launch> const& launch = launch_of_process();
  if (launch) {
    launch->begin();
    return nccl(launch, options);
  }
  int const device = detail::device_of(launch_environment(), count_gpus());
  auto const transport =
      std::make_shared<Nccl>(std::make_shared<detail::ThreadGroup>(1, options.timeout),
                             std::make_shared<detail::ThreadBoards>(1), 0, device, options.timeout);
  transport->connect({}, "");
  return Comm(transport);
}

}  // namespace comm

namespace detail {

inline void run_gpu_threads(int ranks, std::function<void(comm::Comm&)> const& fn,
                            RunOptions const& options) {
  int const devices = comm::count_gpus();
  if (ranks > devices)
    throw Error(ErrorKind::unsupported, std::to_string(ranks) +
                                            " ranks were requested, but this machine has " +
                                            std::to_string(devices) + (devices == 1 ? " GPU" : " GPUs") +
                                            "; choose at most that many ranks");
  ncclUniqueId const id = ranks > 1 ? comm::detail::make_id() : ncclUniqueId{};
  auto const shared = std::make_shared<comm::detail::ThreadBoards>(std::max(ranks, 1));
  auto const make = [&](std::shared_ptr<comm::detail::ThreadGroup> const& group, int rank) {
    return std::make_shared<comm::Nccl>(group, shared, rank, rank, options.timeout);
  };
  auto const body = [&](comm::Comm& handle) {
    static_cast<comm::Nccl&>(handle.transport()).connect(id, "");
    fn(handle);
  };
  if (ranks == 1) {
    comm::Comm handle(make(comm::detail::make_group(1, {options.timeout}), 0));
    return body(handle);
  }
  run_threads(ranks, body, options, make);
}

}  // namespace detail

/// Calls fn(comm) on `ranks` threads, as `run` does, with one GPU for each rank: GPU r is current in the
/// thread of rank r. Throws Error(unsupported) if there are fewer GPUs than ranks.
template <class Fn>
requires std::invocable<Fn&, comm::Comm&>
void run_gpus(int ranks, Fn&& fn, RunOptions const& options = {}) {
  detail::run_gpu_threads(
      ranks, [&fn](comm::Comm& handle) { fn(handle); }, options);
}

}  // namespace v0
}  // namespace tessera
