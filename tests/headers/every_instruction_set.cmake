# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=<repository> -DBUILD=<folder> -DCOMPILER=<g++> -P every_instruction_set.cmake
# Builds programs, tests and benchmarks for each instruction set, with the release flags and with each single optimization
# level. Runs the tests of the release build if this CPU has the instruction set. `cmake --workflow --preset
# instruction-sets` runs this for hours. instruction_sets.cmake is the fast test of the same sets.
cmake_minimum_required(VERSION 3.25)
set(sets x86-64 x86-64-v3 icelake-server sapphirerapids)

# features(result set): the compiler's predefined macros for the set's instructions.
function(features result set)
  file(WRITE "${BUILD}/empty.cpp" "")
  execute_process(COMMAND "${COMPILER}" -march=${set} -dM -E "${BUILD}/empty.cpp" OUTPUT_VARIABLE macros
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "__[A-Z0-9_]+__ 1\n" found "${macros}")
  list(TRANSFORM found REPLACE " 1\n" "")
  # A compiler uses these instructions only for their intrinsics.
  list(FILTER found EXCLUDE REGEX "__(FLT_EVAL.*|CLDEMOTE|ENQCMD|MOVDIR.*|PCONFIG|PKU|PTWRITE|SERIALIZE|SGX|TSXLDTRK|UINTR|WAITPKG|WBNOINVD)__")
  set(${result} "${found}" PARENT_SCOPE)
endfunction()

function(run)
  list(JOIN ARGN " " line)
  message(STATUS "${line}")
  execute_process(COMMAND ${ARGN} WORKING_DIRECTORY "${ROOT}" COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(MAKE_DIRECTORY "${BUILD}")
features(native native)
foreach(set IN LISTS sets)
  foreach(level released -O0 -Og -O2)
    set(folder "${BUILD}/${set}${level}")
    set(flags -DTESSERA_NATIVE=OFF "-DCMAKE_CXX_FLAGS=-march=${set}")
    if(NOT level STREQUAL "released")
      list(APPEND flags -DCMAKE_BUILD_TYPE=None "-DCMAKE_CXX_FLAGS=-march=${set} ${level}")
    endif()
    run("${CMAKE_COMMAND}" --preset test -B "${folder}" ${flags})
    run("${CMAKE_COMMAND}" --build "${folder}")
    features(missing ${set})
    list(REMOVE_ITEM missing ${native})
    if(level STREQUAL "released" AND NOT missing)
      run("${CMAKE_CTEST_COMMAND}" --test-dir "${folder}" --output-on-failure -j 2 -LE long)
    elseif(level STREQUAL "released")
      message(STATUS "${set}: the tests are not run, since this CPU lacks ${missing}")
    endif()
    file(REMOVE_RECURSE "${folder}")
  endforeach()
endforeach()
