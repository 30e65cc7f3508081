# SPDX-License-Identifier: Apache-2.0
# Finds what the chosen parts need. Everything that is missing is named in one message, with its apt package.
include_guard(DIRECTORY)

set(tessera_missing "")
set(tessera_missing_packages "")
macro(tessera_missing_library what package part)
  string(APPEND tessera_missing "\n  ${what}, for ${part}: apt-get install ${package}")
  list(APPEND tessera_missing_packages ${package})
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Without a version: Eigen 5 rejects a request for 3.4, and 3.4 rejects a range up to 5.
find_package(Eigen3 QUIET CONFIG)
if(NOT TARGET Eigen3::Eigen)
  tessera_missing_library("Eigen 3.4 or newer" libeigen3-dev "the library")
elseif(DEFINED Eigen3_VERSION AND Eigen3_VERSION VERSION_LESS 3.4)
  tessera_missing_library("Eigen 3.4 or newer (found ${Eigen3_VERSION} in ${Eigen3_DIR})" libeigen3-dev "the library")
endif()

if(TESSERA_BUILD_PROGRAMS OR TESSERA_BUILD_TESTS OR TESSERA_BUILD_BENCHMARKS OR TESSERA_BUILD_RECIPES
   OR TESSERA_INSTALL_RECIPES)
  set(tessera_part "programs, tests, benchmarks and recipes")
  find_package(nlohmann_json QUIET CONFIG)
  if(NOT TARGET nlohmann_json::nlohmann_json)
    tessera_missing_library("nlohmann-json" nlohmann-json3-dev "${tessera_part}")
  endif()
  find_path(TESSERA_XXHASH_INCLUDE_DIR xxhash.h)
  mark_as_advanced(TESSERA_XXHASH_INCLUDE_DIR)
  if(NOT TESSERA_XXHASH_INCLUDE_DIR)
    tessera_missing_library("xxHash" libxxhash-dev "${tessera_part}")
  endif()
endif()
if(TESSERA_BUILD_PROGRAMS OR TESSERA_BUILD_TESTS)
  find_package(CLI11 QUIET CONFIG)
  if(NOT TARGET CLI11::CLI11)
    tessera_missing_library("CLI11" libcli11-dev "programs and tests")
  endif()
endif()
if(TESSERA_BUILD_TESTS)
  find_package(doctest QUIET CONFIG)
  if(NOT TARGET doctest::doctest)
    tessera_missing_library("doctest" doctest-dev "tests")
  endif()
endif()
if(TESSERA_BUILD_BENCHMARKS)
  find_package(benchmark QUIET CONFIG)
  if(NOT TARGET benchmark::benchmark)
    tessera_missing_library("Google Benchmark" libbenchmark-dev "benchmarks")
  endif()
endif()

if(tessera_missing)
  list(JOIN tessera_missing_packages " " tessera_missing_packages)
  message(FATAL_ERROR "tessera: missing libraries:${tessera_missing}\n"
    "All at once: apt-get install -y --no-install-recommends ${tessera_missing_packages}\n"
    "A library elsewhere is found through -DCMAKE_PREFIX_PATH=DIR. Parts can be left out: "
    "-DTESSERA_BUILD_PROGRAMS=OFF -DTESSERA_BUILD_TESTS=OFF -DTESSERA_BUILD_BENCHMARKS=OFF.")
endif()
