# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=plan -DCOMPARE=compare -DWORK=folder -P predict.cmake
# What plan and compare predict from a machine's times, and what is picked by it.
include("${CMAKE_CURRENT_LIST_DIR}/../compare/support.cmake")

# machine(file device version): every FLOP takes a nanosecond, one of AdamW a hundred, every byte
# between ranks a microsecond.
function(machine file device version)
  set(rest "\"attention_flops\": 0, \"operations\": 0")
  file(WRITE "${WORK}/${file}" "{\"format\": \"tessera machine times\", \"version\": ${version}, \"device\": \"${device}\",
    \"machine\": \"on paper\", \"environment\": {}, \"timings\": [
    {\"precision\": \"fp32\", \"ranks\": 2, \"what\": \"work\", \"move\": false, \"flops\": 1e9, \"bytes\": 0, \"seconds\": 1, ${rest}},
    {\"precision\": \"fp32\", \"ranks\": 2, \"what\": \"adamw\", \"move\": false, \"flops\": 1e9, \"bytes\": 0, \"seconds\": 100, ${rest}},
    {\"precision\": \"fp32\", \"ranks\": 2, \"what\": \"copy upload\", \"move\": true, \"flops\": 0, \"bytes\": 1e6, \"seconds\": 0.001, ${rest}},
    {\"precision\": \"fp32\", \"ranks\": 2, \"what\": \"copy download\", \"move\": true, \"flops\": 0, \"bytes\": 1e6, \"seconds\": 0.001, ${rest}},
    {\"precision\": \"fp32\", \"ranks\": 2, \"what\": \"all_gather\", \"move\": true, \"flops\": 0, \"bytes\": 1e6, \"seconds\": 1, ${rest}}]}")
endfunction()
machine(paper.json cpu 1)
machine(gpu.json cuda 1)
machine(newer.json cpu 2)

set(matrix ${small} --ranks 2 --stages 0,1,2,3 --precisions fp32 --offloads none,cpu_full)
passes(${matrix} --machine paper.json --prefer speed --memory 8GiB --no-search --json plan.json)
if(NOT output MATCHES "pick for [^\n]*: zs0_fp32_ranks2_bs2_sl16_offcpufull, [^\n]* tok/s predicted [^\n]* for each GiB\n")
  message(SEND_ERROR "the fastest on paper: ${output}")
endif()
if(NOT output MATCHES "\n  against the pattern 'speed is critical: the lowest stage that fits', which is zs0_fp32_ranks2_bs2_sl16 \\([0-9,]+ tok/s predicted [^\n]+ of memory a rank\\)\n")
  message(SEND_ERROR "the pattern that it does not follow: ${output}")
endif()
file(READ "${WORK}/plan.json" plan)
execute_process(COMMAND "${COMPARE}" ${matrix} --machine paper.json --data text.txt --steps 2 --warmup 0 --json measured.json
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output RESULT_VARIABLE code)
expect("exit code of compare" 0 "${code}")
if(NOT output MATCHES "\npredicted: 8 rows, off by [0-9.]+% \\(median\\) and [0-9.]+% at the most\n")
  message(SEND_ERROR "compare says not how far predictions were off: ${output}")
endif()
file(READ "${WORK}/measured.json" measured)
foreach(document plan measured)
  field(source "${${document}}" environment machine_source)
  expect("machine_source" "measured on on paper" "${source}")
endforeach()
set(before 0)
foreach(index RANGE 7)
  foreach(key predicted_step_time_s predicted_tokens_per_sec predicted_guessed_pct)
    field(planned "${plan}" rows ${index} ${key})
    field(there "${measured}" rows ${index} ${key})
    if(planned STREQUAL "" OR NOT planned STREQUAL there)
      message(SEND_ERROR "${key} of row ${index} is ${planned} in plan and ${there} in compare")
    endif()
  endforeach()
  string(JSON kind TYPE "${measured}" rows ${index} prediction_error_pct)
  expect("type of prediction_error_pct" NUMBER "${kind}")
endforeach()
# Of 64 tokens a step, to the thousandth of a second.
field(seconds "${plan}" rows 0 predicted_step_time_s)
field(rate "${plan}" rows 0 predicted_tokens_per_sec)
string(REGEX MATCH "^([0-9]+)\\.([0-9][0-9][0-9])" found "${seconds}")
math(EXPR milliseconds "${CMAKE_MATCH_1} * 1000 + 1${CMAKE_MATCH_2} - 1000")
string(REGEX MATCH "^[0-9]+" whole "${rate}")
math(EXPR tokens "(${whole} * ${milliseconds} + 500) / 1000")
if(tokens LESS 58 OR tokens GREATER 64)
  message(SEND_ERROR "${rate} tok/s and ${seconds} s a step are no 64 tokens")
endif()

# Without a machine nothing is predicted, and memory needs none.
passes(--model gpt2 --sequence 128 --ranks 2 --stages 0,1,2,3 --precisions fp32 --offloads none,cpu_full --device cuda --prefer memory
       --memory 80GiB --no-search --json plan.json)
if(NOT output MATCHES "pick for [^\n]*: zs3_fp32_gpus2_bs4_sl128_offcpufull, [^\n]*host memory" OR
   NOT output MATCHES "\n  follows the pattern 'memory is critical: ZeRO-3 with offload'\n" OR output MATCHES "predicted")
  message(SEND_ERROR "the least memory: ${output}")
endif()
file(READ "${WORK}/plan.json" plan)
field(rate "${plan}" rows 0 predicted_tokens_per_sec)
expect("a prediction without times" "" "${rate}")
passes(${matrix} --prefer efficiency --machine paper.json --memory 8GiB --no-search)
if(NOT output MATCHES "pick for [^\n]* tok/s predicted [^\n]* for each GiB\n")
  message(SEND_ERROR "the most for its memory: ${output}")
endif()

# State on a disk that was not measured has no time, and says why.
passes(${small} --ranks 2 --stages 0 --precisions fp32 --offloads none,nvme --machine paper.json --nvme-path . --no-search --json plan.json)
file(READ "${WORK}/plan.json" plan)
field(seconds "${plan}" rows 1 predicted_step_time_s)
field(reason "${plan}" rows 1 prediction_reason)
expect("a disk's step" "" "${seconds}")
expect("its reason" "the machine's file has no times of 'copy disk'" "${reason}")


# If no fitting row is predicted, the pick is by bytes, and the reason is printed once.
passes(${small} --ranks 2 --stages 0,1 --precisions bf16 --offloads none --prefer speed --machine paper.json --no-search)
if(NOT output MATCHES "\nnot predicted: zs0_bf16_ranks2_bs2_sl16: the machine's file has no times of '[^']+' in bf16\n" OR
   NOT output MATCHES "\npick for [^\n]*bf16[^\n]*: zs0_[^\n]*\n  picked by bytes: no row that fits has a predicted step, the machine's file has no times" OR
   NOT output MATCHES "\ntimes: paper.json, measured on on paper\n")
  message(SEND_ERROR "what is picked without a prediction: ${output}")
endif()

refuses(2 "--prefer speed compares predicted speeds;--machine FILE" ${matrix} --prefer speed)
refuses(2 "the nearest is 'speed'" ${matrix} --prefer sped)
refuses(3 "has times of device cuda, and --device is cpu" ${matrix} --machine gpu.json)
refuses(4 "newer.json: has version 2" ${matrix} --machine newer.json)
refuses(4 "text.txt: is no file of machine times" ${matrix} --machine text.txt)
refuses(2 "no machine is called 'absent.json', and it is no file" ${matrix} --machine absent.json)
execute_process(COMMAND mkfifo "${WORK}/pipe" RESULT_VARIABLE code)
expect("mkfifo" 0 "${code}")
refuses(2 "no machine is called 'pipe', and it is no file" ${matrix} --machine pipe)
