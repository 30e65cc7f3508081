# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=<train with the family mlp> -DWORK=... -P families.cmake
include("${CMAKE_CURRENT_LIST_DIR}/../train/support.cmake")
file(WRITE "${WORK}/text.txt" "")
foreach(line RANGE 1 60)
  file(APPEND "${WORK}/text.txt" "the quick brown fox jumps over the lazy dog ${line} times\n")
endforeach()
set(small --data text.txt --sequence 8 --batch 2 --steps 2)

# Models by name and by sizes. Saved weights are read again.
passes(${small} --model mlp-small --precision bf16 --ranks 2 --stage 3 --log log.jsonl --save weights.safetensors)
if(NOT output MATCHES "mlp-small, [0-9,]+ parameters")
  message(FATAL_ERROR "the box does not name the model: ${output}")
endif()
expect_log(log.jsonl model=mlp-small layers=2 channels=24 hidden=40 positions=1024 vocabulary=256)
passes(${small} --model mlp:layers=2,channels=24,hidden=40 --init weights.safetensors)
passes(${small} --model mlp:channels=24,layers=2,positions=9 --log own.jsonl)
expect_log(own.jsonl model=mlp:layers=2,channels=24,positions=9 hidden=96)

# A named model has its own vocabulary and positions. The models of gpt2 are unchanged.
refuses(3 "--sequence 129;128 positions of mlp-words" --data text.txt --model mlp-words --sequence 129)
passes(${small} --model gpt2:layers=1,heads=2,channels=16)
refuses(2 "lacks channels;write mlp:layers=L,channels=C[,hidden=H][,positions=P]" --model mlp:layers=2)
refuses(2 "'heads' is not known;layers, channels, hidden, positions" --model mlp:layers=2,heads=2)
refuses(2 "'mlpp' is not known, the nearest is 'mlp'" --model mlpp:layers=2)
refuses(2 "mlp-small, mlp-words, name a folder with a config.json or a file of llm.c, or write layers=L,heads=H,channels=C[,positions=P] or;or mlp:layers=L" --model mlp-smal)
refuses(3 "model opt-350m normalises after its blocks;word_embed_proj_dim 512;which OPT models do not support here" --model opt-350m)
refuses(3 "MLP models have no config.json;.safetensors" ${small} --model mlp-small --save folder)
passes(--help)
if(NOT output MATCHES "mlp-small")
  message(FATAL_ERROR "the help does not name the family's models")
endif()
