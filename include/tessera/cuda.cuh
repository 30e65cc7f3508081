// SPDX-License-Identifier: Apache-2.0
// Provides the policy On<Cuda>, which trains on a GPU: includes all of tessera.hpp and the GPU backend. Needs
// nvcc, cuBLASLt, and a link with the CMake target tessera::cuda.
#pragma once

#include "tessera/backend/cuda/attention/attention.cuh"
#include "tessera/backend/cuda/kernels/cross_entropy.cuh"
#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/backend/cuda/kernels/embedding.cuh"
#include "tessera/backend/cuda/kernels/layer_norm.cuh"
#include "tessera/backend/cuda/kernels/rotary.cuh"
#include "tessera/backend/cuda/kernels/swiglu.cuh"
#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/backend/cuda/runtime/context.cuh"
#include "tessera/backend/cuda/runtime/memory.cuh"
#include "tessera/nn/init.cuh"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/finish.cuh"
#include "tessera/tessera.hpp"
