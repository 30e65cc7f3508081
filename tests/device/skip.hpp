// SPDX-License-Identifier: Apache-2.0
// Provides a macro that skips a GPU test on machines with too few GPUs.
#pragma once

#include <cuda_runtime_api.h>

#include <doctest/doctest.h>

namespace test {

inline int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace test

/// Must be the first line of a test case that needs `number` GPUs. On a machine with fewer GPUs, prints a
/// message and ends the test case.
#define TESSERA_NEEDS_GPUS(number)                                                                 \
  if (::test::gpu_count() < (number)) {                                                            \
    MESSAGE("skipped: this needs ", (number), " CUDA devices and here are ", ::test::gpu_count()); \
    return;                                                                                        \
  }
#define TESSERA_NEEDS_GPU() TESSERA_NEEDS_GPUS(1)
