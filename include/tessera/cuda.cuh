// SPDX-License-Identifier: Apache-2.0
// The door for On<Cuda>: everything of tessera.hpp, and the GPU's backend. Needs nvcc, cuBLASLt, and a link
// with the CMake target tessera::cuda.
#pragma once

#include "tessera/backend/cuda/attention.cuh"
#include "tessera/backend/cuda/context.cuh"
#include "tessera/backend/cuda/cross_entropy.cuh"
#include "tessera/backend/cuda/elementwise.cuh"
#include "tessera/backend/cuda/embedding.cuh"
#include "tessera/backend/cuda/layer_norm.cuh"
#include "tessera/backend/cuda/linear.cuh"
#include "tessera/backend/cuda/memory.cuh"
#include "tessera/backend/cuda/rotary.cuh"
#include "tessera/backend/cuda/swiglu.cuh"
#include "tessera/nn/init.cuh"
#include "tessera/optim/adamw.cuh"
#include "tessera/optim/finish.cuh"
#include "tessera/tessera.hpp"
