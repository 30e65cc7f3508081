# SPDX-License-Identifier: Apache-2.0
# Compiles one test source and judges what the compiler says.
#   cmake -DCOMPILER=g++ -DSOURCE=case.cpp -DROOT=<repository> "-DFLAGS=-std=c++20;..." [-DMODE=pass|page]
#         [-DPRECOMPILED=<folder>] -P run.cmake
# A refusal (the default): the source fails with one error that holds the sentence of its first comment
# ("// expect: tessera: ..."), in at most 20 lines of at most 1000 characters; the page that the sentence names holds
# it too; the twin (TESSERA_TWIN defined) compiles. MODE=pass: the source compiles in silence. MODE=page: the C++ of a
# page compiles in silence.
# With PRECOMPILED, the FOLDER of precompile.cmake, the compiler does not parse again the header there that the source
# includes. Messages are the same, but name a file of the FOLDER where the source includes the header.
cmake_minimum_required(VERSION 3.25)

set(longest_message 20)
set(longest_line 1000)
set(command ${COMPILER} ${FLAGS} -I${ROOT}/include -I${ROOT}/tests/compile_pass)

function(compile status_name output_name)
  execute_process(COMMAND ${command} ${ARGN} ${SOURCE}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(${status_name} "${status}" PARENT_SCOPE)
  set(${output_name} "${output}" PARENT_SCOPE)
endfunction()

function(count_matches count_name pattern text)
  string(REGEX MATCHALL "${pattern}" matches "${text}")
  list(LENGTH matches count)
  set(${count_name} ${count} PARENT_SCOPE)
endfunction()

if(MODE STREQUAL "page")
  file(READ "${SOURCE}" page)
  get_filename_component(name "${SOURCE}" NAME_WE)
  string(REPLACE ";" "@semicolon@" page "${page}")
  string(REGEX MATCHALL "```cpp\n[^`]*```" blocks "${page}")
  if(blocks STREQUAL "")
    message(FATAL_ERROR "${SOURCE} has no block of C++")
  endif()
  set(code "#include \"support.hpp\"\nnamespace ts = tessera;\n")
  set(number 0)
  foreach(block IN LISTS blocks)
    math(EXPR number "${number} + 1")
    string(REGEX REPLACE "^```cpp\n|```$" "" block "${block}")
    string(APPEND code "namespace block_${number} {\n${block}}\n")
  endforeach()
  string(REPLACE "@semicolon@" ";" code "${code}")
  set(SOURCE "${CMAKE_CURRENT_BINARY_DIR}/page_${name}.cpp")
  file(WRITE "${SOURCE}" "${code}")
endif()

file(READ "${SOURCE}" source)
file(GLOB precompiled "${PRECOMPILED}/*.gch")
foreach(header IN LISTS precompiled)
  get_filename_component(name "${header}" NAME_WLE)
  if(source MATCHES "\n#include [<\"](tessera/)?${name}[>\"]\n")
    # GCC forgets in such a file that the pragmas of backend/cpu/microkernel.hpp ignore this warning.
    list(APPEND command -include "${PRECOMPILED}/${name}" -Wno-ignored-attributes)
  endif()
endforeach()

if(MODE MATCHES "^(pass|page)$")
  compile(status output)
  if(NOT status EQUAL 0 OR NOT output STREQUAL "")
    message(FATAL_ERROR "${SOURCE} does not compile in silence (exit code ${status}):\n${output}")
  endif()
  return()
endif()

if(NOT source MATCHES "// expect: (tessera: [^#]+)\n#include")
  message(FATAL_ERROR "${SOURCE} does not begin with '// expect: tessera: ...'")
endif()
string(REPLACE "\n// " " " sentence "${CMAKE_MATCH_1}")

compile(status output)
count_matches(errors "error:" "${output}")
count_matches(lines "\n" "${output}")
if(output MATCHES "evaluates to")  # newer versions of g++ also repeat the condition, in six lines
  math(EXPR lines "${lines} - 6")
endif()
string(FIND "${output}" "${sentence}" place)
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but should be refused with: ${sentence}")
elseif(place EQUAL -1)
  message(FATAL_ERROR "${SOURCE} is not refused with: ${sentence}\nThe compiler says:\n${output}")
elseif(NOT errors EQUAL 1)
  message(FATAL_ERROR "${SOURCE} gives ${errors} errors instead of 1:\n${output}")
elseif(lines GREATER longest_message)
  message(FATAL_ERROR "${SOURCE} gives ${lines} lines, more than ${longest_message}:\n${output}")
endif()
string(REPLACE ";" "," rest "${output}")
string(REGEX REPLACE "\n" ";" rest "${rest}")
foreach(line IN LISTS rest)
  string(LENGTH "${line}" length)
  if(length GREATER longest_line)
    message(FATAL_ERROR "${SOURCE} gives a line of ${length} characters, more than ${longest_line}:\n${line}")
  endif()
endforeach()

if(NOT sentence MATCHES "See (docs/[A-Za-z/-]+\\.md)\\.$")
  message(FATAL_ERROR "the sentence names no page of docs/: ${sentence}")
endif()
set(page "${CMAKE_MATCH_1}")
if(NOT EXISTS "${ROOT}/${page}")
  message(FATAL_ERROR "${page} does not exist, but a refusal names it: ${sentence}")
endif()
file(READ "${ROOT}/${page}" text)
string(REGEX REPLACE "^tessera: " "" bare "${sentence}")
string(FIND "${text}" "${bare}" place)
if(place EQUAL -1)
  message(FATAL_ERROR "${page} does not contain its refusal: ${bare}")
endif()

compile(status output -DTESSERA_TWIN)
if(NOT status EQUAL 0 OR NOT output STREQUAL "")
  message(FATAL_ERROR "the twin of ${SOURCE} does not compile in silence (exit code ${status}):\n${output}")
endif()
message(STATUS "refused in ${lines} lines; the twin compiles")
