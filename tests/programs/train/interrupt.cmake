# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P interrupt.cmake
# Ctrl-C, SIGTERM and SIGHUP end a run after its step and save its weights. A second signal right after the first counts as the
# same one, since timeout(1) signals the process and its group.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/../signals.cmake")

# After a signal within a step of minutes, a run that saves nothing ends after ten seconds at most. A run that saves ends after
# the step. These two runs have a low priority and run during the other tests. The end of this file checks their results.
string(REPEAT "${text}" 2000 long)
file(WRITE "${WORK}/long.txt" "${long}")
if(NOT SIGNALS_WAIT)
  string(REPEAT "${long}" 4 book)
  file(WRITE "${WORK}/book.txt" "${book}")
  execute_process(
    COMMAND sh -c "{ \"$@\" --log brief.jsonl > brief.out 2> brief.err & brief=$!
                     \"$@\" --log whole.jsonl --save slow.safetensors > whole.out 2>&1 & whole=$!
                     tries=0
                     until grep -q config brief.jsonl && grep -q config whole.jsonl; do
                       tries=$((tries + 1)); [ $tries -lt 600 ] || break; sleep 0.05
                     done
                     sleep 0.5; renice -n 19 $(ls /proc/$brief/task /proc/$whole/task | grep '^[0-9]*$')
                     kill -TERM $brief $whole; start=$(date +%s); wait $brief; code=$?
                     echo $(($(date +%s) - start)) > seconds
                     sleep 1; kill -0 $whole || code=98
                     kill -KILL $whole; echo $code > slow; } > slow.out 2>&1 &"
            sh "${PROGRAM}" --model "layers=4,heads=1,channels=64" --sequence 200000 --batch 1 --data book.txt
            --steps 1
    WORKING_DIRECTORY "${WORK}")
endif()

foreach(pair "INT 130" "TERM 143" "HUP 129")
  string(REPLACE " " ";" pair "${pair}")
  list(GET pair 0 signal)
  list(GET pair 1 wanted)
  signalled("${signal};${signal}" 0 "\"step\":3," log.jsonl ${small} --ranks 2 --stage 2 --steps 10000000 --log log.jsonl
            --save ${signal}.safetensors)
  if(NOT code STREQUAL "${wanted}")
    file(READ "${WORK}/err.txt" errors)
    message(SEND_ERROR "SIG${signal} ended the run with ${code}, not ${wanted}: ${errors}")
  endif()
  file(READ "${WORK}/out.txt" output)
  if(NOT output MATCHES "interrupted by SIG${signal} after step [0-9]+ of 10000000")
    message(SEND_ERROR "SIG${signal}: the run printed ${output}")
  endif()
  passes(${small} --steps 0 --init ${signal}.safetensors)
  file(STRINGS "${WORK}/log.jsonl" last REGEX "\"summary\"")
  string(JSON interrupted GET "${last}" summary interrupted)
  if(NOT interrupted STREQUAL "ON")
    message(SEND_ERROR "the log's summary says interrupted ${interrupted}")
  endif()
  file(REMOVE "${WORK}/log.jsonl")
endforeach()

# A signal within the last validation: all steps are done and the weights are saved, but the run counts as interrupted.
signalled(INT 0 "\"step\":3," log.jsonl ${small} --ranks 2 --steps 3 --validation long.txt --log log.jsonl
          --save validated.safetensors)
file(READ "${WORK}/out.txt" output)
file(STRINGS "${WORK}/log.jsonl" last REGEX "\"summary\"")
string(JSON interrupted GET "${last}" summary interrupted)
if(NOT code STREQUAL "130" OR NOT interrupted STREQUAL "ON" OR
   NOT output MATCHES "interrupted by SIGINT after step 3 of 3, during its validation: there is no validation loss")
  message(SEND_ERROR "SIGINT within the last validation gave ${code}, interrupted ${interrupted}: ${output}")
endif()
passes(${small} --steps 0 --init validated.safetensors)

# A signal within the steps that --min-time adds: the requested steps are done, so the run succeeds, without a validation.
signalled(INT 0 "\"step\":6," beyond.jsonl ${small} --ranks 2 --steps 3 --min-time 60 --validation text.txt --log beyond.jsonl)
file(READ "${WORK}/out.txt" output)
if(NOT code STREQUAL "0" OR output MATCHES "validation after|interrupted")
  message(SEND_ERROR "SIGINT in the steps of --min-time gave ${code}: ${output}")
endif()

# SIGHUP ends both a run and the reader of its output.
execute_process(
  COMMAND sh -c "( sh -c 'echo $$ > pid; exec \"$@\"' sh \"$@\"; echo $? > code ) | { until grep -q '\"step\":3,' hung.jsonl
                 do sleep 0.05; done; kill -HUP $(cat pid); }
                 tries=0
                 until [ -s code ]; do tries=$((tries + 1)); [ $tries -lt 100 ] || exit 99; sleep 0.1; done"
          sh "${PROGRAM}" ${small} --steps 100000 --log hung.jsonl --save hung.safetensors
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_VARIABLE errors)
file(READ "${WORK}/code" ended)
if(NOT code STREQUAL "0" OR NOT ended MATCHES "^129")
  message(SEND_ERROR "a run whose reader hung up gave ${code}, ${ended}: ${errors}")
endif()
passes(${small} --steps 0 --init hung.safetensors)
file(REMOVE "${WORK}/pid" "${WORK}/code")

# If the reader ends, a run that writes files continues. A run without files stops after its step.
foreach(output --save --log --checkpoint)
  execute_process(COMMAND sh -c "{ \"$@\"; echo $? > code; } 2>&1 | head -n 1" sh "${PROGRAM}" ${small} --steps 30 --print-every 1
                          ${output} unread${output}.safetensors
                  WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET)
  file(STRINGS "${WORK}/code" ended)
  if(NOT ended STREQUAL "0" OR NOT EXISTS "${WORK}/unread${output}.safetensors")
    message(SEND_ERROR "${output} of a run whose output nobody reads: code ${ended}")
  endif()
endforeach()
passes(${small} --steps 30 --save read.safetensors)
expect_same(unread--save.safetensors read.safetensors)
execute_process(COMMAND sh -c "{ \"$@\"; echo $? > code; } | head -n 1" sh "${PROGRAM}" ${small} --steps 100000000 --print-every 1
                WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET ERROR_VARIABLE errors TIMEOUT 60)
file(STRINGS "${WORK}/code" ended)
if(NOT ended STREQUAL "141" OR NOT errors STREQUAL "")
  message(SEND_ERROR "a run without files whose output nobody reads: code ${ended}: ${errors}")
endif()
# If a signal ends both the reader and train, the weights are still saved.
foreach(signal INT TERM)
  execute_process(
    COMMAND sh -c "( sh -c 'echo $$ > pid; exec \"$@\"' sh \"$@\"; echo $? > code ) 2>&1 | sh -c 'echo $$ > reader; exec cat > copy' &
                   until grep -q 'step 3 ' copy; do sleep 0.05; done
                   kill -KILL $(cat reader); kill -${signal} $(cat pid); wait"
            sh "${PROGRAM}" ${small} --steps 10000000 --print-every 1 --save tee-${signal}.safetensors --checkpoint tee-${signal}
    WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET ERROR_QUIET TIMEOUT 60)
  if(NOT EXISTS "${WORK}/tee-${signal}.safetensors" OR NOT EXISTS "${WORK}/tee-${signal}/latest")
    message(SEND_ERROR "SIG${signal} to a run whose reader has gone left no weights")
  endif()
  file(REMOVE "${WORK}/copy" "${WORK}/pid" "${WORK}/code" "${WORK}/reader")
endforeach()
# If its standard streams are closed, a file of the run does not get their numbers.
execute_process(COMMAND sh -c "\"$@\" >&- 2>&-" sh "${PROGRAM}" ${small} --steps 3 --log closed.jsonl --save closed.safetensors
                WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code)
file(STRINGS "${WORK}/closed.jsonl" lines)
list(LENGTH lines count)
expect("the code of a run without streams" 1 ${code})
expect("the lines of its log" 5 ${count})
passes(${small} --steps 0 --init closed.safetensors)

# Under nohup SIGHUP is ignored.
execute_process(
  COMMAND sh -c "trap '' HUP; \"$@\" > out.txt & pid=$!
                 until grep -q '\"step\":3,' nohup.jsonl; do sleep 0.05; done
                 kill -HUP $pid; sleep 0.3; kill -TERM $pid; wait $pid"
          sh "${PROGRAM}" ${small} --steps 10000000 --log nohup.jsonl
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_VARIABLE errors)
if(NOT code STREQUAL "143")
  message(SEND_ERROR "SIGHUP under nohup, then SIGTERM, gave ${code}: ${errors}")
endif()

# A later signal ends the run at once, also if the run is blocked. Here nobody reads its log.
if(SIGNALS_WAIT)
  return()
endif()
execute_process(
  COMMAND sh -c "{ ( sh -c 'echo $$ > pid; exec \"$@\"' sh \"$@\"; echo $? > code ) | { head -c 1 > begun; exec sleep 30; }; } > out.txt 2> err.txt &
                 until [ -s begun ]; do sleep 0.05; done
                 pid=$(cat pid); still=0; before=none
                 until [ $still = 3 ]; do
                   sleep 0.2; now=$(cut -d' ' -f14,15 /proc/$pid/stat)
                   if [ \"$now\" = \"$before\" ]; then still=$((still + 1)); else still=0; fi
                   before=$now
                 done
                 kill -TERM $pid; sleep 0.1; kill -TERM $pid; sleep 0.1
                 kill -0 $pid || exit 98
                 sleep 0.4; kill -TERM $pid
                 tries=0
                 until [ -s code ]; do tries=$((tries + 1)); [ $tries -lt 100 ] || exit 99; sleep 0.1; done"
          sh "${PROGRAM}" ${small} -q --steps 10000000 --log /dev/stdout
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_QUIET)
file(READ "${WORK}/code" ended)
file(READ "${WORK}/err.txt" errors)
if(NOT code STREQUAL "0" OR NOT ended MATCHES "^143")
  message(SEND_ERROR "three signals gave ${code}, ${ended}: ${errors}")
endif()

# The results of the slow steps above.
execute_process(COMMAND sh -c "tries=0; until [ -s slow ]; do tries=$((tries + 1)); [ $tries -lt 600 ] || exit 99; sleep 0.1; done"
                WORKING_DIRECTORY "${WORK}")
file(STRINGS "${WORK}/slow" code)
file(READ "${WORK}/seconds" seconds)
file(READ "${WORK}/brief.err" errors)
if(NOT code STREQUAL "143" OR seconds LESS 9 OR seconds GREATER 20 OR
   NOT errors STREQUAL "error: interrupted, and the step did not end in time; there was nothing to save\n")
  message(SEND_ERROR "SIGTERM within a long step gave ${code} after ${seconds} s: ${errors}")
endif()
