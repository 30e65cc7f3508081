# SPDX-License-Identifier: Apache-2.0
# Functions for the tests of report: the functions for compare, and short result files.
include("${CMAKE_CURRENT_LIST_DIR}/../compare/support.cmake")

# row(result experiment "other fields"): a result row. The last value of a repeated field counts.
function(row result experiment)
  set(${result} "{\"experiment\": \"${experiment}\", \"status\": \"ok\", \"model\": \"tiny\", \"device\": \"cpu\",
    \"precision\": \"fp32\", \"offload\": \"none\", \"recompute\": \"none\", \"world\": 2, \"batch\": 4, \"sequence\": 64,
    \"accumulation\": 1, \"avg_step_time_s\": 0.1, \"median_step_time_s\": 0.1, \"step_to_step_std_s\": 0.001,
    \"spread_pct\": 1.0, \"unsteady\": false, \"peak_gpu_mem_mb\": 8.5, \"planned_gpu_mem_mb\": 8.5,
    \"comm_time_s\": 0.02, \"comm_exposed_s\": 0.01, \"losses\": [5.0, 4.0, 3.0], ${ARGN}}" PARENT_SCOPE)
endfunction()

# document(file command "row, row"): writes a file in compare's format.
function(document file command rows)
  file(WRITE "${WORK}/${file}" "{\"schema_version\": 3, \"command\": \"${command}\",
    \"environment\": {\"host\": \"box\", \"cpu\": \"A CPU\", \"cores\": 2, \"device\": \"cpu\"}, \"wall_s\": 1.5, \"rows\": [${rows}]}")
endfunction()

# holds(file "text;text"), lacks(file "text;text"): the file contains every text; the file contains none.
function(holds file)
  file(READ "${WORK}/${file}" all)
  foreach(text IN LISTS ARGN)
    string(FIND "${all}" "${text}" at)
    if(at EQUAL -1)
      message(SEND_ERROR "${file} lacks '${text}'")
    endif()
  endforeach()
endfunction()
function(lacks file)
  file(READ "${WORK}/${file}" all)
  foreach(text IN LISTS ARGN)
    string(FIND "${all}" "${text}" at)
    if(NOT at EQUAL -1)
      string(SUBSTRING "${all}" ${at} 200 found)
      message(SEND_ERROR "${file} holds '${text}': ${found}")
    endif()
  endforeach()
endfunction()
