// SPDX-License-Identifier: Apache-2.0
// Ranks on several GPUs of one process, through NCCL.
#include "tessera/comm/nccl.cuh"
#include "tessera/train/registry/gpt2.hpp"

namespace tessera::inline v0 {
namespace detail {

void run_on_gpus(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options) {
  if (ranks == 1)
    tessera::run(1, fn, options);
  else
    run_gpus(ranks, fn, options);
}

}  // namespace detail
}  // namespace tessera::inline v0
