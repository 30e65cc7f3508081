# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<source folder> -DWORK=<folder> -DGENERATOR=<name> -P cuda_architectures.cmake
# Checks the architectures that TESSERA_FAT and CMAKE_CUDA_ARCHITECTURES compile for, and the values that are refused.
cmake_minimum_required(VERSION 3.25)
set(work "${WORK}/cuda_architectures")
file(REMOVE_RECURSE "${work}")

# configure(folder expected option...): configures the project. It must succeed if `expected` is empty, otherwise it must
# fail with a matching message.
function(configure folder expected)
  execute_process(COMMAND "${CMAKE_COMMAND}" -S "${ROOT}" -B "${work}/${folder}" -G "${GENERATOR}" -DTESSERA_CUDA=ON
                          -DTESSERA_BUILD_RECIPES=ON -DTESSERA_BUILD_PROGRAMS=OFF -DTESSERA_BUILD_TESTS=OFF ${ARGN}
                  OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE status)
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  if(expected STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "${folder} does not configure:\n${output}")
  elseif(NOT expected STREQUAL "" AND (status EQUAL 0 OR NOT output MATCHES "${expected}"))
    message(FATAL_ERROR "${folder} ends with ${status} and does not say '${expected}':\n${output}")
  endif()
endfunction()

configure(fat "" -DTESSERA_FAT=ON)
file(READ "${work}/fat/compile_commands.json" commands)
foreach(part "compute_80,code=[sm_80]" "compute_86,code=[sm_86]" "compute_89,code=[sm_89]" "compute_90a,code=[sm_90a]"
        "compute_90,code=[compute_90]")
  string(FIND "${commands}" "arch=${part}" place)
  if(place EQUAL -1)
    message(FATAL_ERROR "TESSERA_FAT does not compile for ${part}")
  endif()
endforeach()
configure(both "TESSERA_FAT compiles for .* CMAKE_CUDA_ARCHITECTURES says 80. Drop one of the two" -DTESSERA_FAT=ON
          -DCMAKE_CUDA_ARCHITECTURES=80)
configure(old "names 75-real, and the GPU part needs compute capability 8.0 or newer" -DCMAKE_CUDA_ARCHITECTURES=75-real)
configure(all "names all, and the GPU part needs compute capability 8.0 or newer" -DCMAKE_CUDA_ARCHITECTURES=all)
