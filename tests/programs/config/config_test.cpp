// SPDX-License-Identifier: Apache-2.0
// Tests how the programs read DeepSpeed configurations: the command-line flags that follow from a
// configuration, the error messages, and the page of the docs about configurations. Also tests TensorBoard
// event files.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"
#include "tessera/nn/model.hpp"
#include "tessera/train/option_table.hpp"

#include "cli/option_flags.hpp"
#include "config/config_file.hpp"
#include "config/deepspeed.hpp"
#include "config/deepspeed_keys.hpp"
#include "trace/tensorboard.hpp"
#include "workload/batches.hpp"

namespace {

using namespace tessera;
using namespace programs;
using cli::KeyUse;
using Flags = std::map<std::string, std::string>;

/// Reads a DeepSpeed configuration with the content `text`. `line` has flags that the user gives on the
/// command line. Returns the flags that follow from the configuration.
cli::DeepSpeedRun read(std::string const& text, Flags const& line = {}) {
  std::map<std::string, cli::Names> words;
  for (auto const& [flag, value] : line) words[flag] = {value};
  return cli::read_deepspeed(text, "folder/ds.json", [&](std::string const& flag) {
    auto const found = words.find(flag);
    return found == words.end() ? nullptr : &found->second;
  });
}
Flags flags(std::string const& text, Flags const& line = {}) {
  Flags found;
  for (auto const& setting : read(text, line).settings) found[setting.flag] = cli::joined(setting.values);
  return found;
}
std::string refusal(std::string const& text, Flags const& line = {}) {
  try {
    read(text, line);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    return error.what();
  }
  return "nothing was refused";
}
bool holds(std::string const& text, std::string const& part) {
  CAPTURE(text);
  CAPTURE(part);
  return text.find(part) != text.npos;
}
std::string notes(std::string const& text) { return cli::joined(read(text).notes, "\n"); }

std::string text_of(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("absent keys have DeepSpeed's defaults") {
  CHECK(flags(R"({"train_batch_size": 8})") == Flags{{"--global-batch", "8"},
                                                     {"--accumulation", "1"},
                                                     {"--precision", "fp32"},
                                                     {"--stage", "0"},
                                                     {"--offload", "none"},
                                                     {"--clip", "1"}});
  Flags const adam =
      flags(R"({"train_batch_size": 8, "optimizer": {"type": "Adam"}, "fp16": {"enabled": true},
                               "zero_optimization": {"stage": 1}})");
  for (auto const& [flag, value] : Flags{{"--optimizer", "adamw"},
                                         {"--learning-rate", "0.001"},
                                         {"--beta1", "0.9"},
                                         {"--beta2", "0.999"},
                                         {"--epsilon", "1e-08"},
                                         {"--weight-decay", "0"},
                                         {"--precision", "fp16"},
                                         {"--initial-loss-scale", "65536"},
                                         {"--loss-scale-window", "1000"},
                                         {"--loss-scale-delay", "1"},
                                         {"--hysteresis", "2"},
                                         {"--min-loss-scale", "1"}})
    CHECK(adam.at(flag) == value);
  CHECK(adam.count("--consecutive-hysteresis") == 0);
  CHECK(adam.count("--schedule") == 0);
}

TEST_CASE("the batch keys are DeepSpeed's equation, and a flag comes before them") {
  std::string const all =
      R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})";
  CHECK(flags(all).at("--global-batch") == "32");
  CHECK(flags(all).at("--accumulation") == "2");
  CHECK(flags(all, {{"--ranks", "4"}}).at("--batch") == "4");
  CHECK(flags(all, {{"--batch", "1"}}).count("--accumulation") == 0);
  CHECK(flags(all, {{"--accumulation", "8"}}).count("--global-batch") == 0);
  CHECK(flags(R"({"train_micro_batch_size_per_gpu": 4})").count("--accumulation") == 0);
  CHECK(flags(R"({"train_batch_size": "auto", "gradient_accumulation_steps": 3})").at("--accumulation") ==
        "3");
  CHECK(holds(refusal("{}"), "train_batch_size and train_micro_batch_size_per_gpu are both missing"));
  CHECK(flags("{}", {{"--batch", "2"}}).count("--batch") == 0);
}

TEST_CASE("a launcher decides the number of ranks in the advice about the batch equation") {
  std::vector<cli::BatchRelation> const one{{4, 1, 1}};
  cli::BatchNames names;
  CHECK(cli::remedies_text(16, one, names) ==
        "give --global-batch 4, or give --ranks 4, or leave out --accumulation, or leave out --batch");
  names.launcher = "torchrun";
  CHECK(cli::remedies_text(16, one, names) ==
        "give --global-batch 4, or start 4 ranks with torchrun, or leave out --accumulation, or leave out "
        "--batch");
  names.launcher.clear();
  names.accumulation.on_line = false;  // as if a row gave it: a user cannot leave it out
  CHECK(cli::remedies_text(1000, one, names) ==
        "give --global-batch 4, or give --accumulation 250, or leave out --batch");  // 250 ranks are too many
}

TEST_CASE("optimizers and schedules") {
  auto const with = [](std::string const& keys) { return flags(R"({"train_batch_size": 8, )" + keys + "}"); };
  CHECK(with(R"("optimizer": {"type": "Adam", "params": {"adam_w_mode": false}})").at("--optimizer") ==
        "adam");
  CHECK(with(R"("optimizer": {"type": "AdamW", "params": {"adam_w_mode": false}})").at("--optimizer") ==
        "adamw");
  CHECK(with(R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true}})").at("--weight-decay") ==
        "0.01");
  Flags warm =
      with(R"("optimizer": {"type": "adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupLR"})");
  CHECK(warm.at("--learning-rate") == "0.5");
  CHECK(warm.at("--schedule") == "warmuplr");
  CHECK(warm.at("--warmup-steps") == "1000");
  CHECK(warm.at("--warmup-type") == "log");
  warm = with(R"("optimizer": {"type": "adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupDecayLR",
                "params": {"total_num_steps": 1e4, "warmup_min_lr": [0.125], "warmup_type": "linear"}})");
  CHECK(warm.at("--learning-rate") == "0.001");
  CHECK(warm.at("--first-rate") == "0.125");
  CHECK(warm.at("--schedule-steps") == "10000");
  warm = with(R"("optimizer": {"type": "adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupCosineLR",
                "params": {"total_num_steps": "auto", "warmup_min_ratio": 0.5}})");
  CHECK(warm.at("--first-rate") == "0.25");
  CHECK(warm.at("--final-fraction") == "1e-04");
  CHECK(warm.count("--schedule-steps") == 0);
  CHECK(holds(refusal(R"({"train_batch_size": 8, "scheduler": {"type": "WarmupCosineLR"}})"),
              "total_num_steps is missing, and WarmupCosineLR needs it"));
  CHECK(holds(refusal(R"({"train_batch_size": 8, "scheduler": {"type": "OneCycle"}})"),
              "choose from warmuplr"));
}

TEST_CASE("scales, formats and offloads") {
  auto const with = [](std::string const& keys, Flags const& line = {}) {
    return flags(R"({"train_batch_size": 8, )" + keys + "}", line);
  };
  Flags const fixed = with(R"("fp16": {"enabled": true, "loss_scale": 128})");
  CHECK(fixed.at("--loss-scale") == "static");
  CHECK(fixed.at("--initial-loss-scale") == "128");
  CHECK(fixed.at("--max-loss-scale") == "128");
  Flags const scaled = with(R"("fp16": {"enabled": true, "initial_scale_power": 20, "hysteresis": 4,
      "consecutive_hysteresis": true, "loss_scale_window": 500}, "zero_optimization": {"stage": 2})");
  CHECK(scaled.at("--initial-loss-scale") == "1048576");
  CHECK(scaled.at("--hysteresis") == "4");
  CHECK(scaled.at("--loss-scale-window") == "500");
  CHECK(scaled.count("--consecutive-hysteresis") == 1);
  CHECK(with(R"("fp16": {"enabled": true, "hysteresis": 4})").count("--hysteresis") == 0);  // unused, stage 0
  CHECK(with(R"("bf16": {"enabled": true}, "communication_data_type": "bf16")").at("--precision") == "bf16");
  CHECK(with(R"("fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"})").count("--precision") == 0);
  // A precision on the command line replaces the precision and the loss scale of the file.
  Flags const overruled = with(R"("fp16": {"enabled": true, "loss_scale": 128})", {{"--precision", "bf16"}});
  CHECK(overruled.count("--precision") + overruled.count("--loss-scale") == 0);
  // If the precision of the file is "auto" or absent, the command line selects the precision. The numbers of
  // the file for the loss scale still apply.
  for (Flags const& line : {Flags{{"--precision", "fp16"}}, Flags{{"--fp16", ""}}}) {
    Flags const open = with(R"("fp16": {"enabled": "auto", "loss_scale_window": 500})", line);
    CHECK(open.count("--precision") == 0);
    CHECK(open.at("--loss-scale-window") == "500");
  }
  CHECK(with(R"("fp16": {"enabled": "auto", "loss_scale_window": 500})", {{"--precision", "bf16"}})
            .count("--loss-scale-window") == 0);
  std::string const unused = R"("loss_scale": 512, "min_loss_scale": 0, "loss_scale_window": 0})";
  CHECK(with(R"("fp16": {"enabled": true, )" + unused).at("--loss-scale") == "static");
  CHECK(with(R"("fp16": {"enabled": false, )" + unused).at("--precision") == "fp32");
  CHECK(holds(refusal(R"({"train_batch_size": 8, "fp16": {"enabled": true, "min_loss_scale": 0}})"),
              "fp16.min_loss_scale is 0"));
  // As in DeepSpeed, offloading parameters has no effect before ZeRO stage 3.
  std::string const stage2 = R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"},
      "offload_param": {"device": "cpu"}})";
  CHECK(with(stage2).at("--offload") == "cpu_optimizer");
  CHECK(holds(notes(R"({"train_batch_size": 8, )" + stage2 + "}"),
              "zero_optimization.offload_param.device: no effect in stage 2, as in DeepSpeed"));
  for (auto const& [optimizer, parameters, wanted] :
       std::vector<std::array<std::string, 3>>{{"cpu", "none", "cpu_optimizer"},
                                               {"nvme", "none", "nvme_optimizer"},
                                               {"cpu", "cpu", "cpu_full"},
                                               {"nvme", "nvme", "nvme"},
                                               {"nvme", "cpu", "infinity"},
                                               {"cpu", "nvme", "nvme_parameters"}})
    CHECK(with(R"("zero_optimization": {"stage": 3, "offload_optimizer": {"device": ")" + optimizer +
               R"("}, "offload_param": {"device": ")" + parameters + R"(", "nvme_path": "/disk"}})")
              .at("--offload") == wanted);
  CHECK(with(R"("zero_optimization": {"stage": 2, "cpu_offload": true})").at("--offload") == "cpu_optimizer");
  CHECK(with(R"("zero_optimization": {"stage": 3, "overlap_comm": false})").at("--prefetch") == "0");
  CHECK(with(R"("zero_optimization": {"stage": 3, "mics_shard_size": 2})", {{"--ranks", "4"}}).at("--mesh") ==
        "replicate=2,shard=2");
  CHECK(with(R"("activation_checkpointing": {"number_checkpoints": 12})").at("--recompute") == "block");
  CHECK(with(R"("wandb": {"enabled": true, "project": "p"})").at("--tensorboard") == "wandb/p");
  CHECK(
      with(R"("tensorboard": {"enabled": true, "output_path": "a/", "job_name": "b"})").at("--tensorboard") ==
      "a/b");
}

TEST_CASE("what cannot be is refused with the way out, all of it at once") {
  std::string const text =
      refusal(R"({"train_batch_size": 8, "gradient_cliping": 1, "fp16": {"enabled": true, "loss_scale": 1000},
      "zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}, "communication_data_type": "fp32",
      "amp": {"enabled": true, "opt_level": "O1"}, "aio": 3})");
  for (char const* part :
       {"folder/ds.json: 6 keys cannot be used: ",
        "gradient_cliping is not a key of DeepSpeed, the nearest is gradient_clipping",
        "fp16.loss_scale is 1000, but loss scales must be powers of two; give 512 or 1024",
        "offload_optimizer.device is cpu in stage 0, but DeepSpeed offloads only in stages 1 to 3",
        "communication_data_type is fp32, but gradients are sent in the format of the products, fp16 here",
        "amp.enabled is true, which is not supported", "aio is 3; give an object of keys"})
    CHECK(holds(text, part));
  CHECK(text.find('\n') == text.npos);
  CHECK(holds(refusal(R"({"train_batch_size": 8, "cuda_visible_devices": "0"})"),
              "; leave it out if you mean another one"));
  std::string many = R"({"train_batch_size": 8)";
  for (int key = 0; key < 20000; ++key) many += ", \"no_key_" + std::to_string(key) + "\": 1";
  CHECK(holds(refusal(many + "}"), "20000 keys cannot be used: "));
  CHECK(refusal(many + "}").ends_with("; and 19980 more"));
  // If a key is refused, the content of its section is not checked.
  CHECK(!holds(refusal(R"({"train_batch_size": 8, "zero_optimization": {"zenflow": {"topk_ratio": 0.1}}})"),
               "no key"));
  CHECK(holds(refusal("[1]"), "is not a JSON object"));
  CHECK(holds(refusal(R"({"a": 1, "a": 2})"), "the key 'a' is given twice"));
  CHECK(holds(refusal(std::string(100, '[')), "is nested too deeply for a configuration"));
  CHECK(holds(
      refusal(
          R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}, "train_batch_size": 1})"),
      "give zero_optimization.offload_optimizer.device too"));
}

TEST_CASE("a configuration is read as hjson reads it") {
  Flags const wanted =
      flags(R"({"train_micro_batch_size_per_gpu": 2, "bf16": {"enabled": true}, "optimizer": {"type": "AdamW",
               "params": {"lr": 1e-5, "betas": [0.9, 0.95]}}, "zero_optimization": {"stage": 1}})");
  for (char const* text : {R"({
  # of one device
  "train_micro_batch_size_per_gpu": 2,
  "bf16": {
    "enabled": true,   # a wide range
  },
  "optimizer": {"type": "AdamW", "params": {"lr": 1e-5, "betas": [0.9, 0.95,],}}, // a comment
  /* and
     another */
  "zero_optimization": {"stage": 1},
}
)",
                           R"({
  train_micro_batch_size_per_gpu: 2
  bf16: { enabled: true }
  'optimizer': {
    type: AdamW
    params: { lr: 1e-5, betas: [0.9 # the first
      0.95] }
  }
  zero_optimization: {stage: 1}
})",
                           R"(# without braces
train_micro_batch_size_per_gpu: 2
bf16: {enabled: true}
optimizer: {type: 'AdamW', params: {lr: 1e-5, betas: [0.9, 0.95]}}
zero_optimization: {stage: 1})"})
    CHECK(flags(text) == wanted);
  // In Hjson, an unquoted string extends to the end of its line, but an unquoted number ends at a comma.
  CHECK(holds(refusal("{train_batch_size: 8, optimizer: {type: AdamW, }\n}}"),
              "optimizer.type is \"AdamW, }\""));
  CHECK(holds(refusal("{train_batch_size: 08\n}"), "train_batch_size is \"08\""));
  for (auto const& [text, what] : std::map<std::string, std::string>{
           {"{\n \"train_batch_size\" 8}",
            "line 2, column 21: a colon is missing after the key 'train_batch_size'"},
           {"{\"train_batch_size\": 8", "line 1, column 23: the end of the file, where a key"},
           {"{\"train_batch_size\": }", "line 1, column 22: '}', where a value is expected"},
           {"{\"a\": 1,, \"b\": 2}", "column 9: ',', where a key is expected"},
           {"{\"a\": 1} x", "unexpected text after the end of the object"},
           {"{a b: 1}", "the key 'a b' contains white space"},
           {"{\"a: 1}", "column 2: a string has no closing quote on its line"},
           {"{\"a\": \"\\q\"}", "column 7: a string with a control character or an unknown escape"},
           {"{\"a\": '''x'''}", "a string of several lines in ''' is not supported"},
           {"{/* x", "a comment /* has no end"},
           {"{\"a\": \"\xff\"}", "column 8: bytes that are not UTF-8"},
           {"{a: 1, \"a\": 2}", "the key 'a' is given twice"}})
    CHECK(holds(refusal(text), what));
}

TEST_CASE("values and keys that DeepSpeed converts, and those that it passes over") {
  auto const with = [](std::string const& keys) { return flags(R"({"train_batch_size": 8, )" + keys + "}"); };
  CHECK(with(R"("zero_optimization": true)").at("--stage") == "1");
  CHECK(with(R"("zero_optimization": false)").at("--stage") == "0");
  CHECK(with(R"("zero_optimization": {"stage": "3", "overlap_comm": "no"})").at("--stage") == "3");
  CHECK(with(R"("zero_optimization": {"stage": 3, "overlap_comm": "no"})").at("--prefetch") == "0");
  CHECK(with(R"("bf16": {"enabled": 1})").at("--precision") == "bf16");
  CHECK(with(R"("fp16": {"enabled": "True", "loss_scale_window": "500"})").at("--loss-scale-window") ==
        "500");
  CHECK(
      with(
          R"("zero_optimization": {"stage": 3, "zero_quantized_weights": 0, "zero_hpz_partition_size": "1"})")
          .at("--stage") == "3");
  CHECK(holds(
      notes(R"({"train_batch_size": 8, "zero_optimization": {"stage": 3, "prefetch_bucket_size": 5e7}})"),
      "zero_optimization.stage3_prefetch_bucket_size"));
  CHECK(holds(notes(R"({"train_batch_size": 8, "_comment": "mine", "//": {"a": 1}})"),
              "_comment, //: no effect here, because it is not a key; DeepSpeed ignores it too"));
  // As in DeepSpeed, a string is not converted to a number or a boolean.
  CHECK(holds(refusal(R"({"train_batch_size": "8"})"),
              "train_batch_size is \"8\"; give a whole number from 1 to 2147483647"));
  CHECK(
      holds(refusal(R"({"train_batch_size": 8, "dump_state": "no"})"), "dump_state is \"no\"; give true or"));
  // DeepSpeed raises a warm-up of fewer than 2 steps to 2. The schedule does this, not the flag.
  CHECK(
      with(R"("scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}})").at("--warmup-steps") ==
      "0");
}

TEST_CASE("what was meant to be auto is told so") {
  for (char const* text : {R"({"train_micro_batch_size_per_gpu": "Auto"})", R"({"train_batch_size": "AUTO"})",
                           R"({"train_batch_size": 8, "fp16": {"enabled": "Auto"}})",
                           R"({"train_batch_size": 8, "gradient_clipping": "aut"})",
                           R"({"train_batch_size": 8, "zero_optimization": {"stage": "autto"}})",
                           R"({"train_batch_size": 8, "optimizer": {"type": "Auto"}})"})
    CHECK(holds(refusal(text), ", the nearest is \"auto\", in lowercase; "));
  CHECK(refusal(R"({"train_batch_size": "eight"})").find("auto") == std::string::npos);
}

TEST_CASE("a row whose fields are of other kinds is no row to repeat, and never a crash") {
  auto const row = [](char const* text, std::string const& name) {
    results::Document document;
    document.rows.push_back(results::Row::parse(text));
    return cli::row_settings(document, "a.json", cli::chosen_row(document, "a.json", name));
  };
  CHECK(row(R"({"experiment": "zs0", "status": "ok", "batch": 2})", "").size() == 1);
  for (char const* text : {R"({"experiment": 5, "status": ["ok"]})", R"({"status": 1})", "{}"})
    CHECK_THROWS_WITH_AS(row(text, ""), "a.json: no row has the status ok, so there is none to repeat",
                         Error);
  CHECK_THROWS_AS(row(R"({"experiment": 5})", "zs0"), Error);
  // The name of a row may contain any character. Messages print it on one line.
  CHECK_THROWS_WITH_AS(row(R"({"experiment": "z\ns0"})", "zs0"),
                       "a.json: no row is called 'zs0', the nearest is 'z\\x0as0'", Error);
  CHECK(row(R"({"experiment": "z\ns0", "status": "ok", "batch": 2})", "")[0].where == "a.json: z\\x0as0");
}

TEST_CASE("every key of the list does what the list says") {
  for (cli::DeepSpeedKey const& key : cli::deepspeed_keys()) {
    std::string path(key.path);
    CAPTURE(path);
    for (std::size_t star = path.find('*'); star != path.npos; star = path.find('*'))
      path.replace(star, 1, "some");
    REQUIRE(cli::find_deepspeed_key(path) != nullptr);
    CHECK(key.text.find('|') == key.text.npos);
    if (key.use == KeyUse::section || path.starts_with("train_")) continue;
    // Makes a configuration with this key, nested in the objects of its path. The value 12345 has the wrong
    // type for most keys.
    std::string json = "12345";
    for (std::string_view rest = path; !rest.empty();) {
      std::size_t const dot = rest.rfind('.');
      json = "{\"" + std::string(rest.substr(dot == rest.npos ? 0 : dot + 1)) + "\": " + json + "}";
      rest = rest.substr(0, dot == rest.npos ? 0 : dot);
    }
    std::string const text = R"({"train_batch_size": 8, )" + json.substr(1);
    if (key.use == KeyUse::refused) {
      CHECK(holds(refusal(text), path + " is 12345"));
    } else if (key.text == "its section is refused") {
      CHECK(holds(refusal(text), path.substr(0, path.find('.')) + " is {"));
    } else if (key.use == KeyUse::none) {
      bool const off = key.text == "its section is off";
      CHECK((off || path == "sparse_attention" || holds(notes(text), path)));
    }
  }
  CHECK(cli::find_deepspeed_key("zero_optimization.stages") == nullptr);
  CHECK(cli::find_deepspeed_key("amp.opt_level") != nullptr);
  CHECK(cli::find_deepspeed_key("amp.opt_level.deeper") == nullptr);
}

TEST_CASE("a key of an option's row sets the option, within the row's range") {
  cli::Json const common = cli::Json::parse(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"},
                                                "scheduler": {"type": "WarmupLR"}})");
  int keys = 0;
  for (Option const& option : option_table) {
    if (option.deepspeed.empty()) continue;
    INFO(option.name);
    ++keys;
    cli::DeepSpeedKey const* const key = cli::find_deepspeed_key(option.deepspeed);
    REQUIRE(key != nullptr);
    CHECK(key->use == KeyUse::done);
    CHECK(cli::option_of(option.deepspeed) == &option);
    std::string pointer = "/" + std::string(option.deepspeed);
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    auto const with = [&](cli::Json const& value) {
      cli::Json config = common;
      config[cli::Json::json_pointer(pointer)] = value;
      return config.dump();
    };
    cli::Json const standard = cli::Json::parse(key->standard);
    std::string const flag = cli::flag_of(option);
    CHECK(flags(common.dump()).at(flag) ==
          (standard.is_string() ? standard.get<std::string>() : cli::shortest(standard.get<double>())));
    if (cli::Names const choices = cli::choices_of(option); !choices.empty()) {
      for (std::string const& choice : choices) CHECK(flags(with(choice)).at(flag) == choice);
      CHECK(holds(refusal(with("other")), std::string(option.deepspeed) + " is "));
      continue;
    }
    CHECK(flags(with(3)).at(flag) == "3");
    CHECK(holds(refusal(with(-1)), std::string(option.deepspeed) + " is -1; give "));
  }
  CHECK(keys > 0);
}

TEST_CASE("the page of keys is the program's") {
  CHECK(text_of(std::filesystem::path(TESSERA_SOURCE) / "docs/deepspeed-keys.md") ==
        cli::deepspeed_keys_page());
}

TEST_CASE("the page of the trainer has a row with the flag of every option") {
  std::string const page = text_of(std::filesystem::path(TESSERA_SOURCE) / "docs/trainer.md");
  for (Option const& option : option_table) {
    INFO(option.name);
    std::string const name(option.name.substr(option.name.rfind('.') + 1));
    std::string const flag = option.flags.empty() ? "" : "`" + cli::flag_of(option) + "`";
    bool found = false;
    std::istringstream lines(page);
    for (std::string line; std::getline(lines, line);)
      found = found || (line.starts_with("| `") && holds(line, name + "`") && holds(line, flag));
    CHECK(found);
  }
}

TEST_CASE("what DeepSpeed keeps whole, and where its weight decay reaches") {
  std::vector<UnitSpec> units(2);
  auto const add = [&](std::size_t unit, Shape shape, bool decay) {
    ParameterSpec parameter{"p" + std::to_string(units[unit].parameters.size()), shape};
    parameter.decay = decay;
    units[unit].parameters.push_back(parameter);
  };
  add(0, {100, 10}, true);
  add(0, {10}, false);
  add(1, {7}, false);
  cli::DeepSpeedRun run;
  run.decays = true;
  run.persistence = 10;
  CHECK(
      holds(cli::joined(cli::deepspeed_differences(run, units), "\n"), "2 biases and norms of 17 elements"));
  CHECK(
      holds(cli::joined(cli::deepspeed_differences(run, units), "\n"), "keeps 2 parameters of 17 elements"));
  run.persistent_elements = 16;  // the two parameters have 17 elements, so only one of them fits
  CHECK(
      holds(cli::joined(cli::deepspeed_differences(run, units), "\n"), "keeps 1 parameters of 10 elements"));
  run.decays = false;
  run.persistence.reset();
  CHECK(cli::deepspeed_differences(run, units).empty());
}

TEST_CASE("event files have whole records with their sums") {
  CHECK(cli::detail::crc32c("123456789") == 0xe3069283u);
  std::filesystem::path const folder =
      std::filesystem::temp_directory_path() / ("tessera-events-" + std::to_string(::getpid()));
  {
    cli::EventFile events(folder / "run");
    events.text("recipe", "| a |");
    events.scalars(7, {{"train/loss", 0.5}, {"train/none", std::nan("")}});
    cli::EventFile const other(folder / "run");  // created in the same second
    CHECK(other.path() != events.path());
    cli::EventFile const alone(folder / "run", true);
    CHECK_THROWS_WITH_AS(cli::EventFile(folder / "run", true),
                         doctest::Contains("run: another run writes there"), Error);
    std::string const bytes = text_of(events.path());
    std::vector<std::string> records;
    for (std::size_t at = 0; at < bytes.size();) {
      REQUIRE(bytes.size() - at >= 16);
      std::uint64_t size = 0;
      std::uint32_t head = 0, body = 0;
      std::memcpy(&size, bytes.data() + at, 8);
      std::memcpy(&head, bytes.data() + at + 8, 4);
      REQUIRE(bytes.size() - at >= 16 + size);
      records.push_back(bytes.substr(at + 12, size));
      std::memcpy(&body, bytes.data() + at + 12 + size, 4);
      auto const masked = [](std::uint32_t crc) { return (crc >> 15 | crc << 17) + 0xa282ead8u; };
      CHECK(head == masked(cli::detail::crc32c(bytes.substr(at, 8))));
      CHECK(body == masked(cli::detail::crc32c(records.back())));
      at += 16 + size;
    }
    REQUIRE(records.size() == 3);
    CHECK(records[0].substr(9) == std::string("\x1a\x0d") + "brain.Event:2");
    // The record means: step 7; summary { value { tag: "train/loss" simple_value: 0.5 } }. The value that is
    // not finite is left out.
    CHECK(records[2].substr(9) == std::string("\x10\x07\x2a\x13\x0a\x11\x0a\x0a", 8) + "train/loss" +
                                      std::string("\x15\x00\x00\x00\x3f", 5));
  }
  std::filesystem::remove_all(folder);
  CHECK_THROWS_AS(cli::EventFile("/dev/null/run"), Error);
}
