# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of compare and plan. Needs PROGRAM (the program) and WORK (a folder, which is emptied here).
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")
set(ENV{TESSERA_NVML} none)  # ignores other programs on this machine's GPUs
get_filename_component(name "${PROGRAM}" NAME)

# A text that needs no package, and a text that is too short for a sample.
string(REPEAT "In the beginning was the word, and the word was counted. " 200 text)
file(WRITE "${WORK}/text.txt" "${text}")
file(WRITE "${WORK}/short.txt" "hi")
file(WRITE "${WORK}/empty.txt" "")

# run(args...): runs the program in WORK; sets output, errors and code.
macro(run)
  execute_process(COMMAND "${PROGRAM}" ${ARGN} WORKING_DIRECTORY "${WORK}"
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
endmacro()

# passes(args...): the call must end with 0 and print nothing on stderr.
macro(passes)
  run(${ARGN})
  if(NOT code STREQUAL "0" OR NOT errors STREQUAL "")
    message(FATAL_ERROR "${name} ${ARGN} ended with ${code}: ${errors}${output}")
  endif()
endmacro()

# refuses(code "text;text" args...): checks the exit code and one line "error: ..." with every text. There must be nothing else
# on stderr and no new file or folder.
function(refuses wanted texts)
  file(GLOB_RECURSE before LIST_DIRECTORIES true "${WORK}/*")
  run(${ARGN})
  file(GLOB_RECURSE after LIST_DIRECTORIES true "${WORK}/*")
  list(JOIN ARGN " " call)
  if(NOT code STREQUAL "${wanted}")
    message(SEND_ERROR "${name} ${call}\n  ended with ${code}, not ${wanted}: ${errors}")
    return()
  endif()
  if(NOT errors MATCHES "^error: [^\n]+\n$")
    message(SEND_ERROR "${name} ${call}\n  must print one line of error, printed: ${errors}")
  endif()
  foreach(text IN LISTS texts)
    string(FIND "${errors}" "${text}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "${name} ${call}\n  must say '${text}', said: ${errors}")
    endif()
  endforeach()
  if(NOT "${before}" STREQUAL "${after}")
    list(REMOVE_ITEM after ${before})
    message(SEND_ERROR "${name} ${call}\n  left ${after}")
  endif()
endfunction()

function(expect what wanted found)
  if(NOT "${wanted}" STREQUAL "${found}")
    message(SEND_ERROR "${what}: ${found}, not ${wanted}")
  endif()
endfunction()

# field(result json path...): a value of a JSON text; empty for null.
function(field result json)
  string(JSON value ERROR_VARIABLE error GET "${json}" ${ARGN})
  if(NOT error STREQUAL "NOTFOUND")
    message(SEND_ERROR "the JSON has no ${ARGN}: ${error}")
  endif()
  set(${result} "${value}" PARENT_SCOPE)
endfunction()

# Small settings, so that a row takes milliseconds.
set(small --model "layers=2,heads=2,channels=32" --sequence 16 --batch 2)
set(brief ${small} --data text.txt --steps 3 --warmup 1)
