# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=compare -DPLAN=plan -DWORK=folder -P published_lines.cmake
# Tests published command lines, unchanged: their settings, defaults and origins, without training. Also tests contradictory
# lines and flags files.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(MAKE_DIRECTORY "${WORK}/nvme")

# resolves("flag value|origin;..." args...): --print-config prints these lines.
function(resolves wanted)
  passes(${ARGN} --data text.txt --print-config)
  list(JOIN ARGN " " call)
  foreach(line IN LISTS wanted)
    string(REPLACE "|" " *  # " pattern "${line}")
    if(NOT "\n${output}" MATCHES "\n${pattern}\n")
      message(SEND_ERROR "compare ${call}\n  must resolve to '${line}', resolves to:\n${output}")
    endif()
  endforeach()
endfunction()

set(sweep "--defaults stage-sweep|spelled --batch-size" "--ranks 1|stage-sweep" "--sequence 512|stage-sweep"
    "--accumulation 1|stage-sweep" "--learning-rate 1e-4|stage-sweep" "--precisions fp16|stage-sweep"
    "--offloads none|stage-sweep" "--warmup 5|stage-sweep" "--format flat|stage-sweep" "--timestamp|stage-sweep")
set(stages "--stages 0 1 2 3|stage-sweep")
set(steps "--steps 20|stage-sweep")
resolves("${sweep};${stages};${steps};--models gpt2|flag;--batch 4|flag" --model gpt2 --batch-size 4)
resolves("${sweep};--stages 0 1 2 3|flag;--steps 50|flag" --model gpt2 --batch-size 4 --stages 0 1 2 3 --num-steps 50)
resolves("${sweep};${stages};${steps};--models meta-llama/Llama-2-7b-hf|flag;--batch 2|flag" --model meta-llama/Llama-2-7b-hf
         --batch-size 2)
list(REMOVE_ITEM sweep "--sequence 512|stage-sweep")
resolves("${sweep};--models facebook/opt-1.3b|flag;--batch 8|flag;--sequence 512|flag;--steps 50|flag" --model facebook/opt-1.3b
         --batch-size 8 --seq-length 512 --num-steps 50 --stages 0,1,2,3)
resolves("--defaults stage-sweep|spelled --warmup-steps;--models gpt2|stage-sweep;--warmup 10|flag;--steps 50|flag;--batch 4|stage-sweep;${stages}"
         --warmup-steps 10 --num-steps 50)
resolves("--defaults stage-sweep|spelled --grad-accum;--accumulation 2|flag;${stages};${steps}" --grad-accum 2)
set(offloads "--defaults offload-sweep|spelled --batch-size" "--stages 3|offload-sweep" "--sequence 512|offload-sweep"
    "--steps 20|offload-sweep" "--learning-rate 1e-4|offload-sweep" "--precisions fp16|offload-sweep"
    "# --global-batch|default")
resolves("${offloads};--strategies none cpu_optimizer cpu_full|flag" --model gpt2 --batch-size 4
         --strategies none cpu_optimizer cpu_full)
resolves("${offloads};--strategies none cpu_optimizer cpu_full nvme|flag;--nvme-path nvme|flag" --model meta-llama/Llama-2-7b-hf
         --batch-size 2 --nvme-path nvme --strategies none cpu_optimizer cpu_full nvme)
resolves("${offloads};--strategies none cpu_optimizer cpu_full nvme|offload-sweep" --model gpt2 --batch-size 4 --nvme-path nvme)
foreach(model gpt2 gpt2-medium gpt2-large gpt2-xl openai-community/gpt2 facebook/opt-1.3b opt-1.3b Llama-2-7b-hf
        meta-llama/Llama-2-13b-hf meta-llama/Llama-2-70b-hf)
  resolves("--models ${model}|flag" --model ${model} --batch-size 1)
endforeach()

# --defaults by name: without a flag in the published spelling, and contrary to the spelling.
resolves("--models gpt2|offload-sweep;--strategies none cpu_optimizer cpu_full|offload-sweep" --defaults offload-sweep)
resolves("--models tiny|default" --defaults own --batch-size 4)
resolves("--defaults offload-sweep|flag;--batch 4|offload-sweep;--strategies none cpu_optimizer cpu_full|offload-sweep"
         --model gpt2 --defaults offload-sweep)
resolves("--defaults own|flag;--sequence 128|default;--format rows|default;# --global-batch|default" --model gpt2 --defaults own
         --batch-size 4 --steps 3)
resolves("--defaults own|default;--sequence 128|default" --model gpt2 --batch 4 --stages 0 1 2 3)
# Flags that both spellings share keep their values.
resolves("--ranks 2|flag;--precisions bf16|flag;# --steps|default;--epochs 4|flag;--json a.json|flag" --model gpt2 --gpus 2
         --batch-size 4 --precision bf16 --epochs 4 --samples 20 --json a.json)

# Contradictory lines are refused in one sentence.
refuses(2 "--batch-size is the spelling of the published comparisons;--steps is the spelling of this program;--defaults own|stage-sweep|offload-sweep"
        --model gpt2 --batch-size 4 --steps 50)
refuses(2 "--batch-size;--batch is" --batch 4 --batch-size 2)
refuses(2 "--num-steps;--full" --full --num-steps 3)
refuses(2 "nvme keeps state in files;offload-sweep;--nvme-path FOLDER" --model gpt2 --batch-size 4 --strategies none nvme)
refuses(2 "--defaults;'stage-swep';'stage-sweep'" --defaults stage-swep)
refuses(2 "--timestamp changes the names of the files in --output-dir" --timestamp --json out.json)

# The command line overrides a flags file in any spelling, and --print-config prints the origin of each flag.
file(WRITE "${WORK}/my.flags" "# A comment; 'with a quote\n--model gpt2 --batch 2   # more\n--stages 0,1\n--freeze 'wte|wpe'\n--repeat 3\n")
resolves("--models gpt2|my.flags;--batch 2|my.flags;--stages 0,1|my.flags;--repeat 5|flag;--freeze 'wte.wpe'|my.flags;--sequence 128|default"
         --repeat 5 @my.flags)
resolves("--batch 8|flag;--sequence 128|default" @my.flags --batch-size 8)
file(WRITE "${WORK}/published.flags" "--model gpt2 --batch-size 2\n")
resolves("--batch 2|published.flags;--steps 7|flag;--sequence 512|stage-sweep" @published.flags --steps 7)
file(WRITE "${WORK}/nested.flags" "--model gpt2\n@my.flags\n")
file(WRITE "${WORK}/open.flags" "--model gpt2\n--freeze 'wte\n")
refuses(2 "@absent.flags: cannot be read;a file of flags" @absent.flags)
refuses(2 "@nested.flags, line 2: '@my.flags' is another file of flags" @nested.flags)
refuses(2 "@/dev/zero: is longer than 1 MiB" @/dev/zero)
refuses(2 "@open.flags, line 2: a quote is not closed" @open.flags)

# The lines of --print-config are a command line of the same comparison.
passes(--model gpt2 --batch-size 4 --strategies none cpu_optimizer --data text.txt --print-config)
file(WRITE "${WORK}/printed.flags" "${output}")
string(REGEX REPLACE " *#[^\n]*" "" first "${output}")
passes(@printed.flags --print-config)
string(REGEX REPLACE " *#[^\n]*" "" second "${output}")
expect("what is printed" "${first}" "${second}")

# plan accepts the same lines and prints the bytes of each row.
passes(--help)
set(PROGRAM "${PLAN}")
run(--device cuda --memory 80GB --no-search --model meta-llama/Llama-2-7b-hf --batch-size 2 --num-steps 50 --warmup-steps 5 --stages 0 1 2 3)
expect("exit code where no recipe fits" 5 "${code}")
if(NOT output MATCHES "defaults: stage-sweep, as published \\(spelled --batch-size\\)" OR
   NOT output MATCHES "llama-2-7b, fp16, 1 rank, batch 2, sequence 512")
  message(SEND_ERROR "plan: ${output}${errors}")
endif()
passes(--device cuda --memory 80GB --no-search --model gpt2 --batch-size 4 --strategies none cpu_optimizer nvme)
