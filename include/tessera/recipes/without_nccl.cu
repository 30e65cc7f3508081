// SPDX-License-Identifier: Apache-2.0
// Replaces gpus.cu in a library that is built without NCCL.
#include "tessera/recipes/devices.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

void run_on_gpus(int ranks, std::function<void(comm::Comm&)> const& fn, RunOptions const& options) {
  if (ranks > 1)
    throw Error(ErrorKind::unsupported,
                std::to_string(ranks) +
                    " ranks on GPUs need NCCL, and this build has none; use one rank, or "
                    "install NCCL and build again");
  tessera::run(1, fn, options);
}

comm::Comm connect_gpus(std::shared_ptr<comm::Launch> const& launch) {
  throw Error(ErrorKind::unsupported,
              std::to_string(launch->world()) +
                  " ranks on GPUs need NCCL, and this build has none; start one process, or install NCCL and "
                  "build again");
}

std::string nccl_version() { return {}; }

}  // namespace detail
}  // namespace v0
}  // namespace tessera
