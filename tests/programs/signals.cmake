# SPDX-License-Identifier: Apache-2.0
# Sends signals, for the tests of interrupts. Needs PROGRAM and WORK.

# signalled("SIGNAL;SIGNAL" seconds pattern file args...): runs the program with its output in out.txt and err.txt. When a line
# of the file matches the pattern, waits and sends the signals one after the other. `code` is the exit code, or 99 if no line
# matched within 30 s.
macro(signalled signals seconds pattern file)
  set(kills "")
  foreach(each IN ITEMS ${signals})
    string(APPEND kills "kill -${each} $pid; ")
  endforeach()
  execute_process(
    COMMAND sh -c "pattern=$1; program=$2; shift 2
                   \"$program\" \"$@\" > out.txt 2> err.txt & pid=$!
                   tries=0
                   until grep -q \"$pattern\" '${file}' 2>/dev/null; do
                     tries=$((tries + 1)); [ $tries -lt 600 ] || { kill -9 $pid; exit 99; }
                     sleep 0.05
                   done
                   sleep ${seconds}; ${kills}
                   wait $pid"
            sh "${pattern}" "${PROGRAM}" ${ARGN}
    WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code)
endmacro()
