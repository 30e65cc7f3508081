# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P losses.cmake
# Tests what a run saves if its data is truncated, its disk is too small, or it is killed.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

# disturbed(script pattern args...): runs the program with its log in log.jsonl, and the script when a line of the log matches
# the pattern. Sets `code`, `output` and `errors` of the program.
macro(disturbed script pattern)
  execute_process(
    COMMAND sh -c "pattern=$1; shift
                   \"$@\" & pid=$!; tries=0
                   until grep -q \"$pattern\" log.jsonl 2>/dev/null; do
                     tries=$((tries + 1)); [ $tries -lt 2400 ] || { kill -9 $pid; exit 99; }
                     sleep 0.05
                   done
                   ${script}
                   wait $pid"
            sh "${pattern}" "${PROGRAM}" ${ARGN} --log log.jsonl
    WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
endmacro()

# Truncated data gives an error with the file and its size before and now. The weights of the last step are saved.
set(long "")
foreach(i RANGE 40)
  string(APPEND long "${text}")
endforeach()
set(tiny --model "layers=1,heads=2,channels=8,positions=16" --sequence 8 --batch 2)
foreach(ranks 1 3)
  foreach(what data validation)
    file(WRITE "${WORK}/data.txt" "${long}")
    file(WRITE "${WORK}/validation.txt" "${long}")
    file(REMOVE "${WORK}/log.jsonl" "${WORK}/kept.safetensors")
    disturbed("truncate -s 5 ${what}.txt;" "\"step\":3," ${tiny} --ranks ${ranks} --steps 10000000 --data data.txt
              --validation validation.txt --validate-every 500 --save kept.safetensors)
    string(LENGTH "${long}" bytes)
    string(REGEX REPLACE "^(.*)([0-9][0-9][0-9])$" "\\1,\\2" bytes "${bytes}")
    set(wanted "^error: ${what}.txt: was truncated while it was read: it had ${bytes} bytes and has 5 now; [^\n]*")
    string(APPEND wanted "; the weights after step ([0-9]+) are in kept.safetensors\n$")
    if(NOT code STREQUAL "4" OR NOT errors MATCHES "${wanted}")
      message(SEND_ERROR "${what} that was cut short on ${ranks} ranks gave ${code}: ${errors}")
    else()
      set(step "${CMAKE_MATCH_1}")
      file(STRINGS "${WORK}/log.jsonl" summary REGEX "\"summary\"")
      string(JSON done GET "${summary}" summary steps_done)
      if(NOT step STREQUAL done OR output MATCHES "interrupted by")
        message(SEND_ERROR "${what} that was cut short: step ${step}, ${summary}, ${output}")
      endif()
      passes(${small} --steps 0 --init kept.safetensors)
    endif()
  endforeach()
endforeach()

# A disk that is too small for the weights or the log is refused before the first step, with the needed and the free bytes.
# Mounting a file system of 64 KiB needs a user namespace; without one these tests are skipped.
set(on_small "mkdir -p small; mount -t tmpfs -o size=64k none small; exec \"$@\"")
execute_process(COMMAND unshare -rm sh -euc "${on_small}" sh true WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE mounts
                OUTPUT_QUIET ERROR_QUIET)
function(too_small wanted)
  execute_process(COMMAND unshare -rm sh -euc "${on_small}" sh "${PROGRAM}" ${ARGN} WORKING_DIRECTORY "${WORK}"
                  OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code STREQUAL "1" OR output MATCHES "step 1 " OR NOT errors MATCHES "^error: ${wanted}\n$")
    message(SEND_ERROR "a disk that is too small gave ${code}: ${output}${errors}")
  endif()
endfunction()
set(way_out "are free on its disk; free some space or write elsewhere")
if(mounts STREQUAL "0")
  too_small("small/w.safetensors: needs 92,032 bytes, and 65,536 ${way_out}" --model "layers=1,heads=2,channels=32,positions=64"
            --sequence 8 --batch 2 --data text.txt --steps 3 --save small/w.safetensors)
  too_small("small/log: needs 75,000 bytes, and 65,536 ${way_out}" ${small} --steps 500 --log small/log)
  too_small("small/log: needs 72,256 bytes, together with small/w.safetensors, and 65,536 ${way_out}" ${small} --steps 400 --log small/log
            --save small/w.safetensors)
  too_small("small/w.safetensors: needs 66,496 bytes, together with small, and 65,536 ${way_out}" --sequence 8 --data text.txt
            --model "layers=1,heads=2,channels=16,positions=64" --precision bf16 --offload nvme_parameters --nvme-path small --steps 3
            --save small/w.safetensors)
  execute_process(COMMAND unshare -rm sh -euc "${on_small}" sh "${PROGRAM}" ${small} --steps 200 --log small/log
                          --save small/w.safetensors WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code STREQUAL "0")
    message(SEND_ERROR "a disk that is large enough gave ${code}: ${errors}")
  endif()
endif()

# A killed save leaves a hidden file until the next save in that folder. The script retries if a save ends before its hidden
# file is seen.
execute_process(
  COMMAND sh -c "mkdir saves; caught=false; tries=0
                 until $caught; do
                   tries=$((tries + 1)); [ $tries -le 50 ] || exit 98
                   rm -rf saves/w.safetensors; \"$@\" --save saves/w.safetensors > /dev/null & pid=$!
                   while kill -0 $pid && ! $caught; do
                     for file in saves/.*.tmp; do [ ! -e $file ] || { kill -9 $pid; caught=true; }; done
                   done
                   wait $pid; code=$?
                   [ -n \"$(ls -A saves | grep tmp)\" ] || caught=false
                 done
                 exit $code"
          sh "${PROGRAM}" -q --model "layers=4,heads=8,channels=512" --steps 0
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_QUIET)
file(GLOB left RELATIVE "${WORK}/saves" "${WORK}/saves/.*")
if(NOT code STREQUAL "137" OR NOT left MATCHES "^.tessera-[0-9]+-[0-9a-f]+.tmp$")
  message(SEND_ERROR "killing a save gave ${code} and left ${left}")
endif()
passes(${small} --steps 0 --save saves/w.safetensors)
file(GLOB left RELATIVE "${WORK}/saves" "${WORK}/saves/*" "${WORK}/saves/.*")
if(NOT left STREQUAL "w.safetensors")
  message(SEND_ERROR "after the next save there are ${left}")
endif()
