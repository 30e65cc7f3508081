# SPDX-License-Identifier: Apache-2.0
# Compiles one test source and checks the compiler's messages.
#   cmake -DCOMPILER=g++ -DSOURCE=case.cpp -DROOT=<repository> "-DFLAGS=-std=c++20;..." [-DMODE=pass|page]
#         [-DPRECOMPILED=<folder>] -P run.cmake
# A refusal (the default): the source fails with one error, in at most 20 lines of at most 1000 characters. The error contains
# the sentence of the source's first comment ("// expect: tessera: ..."), and so does the page that the sentence names. The
# twin (TESSERA_TWIN defined) compiles.
# A source that begins with "// names: a b" has a mistake in field a with TESSERA_CASE=0, and in field b with 1. The first
# message names the field, in one error or one warning.
# MODE=pass: the source compiles without a message. MODE=page: the C++ blocks of a page compile without a message.
# PRECOMPILED is the FOLDER of precompile.cmake. The compiler then uses the precompiled form of a header that the source
# includes. Messages are the same, except that the include line is in a file of the FOLDER.
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
    # In a precompiled header GCC loses the pragmas of backend/cpu/microkernel.hpp that disable this warning.
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

function(check_length text)
  count_matches(lines "\n" "${text}")
  if(text MATCHES "evaluates to")  # newer versions of g++ also repeat the condition, in six lines
    math(EXPR lines "${lines} - 6")
  endif()
  if(lines GREATER longest_message)
    message(FATAL_ERROR "${SOURCE} gives ${lines} lines, more than ${longest_message}:\n${text}")
  endif()
  string(REPLACE ";" "," rest "${text}")
  string(REGEX REPLACE "\n" ";" rest "${rest}")
  foreach(line IN LISTS rest)
    string(LENGTH "${line}" length)
    if(length GREATER longest_line)
      message(FATAL_ERROR "${SOURCE} gives a line of ${length} characters, more than ${longest_line}:\n${line}")
    endif()
  endforeach()
endfunction()

function(check_twin)
  compile(status output -DTESSERA_TWIN)
  if(NOT status EQUAL 0 OR NOT output STREQUAL "")
    message(FATAL_ERROR "the twin of ${SOURCE} does not compile in silence (exit code ${status}):\n${output}")
  endif()
endfunction()

if(source MATCHES "// names: ([^\n]+)\n")
  string(REPLACE " " ";" fields "${CMAKE_MATCH_1}")
  set(case 0)
  foreach(field IN LISTS fields)
    compile(status output -DTESSERA_CASE=${case})
    count_matches(messages "(error|warning):" "${output}")
    if(NOT messages EQUAL 1)
      message(FATAL_ERROR "case ${case} of ${SOURCE} gives ${messages} messages instead of 1:\n${output}")
    elseif(NOT output MATCHES "(error|warning): [^\n]*['‘:]${field}['’]")
      message(FATAL_ERROR "case ${case} of ${SOURCE}: the message does not name ${field}:\n${output}")
    endif()
    check_length("${output}")
    math(EXPR case "${case} + 1")
  endforeach()
  check_twin()
  message(STATUS "${case} messages name their fields; the twin compiles")
  return()
endif()

if(NOT source MATCHES "// expect: (tessera: [^#]+)\n#include")
  message(FATAL_ERROR "${SOURCE} does not begin with '// expect: tessera: ...'")
endif()
string(REPLACE "\n// " " " sentence "${CMAKE_MATCH_1}")

compile(status output)
# After a deleted function clang reports a second error; after a deleted constructor it does not.
string(REPLACE "error: cannot pass initializer list to variadic function" "" heard "${output}")
count_matches(errors "error:" "${heard}")
string(FIND "${output}" "${sentence}" place)
if(status EQUAL 0)
  message(FATAL_ERROR "${SOURCE} compiles, but should be refused with: ${sentence}")
elseif(place EQUAL -1)
  message(FATAL_ERROR "${SOURCE} is not refused with: ${sentence}\nThe compiler says:\n${output}")
elseif(NOT errors EQUAL 1)
  message(FATAL_ERROR "${SOURCE} gives ${errors} errors instead of 1:\n${output}")
endif()
check_length("${output}")

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

check_twin()
count_matches(lines "\n" "${output}")
message(STATUS "refused in ${lines} lines; the twin compiles")
