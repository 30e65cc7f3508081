# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<source folder> -DWORK=<folder> -DNVCC=<nvcc> -DEIGEN=<folders> -DARCHITECTURE=<80-real or 90-virtual>
#       -P architecture.cmake
# Compiles a program with one recipe for one architecture. Only code for 90a contains Hopper's warpgroup instructions. PTX is
# assembled for every newer GPU that this toolkit knows, as a driver would do. nvcc must not warn, with only the flags that
# docs/policies/device.md gives.
cmake_minimum_required(VERSION 3.25)
if(NOT ARCHITECTURE MATCHES "^(([0-9]+)a?)-(real|virtual)$")
  message(FATAL_ERROR "${ARCHITECTURE} is no architecture with -real or -virtual")
endif()
set(name "${CMAKE_MATCH_1}")
set(number "${CMAKE_MATCH_2}")
set(kind "${CMAKE_MATCH_3}")
get_filename_component(tools "${NVCC}" DIRECTORY)
set(folder "${WORK}/architecture_${ARCHITECTURE}")
file(REMOVE_RECURSE "${folder}")
file(WRITE "${folder}/main.cu" [=[
#include <tessera/cuda.cuh>
namespace ts = tessera;
int main() {
  ts::Trainer<ts::Gpt2, ts::On<ts::Cuda>, ts::Precision<ts::bfloat16>> trainer{
      ts::Gpt2{}, ts::comm::Comm{}, {.batch = 1, .sequence = 8}};
  trainer.step(ts::Batch{});
}
]=])
set(includes "-I${ROOT}/include")
foreach(directory IN LISTS EIGEN)
  list(APPEND includes -isystem "${directory}")
endforeach()
# This test reads the code and does not run it. Without optimizations the compiler needs a third of the time.
execute_process(COMMAND "${NVCC}" --help OUTPUT_VARIABLE help COMMAND_ERROR_IS_FATAL ANY)
set(fast_compile "")
if(help MATCHES "--Ofast-compile")
  set(fast_compile -Ofc max)
endif()
set(compile "${NVCC}" ${fast_compile} -std=c++20 -Xcompiler=-march=native ${includes}
            "${folder}/main.cu" --keep --keep-dir "${folder}")
if(kind STREQUAL "real")
  execute_process(COMMAND ${compile} -cubin "-arch=sm_${name}" -o "${folder}/${name}.cubin" ERROR_VARIABLE warnings
                  ECHO_ERROR_VARIABLE COMMAND_ERROR_IS_FATAL ANY)
else()
  execute_process(COMMAND ${compile} -ptx "-arch=compute_${name}" -o "${folder}/main.ptx" ERROR_VARIABLE warnings
                  ECHO_ERROR_VARIABLE COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${NVCC}" --list-gpu-code OUTPUT_VARIABLE newer COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "sm_[0-9]+" newer "${newer}")
  list(TRANSFORM newer REPLACE "sm_" "")
  set(translated "")
  foreach(other IN LISTS newer)
    if(other GREATER number)
      execute_process(COMMAND "${tools}/ptxas" -O0 "-arch=sm_${other}" "${folder}/main.ptx" -o "${folder}/${other}.cubin"
                      COMMAND_ERROR_IS_FATAL ANY)
      list(APPEND translated "${other}")
    endif()
  endforeach()
  if(NOT translated)
    message(FATAL_ERROR "${NVCC} knows no GPU newer than ${number}: ${newer}")
  endif()
  message(STATUS "translated for ${translated}")
endif()
if(warnings MATCHES "[Ww]arning")
  message(FATAL_ERROR "nvcc warns of the headers:\n${warnings}")
endif()
file(GLOB ptx "${folder}/main*.ptx")
list(LENGTH ptx files)
if(NOT files EQUAL 1)
  message(FATAL_ERROR "nvcc left ${files} files of PTX in ${folder}")
endif()
file(READ "${ptx}" text)
string(REGEX MATCHALL "wgmma\\.mma_async" found "${text}")
list(LENGTH found count)
if(name STREQUAL "90a" AND count EQUAL 0)
  message(FATAL_ERROR "the code for ${ARCHITECTURE} has no products of warpgroups")
elseif(NOT name STREQUAL "90a" AND count GREATER 0)
  message(FATAL_ERROR "the code for ${ARCHITECTURE} has ${count} products of warpgroups, which only 90a has")
endif()
message(STATUS "${ARCHITECTURE}: ${count} products of warpgroups")
