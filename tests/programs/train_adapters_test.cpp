// SPDX-License-Identifier: Apache-2.0
// Tests LoRA adapters in the program `train`, which saves adapters, reads them, merges them into a model and
// resumes their training. If an adapter is damaged, the error must name the file and the key or tensor.
#include "programs/train.hpp"

using test::table, test::Train;

namespace {

std::string const lora = "--lora rank=2,alpha=4,targets=c_attn,mlp.c_proj ";

/// Runs commands in a folder with two subfolders. `base` has a model. `adapter` has an adapter of this model
/// that was trained for three steps.
struct Adapters : Train {
  std::string const run =
      "train --model base --sequence 8 --batch 1 --accumulation 2 --data text.txt --clip 0 --learning-rate "
      "1e-2 -q ";

  Adapters() {
    passes(small + "--model layers=2,heads=2,channels=8,positions=16 --steps 0 --seed 5 --save base -q");
    passes(run + lora + "--steps 3 --save-adapter adapter --log first.jsonl");
  }
  bool same_adapter(std::string const& folder) const {
    return equal("adapter/adapter_model.safetensors", folder + "/adapter_model.safetensors");
  }
  bool same_weights(std::string const& a, std::string const& b) const {
    return equal(a + "/model.safetensors", b + "/model.safetensors");
  }
  /// Copies the folder `adapter` to the folder `damaged`, and sets the keys in `values` in the adapter
  /// configuration of the copy. The value "NONE" removes a key.
  void damage(std::string const& values) const {
    passes("rm -rf damaged; cp -r adapter damaged");
    change("damaged/adapter_config.json", values);
  }
  void refuses_damaged(std::string const& text, std::string const& code = "4") const {
    refuses(run, code + " | --adapter damaged --steps 1 | " + text);
  }
  /// Merges the adapter in the folder `damaged` into the model and saves the model in the folder `output`.
  void merge(std::string const& output) const {
    passes(run + "--adapter damaged --steps 0 --merge --save " + output);
  }
};

}  // namespace

TEST_CASE(
    "train adapters: one is written with PEFT's names, and a run from it continues, except for moments") {
  Adapters const sh;
  sh.passes("train --model base --sequence 8 --data text.txt --steps 0 " + lora,
            "adapters +rank=2,alpha=4,targets=c_attn,mlp.c_proj: 288 parameters");
  sh.logs("first.jsonl",
          R"({"adapters": "lora", "lora": "rank=2,alpha=4,targets=c_attn,mlp.c_proj", "params": 4224,
      "trainable_params": 288})");
  sh.json_has("adapter/adapter_config.json", R"({"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none",
      "fan_in_fan_out": true, "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "use_rslora": false})");
  for (std::string const name :
       {"h.0.attn.c_attn.lora_A", "h.0.attn.c_attn.lora_B", "h.1.mlp.c_proj.lora_A", "h.1.mlp.c_proj.lora_B"})
    CHECK(test::has(sh.text("adapter/adapter_model.safetensors"),
                    "\"base_model.model.transformer." + name + ".weight\""));
  sh.passes(sh.run + "--adapter adapter --steps 0 --save-adapter again");
  CHECK(sh.same_adapter("again"));
}

TEST_CASE("train adapters: merged weights give the loss of the model with the adapter") {
  Adapters const sh;
  sh.passes(sh.run + "--adapter adapter --steps 2 --log apart.jsonl");
  sh.passes(sh.run + "--adapter adapter --steps 0 --merge --save merged");
  sh.passes("train --model merged --sequence 8 --batch 2 --data text.txt --steps 1 --log merged.jsonl -q");
  double const apart = sh.lines("apart.jsonl", "loss").at(0).at("loss");
  CHECK(sh.lines("merged.jsonl", "loss").at(0).at("loss") == doctest::Approx(apart).epsilon(1e-5));
  sh.passes(sh.run + "--lora rank=2,alpha=4,targets=c_attn --steps 0 --merge --save untrained");
  CHECK(sh.same_weights("base", "untrained"));
}

TEST_CASE("train adapters: ranks, stage, offload, recomputation and resuming do not change them") {
  Adapters const sh;
  sh.passes(sh.run + lora +
            "--ranks 2 --accumulation 1 --stage 3 --offload cpu_full --recompute block --steps 3 "
            "--save-adapter other");
  CHECK(sh.same_adapter("other"));
  sh.passes(sh.run + lora + "--steps 2 --checkpoint points");
  sh.passes("cp -r points others");
  sh.passes(
      sh.run + lora +
      "--steps 3 --checkpoint points --resume --ranks 2 --accumulation 1 --stage 2 --save-adapter resumed");
  CHECK(sh.same_adapter("resumed"));
  sh.passes(
      "train --model others/step-00000002/model --sequence 8 --batch 1 --data text.txt --steps 0 --save own "
      "-q");
  CHECK(sh.same_weights("base", "own"));
  sh.refuses(sh.run + "--steps 3 --checkpoint others --resume", R"(
      4 | --lora rank=3,alpha=4,targets=c_attn,mlp.c_proj | lora_A.weight has shape [2, 8], the model needs [3, 8]
      4 | --lora rank=2,alpha=4,targets=c_attn,mlp.c_proj,c_fc | missing: h.0.mlp.c_fc.lora_A.weight
      4 | --lora rank=2,alpha=8,targets=c_attn,mlp.c_proj | h.0.attn.c_attn had the scale 2.0 when it was saved, and now has 4.0)");
}

TEST_CASE("train adapters: contradictory flags, wrong targets and another model are refused") {
  Adapters const sh;
  sh.refuses(sh.run + "--steps 1", R"(
      3 | --lora rank=2,alpha=4,targets=c_atn | --lora: target 'c_atn' is not a linear layer of this model, the nearest is 'c_attn'
      2 | --lora rank=2,targets=c_attn | lacks alpha
      2 | --lora rank=2,rank=3,alpha=4,targets=c_attn | gives rank twice
      2 | --merge --save weights | --merge needs adapters
      2 | --save-adapter adapters | 'adapters' needs adapters
      3 | --adapters lora | give --lora rank=
      4 | --adapter nowhere | no such folder
      4 | --adapter adapter --model layers=2,heads=2,channels=16,positions=16 | it was made for base)");
  sh.refuses(sh.run + lora + "--steps 1", R"(
      2 | --save weights | give --merge to merge the adapters
      2 | --merge | give --save PATH
      2 | --adapter adapter | leave one of them out)");
}

TEST_CASE("train adapters: damaged or unsupported configurations are refused with file and key") {
  Adapters const sh;
  for (auto const& row : table(R"(
      {"lora_alpha": "NONE"} | damaged/adapter_config.json: lacks lora_alpha
      {"r": "NONE"} | damaged/adapter_config.json: lacks r
      {"r": 3} | lora_A.weight has shape [2, 8], the model and rank 3 need [3, 8]
      {"rank_pattern": {"c_attn": 4.5}} | rank_pattern gives c_attn 4.500000; it must be a whole number up to 2^20
      {"peft_type": "IA3"} | peft_type is "IA3"
      {"use_dora": true} | use_dora is true, which tessera's adapters do not support
      {"bias": "all"} | bias is "all"
      {"modules_to_save": ["lm_head"]} | modules_to_save is
      {"init_lora_weights": "pissa"} | changes the model's own weights too
      {"brand_new_key": 7} | brand_new_key is 7
      {"target_modules": ["c_atn"]} | target_modules: lora: target 'c_atn' is not a linear layer of this model, the nearest is 'c_attn'
      {"target_modules": ["c_attn", "mlp.c_proj", "c_fc"]} | missing: base_model.model.transformer.h.0.mlp.c_fc.lora_A.weight [2, 8]
      {"target_modules": ["c_attn"]} | PEFT would not use them: transformer.h.0.mlp.c_proj, transformer.h.1.mlp.c_proj;
      {"target_modules": ["c_attn", "mlp.c_proj"], "layers_to_transform": [0]} | PEFT would not use them: transformer.h.1.attn.c_attn, transformer.h.1.mlp.c_proj;)")) {
    INFO(row[0]);
    sh.damage(row[0]);
    sh.refuses_damaged(row[1]);
  }
  for (std::string const targets : {R"(["c_attn", "mlp.c_proj", "q_proj"])", R"~(".*c_(attn|proj)")~"}) {
    sh.damage(R"({"target_modules": )" + targets + "}");
    sh.passes(sh.run + "--adapter damaged --steps 1");
  }
  sh.damage(R"({"lora_dropout": 0.1})");
  sh.refuses_damaged("lora_dropout is 0.1", "3");
  sh.merge("folded");
}

TEST_CASE("train adapters: a key of alpha_pattern that matches no layer in PEFT changes nothing, others do") {
  Adapters const sh;
  sh.damage(R"({"modules_to_save": null})");
  sh.merge("plain");
  for (auto const& row : table(R"(
      ^c_attn | nothing
      ^h.0.attn.c_attn | nothing
      base_model.model.transformer.h.0.attn.c_attn | nothing
      ^transformer.h.0.attn.c_attn | weights
      h.0.(attn|mlp).c_attn | weights
      attn.c_attn | weights)")) {
    INFO(row[0]);
    sh.damage(R"({"alpha_pattern": {")" + row[0] + R"(": 64}})");
    sh.merge("other");
    CHECK(sh.same_weights("plain", "other") == (row[1] == "nothing"));
  }
}

TEST_CASE("train adapters: absent and damaged files are refused with file or tensor") {
  Adapters const sh;
  sh.damage("{}");
  sh.write("damaged/adapter_config.json", R"({"r": 2,)");
  sh.refuses_damaged("damaged/adapter_config.json: is not valid JSON");
  sh.damage("{}");
  sh.passes("rm damaged/adapter_model.safetensors");
  sh.refuses_damaged("the folder holds no adapter_model.safetensors");
  sh.write("damaged/adapter_model.bin", "x");
  sh.refuses_damaged("holds only adapter_model.bin, which may run code");
  sh.passes("rm damaged/adapter_config.json");
  sh.refuses_damaged("the folder holds no adapter_config.json");
  sh.damage("{}");
  std::string const sed =
      "LC_ALL=C sed 's/h[.]1[.]mlp[.]c_proj[.]lora_B/NAME/' adapter/adapter_model.safetensors > "
      "damaged/adapter_model.safetensors";
  sh.passes(test::each("NAME", "h.1.mlp.c_proj.lora_C", sed));
  sh.refuses_damaged("lora_C.weight is not a lora_A or lora_B weight");
  sh.passes(test::each("NAME", "h.7.mlp.c_proj.lora_B", sed));
  sh.refuses_damaged(
      "missing: base_model.model.transformer.h.1.mlp.c_proj.lora_B.weight [8, 2]"
      " | not of a linear layer of the model: base_model.model.transformer.h.7.mlp.c_proj.lora_B.weight [8, "
      "2]");
}
