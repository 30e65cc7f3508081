# SPDX-License-Identifier: Apache-2.0
# Settings and functions of in-tree targets. Nothing here is installed or affects a project that uses tessera.
include_guard(DIRECTORY)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release)
  endif()
  set(CMAKE_CXX_EXTENSIONS OFF)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(TESSERA_CCACHE ccache)
    mark_as_advanced(TESSERA_CCACHE)
    if(TESSERA_CCACHE)
      set(CMAKE_CXX_COMPILER_LAUNCHER "${TESSERA_CCACHE}")
    endif()
  endif()
endif()

# The instruction set. All translation units of a program must have the same one, otherwise the program does not link (see
# config.hpp). Each in-tree target therefore links this target.
add_library(tessera_native INTERFACE)
if(TESSERA_NATIVE)
  include(CheckCXXCompilerFlag)
  check_cxx_compiler_flag(-march=native TESSERA_HAS_MARCH_NATIVE)
  if(TESSERA_HAS_MARCH_NATIVE)
    target_compile_options(tessera_native INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-march=native> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-march=native>)
  else()
    message(STATUS "tessera: TESSERA_NATIVE is on, but this compiler does not know -march=native")
  endif()
endif()

add_library(tessera_dev_flags INTERFACE)
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  # nvcc's line directives cause warnings under -Wpedantic.
  target_compile_options(tessera_dev_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>)
  if(TESSERA_WARNINGS_AS_ERRORS)
    target_compile_options(tessera_dev_flags INTERFACE
      $<$<COMPILE_LANGUAGE:CXX>:-Werror> $<$<COMPILE_LANGUAGE:CUDA>:--Werror=all-warnings>)
  endif()
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC collects garbage only above 500 MB. This saves 5% of the compile time and costs up to 0.3 GB of memory.
  target_compile_options(tessera_dev_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=500000>)
  # AVX-512 intrinsics cause hundreds of false warnings of these two kinds, also in system headers.
  target_compile_options(tessera_dev_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized;-Wno-uninitialized>
    $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wno-maybe-uninitialized,-Wno-uninitialized>)
  if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(tessera_dev_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)  # false on "text" + string, GCC bug 105651
  endif()
endif()

# JSON and hashing, for programs, tests and recipes.
add_library(tessera_io_libraries INTERFACE)
if(TARGET nlohmann_json::nlohmann_json)
  target_link_libraries(tessera_io_libraries INTERFACE nlohmann_json::nlohmann_json)
  target_include_directories(tessera_io_libraries SYSTEM INTERFACE "${TESSERA_XXHASH_INCLUDE_DIR}")
endif()

# Regular expressions, for programs.
add_library(tessera_pcre2 INTERFACE)
if(TESSERA_PCRE2_8_LIBRARY)
  target_link_libraries(tessera_pcre2 INTERFACE "${TESSERA_PCRE2_8_LIBRARY}")
  target_include_directories(tessera_pcre2 SYSTEM INTERFACE "${TESSERA_PCRE2_8_INCLUDE_DIR}")
endif()

# tessera_add_executable(name [SOURCES file...] [LIBRARIES target...] [OUTPUT_DIRECTORY dir])
# Links tessera::recipes before the objects of the program. Both contain the same inline functions, and the linker keeps the
# first copy. The library's copy is compiled with -O3: GPT-2's weights initialize in a fifth of the time, and whole trainings
# of the tests run in two thirds. This was not tried with objects of nvcc.
function(tessera_add_executable name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "OUTPUT_DIRECTORY" "SOURCES;LIBRARIES")
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE tessera::tessera tessera_native tessera_dev_flags tessera_io_libraries
                                        ${arg_LIBRARIES})
  if("tessera::recipes" IN_LIST arg_LIBRARIES AND NOT TESSERA_CUDA AND CMAKE_SYSTEM_NAME STREQUAL "Linux"
     AND CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
    target_link_options(${name} PRIVATE LINKER:--whole-archive "$<TARGET_FILE:tessera_recipes>" LINKER:--no-whole-archive)
  endif()
  if(arg_OUTPUT_DIRECTORY)
    set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${arg_OUTPUT_DIRECTORY}")
  endif()
endfunction()

# tessera_compile_together(target [source...]): compiles these sources of a target, or all of them, as one translation unit.
# Headers and template instantiations that they share are compiled once. Names in their anonymous namespaces must differ.
option(TESSERA_UNITY "Compile sources of tests and programs in groups" ON)
function(tessera_compile_together target)
  if(NOT TESSERA_UNITY)
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  set(group all)
  if(ARGN)
    list(GET ARGN 0 group)
    get_filename_component(group "${group}" NAME_WE)
  endif()
  foreach(source IN LISTS sources)
    if(NOT ARGN OR source IN_LIST ARGN)
      set_source_files_properties("${source}" TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${group})
    endif()
  endforeach()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# tessera_build_for_long_tests(target test...): leaves the target out of the default build. The long tests (ctest
# --preset long) first build all such targets in one go, then run the tests, which are labelled "long".
function(tessera_build_for_long_tests target)
  set_target_properties(${target} PROPERTIES EXCLUDE_FROM_ALL ON)
  if(NOT TARGET tessera_long_tests)
    add_custom_target(tessera_long_tests)
    set(built "long.programs of the long tests are built")
    add_test(NAME "${built}"
             COMMAND "${CMAKE_COMMAND}" --build "${PROJECT_BINARY_DIR}" --config $<CONFIG> --target tessera_long_tests)
    set_tests_properties("${built}" PROPERTIES LABELS long TIMEOUT 1800 RUN_SERIAL ON FIXTURES_SETUP tessera_long_tests)
  endif()
  add_dependencies(tessera_long_tests ${target})
  set_property(TEST ${ARGN} APPEND PROPERTY LABELS long)
  set_property(TEST ${ARGN} PROPERTY FIXTURES_REQUIRED tessera_long_tests)
endfunction()
