# SPDX-License-Identifier: Apache-2.0
# Tests a check of pages: the check must accept a correct page and refuse each planted mistake. Set these variables first:
#   check     the script of the check, in this folder
#   options   the arguments of the script, such as -DPAGES=...
#   page      the file that `judge` writes, which the check reads
include_guard(GLOBAL)

# Runs the check on a page with the text `text`. If `wanted` is empty, the check must accept the page. Otherwise the check must
# refuse the page with a message that matches the regular expression `wanted`.
function(judge text wanted)
  file(WRITE "${page}" "${text}")
  execute_process(COMMAND ${CMAKE_COMMAND} ${options} -P "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${check}"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(wanted STREQUAL "" AND NOT status EQUAL 0)
    message(FATAL_ERROR "a correct page is refused:\n${output}")
  elseif(NOT wanted STREQUAL "" AND (status EQUAL 0 OR NOT output MATCHES "${wanted}"))
    message(FATAL_ERROR "a page is not refused with '${wanted}':\n${text}\nThe check says:\n${output}")
  endif()
endfunction()
