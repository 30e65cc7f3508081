// SPDX-License-Identifier: Apache-2.0
// Provides the policy Offload<Nvme>, which keeps training state in a file: includes all of tessera.hpp and
// the code that reads and writes this file.
#pragma once

#include "tessera/io/nvme_file.hpp"
#include "tessera/tessera.hpp"
