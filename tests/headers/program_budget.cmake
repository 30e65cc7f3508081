# SPDX-License-Identifier: Apache-2.0
# cmake -DWORK=... -DCOMPILE=<compiler;flags> -DPROGRAM=<source> -DSECONDS=<budget> -P program_budget.cmake
# Fails if a program takes longer to compile at -O2 than the budget. YARDSTICK, SHARE and RUNS: see budget.cmake.
cmake_minimum_required(VERSION 3.25)
include("${CMAKE_CURRENT_LIST_DIR}/budget.cmake")
measure(best budget "${COMPILE};-O2;-c;${PROGRAM};-o;${WORK}/program.o")
if(best GREATER_EQUAL budget)
  message(FATAL_ERROR "${PROGRAM} takes ${best} ms to compile; its budget is ${budget} ms")
endif()
message(STATUS "${PROGRAM}: ${best} ms of ${budget} ms")
