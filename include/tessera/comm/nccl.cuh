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

#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/environment.hpp"
#include "tessera/comm/nccl_link.cuh"
#include "tessera/comm/nccl_transport.cuh"
#include "tessera/comm/run.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

namespace comm {

namespace detail {

/// Returns the address where the processes of a launch meet: NCCL_COMM_ID if it is set, otherwise the
/// master's address and port. If the launcher itself listens on that port, uses an adjacent one.
inline std::string nccl_address(LaunchEnvironment const& launch, char const* set_already) {
  if (set_already && *set_already) return set_already;
  if (launch.master_address.empty())
    throw Error(ErrorKind::config,
                describe(launch) + " does not say where ranks meet; set MASTER_ADDR to the host of rank 0, " +
                    "and MASTER_PORT, on every rank",
                launch.rank);
  int port = launch.master_port > 0 ? launch.master_port : 29500;
  if (launch.master_port_taken) port += port < 65535 ? 1 : -1;
  bool const six = launch.master_address.find(':') != std::string::npos && launch.master_address[0] != '[';
  return (six ? "[" + launch.master_address + "]" : launch.master_address) + ":" + std::to_string(port);
}

/// Returns the GPU of a process: its local rank, or 0 if the launcher shows each process only its own GPU.
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

/// Returns the number of GPUs. Throws Error(unsupported) if there are none.
inline int count_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) Context<Cuda>::select(0);  // throws
  return count;
}

inline ncclUniqueId make_id() {
  ncclUniqueId id{};
  ncclResult_t const status = ncclGetUniqueId(&id);
  if (status != ncclSuccess)
    throw Error(ErrorKind::failed, "NCCL: ncclGetUniqueId failed: " + text_of(status, nullptr));
  return id;
}

/// Sets NCCL_COMM_ID, the address at which NCCL connects ranks, for its lifetime. Keeps a value that is set
/// already.
class MeetingPoint {
 public:
  explicit MeetingPoint(std::string const& address) : own_(!std::getenv(variable)) {
    if (own_) ::setenv(variable, address.c_str(), 1);
  }
  MeetingPoint(MeetingPoint const&) = delete;
  MeetingPoint& operator=(MeetingPoint const&) = delete;
  ~MeetingPoint() {
    if (own_) ::unsetenv(variable);
  }

 private:
  static constexpr char const* variable = "NCCL_COMM_ID";
  bool own_;
};

}  // namespace detail

/// Returns a communicator of GPUs for this process; without a launcher, a world of one. The process's GPU
/// becomes current for the calling thread. Ranks meet at MASTER_ADDR and MASTER_PORT, or at an adjacent port
/// if the launcher listens on that one. NCCL_COMM_ID=HOST:PORT overrides both. The function changes
/// NCCL_COMM_ID while ranks connect, so call it before other threads read the environment. Throws
/// Error(config) if the launch is incomplete, Error(unsupported) without a GPU for this rank, and PeerLost if
/// ranks do not arrive.
inline Comm nccl_from_environment(GetEnvironment const& get, NcclOptions const& options = {}) {
  LaunchEnvironment const launch = launch_environment(get);
  int const device = detail::device_of(launch, detail::count_devices());
  auto const peers = std::make_shared<detail::ProcessPeers>(launch.rank, launch.world);
  auto const transport = std::make_shared<Nccl>(peers, launch.rank, device, options.timeout);
  if (launch.world == 1) {
    transport->connect({}, "");
    return Comm(transport);
  }
  std::string const address = detail::nccl_address(launch, get("NCCL_COMM_ID"));
  detail::MeetingPoint const meeting(address);
  transport->connect(detail::make_id(), " at " + address);
  return Comm(transport);
}
inline Comm nccl_from_environment(NcclOptions const& options = {}) {
  return nccl_from_environment([](char const* name) -> char const* { return std::getenv(name); }, options);
}

}  // namespace comm

namespace detail {

inline void run_gpu_threads(int ranks, std::function<void(comm::Comm&)> const& fn,
                            RunOptions const& options) {
  int const devices = comm::detail::count_devices();
  if (ranks > devices)
    throw Error(ErrorKind::unsupported, std::to_string(ranks) +
                                            " ranks were requested, but this machine has " +
                                            std::to_string(devices) + (devices == 1 ? " GPU" : " GPUs") +
                                            "; choose at most that many ranks");
  ncclUniqueId const id = ranks > 1 ? comm::detail::make_id() : ncclUniqueId{};
  auto const shared = std::make_shared<comm::detail::ThreadBoards>(std::max(ranks, 1));
  auto const make = [&](std::shared_ptr<comm::detail::ThreadGroup> const& group, int rank) {
    return std::make_shared<comm::Nccl>(group, shared, rank, options.timeout);
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

/// The same as `run`, with one GPU per rank: rank r has GPU r, which is current in its thread. Throws
/// Error(unsupported) if there are fewer GPUs than ranks.
template <class Fn>
requires std::invocable<Fn&, comm::Comm&>
void run_gpus(int ranks, Fn&& fn, RunOptions const& options = {}) {
  detail::run_gpu_threads(
      ranks, [&fn](comm::Comm& handle) { fn(handle); }, options);
}

}  // namespace v0
}  // namespace tessera
