// SPDX-License-Identifier: Apache-2.0
// Provides ranks that are processes of a launcher: torchrun, deepspeed, srun, mpirun. A program that includes
// this header can be started by them, and gets its rank from comm::from_environment().
#pragma once

#include "tessera/comm/processes.hpp"      // IWYU pragma: export
#include "tessera/comm/run_in_launch.hpp"  // IWYU pragma: export
