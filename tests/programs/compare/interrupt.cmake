# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DWORK=folder -P interrupt.cmake
# Ctrl-C, SIGTERM and SIGHUP end the row after its step. Measured rows are written, and the exit code is 128 + the signal.
# Finished rows are written at once, so SIGKILL loses none.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/../signals.cmake")

foreach(pair "INT 130" "TERM 143" "HUP 129")
  string(REPLACE " " ";" pair "${pair}")
  list(GET pair 0 signal)
  list(GET pair 1 wanted)
  file(REMOVE "${WORK}/out.txt")
  # The first row is short. The signal is sent after its line, while the second row runs.
  signalled(${signal} 0.2 "^.1/3." out.txt --model "layers=1,heads=2,channels=32" --data text.txt --sequence 32 --batch 2
            --warmup 0 --ranks 2 --stages 0 --precisions fp32,bf16,fp16 --offloads none --min-time 1 --steps 1
            --json ${signal}.json)
  file(READ "${WORK}/err.txt" errors)
  expect("exit code after SIG${signal} (${errors})" "${wanted}" "${code}")
  file(READ "${WORK}/${signal}.json" json)
  foreach(index RANGE 2)
    field(status_${index} "${json}" rows ${index} status)
    field(reason_${index} "${json}" rows ${index} reason)
  endforeach()
  expect("statuses after SIG${signal}" "ok failed failed" "${status_0} ${status_1} ${status_2}")
  if(NOT reason_1 MATCHES "^interrupted by SIG${signal} after step [0-9]+" OR
     NOT reason_2 MATCHES "^not run: interrupted by SIG${signal}")
    message(SEND_ERROR "SIG${signal}: ${reason_1}; ${reason_2}")
  endif()
endforeach()

# After SIGKILL in the fifth row the files are complete, with four rows and their step logs.
foreach(named FALSE TRUE)
  file(REMOVE "${WORK}/out.txt")
  set(files --output-dir killed)
  set(folder killed)
  if(named)
    set(files --json compare.json --csv compare.csv)
    set(folder .)
  endif()
  file(WRITE "${WORK}/killed/report.html" "of an earlier comparison")
  signalled(KILL 0 "^.4/6." out.txt --model "layers=1,heads=2,channels=32" --data text.txt --sequence 32 --batch 2
            --warmup 0 --ranks 2 --stages 1 --precisions fp32,bf16,fp16 --offloads none --recompute none,block
            --min-time 0.3 --steps 1 ${files})
  expect("exit code after SIGKILL" 137 "${code}")
  file(READ "${WORK}/${folder}/compare.json" json)
  string(JSON count ERROR_VARIABLE error LENGTH "${json}" rows)
  string(JSON wall ERROR_VARIABLE none TYPE "${json}" wall_s)
  # A fifth row may have ended before the signal. Its log is written first, then the JSON, then the CSV.
  if(count LESS 4)
    message(SEND_ERROR "${count} rows after SIGKILL: ${error}")
  endif()
  expect("wall_s after SIGKILL" NULL "${wall}")
  foreach(index RANGE 3)
    field(status "${json}" rows ${index} status)
    expect("row ${index} after SIGKILL" ok "${status}")
  endforeach()
  file(STRINGS "${WORK}/${folder}/compare.csv" lines)
  list(LENGTH lines in_csv)
  if(in_csv LESS 5 OR in_csv GREATER 6)
    message(SEND_ERROR "${in_csv} lines of compare.csv after SIGKILL")
  endif()
  if(NOT named AND EXISTS "${WORK}/killed/report.html")
    message(SEND_ERROR "a page of an earlier comparison stayed beside the rows of this one")
  endif()
  file(GLOB logs "${WORK}/killed/*/run1/step_log.csv")
  list(LENGTH logs with_log)
  if(with_log LESS 4 OR (NOT named AND with_log LESS count))
    message(SEND_ERROR "${with_log} step logs of ${count} rows after SIGKILL")
  endif()
endforeach()

# If no row has finished, nothing is written, and the files of an earlier comparison stay.
file(WRITE "${WORK}/old.json" "of an earlier comparison")
file(REMOVE "${WORK}/new.csv")
file(REMOVE "${WORK}/out.txt")
signalled(INT 0.5 " rows " out.txt --model "layers=1,heads=2,channels=32" --data text.txt --sequence 32 --batch 2 --warmup 0
          --ranks 2 --stages 0 --precisions fp32 --offloads none --min-time 60 --steps 1 --json old.json --csv new.csv)
file(READ "${WORK}/out.txt" output)
expect("exit code before the first row" 130 "${code}")
file(READ "${WORK}/old.json" old)
expect("the earlier file" "of an earlier comparison" "${old}")
if(NOT EXISTS "${WORK}/new.csv" OR NOT output MATCHES "left old.json as it was: interrupted before a row was finished")
  message(SEND_ERROR "interrupted before the first row: ${output}")
endif()
