# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder [-DKILLS=N] -P checkpoints.cmake
# Tests checkpoints of train: a run resumed under another recipe equals the uninterrupted run. Also tests kills and damage.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
include("${CMAKE_CURRENT_LIST_DIR}/../signals.cmake")

set(run --model "layers=1,heads=2,channels=8,positions=16" --sequence 8 --data text.txt --batch 2 --global-batch 12
    --reduction ordered --clip 1 --schedule linear)
set(saving --checkpoint ck --checkpoint-every 5)

# left_in_ck(what): the checkpoint folder contains only the last two checkpoints.
function(left_in_ck what)
  file(GLOB left RELATIVE "${WORK}/ck" "${WORK}/ck/*" "${WORK}/ck/.*")
  list(REMOVE_ITEM left . ..)
  if(NOT left STREQUAL "latest;step-00000015;step-00000020")
    message(SEND_ERROR "${what} left ${left}")
  endif()
endfunction()
# steps_of(log variable): the step lines of a log without their times.
function(steps_of log variable)
  file(STRINGS "${WORK}/${log}" lines REGEX "^{\"step\"")
  list(TRANSFORM lines REPLACE ",\"tokens_per_sec.*" "")
  set(${variable} "${lines}" PARENT_SCOPE)
endfunction()

passes(${run} --ranks 1 --steps 20 --log whole.jsonl --save whole.safetensors)
steps_of(whole.jsonl whole)

# Ten steps on one rank, five on two, five on three, with different stages, offloads and accumulations.
passes(${run} ${saving} --steps 20 --ranks 1 --resume --log part.jsonl)
if(NOT output MATCHES "no checkpoint in ck; starts from step 1")
  message(SEND_ERROR "a first run with --resume printed ${output}")
endif()
steps_of(part.jsonl part)
if(NOT part STREQUAL whole)
  message(SEND_ERROR "saving changed the run:\n${part}\n${whole}")
endif()
# Asynchronous checkpoints are the same to the byte.
file(RENAME "${WORK}/ck" "${WORK}/at-once")
passes(${run} ${saving} --checkpoint-async --steps 20 --ranks 1 --resume --log part.jsonl)
string(REGEX MATCHALL "checkpoint ck/step-000000[0-9]+ " said "${output}")
if(NOT said STREQUAL "checkpoint ck/step-00000005 ;checkpoint ck/step-00000010 ;checkpoint ck/step-00000015 ;checkpoint ck/step-00000020 ")
  message(SEND_ERROR "a run that saved beside its steps printed ${output}")
endif()
shell("diff -r at-once ck")
steps_of(part.jsonl part)
if(NOT part STREQUAL whole)
  message(SEND_ERROR "saving beside steps changed the run:\n${part}\n${whole}")
endif()
file(REMOVE_RECURSE "${WORK}/at-once" "${WORK}/ck/step-00000015" "${WORK}/ck/step-00000020")
passes(${run} ${saving} --steps 20 --ranks 2 --stage 2 --offload cpu_optimizer --resume --log part.jsonl)
if(NOT output MATCHES "resumed ck/step-00000010 after step 10")
  message(SEND_ERROR "a resumed run printed ${output}")
endif()
file(REMOVE_RECURSE "${WORK}/ck/step-00000020")
file(MAKE_DIRECTORY "${WORK}/ck/.step-00000020.partial/model" "${WORK}/ck/.step-00000001.old")
passes(${run} ${saving} --steps 20 --ranks 3 --stage 3 --resume --keep 2 --log part.jsonl --save part.safetensors)
expect_same(whole.safetensors part.safetensors)
steps_of(part.jsonl part)
if(NOT part STREQUAL whole)
  message(SEND_ERROR "the log of a run that was resumed twice:\n${part}\n${whole}")
endif()
left_in_ck("--keep 2 and the sweep")
file(STRINGS "${WORK}/ck/latest" latest)
if(NOT latest STREQUAL "step-00000020")
  message(SEND_ERROR "latest says ${latest}")
endif()
# A complete run that is resumed writes its weights again. The folder inside a checkpoint is a Hugging Face folder.
passes(${run} ${saving} --steps 20 --resume --log part.jsonl --save again.safetensors)
expect_same(whole.safetensors again.safetensors)
passes(--model ck/step-00000020/model --data text.txt --sequence 8 --steps 0 --save again.safetensors)
expect_same(whole.safetensors again.safetensors)

# Contradictory flags and files.
refuses(2 "holds checkpoints, the newest of step 20;give --resume" ${run} ${saving} --steps 30)
refuses(2 "--resume needs a folder" ${run} --resume)
refuses(2 "--keep needs a folder" ${run} --keep 2)
refuses(2 "--checkpoint-async needs a folder" ${run} --checkpoint-async)
refuses(3 "after step 20, beyond --steps 10" ${run} ${saving} --steps 10 --resume)
refuses(3 "other data;seed 1 and now 2" ${run} ${saving} --steps 30 --resume --seed 2)
refuses(3 "sequence 8 and now 4" ${run} ${saving} --steps 30 --resume --sequence 4)
refuses(3 "no step of a global batch of 14 begins there" ${run} ${saving} --steps 30 --resume --global-batch 14)
file(WRITE "${WORK}/none.jsonl" "")
refuses(4 "ends with step 0;give --log another file" ${run} ${saving} --steps 30 --resume --log none.jsonl)
file(WRITE "${WORK}/short.jsonl" "{\"step\":19,\"loss\":1}\n{\"step\":20,\"lo")
refuses(4 "ends with step 19" ${run} ${saving} --steps 30 --resume --log short.jsonl)
refuses(4 "does not match the model and its trained parameters;not needed: wpe.weight.exp_avg" ${run} ${saving} --steps 30 --resume
        --freeze wpe.weight)
passes(${run} ${saving} --steps 21 --resume --global-batch 24 --log part.jsonl)  # starts after the 240th sequence
file(REMOVE_RECURSE "${WORK}/ck/step-00000021")

# Damage is refused with the file's name, before a step.
set(newest "${WORK}/ck/step-00000020")
foreach(file trainer.json model/config.json model/model.safetensors optimizer-1-of-3.safetensors)
  file(COPY "${newest}" DESTINATION "${WORK}/backup")
  shell("printf X | dd of='${newest}/${file}' bs=1 seek=300 conv=notrunc 2>/dev/null")
  refuses(4 "${file}" ${run} ${saving} --steps 30 --resume)
  file(REMOVE "${newest}/${file}")
  refuses(4 "${file}" ${run} ${saving} --steps 30 --resume)
  file(REMOVE_RECURSE "${newest}")
  file(RENAME "${WORK}/backup/step-00000020" "${newest}")
endforeach()
file(COPY_FILE "${newest}/model/model.safetensors" "${newest}/model/other.safetensors")
refuses(4 "not part of this checkpoint: model/other.safetensors" ${run} ${saving} --steps 30 --resume)
file(REMOVE "${newest}/model/other.safetensors")

# A full disk gives one error with the file. Earlier checkpoints stay.
foreach(beside "" --checkpoint-async)
  execute_process(COMMAND sh -c "ulimit -f 4; exec \"$@\"" sh "${PROGRAM}" ${run} ${saving} ${beside} --steps 30 --ranks 2 --stage 1 --resume
                  WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
  if(NOT code STREQUAL "1" OR NOT errors MATCHES "^error: ck/.step-00000025.partial/[^\n]*: cannot write [^\n]*\n$")
    message(SEND_ERROR "a file that may not grow gave ${code}: ${errors}")
  endif()
  left_in_ck("a save that failed")
endforeach()
refuses(1 "text.txt is not a folder" ${run} --checkpoint text.txt/ck)
execute_process(COMMAND sh -c "flock ck \"$@\"" sh "${PROGRAM}" ${run} ${saving} --steps 30 --resume
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code STREQUAL "1" OR NOT errors MATCHES "another run writes its checkpoints there")
  message(SEND_ERROR "a folder that is taken gave ${code}: ${errors}")
endif()

# A signal saves and ends the run, within --grace-period.
signalled(TERM 0 "\"step\":3," term.jsonl ${run} --ranks 2 --steps 10000000 --log term.jsonl --checkpoint term
          --checkpoint-every 2 --checkpoint-async --keep 3 --grace-period 600)
if(NOT code STREQUAL "143")
  file(READ "${WORK}/err.txt" errors)
  message(SEND_ERROR "SIGTERM gave ${code}: ${errors}")
endif()
file(STRINGS "${WORK}/term/latest" latest)
string(REGEX REPLACE "^step-0*" "" latest "${latest}")
math(EXPR last "${latest} + 2")
string(REPLACE "--schedule;linear" "--schedule;constant" constant "${run}")
passes(${constant} --ranks 2 --steps ${last} --log term.jsonl --checkpoint term --resume)
file(STRINGS "${WORK}/term.jsonl" lines REGEX "^{\"step\"")
list(LENGTH lines count)
if(NOT count STREQUAL last)
  message(SEND_ERROR "the log has ${count} steps of ${last}")
endif()

# A run that saves every step and is killed can be resumed. It loses at most one step, with asynchronous checkpoints two.
if(NOT KILLS)
  set(KILLS 6)
endif()
set(constant ${constant} --ranks 2 --log kill.jsonl --checkpoint kill --checkpoint-every 1 --keep 2)
foreach(turn RANGE 1 ${KILLS})
  set(beside "")
  math(EXPR odd "${turn} % 2")
  if(odd)
    set(beside --checkpoint-async)
  endif()
  string(RANDOM LENGTH 3 ALPHABET 0123456789 milliseconds)
  execute_process(
    COMMAND sh -c "milliseconds=$1; shift
                   \"$@\" > out.txt 2> err.txt & pid=$!
                   tries=0
                   until grep -q 'checkpoint kill' out.txt || [ $tries -gt 600 ]; do tries=$((tries + 1)); sleep 0.05; done
                   sleep 0.$milliseconds; kill -9 $pid; wait $pid"
            sh ${milliseconds} "${PROGRAM}" ${constant} ${beside} --steps 10000000 --resume
    WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code ERROR_VARIABLE errors)
  file(READ "${WORK}/err.txt" errors)
  if(NOT code STREQUAL "137" OR errors)
    message(FATAL_ERROR "a run to be killed ended with ${code}: ${errors}")
  endif()
  file(STRINGS "${WORK}/kill.jsonl" lines REGEX "^{\"step\"")
  list(LENGTH lines before)
  math(EXPR next "${before} + 1")
  passes(${constant} --steps ${next} --resume)
  string(REGEX MATCH "resumed kill/step-0*([0-9]+) after" found "${output}")
  math(EXPR least "${before} - 1 - ${odd}")  # an asynchronous checkpoint of the previous step may be incomplete
  if(CMAKE_MATCH_1 LESS least OR CMAKE_MATCH_1 GREATER before)
    message(SEND_ERROR "killed after the line of step ${before}: ${output}")
  endif()
  file(STRINGS "${WORK}/kill.jsonl" lines REGEX "^{\"step\"")
  list(LENGTH lines count)
  if(NOT count STREQUAL next)
    message(SEND_ERROR "the log has ${count} steps of ${next}")
  endif()
endforeach()

# The weights folder of a checkpoint can be used as a model.
file(REMOVE_RECURSE "${WORK}/ck")
passes(${run} --checkpoint ck --steps 2 --save two.safetensors)
passes(--model ck/step-00000002/model --sequence 8 --data text.txt --steps 0 --save again.safetensors)
expect_same(two.safetensors again.safetensors)
# A resumed run with one step has a rate, and a changed micro-batch gives a warning.
passes(${run} --checkpoint ck --steps 3 --resume)
if(output MATCHES "[ |]0 tok/s")
  message(SEND_ERROR "one step after a resume printed ${output}")
endif()
passes(${run} --checkpoint ck --steps 4 --resume --batch 4 --reduction ordered)
if(NOT errors MATCHES "^warning: the micro-batch was 2 in ck/step-00000003 and is 4 now: [^\n]*; give --batch 2 for equal bits\n$")
  message(SEND_ERROR "another micro-batch was said as ${errors}")
endif()
passes(${run} --checkpoint ck --steps 5 --resume --batch 4 --ranks 3)
if(NOT errors STREQUAL "")
  message(SEND_ERROR "the same micro-batch was said as ${errors}")
endif()
