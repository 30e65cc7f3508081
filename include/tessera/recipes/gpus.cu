// SPDX-License-Identifier: Apache-2.0
// Runs ranks on GPUs through NCCL, in one process or in several.
#include "tessera/comm/nccl.cuh"
#include "tessera/recipes/devices.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

void run_on_gpus(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options) {
  if (ranks == 1)
    tessera::run(1, fn, options);
  else
    run_gpus(ranks, fn, options);
}

comm::Comm connect_gpus(std::shared_ptr<comm::Launch> const& launch) { return comm::nccl(launch); }

std::string nccl_version() {
  int number = 0;
  if (ncclGetVersion(&number) != ncclSuccess) return {};
  return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
         std::to_string(number % 100);
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
