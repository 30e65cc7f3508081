# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P foreign.cmake
# Tests weights of other tools: llm.c's files are read. Pickles and other files are refused, and the message names their kind.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
file(COPY "${CMAKE_CURRENT_LIST_DIR}/llmc/fp32.bin" "${CMAKE_CURRENT_LIST_DIR}/llmc/bf16.bin"
          "${CMAKE_CURRENT_LIST_DIR}/llmc/same.safetensors" DESTINATION "${WORK}")
set(model --model layers=2,heads=2,channels=4,positions=8 --vocabulary 5)
set(run --sequence 8 --steps 0)

# llm.c's files as --model, which also gives the sizes, and as --init. Both formats equal the weights of the safetensors file.
passes(${model} ${run} --init same.safetensors --save want.safetensors)
foreach(file fp32.bin bf16.bin)
  passes(--model ${file} ${run} --save got.safetensors)
  expect_same(want.safetensors got.safetensors)
  passes(${model} ${run} --init ${file} --save got.safetensors --ranks 3 --stage 3 --seed 9)
  expect_same(want.safetensors got.safetensors)
  passes(--model ${file} ${run} --save folder)  # saved with a config.json
  passes(--model folder ${run} --save got.safetensors)
  expect_same(want.safetensors got.safetensors)
endforeach()
refuses(4 "fp32.bin: does not fit the model;layers=2,channels=4,positions=8 and vocabulary 5" --model
        layers=3,heads=2,channels=4,positions=8 --vocabulary 5 ${run} --init fp32.bin)

# changed(name at bytes): a copy with other bytes at an offset, in printf's notation.
function(changed name at bytes)
  shell("cp fp32.bin ${name}; printf '${bytes}' | dd of=${name} bs=1 seek=${at} conv=notrunc 2>/dev/null")
endfunction()
shell("head -c -1 fp32.bin > cut.bin; head -c 900 fp32.bin > stub.bin; head -c 4 fp32.bin > four.bin; cp fp32.bin long.bin; printf x >> long.bin")
changed(version.bin 4 "\\001")
changed(heads.bin 20 "\\003")
changed(headless.bin 20 "\\000")
changed(negative.bin 24 "\\377\\377\\377\\377")
changed(rows.bin 28 "\\004")
changed(state.bin 0 "\\117\\330\\064\\001")     # 20240463 is nothing
changed(optimizer.bin 0 "\\217\\330\\064\\001")  # 20240527
changed(debug.bin 0 "\\307\\327\\064\\001")      # 20240327
changed(tokens.bin 0 "\\210\\330\\064\\001")     # 20240520
foreach(case "cut;4;cut.bin: holds 3,263 bytes;says 3,264;copy it again" "long;4;holds 3,265 bytes;says 3,264"
        "stub;4;stub.bin: is cut short: 900 bytes" "four;4;four.bin: is cut short: 4 bytes"
        "version;4;version.bin: has version 1;3 (fp32) and 5 (bf16)" "heads;4;heads.bin: has an impossible header;heads 3, channels 4"
        "headless;4;headless.bin: has an impossible header;heads 0" "negative;4;impossible header;channels -1" "rows;4;impossible header;vocabulary 5 in rows 4"
        "optimizer;4;optimizer.bin: is the optimizer state of an llm.c run" "debug;4;debug.bin: is a debug state of llm.c"
        "tokens;4;tokens.bin: are tokens of llm.c;--data" "state;4;begins with the number 20240463, but weights of llm.c begin with 20240326")
  list(POP_FRONT case name code)
  refuses(${code} "${case}" ${model} ${run} --init ${name}.bin)
  refuses(${code} "${case}" --model ${name}.bin ${run})
endforeach()
refuses(2 "same.safetensors is a file, but only files of llm.c contain the sizes of their model;--init" --model same.safetensors ${run})

# Pickles are refused by every flag that reads weights. The message has a command that converts them.
file(MAKE_DIRECTORY "${WORK}/hub" "${WORK}/gpt" "${WORK}/meta")
shell("printf 'PK\\003\\004................pytorch_model/data.pklFB..wte.weight' > hub/pytorch_model.bin; cp hub/pytorch_model.bin plain.bin
       printf 'PK\\003\\004................ckpt/data.pklFB..model_args' > gpt/ckpt.pt
       printf 'PK\\003\\004................consolidated.00/data.pklFB..tok_embeddings.weight' > meta/consolidated.00.pth
       printf '\\200\\002}q' > old.pt; printf 'PK\\003\\004................values.npy' > other.npz")
set(plain "plain.bin: is a pickle of PyTorch, which may run code when it is read;torch.load('plain.bin', map_location='cpu', weights_only=True);'plain.safetensors'")
refuses(4 "${plain}" ${model} ${run} --init plain.bin)
refuses(4 "${plain}" --model plain.bin ${run})
refuses(4 "old.pt: is a pickle" ${model} ${run} --init old.pt)
# A header length, 66,176 bytes, whose bytes look like the start of a pickle.
shell("printf '\\200\\002\\001\\000\\000\\000\\000\\000{' > long.safetensors")
refuses(4 "long.safetensors: the header claims 66176 bytes" ${model} ${run} --init long.safetensors)
foreach(door --init --model)
  refuses(4 "gpt/ckpt.pt: is a pickle;['model'];removeprefix('_orig_mod.')" ${model} ${run} ${door} gpt)
  refuses(4 "consolidated.00.pth: is a pickle;convert_llama_weights_to_hf --input_dir meta --output_dir meta/hf" ${model} ${run} ${door}
          meta)
  refuses(4 "hub" ${model} ${run} ${door} hub)
endforeach()
refuses(4 "gpt/ckpt.pt: is a pickle" ${model} ${run} --checkpoint gpt --resume)
# The same next to a config.json. Only a folder without weights starts from the seed.
passes(--model fp32.bin ${run} --save named)
file(REMOVE "${WORK}/named/model.safetensors")
passes(--model named ${run})
file(COPY_FILE "${WORK}/old.pt" "${WORK}/named/weights.pt")
refuses(4 "named/weights.pt: is a pickle" --model named ${run})
refuses(4 "other.npz" ${model} ${run} --init other.npz)

# Pointer files of Git LFS.
file(WRITE "${WORK}/pointer.safetensors" "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n")
file(MAKE_DIRECTORY "${WORK}/cloned")
foreach(file model.safetensors config.json tokenizer.json)
  file(COPY_FILE "${WORK}/pointer.safetensors" "${WORK}/cloned/${file}")
endforeach()
refuses(4 "pointer.safetensors: is a pointer of Git LFS;git lfs pull" ${model} ${run} --init pointer.safetensors)
refuses(4 "pointer.safetensors: is a pointer of Git LFS" --model pointer.safetensors ${run})
refuses(4 "cloned/config.json: is a pointer of Git LFS" --model cloned ${run})
refuses(4 "cloned/model.safetensors: is a pointer of Git LFS" ${model} ${run} --init cloned)
refuses(4 "cloned/tokenizer.json: is a pointer of Git LFS" ${model} --sequence 8 --data text.txt --tokenizer cloned/tokenizer.json)
refuses(4 "pointer.safetensors: is a pointer of Git LFS" ${model} --sequence 8 --data pointer.safetensors)
