// SPDX-License-Identifier: Apache-2.0
// The door for Offload<Nvme>: everything of tessera.hpp, and what reads and writes files of state.
#pragma once

#include "tessera/io/nvme_file.hpp"
#include "tessera/tessera.hpp"

namespace tessera {
inline namespace v0 {

template <>
inline constexpr OpenStateFile open_state_file<Nvme> =
    [](std::string const& folder, int rank, std::int64_t bytes) -> std::unique_ptr<StateFile> {
  return std::make_unique<NvmeFile>(NvmeOptions{.directory = folder}, rank, bytes);
};

}  // namespace v0
}  // namespace tessera
