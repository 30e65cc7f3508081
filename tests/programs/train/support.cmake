# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of train. Needs PROGRAM (the program) and WORK (a folder, which is emptied here).
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{TESSERA_NVML} none)  # ignores other programs on this machine's GPUs

# run(args...): runs the program in WORK; sets output, errors and code.
macro(run)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} WORKING_DIRECTORY "${WORK}"
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
endmacro()

# passes(args...): the call must end with 0.
macro(passes)
  run(${ARGN})
  if(NOT code STREQUAL "0")
    message(FATAL_ERROR "train ${ARGN} ended with ${code}: ${errors}")
  endif()
endmacro()

# refuses(code "text;text" args...): checks the exit code and one line "error: ..." with every text. There must be nothing else
# on stderr.
function(refuses wanted texts)
  run(${ARGN})
  list(JOIN ARGN " " call)
  if(NOT code STREQUAL "${wanted}")
    message(SEND_ERROR "train ${call}\n  ended with ${code}, not ${wanted}: ${errors}")
    return()
  endif()
  if(NOT errors MATCHES "^error: [^\n]+\n$")
    message(SEND_ERROR "train ${call}\n  must print one line of error, printed: ${errors}")
  endif()
  foreach(text IN LISTS texts)
    string(FIND "${errors}" "${text}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "train ${call}\n  must say '${text}', said: ${errors}")
    endif()
  endforeach()
endfunction()

# expect_same(file file): the files have the same bytes.
function(expect_same a b)
  file(SHA256 "${WORK}/${a}" first)
  file(SHA256 "${WORK}/${b}" second)
  if(NOT first STREQUAL second)
    message(SEND_ERROR "${a} and ${b} differ")
  endif()
endfunction()

# expect_json(name json key=value...): checks values of a JSON object; a dot in a key leads into an inner object.
function(expect_json name json)
  foreach(wanted IN LISTS ARGN)
    string(REGEX MATCH "^([^=]+)=(.*)$" pair "${wanted}")
    set(value "${CMAKE_MATCH_2}")
    string(REPLACE "." ";" path "${CMAKE_MATCH_1}")
    string(JSON found ERROR_VARIABLE problem GET "${json}" ${path})
    if(problem OR NOT found STREQUAL value)
      message(SEND_ERROR "${name} does not say ${wanted}, but ${found}")
    endif()
  endforeach()
endfunction()

# expect_log(file key=value...): checks the settings in the first line of a log.
function(expect_log file)
  file(STRINGS "${WORK}/${file}" head LIMIT_COUNT 1)
  string(JSON config GET "${head}" config)
  expect_json("${file}" "${config}" ${ARGN})
endfunction()

# expect(what wanted found): the values must be equal.
function(expect what wanted found)
  if(NOT "${wanted}" STREQUAL "${found}")
    message(SEND_ERROR "${what}: ${found}, not ${wanted}")
  endif()
endfunction()

# summary(log field result): a field of the last line of a log.
function(summary log field result)
  file(STRINGS "${WORK}/${log}" line REGEX "\"summary\"")
  string(JSON value GET "${line}" summary ${field})
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

# shell(script): runs sh in WORK; must end with 0.
function(shell script)
  execute_process(COMMAND sh -euc "${script}" WORKING_DIRECTORY "${WORK}"
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code STREQUAL "0")
    message(FATAL_ERROR "sh -c ${script} ended with ${code}: ${output}${errors}")
  endif()
endfunction()

# The smallest model, a few steps on one short text.
set(small --model "layers=1,heads=2,channels=8,positions=16" --sequence 8 --batch 2 --data text.txt)
set(text "")
foreach(i RANGE 40)
  string(APPEND text "The quick brown fox number ${i} jumps over the lazy dog. ")
endforeach()
file(WRITE "${WORK}/text.txt" "${text}")
