# SPDX-License-Identifier: Apache-2.0
# What the tests of train share. Needs PROGRAM (the program) and WORK (a folder that is emptied here).
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}")

# run(args...): output, errors and code of one call in WORK.
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

# refuses(code "text;text" args...): exit code, one line "error: ..." that holds every text, nothing else on stderr.
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
