# SPDX-License-Identifier: Apache-2.0
# cmake -DROOT=... -DWORK=... -DCOMPILE=<compiler;flags> -DHEADER=<path> -DSECONDS=<budget> [-DVENDORS=none]
#       -P include_budget.cmake
# Fails if a program that only includes HEADER takes longer to parse than the budget, or if it includes a library that the
# header must not need. YARDSTICK: see budget.cmake.
cmake_minimum_required(VERSION 3.25)
if(NOT EXISTS "${ROOT}/include/${HEADER}")
  message(FATAL_ERROR "no ${HEADER}")
endif()
string(MAKE_C_IDENTIFIER "${HEADER}" name)
set(source "${WORK}/budget_${name}.cpp")
file(WRITE "${source}" "#include <${HEADER}>\nint main() {}\n")

execute_process(COMMAND ${COMPILE} -M "${source}" OUTPUT_VARIABLE includes RESULT_VARIABLE status ERROR_VARIABLE text)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${HEADER} does not compile: ${text}")
endif()
set(foreign "nlohmann/|CLI/|xxhash|doctest|benchmark/|pcre2|liburing")
if(VENDORS STREQUAL "none")
  string(APPEND foreign "|[Ee]igen")
endif()
string(REGEX MATCH "[^ \n]*(${foreign})[^ \n]*" found "${includes}")
if(found)
  message(FATAL_ERROR "${HEADER} includes ${found}, which it must not need")
endif()

include("${CMAKE_CURRENT_LIST_DIR}/budget.cmake")
measure(best budget "${COMPILE};-fsyntax-only;${source}")
if(best GREATER_EQUAL budget)
  message(FATAL_ERROR "${HEADER} takes ${best} ms to parse; its budget is ${budget} ms")
endif()
message(STATUS "${HEADER}: ${best} ms of ${budget} ms")
