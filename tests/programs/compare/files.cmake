# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DWORK=folder -P files.cmake
# Tests the names of compare's files, its standard output, and the spellings of flags.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
set(one ${brief} --ranks 2 --precisions fp32 --offloads none)

# By default: JSON, CSV, a page, and a step log for every run.
passes(${one} --stages 0,3 --repeat 2)
file(GLOB_RECURSE found RELATIVE "${WORK}/results" "${WORK}/results/*")
list(SORT found)
expect("files" "compare.csv;compare.json;report.html;zs0_fp32_ranks2_bs2_sl16/run1/step_log.csv;zs0_fp32_ranks2_bs2_sl16/run2/step_log.csv;zs3_fp32_ranks2_bs2_sl16/run1/step_log.csv;zs3_fp32_ranks2_bs2_sl16/run2/step_log.csv"
       "${found}")
file(STRINGS "${WORK}/results/compare.csv" lines)
list(LENGTH lines count)
expect("lines of compare.csv" 3 "${count}")
list(GET lines 0 head)
if(NOT head MATCHES "^experiment,model,params,stage,sharding,precision,offload,")
  message(SEND_ERROR "compare.csv begins with ${head}")
endif()
file(STRINGS "${WORK}/results/zs3_fp32_ranks2_bs2_sl16/run2/step_log.csv" lines)
list(GET lines 0 head)
list(GET lines 4 last)
list(LENGTH lines count)
expect("lines of a step log" 5 "${count}")
expect("a step log's head" "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss,grad_norm,lr,scale,skipped" "${head}")
if(NOT last MATCHES "^4,[0-9.e-]+,[0-9.e+]+,[0-9.]+,[0-9.]+,[0-9.]+,0.001,1.0,0$")
  message(SEND_ERROR "a step log ends with ${last}")
endif()
file(READ "${WORK}/results/report.html" page)
foreach(text "<!DOCTYPE html>" "figure-throughput" "train --from results/compare.json --row zs3_fp32_ranks2_bs2_sl16" "2 ok")
  string(FIND "${page}" "${text}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "report.html lacks ${text}")
  endif()
endforeach()
file(REMOVE_RECURSE "${WORK}/results")

# If the page cannot be written, the other files remain. A limit of 15 KiB a file allows a row but no page.
execute_process(COMMAND sh -c "trap '' XFSZ; ulimit -f 30; exec \"$@\"" sh "${PROGRAM}" ${one} --stages 0 --output-dir full
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("exit code without a page" 0 "${code}")
if(NOT errors MATCHES "^warning: cannot write the page of results: [^\n]*full/report.html[^\n]*; the results are in full/compare.json, and report can make the page from them\n$"
   OR NOT EXISTS "${WORK}/full/compare.json" OR NOT EXISTS "${WORK}/full/compare.csv" OR EXISTS "${WORK}/full/report.html")
  message(SEND_ERROR "a page that cannot be written: ${errors}")
endif()
file(REMOVE_RECURSE "${WORK}/full")

# Another folder.
passes(${one} --stages 1 --output-dir a/b)
if(NOT EXISTS "${WORK}/a/b/compare.json" OR EXISTS "${WORK}/results")
  message(SEND_ERROR "--output-dir a/b did not hold the files")
endif()

# Named files, and no others.
passes(${one} --stages 1 --csv named.csv)
file(GLOB found RELATIVE "${WORK}" "${WORK}/*")
list(SORT found)
expect("files" "a;empty.txt;named.csv;short.txt;text.txt" "${found}")

# Standard output has only the data. Everything else goes to stderr.
run(${one} --stages 1 --json -)
expect("exit code" 0 "${code}")
field(status "${output}" rows 0 status)
expect("status" ok "${status}")
if(NOT errors MATCHES "rows: 1 ok")
  message(SEND_ERROR "the table is not on stderr: ${errors}")
endif()

# The flat format is one array of rows.
passes(${one} --stages 1 --format flat --json flat.json)
file(READ "${WORK}/flat.json" json)
field(experiment "${json}" 0 experiment)
field(version "${json}" 0 schema_version)
expect("the flat row" "3 zs1_fp32_ranks2_bs2_sl16" "${version} ${experiment}")
string(JSON kind ERROR_VARIABLE error TYPE "${json}" 0 losses)
if(error STREQUAL "NOTFOUND")
  message(SEND_ERROR "a flat row has an array")
endif()

# Other spellings of flags. Of repeated flags the last one counts.
passes(--data text.txt --models "layers=2,heads=2,channels=32" --gpus 2 --batch-size 2 --seq-length 16 --grad-accum 2
       --num-steps 3 --warmup-steps 1 --strategies ddp,zero2 --precision bf16 --offload-strategies none cpu
       --defaults own --steps 7 --steps 2 --json alias.json)
file(READ "${WORK}/alias.json" json)
set(found "")
foreach(index RANGE 3)
  field(experiment "${json}" rows ${index} experiment)
  list(APPEND found ${experiment})
endforeach()
expect("experiments" "zs0_bf16_ranks2_bs2_sl16_acc2;zs2_bf16_ranks2_bs2_sl16_acc2;zs0_bf16_ranks2_bs2_sl16_offcpu_acc2;zs2_bf16_ranks2_bs2_sl16_offcpu_acc2"
       "${found}")
string(JSON count LENGTH "${json}" rows 0 losses)
expect("steps" 3 "${count}")

# If all values of --strategies are offloads, they are taken as offloads. Names are case-insensitive.
passes(${brief} --ranks 2 --stages DP,Zero2 --strategies none CPU_optimizer --precisions FP32 --json strategies.json)
file(READ "${WORK}/strategies.json" json)
set(found "")
foreach(index RANGE 3)
  field(experiment "${json}" rows ${index} experiment)
  list(APPEND found ${experiment})
endforeach()
expect("experiments" "dp_fp32_ranks2_bs2_sl16;zs2_fp32_ranks2_bs2_sl16;dp_fp32_ranks2_bs2_sl16_offcpu;zs2_fp32_ranks2_bs2_sl16_offcpu"
       "${found}")
if(NOT output MATCHES "offloads +none,cpu_optimizer +flag")
  message(SEND_ERROR "the settings do not show where the offloads come from: ${output}")
endif()

# A row with --min-time, sequential data and a fixed number of threads.
passes(${one} --stages 0 --min-time 0.2 --order sequential --threads 2 --json long.json)
file(READ "${WORK}/long.json" json)
field(seconds "${json}" rows 0 train_time_s)
if(seconds LESS 0.2)
  message(SEND_ERROR "--min-time 0.2 timed ${seconds} s")
endif()
# If --min-time adds steps, the requested steps become the warm-up. The hash is of the weights after the requested steps.
set(two ${one} --stages 0,3 --warmup 0 --prefetch 0)
passes(${two} --steps 1 --min-time 0.5 --json long.json)
string(REGEX MATCHALL "loss [0-9.]+ -> [0-9.]+" losses "${output}")
list(REMOVE_DUPLICATES losses)
list(LENGTH losses count)
expect("the losses that the lines of both rows say" 1 "${count}")
if(NOT output MATCHES "all 2 rows equal to the bit" OR NOT output MATCHES "planned = peak to the byte in all 2 rows")
  message(SEND_ERROR "rows of different length are not compared: ${output}")
endif()
file(READ "${WORK}/long.json" long)
passes(${two} --steps 1 --min-time 0.000001 --json short.json)
file(READ "${WORK}/short.json" short)
foreach(index RANGE 1)
  foreach(key weights_hash warmup steps)
    field(${key}_long "${long}" rows ${index} ${key})
    field(${key}_short "${short}" rows ${index} ${key})
  endforeach()
  string(JSON losses LENGTH "${long}" rows ${index} losses)
  field(seconds "${long}" rows ${index} train_time_s)
  expect("a row that was long enough" "0 1" "${warmup_short} ${steps_short}")
  expect("a row that went on" "2 ${losses} ${weights_hash_short}" "${warmup_long} ${steps_long} ${weights_hash_long}")
  if(seconds LESS 0.5)
    message(SEND_ERROR "--min-time 0.5 timed ${seconds} s after ${warmup_long} steps")
  endif()
endforeach()

# Standard output may be a file. It then contains the document and all that the program prints.
execute_process(COMMAND sh -c "program=$1; shift; \"$program\" \"$@\" --json /dev/stdout > both.txt" sh "${PROGRAM}"
                        ${one} --stages 0 --warmup 0 --steps 1
                WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code)
file(READ "${WORK}/both.txt" both)
if(NOT code STREQUAL "0" OR NOT both MATCHES "\nrows: 1 ok\n" OR NOT both MATCHES "\"schema_version\": 3")
  message(SEND_ERROR "--json /dev/stdout into a file ended with ${code}: ${both}")
endif()

# Results and --version name the same commit.
file(READ "${WORK}/long.json" json)
field(hash "${json}" environment git_hash)
passes(--version)
if(hash AND NOT output MATCHES ", git ${hash}\\)")
  message(SEND_ERROR "the git hash is ${hash}, --version says ${output}")
endif()

# A row fails if its final weights are not finite, or if the system does not start its threads.
run(${one} --stages 0 --steps 1 --warmup 0 --learning-rate 3e38 --weight-decay 1e38 --clip 0 --json infinite.json)
expect("exit code" 1 "${code}")
file(READ "${WORK}/infinite.json" json)
field(status "${json}" rows 0 status)
field(reason "${json}" rows 0 reason)
expect("status of infinite weights" failed "${status}")
if(NOT reason MATCHES "not finite after the last step: h.0.attn.c_attn.bias holds")
  message(SEND_ERROR "the reason is ${reason}")
endif()
set(limited "ulimit -s 8192; ulimit -v 1500000; exec \"$@\"")
execute_process(COMMAND sh -c "${limited}" sh "${PROGRAM}" --version RESULT_VARIABLE code OUTPUT_QUIET ERROR_QUIET)
if(code STREQUAL "0")  # a program with a sanitizer does not start within the limit
  execute_process(COMMAND sh -c "${limited}" sh "${PROGRAM}" ${one} --stages 0 --ranks 1 --threads 240 --json threads.json
                  WORKING_DIRECTORY "${WORK}" OUTPUT_QUIET RESULT_VARIABLE code)
  expect("exit code" 1 "${code}")
  file(READ "${WORK}/threads.json" json)
  field(status "${json}" rows 0 status)
  field(reason "${json}" rows 0 reason)
  expect("status without threads" failed "${status}")
  if(NOT reason MATCHES "needs 240 threads, but the system started only [0-9]+ .*lower --threads")
    message(SEND_ERROR "the reason is ${reason}")
  endif()
endif()

# A diverged row keeps its steps before the divergence.
run(${one} --stages 0,3 --learning-rate 1e30 --clip 0 --output-dir diverged)
expect("exit code" 1 "${code}")
file(READ "${WORK}/diverged/compare.json" json)
foreach(index RANGE 1)
  foreach(key status reason steps first_loss losses peak_gpu_mem_mb planned_gpu_mem_mb weights_hash)
    field(${key} "${json}" rows ${index} ${key})
  endforeach()
  expect("a diverged row" "failed 1 " "${status} ${steps} ${weights_hash}")
  expect("peak of a diverged row" "${planned_gpu_mem_mb}" "${peak_gpu_mem_mb}")
  if(NOT reason MATCHES "the gradient is not finite in step 2" OR NOT first_loss GREATER 5)
    message(SEND_ERROR "a diverged row: ${reason}, ${first_loss}, ${losses}")
  endif()
endforeach()
if(NOT output MATCHES "wrote 2 step logs")
  message(SEND_ERROR "no step logs of diverged rows: ${output}")
endif()

# If all rows are refused, the files are written and the exit code is 3.
run(${one} --stages 0 --precisions tf32 --json refused.json)
expect("exit code of refused rows" 3 "${code}")
file(READ "${WORK}/refused.json" json)
field(status "${json}" rows 0 status)
expect("status" refused "${status}")
if(NOT errors MATCHES "^error: every recipe was refused: [^\n]+\n$")
  message(SEND_ERROR "refused rows: ${errors}")
endif()

# --list, --help and --version.
passes(--list)
if(NOT output MATCHES "sharding zs3, precision bf16" OR NOT output MATCHES "45 recipes")
  message(SEND_ERROR "--list: ${output}")
endif()
passes(--help)
foreach(part "Matrix" "Optimizer" "Output" "--offloads" "Examples:" "130 and 143")
  string(FIND "${output}" "${part}" at)
  if(at EQUAL -1)
    message(SEND_ERROR "--help lacks ${part}")
  endif()
endforeach()
passes(--version)
if(NOT output MATCHES "^compare \\(tessera [0-9]+\\.[0-9]+\\.[0-9]+(, git [0-9a-f]+)?\\)\n$")
  message(SEND_ERROR "--version: ${output}")
endif()

# Without flags for the rows or their length, compare measures the first recipe, prints what fits into a minute and trains
# that. This run is interrupted after the first row. It freezes most parameters to be fast. minute.cmake runs to the end.
include("${CMAKE_CURRENT_LIST_DIR}/../signals.cmake")
file(REMOVE_RECURSE "${WORK}/results")
signalled(INT 0 "^.1/[2-8]. " out.txt --data text.txt --seed 7 --freeze "h[.]|wte|wpe")
expect("exit code of a first minute that was interrupted" 130 "${code}")
file(READ "${WORK}/out.txt" output)
foreach(text "^measuring zs0_bf16_ranks4_bs4_sl128 to find out how many recipes fit into a minute\ntrains [2-8] recipes for [125] . [0-9]+ steps each: about "
        "\\[1/[2-8]\\] zs0_bf16_ranks4_bs4_sl128: ok" "\\[2/[2-8]\\] zs1_bf16_ranks4_bs4_sl128: failed: interrupted by SIGINT"
        "\nleft out of this minute: [^\n]*97 of all 105 recipes\n")
  if(NOT output MATCHES "${text}")
    message(SEND_ERROR "a first minute does not say '${text}': ${output}")
  endif()
endforeach()
file(READ "${WORK}/results/compare.json" json)
string(JSON count LENGTH "${json}" rows)
field(status "${json}" rows 0 status)
if(count LESS 2 OR count GREATER 8 OR NOT status STREQUAL "ok" OR NOT EXISTS "${WORK}/results/report.html")
  message(SEND_ERROR "a first minute left ${count} rows, the first ${status}")
endif()
# The command line that it suggests is a published comparison.
passes(--model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 2 --warmup-steps 1 --data text.txt --print-config)
if(NOT output MATCHES "\n--published +stage-sweep[^\n]*\n")
  message(SEND_ERROR "the published comparison to run next: ${output}")
endif()
# A flag for the rows turns off the one-minute selection.
foreach(flag --pairs "--ranks;4" "--steps;1")
  passes(${flag} --data text.txt --print-config)
  if(NOT output MATCHES "\n# --stages +# default\n")
    message(SEND_ERROR "${flag}: the stages are no selection: ${output}")
  endif()
endforeach()
