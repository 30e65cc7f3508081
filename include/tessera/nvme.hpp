// SPDX-License-Identifier: Apache-2.0
// The door for Offload<Nvme>: everything of tessera.hpp, and the code that reads and writes files of state.
#pragma once

#include "tessera/io/nvme_file.hpp"
#include "tessera/tessera.hpp"
