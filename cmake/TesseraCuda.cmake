# SPDX-License-Identifier: Apache-2.0
# The GPU part: tessera::cuda for On<Cuda>, and what CMake 3.25 and nvcc 13 need to compile it.
include_guard(DIRECTORY)

include("${CMAKE_CURRENT_LIST_DIR}/TesseraCudaTargets.cmake")

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "tessera: TESSERA_CUDA is on, but no nvcc was found. Put it on PATH, or pass "
    "-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc, or leave the GPU out: -DTESSERA_CUDA=OFF.")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # The GPUs of this machine, or else Hopper: nvcc's own default is older, and "native" fails without a GPU.
  # "90a" is Hopper with its warpgroups, which nvcc does not take "native" to mean.
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
                  OUTPUT_VARIABLE capability RESULT_VARIABLE status ERROR_QUIET)
  string(REGEX MATCHALL "[0-9]+\\.[0-9]" capabilities "${capability}")
  list(REMOVE_DUPLICATES capabilities)
  if(status EQUAL 0 AND capabilities AND NOT capabilities STREQUAL "9.0")
    set(CMAKE_CUDA_ARCHITECTURES native)
  else()
    set(CMAKE_CUDA_ARCHITECTURES 90a-real)
  endif()
endif()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
if(NOT TARGET CUDA::cublasLt)
  message(FATAL_ERROR "tessera: the CUDA toolkit in ${CUDAToolkit_LIBRARY_ROOT} has no cuBLASLt: "
    "apt-get install libcublas-dev-13-0")
endif()

add_library(tessera_cuda INTERFACE)
add_library(tessera::cuda ALIAS tessera_cuda)
tessera_require_cuda(tessera_cuda)

# tessera::nccl: ranks on several GPUs. Without NCCL a rank is all there is.
find_package(NCCL QUIET)
if(TARGET NCCL::nccl)
  add_library(tessera_nccl INTERFACE)
  add_library(tessera::nccl ALIAS tessera_nccl)
  tessera_require_nccl(tessera_nccl)
else()
  message(STATUS "tessera: NCCL was not found, so there is no tessera::nccl: apt-get install libnccl-dev, or NCCL_ROOT")
endif()
