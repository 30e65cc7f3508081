# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P weights.cmake
# Tests saving and loading weights: round trips are exact, bad files are refused by name, a failed save keeps the old file.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

# The initial weights depend only on the seed.
passes(${small} --steps 0 --save start.safetensors --seed 5)
passes(${small} --steps 0 --save again.safetensors --seed 5 --ranks 3 --stage 3 --precision bf16 --schedule cosine)
expect_same(start.safetensors again.safetensors)
passes(${small} --steps 0 --save other.safetensors --seed 6)
file(SHA256 "${WORK}/start.safetensors" start)
file(SHA256 "${WORK}/other.safetensors" other)
if(start STREQUAL other)
  message(SEND_ERROR "two seeds gave the same weights")
endif()
# They need no data.
passes(--model "layers=1,heads=2,channels=8,positions=16" --sequence 8 --steps 0 --save no-data.safetensors --seed 5)
expect_same(start.safetensors no-data.safetensors)

# Loaded and saved under every sharding.
foreach(stage dp 0 1 2 3)
  passes(${small} --steps 0 --ranks 2 --stage ${stage} --init start.safetensors --save copy.safetensors --seed 9)
  expect_same(start.safetensors copy.safetensors)
endforeach()
# Loaded from and saved to the same file.
passes(${small} --steps 0 --init copy.safetensors --save copy.safetensors)
expect_same(start.safetensors copy.safetensors)

# Loaded weights give the validation loss of the run that saved them.
passes(${small} --steps 3 --save three.safetensors --validation text.txt --log first.jsonl)
passes(${small} --steps 1 --learning-rate 0 --init three.safetensors --validation text.txt --log second.jsonl --ranks 2
       --batch 1)
foreach(log first second)
  file(STRINGS "${WORK}/${log}.jsonl" line REGEX "validation_loss")
  string(JSON ${log}_loss GET "${line}" validation_loss)
endforeach()
if(NOT first_loss STREQUAL second_loss)
  message(SEND_ERROR "validation loss ${first_loss} when saved, ${second_loss} when loaded")
endif()

# Bad files. sed changes a header and keeps its length.
refuses(4 "absent.safetensors" ${small} --init absent.safetensors)
refuses(4 "text.txt" ${small} --init text.txt)
shell("head -c -1 start.safetensors > cut.safetensors; head -c 5 start.safetensors > stub.safetensors; : > empty.safetensors")
refuses(4 "cut.safetensors" ${small} --init cut.safetensors)
refuses(4 "stub.safetensors" ${small} --init stub.safetensors)
refuses(4 "empty.safetensors" ${small} --init empty.safetensors)
function(bad name from to)
  execute_process(COMMAND sed "s/${from}/${to}/" "${WORK}/start.safetensors" OUTPUT_FILE "${WORK}/${name}.safetensors"
                  COMMAND_ERROR_IS_FATAL ANY)
  file(SHA256 "${WORK}/${name}.safetensors" changed)
  if(changed STREQUAL "${start}")
    message(FATAL_ERROR "sed changed nothing for ${name}")
  endif()
  refuses(4 "${name}.safetensors;${ARGV3}" ${small} --init ${name}.safetensors)
endfunction()
set(ENV{LC_ALL} C)
bad(overlapping "\\[96,864\\]" "\\[92,860\\]" "c_attn.weight")
bad(backwards "\\[96,864\\]" "\\[964,86\\]" "c_attn.weight")
bad(lying "\"shape\":\\[8,24\\]" "\"shape\":\\[9,24\\]" "c_attn.weight")
bad(turned "\"shape\":\\[8,24\\]" "\"shape\":\\[24,8\\]" "h.0.attn.c_attn.weight has shape [24, 8], the model needs [8, 24]")
bad(renamed "\"ln_f.bias\"" "\"ln_g.bias\"" "missing: ln_f.bias [8];not in the model: ln_g.bias [8]")
bad(typed "\"dtype\":\"F32\"" "\"dtype\":\"I32\"" "I32")
bad(unknown "\"dtype\":\"F32\"" "\"dtype\":\"X32\"" "X32")
bad(json "\"dtype\":" "\"dtype\";" "")
bad(deep "\"shape\":\\[8,24\\]" "\"shape\":\\[\\[\\[\\[" "")
refuses(4 "vocabulary 256;vocabulary 300;wte.weight" ${small} --vocabulary 300 --init start.safetensors)
refuses(4 "layers=1;layers=2;missing: h.1.ln_1.weight [8]" --model "layers=2,heads=2,channels=8,positions=16"
        --sequence 8 --data text.txt --init start.safetensors)
refuses(4 "wte.weight has shape [256, 8], the model needs [256, 16];wpe.weight;h.0.ln_1.weight;and 13 more;choose the model"
        --model "layers=1,heads=2,channels=16,positions=16" --sequence 8 --data text.txt --init start.safetensors)

# A failed save keeps the old file and leaves no other file.
file(GLOB before "${WORK}/*" "${WORK}/.*")
execute_process(COMMAND sh -c "ulimit -f 4; exec \"$@\"" sh "${PROGRAM}" ${small} --steps 1
                               --save start.safetensors
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
if(NOT code STREQUAL "1" OR NOT errors MATCHES "^error: start.safetensors: cannot write [^\n]*\n$")
  message(SEND_ERROR "a full disk gave ${code}: ${errors}")
endif()
file(SHA256 "${WORK}/start.safetensors" after)
if(NOT after STREQUAL start)
  message(SEND_ERROR "a failed save damaged the old file")
endif()
file(GLOB left "${WORK}/*" "${WORK}/.*")
if(NOT left STREQUAL before)
  message(SEND_ERROR "a failed save left files: ${left}")
endif()
# If a log cannot be written further, it ends after a complete line. The run continues, saves, and ends with an error.
execute_process(COMMAND sh -c "ulimit -f 64; exec \"$@\"" sh "${PROGRAM}" ${small} -q --steps 500 --log long.jsonl
                               --save long.safetensors
                WORKING_DIRECTORY "${WORK}" OUTPUT_VARIABLE output ERROR_VARIABLE errors RESULT_VARIABLE code)
string(CONCAT wanted "^warning: long.jsonl: cannot write [^\n]*; the run goes on without its log\n"
                     "error: long.jsonl: the log is incomplete, it ends after step [1-9][0-9]* of 500; [^\n]*\n$")
if(NOT code STREQUAL "1" OR NOT errors MATCHES "${wanted}")
  message(SEND_ERROR "a full disk under the log gave ${code}: ${errors}")
endif()
file(READ "${WORK}/long.jsonl" log)
if(NOT log MATCHES "\"step\":[0-9]+,[^\n]*}\n$")
  message(SEND_ERROR "the log ends within a line")
endif()
passes(${small} --steps 500 --save whole.safetensors)
expect_same(long.safetensors whole.safetensors)
refuses(1 "/dev/full;disk is full" ${small} -q --steps 1 --save /dev/full)
refuses(1 "/dev/full;disk is full" ${small} -q --steps 1 --log /dev/full)

# Named pipes and dangling links are refused before the first step. The program does not wait for a reader.
shell("mkfifo pipe; ln -s nowhere dangling")
refuses(1 "pipe;named pipe" ${small} --steps 1 --save pipe)
refuses(1 "pipe;named pipe" ${small} --steps 1 --log pipe)
refuses(1 "dangling;a link to nowhere" ${small} --steps 1 --save dangling)
refuses(1 "dangling;a link to nowhere" ${small} --steps 1 --log dangling)
shell("rm pipe dangling")
# Weights can go to a pipe on standard output.
shell("'${PROGRAM}' -q --model layers=1,heads=2,channels=8,positions=16 --sequence 8 --steps 0 --seed 5 \
       --save /dev/stdout | cat > piped.safetensors")
expect_same(start.safetensors piped.safetensors)

# A diverged run is not saved.
refuses(7 "not finite in step;nothing was saved" ${small} -q --steps 50 --learning-rate 1e30 --save start.safetensors)
file(SHA256 "${WORK}/start.safetensors" after)
if(NOT after STREQUAL start)
  message(SEND_ERROR "a diverged run was saved")
endif()
# No loss shows a bad update in the last step, so the weights are checked.
foreach(more "" "--log;infinite.jsonl" "--ranks;2;--stage;3")
  refuses(7 "not finite after the last step: h.0.attn.c_attn.bias holds;--learning-rate;nothing was saved" ${small} -q
          --steps 1 --learning-rate 3e38 --weight-decay 1e38 --save start.safetensors ${more})
endforeach()
refuses(7 "not finite after the last step: h.0.attn.c_attn.bias holds" ${small} -q --steps 1 --learning-rate 3e38
        --weight-decay 1e38)
file(SHA256 "${WORK}/start.safetensors" after)
if(NOT after STREQUAL start)
  message(SEND_ERROR "weights that are not finite were saved")
endif()

# An output must not be a file of the loaded weights, and must not be in a folder that --init names.
file(MAKE_DIRECTORY "${WORK}/hub")
file(COPY_FILE "${WORK}/start.safetensors" "${WORK}/hub/part.safetensors")
set(map "")
foreach(tensor ln_f.bias ln_f.weight wpe.weight wte.weight h.0.ln_1.weight h.0.ln_1.bias h.0.ln_2.weight h.0.ln_2.bias
               h.0.attn.c_attn.weight h.0.attn.c_attn.bias h.0.attn.c_proj.weight h.0.attn.c_proj.bias
               h.0.mlp.c_fc.weight h.0.mlp.c_fc.bias h.0.mlp.c_proj.weight h.0.mlp.c_proj.bias)
  list(APPEND map "\"${tensor}\": \"part.safetensors\"")
endforeach()
list(JOIN map "," map)
file(WRITE "${WORK}/hub/model.safetensors.index.json" "{\"weight_map\": {${map}}}")
set(index hub/model.safetensors.index.json)
passes(${small} --steps 0 --init hub --save copy.safetensors)
expect_same(start.safetensors copy.safetensors)
foreach(output --log --save)
  refuses(2 "${output} 'hub/part.safetensors';--init;same file" ${small} --steps 1 --init ${index}
          ${output} hub/part.safetensors)
  refuses(2 "${output} 'hub/part.safetensors';--init 'hub';outside" ${small} --steps 1 --init hub
          ${output} hub/part.safetensors)
  refuses(2 "${output} './${index}';--init;same file" ${small} --steps 1 --init ${index} ${output} ./${index})
  refuses(2 "${output} 'hub/new';--init 'hub';outside" ${small} --steps 1 --init hub ${output} hub/new)
endforeach()
refuses(2 "--log 'copy.safetensors';--init;same file" ${small} --steps 1 --init copy.safetensors --log copy.safetensors)
expect_same(start.safetensors hub/part.safetensors)

# A failed write to an event file is an error, and the file has only complete records. The message has the path as given.
execute_process(COMMAND sh -c "ulimit -f 32; exec \"$@\"" sh "${PROGRAM}" ${small} -q --steps 400 --tensorboard events
                WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors)
if(NOT code STREQUAL "1" OR NOT errors MATCHES "^warning: --tensorboard events: cannot write [^\n]*; the run goes on without its event file\n\
error: events: the event file is incomplete; the training and its weights are not affected\n$")
  message(SEND_ERROR "a cut event file gave ${code}: ${errors}")
endif()
# A message about missing disk space names the given folder.
execute_process(COMMAND sh -c "exec \"$@\"" sh "${PROGRAM}" --model gpt2 --data text.txt --sequence 8 --steps 1000000000000
                        --checkpoint-every 1 --checkpoint room
                WORKING_DIRECTORY "${WORK}" RESULT_VARIABLE code OUTPUT_QUIET ERROR_VARIABLE errors)
if(NOT code STREQUAL "1" OR NOT errors MATCHES "^error: room: needs ")
  message(SEND_ERROR "checkpoints without room gave ${code}: ${errors}")
endif()
