# SPDX-License-Identifier: Apache-2.0
# cmake -DBIN=folder of programs -DROOT=<repository> -DWORK=<folder> -P commands_selftest.cmake
# A page with correct command lines passes. Each planted mistake is refused with a message that names it.
cmake_minimum_required(VERSION 3.25)

function(judge text wanted)
  file(WRITE "${WORK}/page.md" "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} "-DBIN=${BIN}" "-DROOT=${ROOT}" "-DWORK=${WORK}/work" "-DPAGES=${WORK}/page.md"
      -P "${CMAKE_CURRENT_LIST_DIR}/commands.cmake"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(wanted STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "a correct page is refused:\n${output}")
  elseif(NOT wanted STREQUAL "" AND (status EQUAL 0 OR NOT output MATCHES "${wanted}"))
    message(FATAL_ERROR "a page is not refused with '${wanted}':\n${text}\nThe check says:\n${output}")
  endif()
endfunction()

judge("```sh\nbuild/cpu/bin/train --data book.txt --steps 3\n```\nOr `compare --stages 0 1`, `train --from FILE`, `plan --machine`.\n" "")
judge("```sh\nbuild/cuda/bin/train --stepz 3\n```\n" "unknown flag '--stepz'")
judge("Run `plan --model gpt2-huge`.\n" "gpt2-huge")
judge("Run `compare @examples/experiments/none.flags`.\n" "none.flags")
judge("Run `train --from FILE`.\n" "no command lines")
