# SPDX-License-Identifier: Apache-2.0
# Functions that set up tessera::cuda (On<Cuda>) and tessera::nccl (ranks on several GPUs). The build and the installed
# package share them. They need tessera::tessera and find_package(CUDAToolkit) first.
include_guard(DIRECTORY)

# CMake 3.25.1 does not know CUDA C++20 and would silently compile .cu files as C++17.
include("${CMAKE_CURRENT_LIST_DIR}/TesseraCudaDialect.cmake")

function(tessera_require_cuda target)
  target_link_libraries(${target} INTERFACE tessera::tessera CUDA::cublasLt)
  if(CMAKE_CUDA_COMPILER_LOADED AND NOT "cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
    # For CMake 3.25.1 in a project that enabled CUDA before find_package.
    target_compile_options(${target} INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20>)
  else()
    target_compile_features(${target} INTERFACE cuda_std_20)
  endif()
  # Without this definition Eigen's types have another layout under nvcc than in other translation units. The headers define
  # it too, but a user's source can include Eigen before them.
  target_compile_definitions(${target} INTERFACE EIGEN_NO_CUDA)
endfunction()

function(tessera_require_nccl target)
  target_link_libraries(${target} INTERFACE tessera::cuda NCCL::nccl)
endfunction()
