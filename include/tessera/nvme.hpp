// SPDX-License-Identifier: Apache-2.0
// Provides Offload<Nvme>: includes all of tessera.hpp and the code that reads and writes state files.
#pragma once

#include "tessera/io/nvme_file.hpp"
#include "tessera/tessera.hpp"
