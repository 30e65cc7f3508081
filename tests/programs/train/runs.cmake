# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P runs.cmake
# Tests the output of train: a log line for every step, equal weights for every sharding, and the flags for the length.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

# steps_of(log result): the values of `step` in the log. Each line must have all fields.
function(steps_of log result)
  file(STRINGS "${WORK}/${log}" lines)
  set(steps "")
  foreach(line IN LISTS lines)
    string(JSON step ERROR_VARIABLE none GET "${line}" step)
    if(NOT none STREQUAL "NOTFOUND")
      continue()
    endif()
    list(APPEND steps ${step})
    foreach(field loss grad_norm lr scale skipped tokens_per_sec ms)
      string(JSON value ERROR_VARIABLE error GET "${line}" ${field})
      if(NOT error STREQUAL "NOTFOUND")
        message(SEND_ERROR "${log}: step ${step} lacks ${field}")
      endif()
    endforeach()
  endforeach()
  set(${result} "${steps}" PARENT_SCOPE)
endfunction()

# A log has the settings first, then every step, then the summary.
passes(${small} --steps 6 --log run.jsonl --validation text.txt --validate-every 4 --clip 1 --schedule linear
       --warmup-steps 2 --learning-rate 0.01)
steps_of(run.jsonl steps)
expect("steps" "1;2;3;4;5;6" "${steps}")
file(STRINGS "${WORK}/run.jsonl" lines)
list(GET lines 0 head)
foreach(pair "precision fp32" "stage 0" "global_batch 2" "vocabulary 256" "learning_rate 0.01" "schedule linear"
             "clip 1.0" "seed 1" "order shuffled" "steps 6" "reduction ordered")
  string(REPLACE " " ";" pair "${pair}")
  list(POP_FRONT pair key)
  string(JSON value GET "${head}" config ${key})
  if(key STREQUAL "learning_rate")
    string(SUBSTRING "${value}" 0 4 value)
  elseif(key STREQUAL "clip")
    string(REGEX REPLACE "^1$" "1.0" value "${value}")
  endif()
  expect("config ${key}" "${pair}" "${value}")
endforeach()
string(JSON type TYPE "${head}" config product_plans)
expect("product plans of a CPU" "NULL" "${type}")
file(STRINGS "${WORK}/run.jsonl" validations REGEX "validation_loss")
list(LENGTH validations count)
expect("validations" 2 ${count})
string(JSON after GET "${validations}" after_step)
expect("first validation" 4 ${after})
file(STRINGS "${WORK}/run.jsonl" first REGEX "\"step\":1,")
string(JSON rate GET "${first}" lr)
if(NOT rate MATCHES "^0\\.00(5|4999)")
  message(SEND_ERROR "the warm-up starts at ${rate}, not 0.005")
endif()
if(NOT output MATCHES "step 6 \\| loss" OR NOT output MATCHES "trained 6 steps")
  message(SEND_ERROR "the run printed: ${output}")
endif()
# The summary has the times of steps and their spread. Values of GPUs are null.
file(STRINGS "${WORK}/run.jsonl" line REGEX "\"summary\"")
foreach(field avg_tokens_per_sec train_time_s avg_step_time_s step_to_step_std_s spread_pct)
  string(JSON ${field} GET "${line}" summary ${field})
  if(NOT ${field} GREATER 0)
    message(SEND_ERROR "${field} of a summary is ${${field}}")
  endif()
endforeach()
string(JSON kind TYPE "${line}" summary unsteady)
expect("type of unsteady" BOOLEAN ${kind})
foreach(field mfu_pct mfu_against avg_gpu_util_pct avg_power_w energy_j allocated_mb library_mb)
  string(JSON kind TYPE "${line}" summary ${field})
  expect("type of ${field}" NULL ${kind})
endforeach()

# The first step is timed from the start of the process, here a shell that sleeps before it executes the program.
shell("b=$(date +%s%N); sh -c \"sleep 0.5; exec '${PROGRAM}' --steps 1 --batch 1 --sequence 8 --log first.jsonl\" > /dev/null
e=$(date +%s%N); echo $((e - b)) > took")
summary(first.jsonl first_step_s first)
file(READ "${WORK}/took" took)
math(EXPR took "${took} / 1000000000 + 1")
if(first LESS 0.5 OR first GREATER took)
  message(SEND_ERROR "the first step ended ${first} s after the start of a process of at most ${took} s that slept for 0.5")
endif()

# With --steps 0 the loss of the initial weights is measured once.
passes(${small} --steps 0 --validation text.txt --validate-every 1 --log none.jsonl)
if(NOT output MATCHES "(^|\n)validation after step 0 \\| loss [0-9.]+ ")
  message(SEND_ERROR "a validation without steps printed ${output}")
endif()
file(STRINGS "${WORK}/none.jsonl" validations REGEX "validation_loss")
list(LENGTH validations count)
expect("validations without steps" 1 ${count})
# The logged settings include the whole schedule.
passes(${small} --steps 4 --schedule warmupcosinelr --warmup-steps 2 --schedule-steps 9 --final-fraction 0.25 --first-rate 0.5
       --warmup-type linear --log schedule.jsonl)
expect_log(schedule.jsonl schedule=warmupcosinelr warmup_steps=2 schedule_steps=9 final_fraction=0.25 first_rate=0.5 warmup_type=linear)
# Only one run at a time can write to a log or to a folder of event files.
execute_process(
  COMMAND sh -c "program=$1; shift
                 \"$program\" \"$@\" --steps 10000000 --log one.jsonl --tensorboard one & pid=$!
                 until grep -q '\"step\":3,' one.jsonl 2>/dev/null; do sleep 0.05; done
                 \"$program\" \"$@\" --steps 1 --log one.jsonl 2> log.txt; echo $? >> log.txt
                 \"$program\" \"$@\" --steps 1 --tensorboard one 2> events.txt; echo $? >> events.txt
                 kill $pid; wait $pid; head -n 1 one.jsonl | grep -q config"
          sh "${PROGRAM}" ${small} -q
  WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors TIMEOUT 60)
file(READ "${WORK}/log.txt" log)
file(READ "${WORK}/events.txt" events)
file(STRINGS "${WORK}/one.jsonl" configs REGEX "\"config\"")
list(LENGTH configs count)
if(NOT code STREQUAL "0" OR NOT count EQUAL 1 OR NOT log MATCHES "^error: one.jsonl: another run writes there; [^\n]*\n1\n$" OR
   NOT events MATCHES "^error: one: another run writes there; [^\n]*\n1\n$")
  message(SEND_ERROR "two runs with one log gave ${code}, ${count} settings, ${log}, ${events}: ${errors}")
endif()

# --min-time adds steps until enough time is measured. Then the validation runs.
passes(${small} --steps 2 --min-time 0.5 --validation text.txt --validate-every 1000000 --log long.jsonl)
summary(long.jsonl steps_done steps)
summary(long.jsonl train_time_s seconds)
summary(long.jsonl interrupted interrupted)
file(STRINGS "${WORK}/long.jsonl" validations REGEX "validation_loss")
list(LENGTH validations count)
string(JSON after GET "${validations}" after_step)
expect("validations, the last after step" "1 ${steps}" "${count} ${after}")
if(NOT steps GREATER 2 OR seconds LESS 0.5 OR interrupted OR NOT output MATCHES "trained [0-9,]+ steps")
  message(SEND_ERROR "--min-time 0.5 timed ${seconds} s in ${steps} steps: ${output}")
endif()
passes(${small} --steps 3 --min-time 0.000001 --log long.jsonl)
summary(long.jsonl steps_done steps)
expect("steps that are long enough" 3 "${steps}")
passes(${small} --steps 1 --min-time 0.000001 --log long.jsonl)
summary(long.jsonl steps_done steps)
expect("the first step, which is not timed, and one that is" 2 "${steps}")
passes(${small} --steps 2 --quiet)
expect("quiet output" "" "${output}${errors}")

# With the same global batch, shardings, worlds, splits, offload and recomputation give the same bits.
foreach(precision fp32 bf16 fp16)
  set(wanted "")
  foreach(recipe "--ranks;1;--accumulation;6;--stage;0" "--ranks;6;--stage;3;--threads;2"
                 "--ranks;2;--accumulation;3;--stage;dp" "--ranks;3;--accumulation;2;--stage;1;--offload;cpu_optimizer"
                 "--ranks;3;--accumulation;2;--stage;2;--recompute;block" "--global-batch;6;--ranks;2;--stage;ddp")
    passes(${small} --batch 1 --steps 5 --learning-rate 0.01 --clip 1 --precision ${precision} ${recipe} --log bits.jsonl)
    summary(bits.jsonl weights_hash hash)
    if(wanted STREQUAL "")
      set(wanted "${hash}")
    endif()
    expect("${precision} weights under ${recipe}" "${wanted}" "${hash}")
  endforeach()
endforeach()

# The loss falls.
passes(${small} --steps 120 --learning-rate 0.02 --log learn.jsonl)
summary(learn.jsonl first_loss first)
summary(learn.jsonl final_loss last)
if(NOT first GREATER 5.4 OR NOT last LESS 3.2)
  message(SEND_ERROR "the loss went from ${first} to ${last}")
endif()

# fp16: a step that overflows is skipped and its line names the tensor. The next step has half the scale.
passes(${small} --steps 10 --learning-rate 1 --precision fp16 --log overflow.jsonl)
if(NOT output MATCHES "\nstep 2 [^\n]* skipped: overflow in [a-z][a-z0-9_.]*(weight|bias)\n")
  message(SEND_ERROR "no overflow was named: ${output}")
endif()
file(STRINGS "${WORK}/overflow.jsonl" line REGEX "\"step\":2,")
string(JSON skipped GET "${line}" skipped)
string(JSON before GET "${line}" scale)
file(STRINGS "${WORK}/overflow.jsonl" line REGEX "\"step\":3,")
string(JSON after GET "${line}" scale)
string(REGEX REPLACE "\\.0*$" "" before "${before}")
string(REGEX REPLACE "\\.0*$" "" after "${after}")
math(EXPR half "${before} / 2")
expect("step 2 skipped" "ON" "${skipped}")
expect("scale of step 3" "${half}" "${after}")

# Three flags for the length. The text has 2,200 to 2,400 bytes; 20 samples make 10 steps of 2.
passes(${small} --samples 20 --log long.jsonl)
steps_of(long.jsonl steps)
list(LENGTH steps count)
expect("steps of 20 samples" 10 ${count})
passes(${small} --samples 20 --epochs 3 --log long.jsonl)
steps_of(long.jsonl steps)
list(LENGTH steps count)
expect("steps of 3 epochs of 20 samples" 30 ${count})
string(LENGTH "${text}" bytes)
math(EXPR epoch "((${bytes} - 1) / 8 + 1) / 2")  # the last step may be padded
passes(${small} --epochs 1 --log long.jsonl)
steps_of(long.jsonl steps)
list(LENGTH steps count)
expect("steps of an epoch" ${epoch} ${count})

# The spellings of compare, and --bf16 and --fp16.
passes(--model "layers=1,heads=2,channels=8,positions=16" --data text.txt --gpus 2 --batch-size 3 --seq-length 8 --grad-accum 2
       --num-steps 2 --strategies zero2 --offload-strategies cpu --bf16 --log spelled.jsonl)
expect_log(spelled.jsonl world=2 batch=3 sequence=8 accumulation=2 steps=2 stage=2 offload=cpu_optimizer precision=bf16)
passes(${small} --fp16 --steps 1)
if(NOT output MATCHES "precision +fp16 +flag")
  message(SEND_ERROR "--fp16 gave ${output}")
endif()

# A NaN is printed without a sign, and line breaks in names are escaped.
run(${small} --steps 3 --learning-rate 1e30 --precision fp16)
if(NOT output MATCHES "step 2 \\| loss nan \\| norm nan" OR output MATCHES "-nan")
  message(SEND_ERROR "overflowing steps are printed as ${output}")
endif()
string(ASCII 27 escape)
passes(${small} --steps 0 --save "two\nlines${escape}")
if(NOT output MATCHES "saved two\\\\x0alines\\\\x1b \\| weights")
  message(SEND_ERROR "a name of two lines is printed as ${output}")
endif()
passes(${small} --steps 0 --init "two\nlines${escape}")
if(NOT output MATCHES "two\\\\x0alines\\\\x1b +flag")
  message(SEND_ERROR "a name of two lines is printed as ${output}")
endif()

# On a terminal train shows a progress bar. Lines of losses stay after the bar is gone.
find_program(SCRIPT script)
if(SCRIPT)
  list(TRANSFORM small REPLACE "(.+)" "'\\1'" OUTPUT_VARIABLE quoted)
  list(JOIN quoted " " quoted)
  execute_process(COMMAND "${SCRIPT}" -qec "'${PROGRAM}' ${quoted} --steps 60" /dev/null WORKING_DIRECTORY "${WORK}"
                  OUTPUT_VARIABLE output RESULT_VARIABLE code)
  string(REGEX MATCHALL "step [0-9]+ \\| loss [0-9.]+ \\| norm" lines "${output}")
  list(LENGTH lines count)
  if(NOT code STREQUAL "0" OR count LESS 20 OR count GREATER 22 OR NOT output MATCHES "step 60 \\| loss" OR
     NOT output MATCHES "100%, 60/60")
    message(SEND_ERROR "on a terminal ${count} lines of losses stay: ${output}")
  endif()
endif()

# The last of two equal flags counts. --help lists every flag with its default.
passes(${small} --steps 9 --steps 2 --log twice.jsonl)
steps_of(twice.jsonl steps)
expect("steps of two flags" "1;2" "${steps}")
passes(--help)
foreach(flag model ranks batch sequence accumulation global-batch stage precision offload recompute reduction capture
             attention data order vocabulary seed threads steps epochs samples samples-are field separator learning-rate beta1 beta2 epsilon
             min-time weight-decay clip schedule warmup-steps validation validate-every init save log quiet product-plans help)
  if(NOT output MATCHES "--${flag}")
    message(SEND_ERROR "--help does not name --${flag}")
  endif()
endforeach()
if(NOT output MATCHES "--learning-rate[^\n]*\\[0.0003\\]" OR NOT output MATCHES "Examples:")
  message(SEND_ERROR "--help shows no defaults or no examples")
endif()
