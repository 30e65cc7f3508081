# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P records.cmake
# Tests samples that are records: lines and JSON Lines of the same text give the same run for every split. The last step of an
# epoch may be smaller. Losses are reported with and without padding.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")

# 21 lines of 1 to 21 letters with blank lines between them. The first one is too short.
set(lines "")
set(json "")
foreach(i RANGE 1 21)
  string(REPEAT "abc " 6 line)
  string(SUBSTRING "${i}${line}" 0 ${i} line)
  string(APPEND lines "${line}\n\n")
  string(APPEND json "{\"n\": ${i}, \"body\": \"${line}\"}\n")
endforeach()
file(WRITE "${WORK}/lines.txt" "${lines}")
file(WRITE "${WORK}/lines.jsonl" "${json}")
list(APPEND small --data lines.txt)

# 20 samples, 6 per step: an epoch has four steps, the last one with two samples. Bits depend neither on the split of a step
# nor on the format of the records.
foreach(precision fp32 fp16)
  set(wanted "")
  foreach(recipe "--ranks;1;--accumulation;6;--stage;0" "--ranks;6;--stage;3;--threads;1"
                 "--ranks;3;--accumulation;2;--stage;2;--offload;cpu_optimizer" "--ranks;2;--accumulation;3;--stage;dp")
    passes(${small} --samples-are lines --batch 1 --epochs 2 --learning-rate 0.01 --clip 1 --precision ${precision}
           ${recipe} --log bits.jsonl)
    summary(bits.jsonl weights_hash hash)
    summary(bits.jsonl steps_done steps)
    expect("steps" 8 ${steps})
    if(wanted STREQUAL "")
      set(wanted "${hash}")
    endif()
    expect("${precision} weights under ${recipe}" "${wanted}" "${hash}")
  endforeach()
  passes(${small} --data lines.jsonl --samples-are records --field body --batch 6 --epochs 2 --learning-rate 0.01
         --clip 1 --precision ${precision} --ranks 1 --accumulation 1 --log json.jsonl)
  passes(${small} --samples-are lines --batch 6 --epochs 2 --learning-rate 0.01 --clip 1 --precision ${precision}
         --log text.jsonl)
  summary(text.jsonl weights_hash wanted)
  summary(json.jsonl weights_hash hash)
  expect("${precision} weights of JSON Lines" "${wanted}" "${hash}")
endforeach()
if(NOT output MATCHES "samples +lines, 12 cut to 9 tokens, [0-9.]+% of all positions padding +flag" OR
   NOT output MATCHES "lines.txt, [0-9]+ bytes in 20 records, 22 too short")
  message(SEND_ERROR "the settings do not say what is padded: ${output}")
endif()
if(NOT output MATCHES "step 1 [^\n]* \\| with padding [0-9.]+\n" OR
   NOT output MATCHES "\nepoch 2 \\| 4 steps \\| [0-9.]+ s \\| [0-9.]+ samples/s \\| loss [0-9.]+ \\| with padding [0-9.]+\n")
  message(SEND_ERROR "steps and epochs are printed as ${output}")
endif()
file(STRINGS "${WORK}/text.jsonl" epochs REGEX "\"epoch\":")
list(LENGTH epochs count)
expect("epochs in the log" 2 ${count})
foreach(field epoch steps samples seconds samples_per_sec loss loss_with_padding)
  list(GET epochs 1 line)
  string(JSON epoch_${field} GET "${line}" ${field})
endforeach()
expect("the second epoch" "2;4;20" "${epoch_epoch};${epoch_steps};${epoch_samples}")
if(NOT epoch_loss_with_padding LESS epoch_loss OR NOT epoch_seconds GREATER 0 OR NOT epoch_samples_per_sec GREATER 0)
  message(SEND_ERROR "the second epoch is ${epochs}")
endif()
file(STRINGS "${WORK}/text.jsonl" steps REGEX "\"step\":[0-9]+,.*\"loss_with_padding\":")
list(LENGTH steps count)
if(count LESS 6)  # the two last samples of an epoch may have no padding
  message(SEND_ERROR "only ${count} steps have a loss with padding")
endif()

# Every target of the validation data counts once, for any batch.
foreach(batch 1 3 7)
  passes(${small} --samples-are lines --steps 1 --learning-rate 0 --batch ${batch} --validation lines.txt --log valid.jsonl)
  file(STRINGS "${WORK}/valid.jsonl" line REGEX "validation_loss")
  string(JSON loss GET "${line}" validation_loss)
  string(SUBSTRING "${loss}" 0 8 loss)
  string(JSON tokens GET "${line}" tokens)
  list(APPEND validations "${loss} ${tokens}")
endforeach()
list(REMOVE_DUPLICATES validations)
list(LENGTH validations count)
if(NOT count EQUAL 1 OR NOT validations MATCHES " 132$")  # 1 to 8, then 12 times 8
  message(SEND_ERROR "the validation losses are ${validations}")
endif()

# --samples selects the first samples. Epochs also work for samples of consecutive tokens.
passes(${small} --samples-are lines --samples 5 --epochs 3 --log first.jsonl)
summary(first.jsonl steps_done steps)
expect("steps of 3 epochs of 5 samples" 9 ${steps})
passes(${small} --data text.txt --samples 5 --log first.jsonl)
summary(first.jsonl steps_done steps)
expect("steps of an epoch of 5 stretches" 3 ${steps})

refuses(2 "--samples-are;paragraphs" ${small} --samples-are paragraphs)
refuses(2 "--field;--samples-are records" ${small} --samples-are lines --field body)
refuses(2 "--separator;samples are tokens" ${small} --separator 3)
refuses(4 "lines.txt;--samples 21;the 20 samples" ${small} --samples-are lines --samples 21)
refuses(4 "lines.txt: line 1;--samples-are lines" ${small} --samples-are records)
refuses(4 "lines.jsonl: line 1;no field 'text', its fields are: n, body;--field" ${small} --data lines.jsonl --samples-are records)

# If a run resumes within an epoch, the epoch's line covers all its steps. The sums are null if the checkpoint lacks them.
set(whole_run ${small} --samples-are lines --epochs 2 --checkpoint-every 3)
passes(${whole_run} --log unbroken.jsonl --checkpoint unbroken)
file(STRINGS "${WORK}/unbroken.jsonl" unbroken REGEX "^{\"epoch\":1,")
file(COPY "${WORK}/unbroken/" DESTINATION "${WORK}/broken")
file(GLOB later "${WORK}/broken/step-*")
list(FILTER later EXCLUDE REGEX "step-00000003$")
file(REMOVE_RECURSE ${later})
file(COPY_FILE "${WORK}/unbroken.jsonl" "${WORK}/broken.jsonl")
passes(${whole_run} --log broken.jsonl --checkpoint broken --resume)
file(STRINGS "${WORK}/broken.jsonl" broken REGEX "^{\"epoch\":1,")
foreach(field steps samples loss loss_with_padding)
  string(JSON wanted GET "${unbroken}" ${field})
  string(JSON found GET "${broken}" ${field})
  expect("${field} of a broken epoch" "${wanted}" "${found}")
endforeach()
