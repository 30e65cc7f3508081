# SPDX-License-Identifier: Apache-2.0
# cmake -DBUILD=<build folder> -DWORK=<folder> -DGENERATOR=<name> -P cuda_package.cmake
# The installed package provides tessera::cuda to a project with the language CUDA, and tessera::nccl and tessera::cudnn if
# NCCL and cuDNN are found. If cuDNN is not found, the package's message says so.
cmake_minimum_required(VERSION 3.25)
set(work "${WORK}/cuda_package")
file(REMOVE_RECURSE "${work}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/prefix"
                OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(WRITE "${work}/project/main.cu" "#include <tessera/version.hpp>\nint main() {}\n")
file(WRITE "${work}/project/CMakeLists.txt" [=[
cmake_minimum_required(VERSION 3.25.1)
set(CMAKE_CUDA_ARCHITECTURES 90)
project(consumer LANGUAGES CXX)
if(ORDER STREQUAL "before")
  enable_language(CUDA)
endif()
set(module_path_before "${CMAKE_MODULE_PATH}")
find_package(tessera CONFIG REQUIRED COMPONENTS cuda OPTIONAL_COMPONENTS nccl cudnn)
if(NOT CMAKE_MODULE_PATH STREQUAL module_path_before)
  message(FATAL_ERROR "the package changed CMAKE_MODULE_PATH to ${CMAKE_MODULE_PATH}")
endif()
enable_language(CUDA)  # no effect if it is enabled already
add_executable(consumer main.cu)
target_link_libraries(consumer PRIVATE tessera::cuda)
if(tessera_nccl_FOUND)
  target_link_libraries(consumer PRIVATE tessera::nccl)
endif()
if(tessera_cudnn_FOUND)
  target_link_libraries(consumer PRIVATE tessera::cudnn)
elseif(NOT tessera_NOT_FOUND_MESSAGE MATCHES "^tessera::cudnn: .")
  message(FATAL_ERROR "cuDNN is missing, and the package says: ${tessera_NOT_FOUND_MESSAGE}")
endif()
]=])
# Tests both orders: CUDA is enabled before or after the package is found.
foreach(order before after)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${work}/project" -B "${work}/build-${order}" -G "${GENERATOR}"
                          "-DCMAKE_PREFIX_PATH=${work}/prefix" "-DORDER=${order}" -DCMAKE_EXPORT_COMPILE_COMMANDS=ON
                  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the project that enables CUDA ${order} the package is found does not configure:\n${output}")
  endif()
  file(READ "${work}/build-${order}/compile_commands.json" commands)
  foreach(part "std=c\\+\\+20" "-DEIGEN_NO_CUDA")
    if(NOT commands MATCHES "${part}")
      message(FATAL_ERROR "tessera::cuda does not bring ${part}:\n${commands}")
    endif()
  endforeach()
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${work}/build-${order}" OUTPUT_VARIABLE output ERROR_VARIABLE output
                  RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "the project that enables CUDA ${order} the package is found does not build:\n${output}")
  endif()
endforeach()
