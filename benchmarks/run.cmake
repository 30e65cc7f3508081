# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<file> -DOUT=<file.json> -DSECONDS=<least> -DREPETITIONS=<count> [-DFILTER=<regex>] [-DMAY_SKIP=ON]
#       -P run.cmake
# Runs a Google Benchmark program. SECONDS is the minimum time of a measurement, REPETITIONS the number of
# measurements of each benchmark. With FILTER, only the benchmarks that match the value of
# --benchmark_filter run. If the program exits with 0 and writes a complete report in which no
# benchmark failed, the report replaces OUT. If not, OUT does not change. With MAY_SKIP a program may print
# "skipped: " and the reason instead of writing a report.
cmake_minimum_required(VERSION 3.25)
set(part "${OUT}.part")
file(REMOVE "${part}")
execute_process(COMMAND "${PROGRAM}" "--benchmark_filter=${FILTER}" "--benchmark_out=${part}" --benchmark_out_format=json
                        --benchmark_min_time=${SECONDS} --benchmark_repetitions=${REPETITIONS}
                        --benchmark_report_aggregates_only=false
                RESULT_VARIABLE status OUTPUT_VARIABLE said ECHO_OUTPUT_VARIABLE)
set(problem "")
if(NOT status EQUAL 0)
  set(problem "it ended with ${status}")
elseif(MAY_SKIP AND NOT EXISTS "${part}" AND said MATCHES "skipped: ")
  return()
elseif(NOT EXISTS "${part}")
  set(problem "it wrote no report")
else()
  file(READ "${part}" text)
  # The coefficient of variation of a counter that is always zero is 0/0. Google Benchmark writes it as NaN, which is not
  # JSON, so it is replaced by null.
  string(REGEX MATCHALL "\"aggregate_name\": \"cv\"[^}]*: NaN[^}]*" variations "${text}")
  list(REMOVE_DUPLICATES variations)
  foreach(variation IN LISTS variations)
    string(REPLACE ": NaN" ": null" defined "${variation}")
    string(REPLACE "${variation}" "${defined}" text "${text}")
  endforeach()
  file(WRITE "${part}" "${text}")
  string(JSON count ERROR_VARIABLE error LENGTH "${text}" benchmarks)
  if(error)
    set(problem "its report does not parse: ${error}")
  elseif(text MATCHES "\"error_message\": \"([^\"]*)\"")
    set(problem "a benchmark failed: ${CMAKE_MATCH_1}")
  endif()
endif()
if(problem)
  file(REMOVE "${part}")
  message(FATAL_ERROR "${PROGRAM}: ${problem}; ${OUT} is as it was")
endif()
file(RENAME "${part}" "${OUT}")
