# SPDX-License-Identifier: Apache-2.0
# cmake (CMakeLists.txt has the variables) -P missing.cmake
# Configures while libraries are hidden. One message must name each library with its package. The library itself must not
# require the packages of programs and tests.
cmake_minimum_required(VERSION 3.25)
set(place "${WORK}/missing")
file(REMOVE_RECURSE "${place}")
foreach(variable CMAKE_PREFIX_PATH CPATH LIBRARY_PATH)
  unset(ENV{${variable}})  # else the hidden libraries would be found
endforeach()

function(configure name result)
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${ROOT}" -B "${place}/${name}" -G "${GENERATOR}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
            ${ARGN}
    RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
  set(${result} "${status}" PARENT_SCOPE)
  set(text "${text}" PARENT_SCOPE)
endfunction()

set(hidden -DTESSERA_BUILD_BENCHMARKS=ON -DTESSERA_XXHASH_INCLUDE_DIR=TESSERA_XXHASH_INCLUDE_DIR-NOTFOUND
    -DTESSERA_PCRE2_8_INCLUDE_DIR=TESSERA_PCRE2_8_INCLUDE_DIR-NOTFOUND
    -DCMAKE_IGNORE_PATH=/usr/include)
foreach(package Eigen3 nlohmann_json CLI11 doctest benchmark)
  list(APPEND hidden -DCMAKE_DISABLE_FIND_PACKAGE_${package}=ON)
endforeach()
configure(all status ${hidden})
if(status EQUAL 0)
  message(FATAL_ERROR "configured without its libraries")
endif()
set(line "apt-get install -y --no-install-recommends libeigen3-dev nlohmann-json3-dev libxxhash-dev libcli11-dev")
string(APPEND line " libpcre2-dev libsentencepiece-dev libutf8proc-dev libzstd-dev zlib1g-dev")
string(APPEND line " doctest-dev libbenchmark-dev")
string(REGEX REPLACE "[ \n]+" " " flat "${text}")
string(FIND "${flat}" "${line}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "the message should hold: ${line}\n${text}")
endif()
string(REGEX MATCHALL "CMake Error" errors "${text}")
list(LENGTH errors count)
if(NOT count EQUAL 1)
  message(FATAL_ERROR "${count} errors instead of one:\n${text}")
endif()

list(FILTER hidden EXCLUDE REGEX "Eigen3|BENCHMARKS")
configure(library status ${hidden} -DTESSERA_BUILD_PROGRAMS=OFF -DTESSERA_BUILD_TESTS=OFF)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "the headers alone asked for more than Eigen and threads:\n${text}")
endif()
