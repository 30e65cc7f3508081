# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DWORK=folder -P folder.cmake
# Tests several comparisons in one output folder, at the same time and one after the other.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
set(one ${brief} --ranks 1 --precisions fp32 --offloads none)

# While a comparison writes into a folder, a second one is refused. The lock ends with the process, also if it is killed.
execute_process(
  COMMAND sh -c "program=$1; shift
                 \"$program\" \"$@\" --min-time 60 > first.txt & pid=$!; tries=0
                 until grep -qs ' rows ' first.txt; do
                   tries=$((tries + 1)); [ $tries -lt 600 ] || { kill -9 $pid; exit 99; }; sleep 0.05
                 done
                 \"$program\" \"$@\" 2> second.txt > /dev/null; second=$?
                 \"$program\" \"$@\" --output-dir elsewhere > /dev/null || exit 98
                 kill -9 $pid; wait $pid
                 exit $second"
          sh "${PROGRAM}" ${one} --stages 0
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_QUIET)
expect("exit code of a second comparison" 1 "${code}")
file(READ "${WORK}/second.txt" errors)
expect("the error of a second comparison"
       "error: results: another compare is writing its files there; wait until it has ended, or give another --output-dir\n"
       "${errors}")
# The same with a named output file.
execute_process(
  COMMAND sh -c "program=$1; shift; rm first.txt; echo kept > rows.json
                 \"$program\" \"$@\" --min-time 60 --json rows.json > first.txt & pid=$!; tries=0
                 until grep -qs ' rows ' first.txt; do
                   tries=$((tries + 1)); [ $tries -lt 600 ] || { kill -9 $pid; exit 99; }; sleep 0.05
                 done
                 \"$program\" \"$@\" --json rows.json 2> second.txt > /dev/null; second=$?
                 kill -9 $pid; wait $pid
                 exit $second"
          sh "${PROGRAM}" ${one} --stages 0
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_QUIET)
file(READ "${WORK}/second.txt" errors)
expect("a second comparison into one file" "1 error: rows.json: another run writes there; wait until it has ended, or give another name\n"
       "${code} ${errors}")
passes(${one} --stages 0,1 --repeat 3)

# A later comparison removes older runs in the folders of its rows. It does not touch other rows' folders or foreign files.
file(WRITE "${WORK}/results/zs1_fp32_ranks1_bs2_sl16/run3/notes.txt" "mine")
file(WRITE "${WORK}/results/zs1_fp32_ranks1_bs2_sl16/runs/step_log.csv" "mine")
passes(${one} --stages 1)
file(GLOB_RECURSE found RELATIVE "${WORK}/results" "${WORK}/results/*")
list(SORT found)
set(zs0 zs0_fp32_ranks1_bs2_sl16)
set(zs1 zs1_fp32_ranks1_bs2_sl16)
expect("files after a comparison of fewer runs" "compare.csv;compare.json;report.html;${zs0}/run1/step_log.csv;${zs0}/run2/step_log.csv;${zs0}/run3/step_log.csv;${zs1}/run1/step_log.csv;${zs1}/run3/notes.txt;${zs1}/runs/step_log.csv"
       "${found}")
if(EXISTS "${WORK}/results/${zs1}/run2")
  message(SEND_ERROR "an empty run2 stayed")
endif()
