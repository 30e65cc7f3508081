// SPDX-License-Identifier: Apache-2.0
// How a test on a GPU leaves a machine without one.
#pragma once

#include <cuda_runtime_api.h>

#include <doctest/doctest.h>

namespace test {

inline int gpu_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace test

/// First line of every case: leaves it, with a message, on a machine with fewer GPUs.
#define TESSERA_NEEDS_GPUS(number)                                                                 \
  if (::test::gpu_count() < (number)) {                                                            \
    MESSAGE("skipped: this needs ", (number), " CUDA devices and here are ", ::test::gpu_count()); \
    return;                                                                                        \
  }
#define TESSERA_NEEDS_GPU() TESSERA_NEEDS_GPUS(1)
