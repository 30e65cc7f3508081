# SPDX-License-Identifier: Apache-2.0
# cmake -DPROGRAM=train -DWORK=folder -P folders.cmake
# Tests Hugging Face model folders: saved folders are read again, and a feature in config.json that is not supported is refused
# by name.
include("${CMAKE_CURRENT_LIST_DIR}/support.cmake")
set(run --sequence 8 --batch 2 --data text.txt -q)

# expect_config(folder key=value...): checks values in config.json.
function(expect_config folder)
  file(READ "${WORK}/${folder}/config.json" config)
  expect_json("${folder}/config.json" "${config}" ${ARGN})
endfunction()

# changed(folder new key json...): a copy of a folder with other values in config.json; NONE removes the key.
function(changed folder new)
  file(MAKE_DIRECTORY "${WORK}/${new}")
  file(READ "${WORK}/${folder}/config.json" config)
  while(ARGN)
    list(POP_FRONT ARGN key value)
    if(value STREQUAL "NONE")
      string(JSON config REMOVE "${config}" ${key})
    else()
      string(JSON config SET "${config}" ${key} "${value}")
    endif()
  endwhile()
  file(WRITE "${WORK}/${new}/config.json" "${config}")
  file(COPY_FILE "${WORK}/${folder}/model.safetensors" "${WORK}/${new}/model.safetensors")
endfunction()

# A saved folder has a config.json. Its weights equal a saved file.
set(gpt2 --model "layers=1,heads=2,channels=8,positions=16")
passes(${gpt2} ${run} --steps 0 --seed 5 --save gpt2)
passes(${gpt2} ${run} --steps 0 --seed 5 --save gpt2.safetensors)
expect_same(gpt2/model.safetensors gpt2.safetensors)
expect_config(gpt2 architectures.0=GPT2LMHeadModel model_type=gpt2 n_layer=1 n_head=2 n_embd=8 n_positions=16
              vocab_size=256 activation_function=gelu_new torch_dtype=float32 dtype=float32 tie_word_embeddings=ON
              resid_pdrop=0)

# A folder that is read gives the same weights and the same training as the file. --init replaces the weights.
passes(--model gpt2/. ${run} --steps 0 --save again)
expect_same(gpt2/model.safetensors again/model.safetensors)
passes(--model ./gpt2 ${run} --steps 2 --save by-folder.safetensors --log by-folder.jsonl)
passes(${gpt2} ${run} --steps 2 --init gpt2 --save by-file.safetensors)
expect_same(by-folder.safetensors by-file.safetensors)
expect_log(by-folder.jsonl model=./gpt2 init=./gpt2 layers=1 positions=16 vocabulary=256)
passes(--model ./gpt2 ${run} --steps 0 --init by-file.safetensors --save other.safetensors)
expect_same(other.safetensors by-file.safetensors)

# A folder without weights starts from the seed.
file(MAKE_DIRECTORY "${WORK}/sizes")
file(COPY_FILE "${WORK}/gpt2/config.json" "${WORK}/sizes/config.json")
passes(--model sizes ${run} --steps 0 --seed 5 --save sizes.safetensors)
expect_same(sizes.safetensors gpt2.safetensors)

# Other keys of config.json are kept. A message says that dropouts are not applied.
changed(gpt2 dropout resid_pdrop 0.5 bos_token_id 7 torch_dtype [["float16"]] task [[{"a": [1]}]])
passes(--model dropout --sequence 8 --batch 2 --data text.txt --steps 0 --save kept)
if(NOT output MATCHES "not applied +resid_pdrop 0.5 ")
  message(SEND_ERROR "the box does not say that dropout is not applied: ${output}")
endif()
expect_config(kept resid_pdrop=0.5 bos_token_id=7 torch_dtype=float32 task.a.0=1)

# Features that are not supported. One message names all of them.
changed(gpt2 features activation_function [["relu"]] scale_attn_by_inverse_layer_idx true reorder_and_upcast_attn true
        n_inner 100 quantization_config [[{"bits": 4}]])
refuses(3 "features/config.json: needs features that GPT-2 does not support;activation_function \"relu\" instead of \"gelu_new\"" --model
        features ${run})
refuses(3 "scale_attn_by_inverse_layer_idx true;reorder_and_upcast_attn true;n_inner 100;quantization_config {\"bits\":4}"
        --model features ${run})
changed(gpt2 classifier architectures "[\"GPT2ForSequenceClassification\"]")
refuses(3 "architectures [\"GPT2ForSequenceClassification\"]" --model classifier ${run})
changed(gpt2 kind model_type [["mistral"]])
refuses(3 "kind/config.json: model_type is \"mistral\";gpt2" --model kind ${run})
changed(gpt2 inner n_inner 32 activation_function [["gelu_pytorch_tanh"]])
passes(--model inner ${run} --steps 0)

# Impossible values.
foreach(case "n_layer 2.5;n_layer is 2.5;a whole number" "n_embd [];n_embd is []" "n_head 0;n_head is 0"
        "n_layer 5000;n_layer is 5000;up to 1000" "n_positions null;n_positions is null")
  list(POP_FRONT case change)
  string(REPLACE " " ";" change "${change}")
  changed(gpt2 wrong ${change})
  refuses(4 "wrong/config.json: ${case}" --model wrong ${run})
endforeach()
changed(gpt2 wrong n_head 3)
refuses(3 "--model wrong: 3 heads do not divide 8 channels" --model wrong ${run})
changed(gpt2 wrong n_layer 2)
refuses(4 "wrong: does not fit the model;missing: h.1.ln_1.weight [8]" --model wrong ${run})
refuses(3 "--sequence 17;16 positions of ./gpt2" --model ./gpt2 --sequence 17 --data text.txt)
file(WRITE "${WORK}/sizes/config.json" "{\"model_type\": \"gpt2\"}")
refuses(4 "sizes/config.json: lacks n_layer" --model sizes ${run})
file(WRITE "${WORK}/sizes/config.json" "{\"n_layer\": 1}")
refuses(4 "sizes/config.json: lacks model_type" --model sizes ${run})
file(WRITE "${WORK}/sizes/config.json" "model_type")
refuses(4 "sizes/config.json: is not valid JSON" --model sizes ${run})
file(REMOVE "${WORK}/sizes/config.json")
refuses(4 "sizes: the folder holds no config.json" --model sizes ${run})
refuses(2 "'./nowhere' is not known;a folder with a config.json" --model ./nowhere ${run})

# Pickled weights are refused. The message has a command that converts them.
changed(gpt2 pickled)
file(RENAME "${WORK}/pickled/model.safetensors" "${WORK}/pickled/pytorch_model.bin")
refuses(4 "pickled: the folder holds pytorch_model.bin as its only weights;M.from_pretrained('pickled').save_pretrained('pickled')"
        --model pickled ${run})

# Parts: a tensor that no part has, and a tensor that two parts have.
file(MAKE_DIRECTORY "${WORK}/parts")
file(COPY_FILE "${WORK}/gpt2/config.json" "${WORK}/parts/config.json")
file(COPY_FILE "${WORK}/gpt2/model.safetensors" "${WORK}/parts/model-00001-of-00002.safetensors")
file(WRITE "${WORK}/parts/model.safetensors.index.json"
     "{\"weight_map\": {\"wte.weight\": \"model-00002-of-00002.safetensors\"}}")
refuses(4 "parts/model-00002-of-00002.safetensors: no such file" --model parts ${run})
file(COPY_FILE "${WORK}/gpt2/model.safetensors" "${WORK}/parts/model-00002-of-00002.safetensors")
refuses(4 "holds wpe.weight, which is not in weight_map" --model parts ${run})
# Parts without an index are refused. They do not count as a folder without weights.
changed(gpt2 unnamed)
file(RENAME "${WORK}/unnamed/model.safetensors" "${WORK}/unnamed/model-00001-of-00002.safetensors")
refuses(4 "unnamed: the folder holds neither model.safetensors nor model.safetensors.index.json" --model unnamed ${run})

# A folder is not written over a file, into a folder that is read, or next to other weights.
file(WRITE "${WORK}/old" "")
refuses(2 "--save 'old' is a file" ${gpt2} ${run} --save old)
refuses(2 "--save 'gpt2' leads into the folder that --model 'gpt2/.' reads" --model gpt2/. ${run} --save gpt2)
refuses(2 "--log 'gpt2/log' leads into the folder" --model ./gpt2 ${run} --log gpt2/log)
refuses(2 "--log 'again/config.json' and --save './again/config.json' are the same file" ${gpt2} ${run} --save ./again
        --log again/config.json)
refuses(2 "--save 'fresh/model.safetensors';--log" ${gpt2} ${run} --save fresh --log fresh/model.safetensors)
refuses(2 "--save 'again/config.json' and --data 'again/config.json' are the same file" ${gpt2} ${run} --save again
        --data again/config.json)
refuses(1 "parts: holds model.safetensors.index.json" ${gpt2} ${run} --save parts)
refuses(1 "text.txt/folder" ${gpt2} ${run} --save text.txt/folder)
# A diverged run writes no folder.
refuses(7 "nothing was saved" ${gpt2} ${run} --steps 1 --learning-rate 3e38 --weight-decay 1e38 --save none)
if(EXISTS "${WORK}/none")
  message(SEND_ERROR "a diverged run left a folder")
endif()

# OPT and LLaMA: saved and read again, as folder and as file, tied and untied, and with the names of the bare model.
foreach(case "opt opt:layers=1,heads=2,channels=8,hidden=12,positions=16"
        "llama llama:layers=1,heads=4,channels=8,hidden=10,kv_heads=2,positions=16"
        "tied llama:layers=1,heads=2,channels=8,hidden=10,tied=1,rope_theta=500000,positions=16")
  string(REPLACE " " ";" case "${case}")
  list(GET case 0 name)
  list(GET case 1 model)
  passes(--model "${model}" ${run} --steps 0 --seed 5 --save ${name})
  passes(--model ${name} ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save ${name}-a.safetensors)
  string(REPLACE kv_heads key_heads model "${model}")  # the C++ spelling
  string(REPLACE rope_theta rotary_theta model "${model}")
  passes(--model "${model}" ${run} --steps 2 --seed 9 --ranks 2 --batch 1 --stage 3 --init ${name} --save ${name}-b.safetensors)
  expect_same(${name}-a.safetensors ${name}-b.safetensors)
endforeach()
expect_config(opt architectures.0=OPTForCausalLM ffn_dim=12 word_embed_proj_dim=8 pad_token_id=1 do_layer_norm_before=ON)
expect_config(llama architectures.0=LlamaForCausalLM num_key_value_heads=2 tie_word_embeddings=OFF intermediate_size=10)
expect_config(tied num_key_value_heads=2 tie_word_embeddings=ON rope_theta=500000.0 rope_parameters.rope_theta=500000.0)
# sed changes the names in the header and keeps its length.
shell("cp -r opt bare; LC_ALL=C sed 's/\"model\\.decoder\\.\\([a-z0-9_.]*\\)\":/\"decoder.\\1\":      /g' opt/model.safetensors > bare/model.safetensors")
passes(--model bare ${run} --steps 0 --save bare.safetensors)
expect_same(bare.safetensors opt/model.safetensors)

# Features that OPT and LLaMA lack here, by name.
changed(opt post do_layer_norm_before false word_embed_proj_dim 4 enable_bias false)
refuses(3 "needs features that OPT does not support;do_layer_norm_before false instead of true;enable_bias false;word_embed_proj_dim 4 instead of 8"
        --model post ${run})
changed(llama biased attention_bias true mlp_bias true hidden_act [["gelu"]] head_dim 4)
refuses(3 "needs features that LLaMA does not support;hidden_act \"gelu\" instead of \"silu\";attention_bias true;mlp_bias true;head_dim 4 instead of 2"
        --model biased ${run})
# The keys of rotary positions in older and newer files. All of these are the same model.
set(scaling [[{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8}]])
changed(llama newer rope_theta null rope_parameters [[{"rope_theta": 10000.0, "rope_type": "default"}]])
changed(llama older rope_parameters null rope_scaling null)
changed(llama plain rope_parameters null rope_theta null)
foreach(folder newer older plain)
  passes(--model ${folder} ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save positions.safetensors)
  expect_same(positions.safetensors llama-a.safetensors)
endforeach()
changed(llama scaled rope_scaling "${scaling}")
passes(--model scaled ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save positions.safetensors)
file(SHA256 "${WORK}/positions.safetensors" scaled)
file(SHA256 "${WORK}/llama-a.safetensors" unscaled)
if(scaled STREQUAL unscaled)
  message(SEND_ERROR "the scaling of positions changes nothing")
endif()
# As in transformers, an empty rope_scaling means none, and the original positions may be outside the object.
string(JSON unplaced REMOVE "${scaling}" original_max_position_embeddings)
changed(llama emptied rope_scaling "{}" rope_parameters "${scaling}")
changed(llama beside rope_scaling "${unplaced}" original_max_position_embeddings 8)
foreach(folder emptied beside)
  passes(--model ${folder} ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save same.safetensors)
  expect_same(same.safetensors positions.safetensors)
endforeach()
changed(llama linear rope_scaling [[{"type": "linear", "factor": 2.0}]])
refuses(3 "rope_scaling.type \"linear\" instead of \"default\"" --model linear ${run})
changed(llama wrong rope_scaling [[{"rope_type": "llama3", "factor": 8}]])
refuses(4 "lacks rope_scaling.low_freq_factor" --model wrong ${run})
changed(llama wrong rope_parameters [["x"]] rope_scaling null)
refuses(4 "rope_parameters is \"x\"; an object is needed" --model wrong ${run})
changed(llama wrong pad_token_id 256)
refuses(4 "pad_token_id is 256; null or a token of the vocabulary" --model wrong ${run})
# Accepts details that transformers ignores, and a padding token that counts from the end of the vocabulary.
changed(llama last pad_token_id 255)
passes(--model last ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save last.safetensors)
changed(llama minus pad_token_id -1 architectures [=[["LLaMAForCausalLM"]]=] torch_dtype [["bfloat16"]] rope_scaling null more [[{"a": [1]}]] attention_bias null)
file(READ "${WORK}/minus/config.json" config)
string(REGEX REPLACE "}[ \n]*$" ", \"limit\": -Infinity}" config "${config}")
file(WRITE "${WORK}/minus/config.json" "${config}")
passes(--model minus ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save minus.safetensors)
expect_same(minus.safetensors last.safetensors)
# Without rms_norm_eps, positions or vocabulary the defaults of transformers apply.
changed(llama without rms_norm_eps NONE)
changed(llama with rms_norm_eps 1e-06)
foreach(folder without with)
  passes(--model ${folder} ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save ${folder}.safetensors)
endforeach()
expect_same(without.safetensors with.safetensors)
changed(llama wrong rms_norm_eps null)
refuses(4 "rms_norm_eps is null; a number above 0" --model wrong ${run})
changed(llama unplaced max_position_embeddings NONE max_sequence_length 16)
passes(--model unplaced ${run} --batch 1 --accumulation 2 --steps 2 --seed 9 --save placed --log unplaced.jsonl)
expect_log(unplaced.jsonl positions=2048)
expect_same(placed/model.safetensors llama-a.safetensors)
expect_config(placed max_position_embeddings=2048)
foreach(case "gpt2 n_positions 1024 50257" "opt max_position_embeddings 2048 50272" "llama max_position_embeddings 2048 32000")
  string(REPLACE " " ";" case "${case}")
  list(GET case 0 name)
  list(GET case 1 key)
  list(GET case 2 positions)
  list(GET case 3 vocabulary)
  changed(${name} defaults ${key} NONE vocab_size NONE)
  file(REMOVE "${WORK}/defaults/model.safetensors")
  passes(--model defaults ${run} --steps 0 --log defaults.jsonl)
  expect_log(defaults.jsonl positions=${positions} vocabulary=${vocabulary})
  changed(${name} wrong vocab_size null)
  refuses(4 "vocab_size is null" --model wrong ${run})
endforeach()
# GPT-2's sizes under the names that transformers has for all models, and under both names.
changed(gpt2 renamed n_layer NONE num_hidden_layers 1 n_head NONE num_attention_heads 2 n_embd NONE hidden_size 8
        n_positions NONE max_position_embeddings 16)
changed(gpt2 both num_hidden_layers 1 hidden_size 8)
foreach(folder renamed both)
  passes(--model ${folder} ${run} --steps 2 --save ${folder}.safetensors)
  expect_same(${folder}.safetensors by-folder.safetensors)
endforeach()
changed(gpt2 wrong hidden_size 16)
refuses(4 "hidden_size is 16; n_embd, 8, is needed" --model wrong ${run})
changed(gpt2 wrong n_layer NONE num_hidden_layers 5000)
refuses(4 "num_hidden_layers is 5000; a number up to 1000" --model wrong ${run})
foreach(key n_layer n_head n_embd)
  changed(gpt2 wrong ${key} NONE)
  refuses(4 "wrong/config.json: lacks ${key}" --model wrong ${run})
endforeach()
changed(llama wrong architectures [=[["LlamaForSequenceClassification"]]=])
refuses(3 "architectures [\"LlamaForSequenceClassification\"] instead of" --model wrong ${run})
changed(llama wrong num_key_value_heads 3)
refuses(3 "3 kv_heads do not divide 4 heads" --model wrong ${run})
changed(llama wrong tie_word_embeddings true)
refuses(4 "lm_head.weight is not tied" --model wrong ${run})
changed(tied wrong tie_word_embeddings false)
refuses(4 "missing: lm_head.weight [256, 8]" --model wrong ${run})

# A hub name gives the sizes of its model and random weights, with a warning. A local name, or given weights, gives
# none.
run(--model OpenAI-Community/gpt2 --sequence 8 --batch 1 --steps 0)
if(NOT code EQUAL 0 OR NOT errors MATCHES "^warning: --model openai-community/gpt2 [^\n]+nothing was downloaded[^\n]+random[^\n]+hf download openai-community/gpt2 --local-dir gpt2, then --model ./gpt2[^\n]+\n$"
   OR NOT output MATCHES "weights +seed 1, random: nothing was downloaded")
  message(SEND_ERROR "a name of the hub ended with ${code}: ${errors} ${output}")
endif()
run(--model gpt2 --sequence 8 --batch 1 --steps 0)
if(NOT errors STREQUAL "" OR output MATCHES "random")
  message(SEND_ERROR "--model gpt2 said ${errors} ${output}")
endif()

# An error message about invalid UTF-8 is itself valid UTF-8.
shell("mkdir utf16; printf '\\377\\376{\\0' > utf16/config.json; ! '${PROGRAM}' --model utf16 --steps 0 2> utf16.txt; iconv -f UTF-8 -t UTF-8 utf16.txt > utf16.utf8")
