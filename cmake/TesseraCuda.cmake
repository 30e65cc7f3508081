# SPDX-License-Identifier: Apache-2.0
# Defines tessera::cuda, which programs with On<Cuda> link, and, if found, tessera::cudnn and tessera::nccl. Chooses the GPU
# architectures and enables the language CUDA.
include_guard(DIRECTORY)

include("${CMAKE_CURRENT_LIST_DIR}/TesseraCudaTargets.cmake")

include(CheckLanguage)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  message(FATAL_ERROR "tessera: TESSERA_CUDA is on, but no nvcc was found. Put it on PATH, or pass "
    "-DCMAKE_CUDA_COMPILER=/usr/local/cuda/bin/nvcc, or leave the GPU out: -DTESSERA_CUDA=OFF.")
endif()
# Machine code for each compute capability from 8.0 to 9.0. Hopper's is 90a, which includes warpgroup instructions. Drivers
# of newer GPUs compile the PTX of plain 9.0, which has no Hopper-only instructions.
set(tessera_every_architecture 80-real 86-real 89-real 90a-real 90-virtual)
if(TESSERA_FAT)
  if(DEFINED CMAKE_CUDA_ARCHITECTURES)
    message(FATAL_ERROR "tessera: TESSERA_FAT compiles for ${tessera_every_architecture}, and CMAKE_CUDA_ARCHITECTURES says "
      "${CMAKE_CUDA_ARCHITECTURES}. Drop one of the two.")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES ${tessera_every_architecture})
elseif(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  # Compiles for the GPUs of this machine; without a GPU, for Hopper. nvcc's default is older, and "native" fails without a
  # GPU. On Hopper, "native" lacks the warpgroup instructions of "90a".
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
foreach(architecture IN LISTS CMAKE_CUDA_ARCHITECTURES)
  string(REGEX MATCH "^[0-9]+" number "${architecture}")
  if(architecture MATCHES "^all" OR (number AND number LESS 80))
    message(FATAL_ERROR "tessera: CMAKE_CUDA_ARCHITECTURES names ${architecture}, and the GPU part needs compute capability "
      "8.0 or newer. Name architectures from 80 on, or turn TESSERA_FAT on for all of them.")
  endif()
endforeach()
enable_language(CUDA)
find_package(CUDAToolkit 13.0 REQUIRED)
if(NOT TARGET CUDA::cublasLt)
  message(FATAL_ERROR "tessera: the CUDA toolkit in ${CUDAToolkit_LIBRARY_ROOT} has no cuBLASLt: "
    "apt-get install libcublas-dev-13-0")
endif()

add_library(tessera_cuda INTERFACE)
add_library(tessera::cuda ALIAS tessera_cuda)
tessera_require_cuda(tessera_cuda)

# tessera::cudnn runs Attention<Cudnn>. It is opt-in.
if(TESSERA_CUDNN)
  include(TesseraCudnn)
  tessera_find_cudnn(tessera_cudnn "${PROJECT_SOURCE_DIR}/include" tessera_cudnn_missing)
  if(tessera_cudnn_missing)
    message(FATAL_ERROR "tessera: TESSERA_CUDNN is on, but ${tessera_cudnn_missing}. Or leave it out: -DTESSERA_CUDNN=OFF.")
  endif()
  add_library(tessera::cudnn ALIAS tessera_cudnn)
endif()

# tessera::nccl connects ranks on several GPUs. Without NCCL a run on GPUs has one rank.
find_package(NCCL QUIET)
if(TARGET NCCL::nccl)
  add_library(tessera_nccl INTERFACE)
  add_library(tessera::nccl ALIAS tessera_nccl)
  tessera_require_nccl(tessera_nccl)
else()
  message(STATUS "tessera: NCCL was not found, so there is no tessera::nccl: apt-get install libnccl-dev, or NCCL_ROOT")
endif()
