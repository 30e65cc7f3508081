# SPDX-License-Identifier: Apache-2.0
# Teaches CMake before 3.25.2 how nvcc is told C++20. Include it before the language CUDA is enabled.
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
