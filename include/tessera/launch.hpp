// SPDX-License-Identifier: Apache-2.0
// Provides runs in which each rank is a process. A launcher starts the processes: torchrun, deepspeed, srun
// or mpirun. A program that includes this header can be started by these launchers. Its function
// comm::from_environment() then connects the process to the other ranks and returns the communicator.
#pragma once

#include "tessera/comm/processes.hpp"      // IWYU pragma: export
#include "tessera/comm/run_in_launch.hpp"  // IWYU pragma: export
