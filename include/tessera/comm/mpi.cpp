// SPDX-License-Identifier: Apache-2.0
// Includes the header that makes launches connect processes on several hosts through MPI. CMake compiles this
// source into each program that links tessera::mpi.
#include "tessera/comm/mpi.hpp"
