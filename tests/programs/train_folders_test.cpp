// SPDX-License-Identifier: Apache-2.0
// Tests the program `train` with Hugging Face model folders. `train` must read the folders that it saved. If
// config.json requests a feature that `train` does not support, the error must name the feature.
#include "programs/train.hpp"

using test::table, test::Train;

namespace {

std::string const gpt2_model = " --model layers=1,heads=2,channels=8,positions=16 ";

/// Runs commands in a folder with four saved model folders: gpt2, opt, llama and tied. Each has the initial
/// weights of the random seed 5.
struct Folders : Train {
  std::string const train = "train --sequence 8 --batch 2 --data text.txt -q ";

  Folders() {
    std::string const saved = train + "--steps 0 --seed 5 --save ";
    passes(saved + "gpt2" + gpt2_model);
    passes(saved + "opt --model opt:layers=1,heads=2,channels=8,hidden=12,positions=16");
    passes(saved + "llama --model llama:layers=1,heads=4,channels=16,hidden=10,kv_heads=2,positions=16");
    passes(saved +
           "tied --model llama:layers=1,heads=2,channels=8,hidden=10,tied=1,rope_theta=500000,positions=16");
  }
  /// Trains two steps and returns a hash of the final weights. `flags` are the flags of `train`; the first
  /// word is the value of --model.
  std::string two_steps(std::string const& flags) const {
    return passes(train + "--batch 1 --accumulation 2 --steps 2 --seed 9 --save w.safetensors --model " +
                  flags + "; sha256sum w.safetensors");
  }
  std::string two_steps_of_changed(std::string const& folder, std::string const& values) const {
    changed(folder, "copy", values);
    return two_steps("copy");
  }

  /// Copies the model folder `folder` to the folder `copy`, and sets the keys in `values` in the config.json
  /// of the copy. The value "NONE" removes a key.
  void changed(std::string const& folder, std::string const& copy, std::string const& values) const {
    passes("rm -rf " + copy + "; cp -r " + folder + " " + copy);
    change(copy + "/config.json", values);
  }
  /// Checks that `train` refuses the model folder `folder` after a change of its config.json. Each line of
  /// `rows` has the form "values | exit code | text | text". The folder `wrong` is a copy of `folder` in
  /// which config.json has these values. The error message must contain all texts.
  void refuses_changed(std::string const& folder, std::string const& rows) const {
    for (auto row : table(rows)) {
      changed(folder, "wrong", row[0]);
      std::string wanted = row[1] + " | ";
      for (std::size_t i = 2; i < row.size(); ++i) wanted += " | " + row[i];
      refuses(train + "--model wrong", wanted);
    }
  }
};

}  // namespace

TEST_CASE("train folders: a saved folder has a config.json, and the weights of a saved file") {
  Folders const sh;
  sh.passes(sh.train + gpt2_model + "--steps 0 --seed 5 --save gpt2.safetensors");
  CHECK(sh.equal("gpt2/model.safetensors", "gpt2.safetensors"));
  sh.json_has(
      "gpt2/config.json",
      R"({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 1, "n_head": 2, "n_embd": 8,
      "n_positions": 16, "vocab_size": 256, "activation_function": "gelu_new", "torch_dtype": "float32", "dtype": "float32",
      "tie_word_embeddings": true, "resid_pdrop": 0})");
  // If a model folder has no weights, `train` starts from the initial weights of the seed.
  sh.passes("mkdir sizes; cp gpt2/config.json sizes");
  auto const random = sh.run(sh.train + "--model sizes --steps 0 --seed 5 --save sizes.safetensors");
  CHECK(random.code == 0);
  CHECK(random.err ==
        "warning: the folder sizes holds a config.json but no weights: the training starts from random "
        "weights\n");
  CHECK(sh.equal("sizes.safetensors", "gpt2.safetensors"));
}

TEST_CASE("train folders: a folder gives the weights and the training of a file, and --init replaces them") {
  Folders const sh;
  sh.passes(sh.train + "--model gpt2/. --steps 0 --save again");
  CHECK(sh.equal("gpt2/model.safetensors", "again/model.safetensors"));
  sh.passes(sh.train + "--model ./gpt2 --steps 2 --save by-folder.safetensors --log by-folder.jsonl");
  sh.passes(sh.train + gpt2_model + "--steps 2 --init gpt2 --save by-file.safetensors");
  CHECK(sh.equal("by-folder.safetensors", "by-file.safetensors"));
  sh.logs("by-folder.jsonl",
          R"({"model": "./gpt2", "init": "./gpt2", "layers": 1, "positions": 16, "vocabulary": 256})");
  sh.passes(sh.train + "--model ./gpt2 --steps 0 --init by-file.safetensors --save other.safetensors");
  CHECK(sh.equal("other.safetensors", "by-file.safetensors"));
  // The library transformers has two names for each of these sizes: a name that is valid for all models, and
  // GPT-2's own name. In the first case below, config.json has both names. In the second case, it has only
  // the general names.
  for (std::string const names :
       {R"({"num_hidden_layers": 1, "hidden_size": 8})",
        R"({"n_layer": "NONE", "num_hidden_layers": 1, "n_head": "NONE", "num_attention_heads": 2,
          "n_embd": "NONE", "hidden_size": 8, "n_positions": "NONE", "max_position_embeddings": 16})"})
    CHECK(sh.two_steps_of_changed("gpt2", names) == sh.two_steps("./gpt2"));
}

TEST_CASE(
    "train folders: other keys of config.json are kept, and a message says that dropout is not applied") {
  Folders const sh;
  sh.changed("gpt2", "dropout",
             R"({"resid_pdrop": 0.5, "bos_token_id": 7, "torch_dtype": "float16", "task": {"a": [1]}})");
  sh.passes("train --model dropout --sequence 8 --batch 2 --data text.txt --steps 0 --save kept",
            "not applied +resid_pdrop 0.5 ");
  sh.json_has("kept/config.json",
              R"({"resid_pdrop": 0.5, "bos_token_id": 7, "torch_dtype": "float32", "task": {"a": [1]}})");
}

TEST_CASE("train folders: features that GPT-2 does not support, in one message") {
  Folders const sh;
  sh.refuses_changed("gpt2", R"(
      {"activation_function": "relu", "scale_attn_by_inverse_layer_idx": true, "reorder_and_upcast_attn": true, "n_inner": 100, "quantization_config": {"bits": 4}} | 3 | wrong/config.json: needs features that GPT-2 does not support | activation_function "relu" instead of "gelu_new" | scale_attn_by_inverse_layer_idx true | reorder_and_upcast_attn true | n_inner 100 | quantization_config {"bits":4}
      {"architectures": ["GPT2ForSequenceClassification"]} | 3 | architectures ["GPT2ForSequenceClassification"]
      {"model_type": "mistral"} | 3 | wrong/config.json: model_type is "mistral" | gpt2)");
  sh.changed("gpt2", "inner", R"({"n_inner": 32, "activation_function": "gelu_pytorch_tanh"})");
  sh.passes(sh.train + "--model inner --steps 0");
}

TEST_CASE("train folders: values of config.json that are impossible, absent or contradict the weights") {
  Folders const sh;
  sh.refuses_changed("gpt2", R"(
      {"n_layer": 2.5} | 4 | wrong/config.json: n_layer is 2.5 | a whole number
      {"n_embd": []} | 4 | wrong/config.json: n_embd is []
      {"n_head": 0} | 4 | wrong/config.json: n_head is 0
      {"n_layer": 5000} | 4 | wrong/config.json: n_layer is 5000 | up to 1000
      {"n_positions": null} | 4 | wrong/config.json: n_positions is null
      {"n_head": 3} | 3 | --model wrong: 3 heads do not divide 8 channels
      {"n_layer": 2} | 4 | wrong: does not fit the model | missing: h.1.ln_1.weight [8]
      {"hidden_size": 16} | 4 | hidden_size is 16 | n_embd, 8, is needed
      {"n_layer": "NONE", "num_hidden_layers": 5000} | 4 | num_hidden_layers is 5000 | a number up to 1000
      {"n_layer": "NONE"} | 4 | wrong/config.json: lacks n_layer
      {"n_head": "NONE"} | 4 | wrong/config.json: lacks n_head
      {"n_embd": "NONE"} | 4 | wrong/config.json: lacks n_embd)");
  sh.refuses("train --data text.txt",
             "3 | --model ./gpt2 --sequence 17 | --sequence 17 | 16 positions of ./gpt2");
}

TEST_CASE("train folders: a model that is a path without a folder is refused with a way to get the folder") {
  Train const sh;
  std::string const rows = R"(
      2 | ./gpt2 | FLAG: there is no folder or file './gpt2'; name a folder with config.json and model.safetensors | docs/how-to/load-and-save-weights.md has the command that downloads one
      2 | models/gpt2/ | FLAG: there is no folder or file 'models/gpt2/'
      2 | .gpt2 | FLAG: there is no folder or file '.gpt2'
      2 | ../runs=3/gpt2 | FLAG: there is no folder or file '../runs=3/gpt2'
      2 | gpt3 | FLAG: 'gpt3' is not known, the nearest is 'gpt2')";
  sh.refuses("train --model", test::replaced(rows, "FLAG", "--model"));
  for (char const* command : {"compare --models", "plan --models", "info --fitness --models"})
    sh.refuses(command, test::replaced(rows, "FLAG", "--models"));
}

TEST_CASE("train folders: a config.json that is no model, or none at all") {
  Folders const sh;
  sh.passes("mkdir sizes");
  for (auto const& row : table(R"(
      {"model_type": "gpt2"} | lacks n_layer
      {"n_layer": 1} | lacks model_type
      model_type | is not valid JSON)")) {
    sh.write("sizes/config.json", row[0]);
    sh.refuses(sh.train, "4 | --model sizes | sizes/config.json: " + row[1]);
  }
  sh.passes("rm sizes/config.json");
  sh.refuses(sh.train, R"(
      4 | --model sizes | sizes: the folder holds no config.json
      2 | --model ./nowhere | there is no folder or file './nowhere'; name a folder with config.json)");
  // The file config.json is invalid UTF-8. The error message about it must be valid UTF-8.
  sh.ends(4, R"(mkdir utf16; printf '\377\376{\0' > utf16/config.json
      train --model utf16 --steps 0 2> utf16.txt || { code=$?; iconv -f UTF-8 -t UTF-8 utf16.txt; exit $code; })",
          "^error: .");
}

TEST_CASE(
    "train folders: pickled weights, and parts without an index, with a tensor of no part or of two parts") {
  Folders const sh;
  sh.passes(R"(cp -r gpt2 pickled; mv pickled/model.safetensors pickled/pytorch_model.bin
      cp -r gpt2 parts; mv parts/model.safetensors parts/model-00001-of-00002.safetensors; cp -r parts unnamed)");
  sh.write("parts/model.safetensors.index.json",
           R"({"weight_map": {"wte.weight": "model-00002-of-00002.safetensors"}})");
  sh.refuses(sh.train, "4 | --model parts | parts/model-00002-of-00002.safetensors: no such file");
  sh.passes("cp gpt2/model.safetensors parts/model-00002-of-00002.safetensors");
  sh.refuses(sh.train, R"(
      4 | --model pickled | pickled: the folder holds pytorch_model.bin as its only weights | M.from_pretrained('pickled').save_pretrained('pickled')
      4 | --model parts | holds wpe.weight, which is not in weight_map
      4 | --model unnamed | unnamed: the folder holds neither model.safetensors nor model.safetensors.index.json)");
}

TEST_CASE(
    "train folders: a folder is not written over a file, into one that is read or next to other weights") {
  Folders const sh;
  sh.passes(": > old; cp -r gpt2 again; mkdir parts; echo '{}' > parts/model.safetensors.index.json");
  sh.refuses(sh.train, R"(
      2 | --model gpt2/. --save gpt2 | --save 'gpt2' leads into the folder that --model 'gpt2/.' reads
      2 | --model ./gpt2 --log gpt2/log | --log 'gpt2/log' leads into the folder)");
  sh.refuses(sh.train + gpt2_model, R"(
      2 | --save old | --save 'old' is a file
      2 | --save ./again --log again/config.json | --log 'again/config.json' and --save './again/config.json' are the same file
      2 | --save fresh --log fresh/model.safetensors | --save 'fresh/model.safetensors' | --log
      2 | --save again --data again/config.json | --save 'again/config.json' and --data 'again/config.json' are the same file
      1 | --save parts | parts: holds model.safetensors.index.json
      1 | --save text.txt/folder | text.txt/folder
      7 | --steps 1 --learning-rate 3e38 --weight-decay 1e38 --save none | nothing was saved)");
}

TEST_CASE("train folders: OPT and LLaMA train the same from a folder and from flags with the C++ names") {
  Folders const sh;
  for (auto const& row : table(R"(
      opt | opt:layers=1,heads=2,channels=8,hidden=12,positions=16
      llama | llama:layers=1,heads=4,channels=16,hidden=10,key_heads=2,positions=16
      tied | llama:layers=1,heads=2,channels=8,hidden=10,tied=1,rotary_theta=500000,positions=16)")) {
    CHECK(sh.two_steps(row[0]) ==
          sh.two_steps(row[1] + " --init " + row[0] + " --ranks 2 --accumulation 1 --stage 3"));
  }
  sh.json_has("opt/config.json",
              R"({"architectures": ["OPTForCausalLM"], "ffn_dim": 12, "word_embed_proj_dim": 8,
      "pad_token_id": 1, "do_layer_norm_before": true})");
  sh.json_has("llama/config.json", R"({"architectures": ["LlamaForCausalLM"], "num_key_value_heads": 2,
      "tie_word_embeddings": false, "intermediate_size": 10})");
  sh.json_has("tied/config.json",
              R"({"num_key_value_heads": 2, "tie_word_embeddings": true, "rope_theta": 500000.0,
      "rope_parameters": {"rope_theta": 500000.0}})");
  // transformers also saves OPT without its head (the bare model), with other tensor names. sed changes the
  // names in the header and keeps the length of the header.
  sh.passes(R"~(cp -r opt bare
      LC_ALL=C sed 's/"model\.decoder\.\([a-z0-9_.]*\)":/"decoder.\1":      /g' opt/model.safetensors > bare/model.safetensors
      ! cmp -s opt/model.safetensors bare/model.safetensors)~");
  sh.passes(sh.train + "--model bare --steps 0 --save bare.safetensors");
  CHECK(sh.equal("bare.safetensors", "opt/model.safetensors"));
}

TEST_CASE("train folders: features and values that OPT and LLaMA do not support") {
  Folders const sh;
  sh.refuses_changed("opt", R"(
      {"do_layer_norm_before": false, "word_embed_proj_dim": 4, "enable_bias": false} | 3 | needs features that OPT does not support | do_layer_norm_before false instead of true | enable_bias false | word_embed_proj_dim 4 instead of 8)");
  sh.refuses_changed("llama", R"(
      {"attention_bias": true, "mlp_bias": true, "hidden_act": "gelu", "head_dim": 2} | 3 | needs features that LLaMA does not support | hidden_act "gelu" instead of "silu" | attention_bias true | mlp_bias true | head_dim 2 instead of 4
      {"rope_scaling": {"type": "linear", "factor": 2.0}} | 3 | rope_scaling.type "linear" instead of "default"
      {"rope_scaling": {"rope_type": "llama3", "factor": 8}} | 4 | lacks rope_scaling.low_freq_factor
      {"rope_parameters": "x", "rope_scaling": null} | 4 | rope_parameters is "x" | an object is needed
      {"pad_token_id": 256} | 4 | pad_token_id is 256 | null or a token of the vocabulary
      {"rms_norm_eps": null} | 4 | rms_norm_eps is null | a number above 0
      {"architectures": ["LlamaForSequenceClassification"]} | 3 | architectures ["LlamaForSequenceClassification"] instead of
      {"num_key_value_heads": 3} | 3 | 3 kv_heads do not divide 4 heads
      {"tie_word_embeddings": true} | 4 | lm_head.weight is not tied)");
  sh.refuses_changed("tied", R"({"tie_word_embeddings": false} | 4 | missing: lm_head.weight [256, 8])");
}

TEST_CASE("train folders: the keys of rotary positions in older and newer files, and their scaling") {
  Folders const sh;
  std::string const llama = sh.two_steps("llama");
  for (std::string const values :
       {R"({"rope_theta": null, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"}})",
        R"({"rope_parameters": null, "rope_scaling": null})",
        R"({"rope_parameters": null, "rope_theta": null})"})
    CHECK(sh.two_steps_of_changed("llama", values) == llama);
  std::string const scaling =
      R"("rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4)";
  std::string const original = R"(, "original_max_position_embeddings": 8)";
  std::string const scaled =
      sh.two_steps_of_changed("llama", R"({"rope_scaling": {)" + scaling + original + "}}");
  CHECK(scaled != llama);
  // As in transformers, an empty rope_scaling means no scaling, and the original number of positions may be
  // outside of the object.
  for (std::string const& values :
       {R"({"rope_scaling": {}, "rope_parameters": {)" + scaling + original + "}}",
        R"({"rope_scaling": {)" + scaling + "}" + original + "}"})
    CHECK(sh.two_steps_of_changed("llama", values) == scaled);
}

TEST_CASE("train folders: details that transformers ignores, a padding token from the end, and defaults") {
  Folders const sh;
  sh.changed("llama", "minus", R"({"pad_token_id": -1, "architectures": ["LLaMAForCausalLM"],
      "torch_dtype": "bfloat16", "rope_scaling": null, "more": {"a": [1]}, "attention_bias": null})");
  sh.write("minus/config.json",
           test::replaced(sh.text("minus/config.json"), "\\}$", ", \"limit\": -Infinity}"));
  CHECK(sh.two_steps("minus") == sh.two_steps_of_changed("llama", R"({"pad_token_id": 255})"));
  // If rms_norm_eps or the number of positions is missing, the default of transformers applies.
  CHECK(sh.two_steps_of_changed("llama", R"({"rms_norm_eps": "NONE"})") ==
        sh.two_steps_of_changed("llama", R"({"rms_norm_eps": 1e-06})"));
  sh.changed("llama", "unplaced", R"({"max_position_embeddings": "NONE", "max_sequence_length": 16})");
  CHECK(sh.two_steps("unplaced --log unplaced.jsonl") == sh.two_steps("llama"));
  sh.logs("unplaced.jsonl", R"({"positions": 2048})");
  sh.passes(sh.train + "--model unplaced --steps 0 --save placed");
  sh.json_has("placed/config.json", R"({"max_position_embeddings": 2048})");
}

TEST_CASE("train folders: without positions and vocabulary the defaults of transformers apply") {
  Folders const sh;
  for (auto const& row : table(R"(
      gpt2 | n_positions | 1024 | 50257
      opt | max_position_embeddings | 2048 | 50272
      llama | max_position_embeddings | 2048 | 32000)")) {
    sh.changed(row[0], "defaults", R"({"vocab_size": "NONE", ")" + row[1] + R"(": "NONE"})");
    sh.passes("rm defaults/model.safetensors; " + sh.train +
              "--model defaults --steps 0 --log defaults.jsonl 2> /dev/null");
    sh.logs("defaults.jsonl", R"({"positions": )" + row[2] + R"(, "vocabulary": )" + row[3] + "}");
    sh.refuses_changed(row[0], R"({"vocab_size": null} | 4 | vocab_size is null)");
  }
}

TEST_CASE(
    "train folders: a hub name, and a known name that a folder has too, give random weights and a warning") {
  Folders const sh;
  std::string const one = "train --sequence 8 --batch 1 --steps 0 --model ";
  auto const hub = sh.run(one + "OpenAI-Community/gpt2");
  CHECK(hub.code == 0);
  test::shows(
      hub.err,
      R"(^warning: --model openai-community/gpt2 .+nothing was downloaded.+random.+hf download openai-community/gpt2 --local-dir gpt2, then --model ./gpt2.+\n$)");
  test::shows(hub.out, "weights +seed 1, random: nothing was downloaded");
  CHECK(
      sh.run(one + "gpt2").err ==
      "warning: the folder ./gpt2 exists; --model gpt2 starts from random weights, --model ./gpt2 reads the "
      "folder\n");
  CHECK(sh.run(one + "./gpt2").err == "");
  sh.passes("rm gpt2/config.json");
  CHECK_FALSE(test::has(sh.passes(one + "gpt2"), "random"));
}

TEST_CASE("train folders: a folder that is saved has a copy of the tokenizer, which train then reads") {
  Folders const sh;
  // The folder `pair` has vocab.json, merges.txt and tokenizer_config.json, and a file that is not read.
  sh.passes(R"(cd "$TESSERA_SOURCE"/tests/text/fixtures; cp -r gpt2 "$OLDPWD"/json; cp -r opt "$OLDPWD"/pair
      echo 'Not a file of the tokenizer.' > "$OLDPWD"/pair/vocab.txt)");
  std::string const start = sh.train + gpt2_model + "--steps 2 --tokenizer ";
  sh.passes(start + "json --save tuned");
  CHECK(sh.equal("tuned/tokenizer.json", "json/tokenizer.json"));
  sh.passes(start + "json/tokenizer.json --save tuned");  // replaces its own files
  sh.passes(sh.train + "--model tuned --tokenizer tuned --steps 1");
  sh.passes(start + "pair --save both");
  for (std::string const file : {"vocab.json", "merges.txt", "tokenizer_config.json"})
    CHECK(sh.equal("both/" + file, "pair/" + file));
  CHECK_FALSE(sh.exists("both/vocab.txt"));
  std::string const weights = "--steps 2 -q --seed 3 --sequence 8 --batch 2 --data text.txt --save ";
  sh.passes("train --model both --tokenizer both " + weights + "a.safetensors");
  sh.passes("train --model both --tokenizer pair " + weights + "b.safetensors");
  CHECK(sh.equal("a.safetensors", "b.safetensors"));
  sh.passes("mkdir fresh");
  // A folder can be both the input and the output of the tokenizer.
  sh.passes(start + "pair --save pair; cmp pair/vocab.json both/vocab.json");
  sh.refuses(start, R"(
      1 | json --save both | --save 'both' holds files of another tokenizer than --tokenizer 'json': merges.txt, tokenizer_config.json, vocab.json; give another folder
      2 | json --save fresh --log fresh/tokenizer.json | --save 'fresh/tokenizer.json' | --log)");
}

TEST_CASE("train folders: a warning if text is read as bytes although the folder has a tokenizer") {
  Folders const sh;
  sh.passes(
      R"(cp -r gpt2 "my gpt2"; cp "$TESSERA_SOURCE"/tests/text/fixtures/gpt2/tokenizer.json "my gpt2")");
  std::string const warning =
      "warning: the folder my gpt2 holds a tokenizer, but --tokenizer was not given, so the text is read as "
      "bytes; give --tokenizer 'my gpt2'\n";
  CHECK(sh.run(sh.train + "--model 'my gpt2' --steps 1").err == warning);
  CHECK(sh.run(sh.train + gpt2_model + "--init 'my gpt2' --steps 1").err == warning);
  CHECK(sh.run(sh.train + "--model 'my gpt2' --init gpt2 --steps 1").err == "");
  // Data that are tokens already do not need a tokenizer.
  sh.passes(R"(printf 'a\000b\000%.0s' $(seq 100) > tokens.bin
      train --model 'my gpt2' --sequence 8 --batch 2 --data tokens.bin -q --steps 1)");
}
