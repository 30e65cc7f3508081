# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DCOMPARE=compare -DPLAN=plan -DEXAMPLES=examples/deepspeed -DWORK=folder -P config.cmake
# Every configuration in examples/deepspeed runs, and its equivalent flags give the same weights. train repeats a row of a
# comparison.
include("${CMAKE_CURRENT_LIST_DIR}/../train/support.cmake")
file(MAKE_DIRECTORY "${WORK}/nvme")
set(here ${small} --ranks 2 --steps 4)

function(says what pattern text)
  if(NOT text MATCHES "${pattern}")
    message(SEND_ERROR "${what} does not say '${pattern}': ${text}")
  endif()
endfunction()

# Runs each configuration, and then the lines of --print-config without it.
file(GLOB files "${EXAMPLES}/*.json")
list(LENGTH files count)
if(count LESS 13)
  message(SEND_ERROR "${EXAMPLES} holds ${count} configurations")
endif()
foreach(file IN LISTS files)
  get_filename_component(name "${file}" NAME_WE)
  set(where "")
  if(name MATCHES "infinity")
    set(where --nvme-path nvme)
  endif()
  passes(--config "${file}" ${here} ${where} --log ${name}.jsonl)
  says("${name}" "note: weight decay applies to matrices only; in DeepSpeed it also applies to 10 biases and norms of 120 elements" "${output}")
  summary(${name}.jsonl weights_hash with_file)
  passes(--config "${file}" ${here} ${where} --print-config)
  string(REGEX REPLACE " *#[^\n]*\n|note:[^\n]*\n" " " words "${output}")
  shell("eval \"'${PROGRAM}' ${words} --log flags.jsonl --quiet\"")
  summary(flags.jsonl weights_hash with_flags)
  expect("${name} by flags" "${with_file}" "${with_flags}")
  set(hash_${name} "${with_file}")
endforeach()
# Stages and offloads change no bit. Formats, learning rates and scales do.
foreach(stage 1 2 3)
  expect("zero${stage}_fp16" "${hash_zero0_fp16}" "${hash_zero${stage}_fp16}")
  expect("zero${stage}_fp32" "${hash_zero0_fp32}" "${hash_zero${stage}_fp32}")
endforeach()
foreach(name stage2 stage3 offload infinity infinity_aio)
  expect("${name}" "${hash_stage1}" "${hash_${name}}")
endforeach()
if(hash_stage1 STREQUAL hash_zero0_fp16)
  message(SEND_ERROR "a schedule changes nothing")
endif()
# The same settings as flags.
passes(${here} --stage 2 --precision fp16 --learning-rate 5e-5 --weight-decay 0.01 --clip 1 --hysteresis 2 --loss-scale-delay 1
       --loss-scale-window 1000 --max-loss-scale 1267650600228229401496703205376 --log hand.jsonl)
summary(hand.jsonl weights_hash by_hand)
expect("zero2_fp16 by hand" "${hash_zero2_fp16}" "${by_hand}")
passes(${here} --stage 1 --precision fp16 --learning-rate 5e-5 --weight-decay 0.01 --clip 1 --schedule WarmupDecayLR --warmup-steps 50
       --log hand.jsonl)
summary(hand.jsonl weights_hash by_hand)
expect("stage1 by hand" "${hash_stage1}" "${by_hand}")

# A flag overrides the file, and each line prints its origin. steps_per_print is kept.
passes(--config "${EXAMPLES}/zero2_fp16.json" ${here} --stage 3 --learning-rate 0.25 --print-config)
says("--print-config" "--stage 3 +# flag" "${output}")
says("--print-config" "--learning-rate 0.25 +# flag" "${output}")
says("--print-config" "--precision fp16 +# zero2_fp16.json: fp16.enabled" "${output}")
says("--print-config" "--loss-scale dynamic +# default" "${output}")
passes(--config "${EXAMPLES}/zero2_fp16.json" ${here} --steps 20)
string(REGEX MATCHALL "\nstep [0-9]+" lines "${output}")
expect("printed steps" "\nstep 10;\nstep 20" "${lines}")

# DeepSpeed prints for GPT-2 large and this threshold: 290 parameters, 601600 elements.
passes(--config "${EXAMPLES}/stage3.json" --model gpt2-large --steps 0 --print-config)
says("stage3" "DeepSpeed keeps 290 parameters of 601,600 elements complete on every rank" "${output}")

# All refusals are in one line. The batch equation has its numbers.
file(WRITE "${WORK}/bad.json" [[{"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1,
  "zero_optimisation": {"stage": 2}, "zero_optimization": {"stage": 3, "zero_quantized_weights": true}, "optimizer": {"type": "Lamb"}}]])
refuses(3 "bad.json: 4 keys cannot be used;(1) zero_optimisation is not a key of DeepSpeed, the nearest is zero_optimization;(2) zero_optimization.zero_quantized_weights is true, which is not supported: nothing is sent quantized;(3) train_batch_size is 32, but train_micro_batch_size_per_gpu 4 x gradient_accumulation_steps 1 x --ranks 2 = 8;(4) optimizer.type is \"Lamb\", the nearest is adam"
        --config bad.json --model tiny --ranks 2)
file(WRITE "${WORK}/bad.json" "{\"train_batch_size\": 32,\n \"train_batch_size\": 4}")
refuses(3 "bad.json: the key 'train_batch_size' is given twice" --config bad.json)
file(WRITE "${WORK}/bad.json" "{\"train_batch_size\" 32}")
refuses(3 "bad.json: is not valid JSON, parse error at line 1" --config bad.json)
refuses(3 "nothing.json cannot be read" --config nothing.json)
file(WRITE "${WORK}/hjson.json" "{\n  # of one device\n  train_micro_batch_size_per_gpu: 2,\n  \"bf16\": {\"enabled\": true, # a wide range\n  },\n}\n")
passes(--config hjson.json --print-config)
says("hjson" "--batch 2 " "${output}")
says("hjson" "--precision bf16 " "${output}")
file(WRITE "${WORK}/bad.json" "{\"train_batch_size\": \"Auto\"}")
refuses(3 "the nearest is \"auto\", in lowercase" --config bad.json)
refuses(3 "is a folder; name the JSON file" --config nvme)
file(WRITE "${WORK}/eps.json" "{\"train_batch_size\": 2, \"optimizer\": {\"type\": \"Adam\", \"params\": {\"betas\": [0.9, 1.5]}}}")
refuses(3 "optimizer.params.betas is [0.9,1.5]; give two numbers from 0 to below 1" --config eps.json)

# Adam's decay is part of the gradient. A configuration may have comments, and logs go to the paths that it names.
file(WRITE "${WORK}/adam.json" [[{ // as a program of DeepSpeed has it
  "train_batch_size": 4, "optimizer": {"type": "Adam", "params": {"adam_w_mode": false, "weight_decay": 0.1}},
  "tensorboard": {"enabled": true, "output_path": "boards", "job_name": "adam"},
  "csv_monitor": {"enabled": true, "output_path": "logs/deep", "job_name": "adam"}}]])
passes(--config adam.json ${small} --batch 2 --ranks 2 --steps 4 --log adam.jsonl)
summary(adam.jsonl weights_hash adam)
passes(--config adam.json ${small} --batch 2 --ranks 2 --steps 4 --optimizer adamw)
summary(logs/deep/adam.jsonl weights_hash adamw)
if(adam STREQUAL adamw)
  message(SEND_ERROR "Adam and AdamW end with the same weights")
endif()
file(GLOB events "${WORK}/boards/adam/events.out.tfevents.*")
list(LENGTH events count)
expect("event files" 2 ${count})

# compare and plan read configurations too, and train repeats a row of compare.
execute_process(COMMAND "${COMPARE}" --config "${EXAMPLES}/stage2.json" ${small} --ranks 2 --stages 2 3 --steps 4 --warmup 1 --json rows.json
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("compare (${errors})" 0 "${code}")
file(READ "${WORK}/rows.json" rows)
string(JSON wanted GET "${rows}" rows 1 weights_hash)
string(JSON name GET "${rows}" rows 1 experiment)
passes(--from rows.json --row "${name}" --log row.jsonl)
summary(row.jsonl weights_hash repeated)
expect("${name} repeated" "${wanted}" "${repeated}")
says("--from" "sharding +zs3 +rows.json: ${name}" "${output}")
passes(--from rows.json --best --log row.jsonl --quiet)
summary(row.jsonl weights_hash repeated)
expect("the best row repeated" "${wanted}" "${repeated}")
execute_process(COMMAND "${COMPARE}" ${small} --ranks 2 --stages 2 --samples 8 --warmup 0 --json epochs.json
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("compare (${errors})" 0 "${code}")
# A row that --min-time extended is repeated up to the step of its hash.
execute_process(COMMAND "${COMPARE}" ${small} --ranks 2 --stages 2 --precisions fp32 --offloads none --steps 2 --warmup 1 --min-time 0.3 --json longer.json
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("compare (${errors})" 0 "${code}")
file(READ "${WORK}/longer.json" rows)
foreach(key steps hashed_steps weights_hash final_loss)
  string(JSON ${key} GET "${rows}" rows 0 ${key})
endforeach()
passes(--from longer.json --best --log row.jsonl --quiet)
summary(row.jsonl steps_done repeated_steps)
summary(row.jsonl weights_hash repeated_hash)
summary(row.jsonl final_loss repeated_loss)
if(NOT steps GREATER 3)
  message(SEND_ERROR "--min-time added no step to ${steps}")
endif()
expect("a longer row repeated" "3 3 ${weights_hash} ${final_loss}" "${hashed_steps} ${repeated_steps} ${repeated_hash} ${repeated_loss}")
passes(--from epochs.json --best --steps 3 --log row.jsonl --quiet)
summary(row.jsonl steps_done steps)
expect("steps on the line before epochs of the row" 3 "${steps}")
refuses(3 "no row is called 'zs9', the nearest is 'zs" --from rows.json --row zs9)
refuses(2 "no flag selects which row to repeat; give --best, or --row NAME" --from rows.json)
execute_process(COMMAND "${PLAN}" --config "${EXAMPLES}/infinity.json" --model gpt2 --ranks 2 --memory 8GB --no-search
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
expect("plan" 2 "${code}")  # the file's folder, /local_nvme, does not exist
execute_process(COMMAND "${PLAN}" --config "${EXAMPLES}/infinity.json" --model gpt2 --ranks 2 --memory 8GB --no-search --nvme-path nvme
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
says("plan" "pick for gpt2, fp16, 2 ranks, batch 2, sequence 128: zs3_fp16_ranks2_bs2_sl128_offnvme" "${output}")
