# SPDX-License-Identifier: Apache-2.0
# cmake -DCOMPILER=<C++ compiler> -DROOT=<source folder> -DWORK=<folder> -P column.cmake
# Adds a result column to a copy of the list of columns. JSON, CSV, the schema and the terminal then have it. Code that
# measures it sets a member.
cmake_minimum_required(VERSION 3.25)
file(REMOVE_RECURSE "${WORK}")
file(COPY "${ROOT}/examples/programs/results/results.hpp" "${ROOT}/examples/programs/results/result_columns.hpp"
     DESTINATION "${WORK}/results")
include("${CMAKE_CURRENT_LIST_DIR}/edit.cmake")
set(before "  COLUMN(measured, maybe_text, weights_hash,")
edit(results/result_columns.hpp "${before}" "  COLUMN(measured, number, trial, .about = \"a column of a test\", .unit = unit::milliseconds, \\
         .terminal = {\"trial ms\", 5, 2, Best::none, \"speedup\"}) \\\n${before}")
execute_process(
  COMMAND ${COMPILER} -std=c++20 -O0 "-I${WORK}" "-I${ROOT}/include" "${CMAKE_CURRENT_LIST_DIR}/column.cpp"
          -o "${WORK}/column"
  RESULT_VARIABLE status ERROR_VARIABLE error)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "does not compile:\n${error}")
endif()
execute_process(COMMAND "${WORK}/column" OUTPUT_VARIABLE output)
foreach(wanted "\"grad_norms\":null,\"trial\":1.5,\"weights_hash\":null"
        "\"trial\":{\"type\":[\"number\",\"null\"],\"description\":\"a column of a test\"}" "grad_norms,trial,weights_hash" "\nspeedup\ntrial ms: 1500\nms/step\n")
  string(FIND "${output}" "${wanted}" position)
  if(position EQUAL -1)
    message(SEND_ERROR "the output lacks ${wanted}:\n${output}")
  endif()
endforeach()
