# SPDX-License-Identifier: Apache-2.0
# Tells CMake before 3.25.2 the nvcc flag for C++20. Include this file before the language CUDA is enabled.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
