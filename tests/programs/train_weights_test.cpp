// SPDX-License-Identifier: Apache-2.0
// Tests how the program `train` saves and loads weights. Loaded weights must have the bits of the saved
// weights. The error about a damaged file must name the file. If a save fails, the old file must remain.
#include "programs/train.hpp"

using test::each, test::table, test::Train;

namespace {

/// Runs commands in a folder with the file start.safetensors, which has the initial weights of the random
/// seed 5.
struct Weights : Train {
  Weights() { passes(small + "--steps 0 --seed 5 --save start.safetensors"); }
  /// Runs the program `train` with the command line `command` and no training step, and saves its weights.
  /// Returns whether the weights equal the weights in start.safetensors.
  bool starts_equal(std::string const& command) const {
    passes(command + " --steps 0 --save copy.safetensors");
    return equal("start.safetensors", "copy.safetensors");
  }
};

}  // namespace

TEST_CASE("train weights: the initial ones depend only on the seed, and need no data") {
  Weights const sh;
  CHECK(sh.starts_equal(sh.small + "--seed 5 --ranks 3 --stage 3 --precision bf16 --schedule cosine"));
  CHECK_FALSE(sh.starts_equal(sh.small + "--seed 6"));
  CHECK(sh.starts_equal("train --model layers=1,heads=2,channels=8,positions=16 --sequence 8 --seed 5"));
}

TEST_CASE("train weights: loaded and saved under every sharding, in the same file, and to a pipe") {
  Weights const sh;
  for (std::string const stage : {"dp", "0", "1", "2", "3"})
    CHECK(sh.starts_equal(sh.small + "--ranks 2 --init start.safetensors --seed 9 --stage " + stage));
  CHECK(sh.starts_equal(sh.small + "--init copy.safetensors"));
  sh.passes(sh.tiny + "-q --steps 0 --seed 5 --save /dev/stdout | cat > piped.safetensors");
  CHECK(sh.equal("start.safetensors", "piped.safetensors"));
}

TEST_CASE("train weights: loaded ones give the validation loss of the run that saved them") {
  Train const sh;
  sh.passes(sh.small + "--steps 3 --save three.safetensors --validation text.txt --log first.jsonl");
  sh.passes(sh.small +
            "--steps 1 --learning-rate 0 --init three.safetensors --validation text.txt "
            "--log second.jsonl --ranks 2 --batch 1");
  CHECK(sh.lines("first.jsonl", "validation_loss").at(0).at("validation_loss") ==
        sh.lines("second.jsonl", "validation_loss").at(0).at("validation_loss"));
}

TEST_CASE("train weights: bad files are refused by name") {
  Weights const sh;
  sh.passes(
      "head -c -1 start.safetensors > cut.safetensors; head -c 5 start.safetensors > stub.safetensors; "
      ": > empty.safetensors");
  sh.refuses(sh.small, R"(
      4 | --init absent.safetensors | absent.safetensors
      4 | --init text.txt | text.txt
      4 | --init cut.safetensors | cut.safetensors
      4 | --init stub.safetensors | stub.safetensors
      4 | --init empty.safetensors | empty.safetensors
      4 | --init start.safetensors --vocabulary 300 | vocabulary 256 | vocabulary 300 | wte.weight
      4 | --init start.safetensors --model layers=2,heads=2,channels=8,positions=16 | layers=1 | layers=2 | missing: h.1.ln_1.weight [8]
      4 | --init start.safetensors --model layers=1,heads=2,channels=16,positions=16 | wte.weight has shape [256, 8], the model needs [256, 16] | wpe.weight | h.0.ln_1.weight | and 13 more | choose the model)");
  // Each row of the table below is: a part of the file's header | text of the same length that replaces it |
  // error message.
  for (auto const& row : table(R"(
      [96,864] | [92,860] | c_attn.weight
      [96,864] | [964,86] | c_attn.weight
      "shape":[8,24] | "shape":[9,24] | c_attn.weight
      "shape":[8,24] | "shape":[24,8] | h.0.attn.c_attn.weight has shape [24, 8], the model needs [8, 24]
      "ln_f.bias" | "ln_g.bias" | missing: ln_f.bias [8] | not in the model: ln_g.bias [8]
      "dtype":"F32" | "dtype":"I32" | I32
      "dtype":"F32" | "dtype":"X32" | X32
      "dtype": | "dtype";
      "shape":[8,24] | "shape":[[[[)")) {
    std::string bytes = sh.text("start.safetensors");
    std::size_t const at = bytes.find(row[0]);
    REQUIRE(at != std::string::npos);
    sh.write("bad.safetensors", bytes.replace(at, row[0].size(), row[1]));
    std::string texts;
    for (std::size_t i = 2; i < row.size(); ++i) texts += " | " + row[i];
    sh.refuses(sh.small, "4 | --init bad.safetensors | bad.safetensors" + texts);
  }
}

TEST_CASE("train weights: a failed save keeps the old file and leaves no other file") {
  Weights const sh;
  sh.passes("cp start.safetensors old");
  sh.refuses("ulimit -f 4; " + sh.small,
             "1 | --steps 1 --save start.safetensors | error: start.safetensors: cannot write ");
  sh.refuses(sh.small + "-q --steps 1", R"(
      1 | --save /dev/full | /dev/full | disk is full
      1 | --log /dev/full | /dev/full | disk is full)");
  CHECK(sh.equal("start.safetensors", "old"));
  // `train` refuses an output that is a named pipe or a dangling link before the first step. It must not wait
  // until a process reads from the pipe.
  sh.passes("mkfifo pipe; ln -s nowhere dangling");
  sh.refuses(sh.small + "--steps 1", each("OUT", "--save --log", R"(
      1 | OUT pipe | pipe | named pipe
      1 | OUT dangling | dangling | a link to nowhere)"));
}

TEST_CASE(
    "train weights: if a log or event file cannot be written further, the run continues and ends with an "
    "error") {
  Train const sh;
  auto result =
      sh.run("ulimit -f 64; " + sh.small + "-q --steps 500 --log long.jsonl --save long.safetensors");
  CHECK(result.code == 1);
  test::shows(
      result.err,
      R"(^warning: long.jsonl: cannot write [^\n]*; the run goes on without its log\nerror: long.jsonl: the log is incomplete, it ends after step [1-9][0-9]* of 500; [^\n]*\n$)");
  test::shows(sh.text("long.jsonl").substr(sh.text("long.jsonl").size() - 300),
              R"("step":[0-9]+,[^\n]*\}\n$)");
  sh.passes(sh.small + "--steps 500 --save whole.safetensors");
  CHECK(sh.equal("long.safetensors", "whole.safetensors"));
  // The error message has the path `events`, as on the command line.
  result = sh.run("ulimit -f 32; " + sh.small + "-q --steps 400 --tensorboard events");
  CHECK(result.code == 1);
  test::shows(
      result.err,
      R"(^warning: --tensorboard events: cannot write [^\n]*; the run goes on without its event file\nerror: events: the event file is incomplete; the training and its weights are not affected\n$)");
  sh.refuses("train --model gpt2 --data text.txt --sequence 8",
             "1 | --steps 1000000000000 --checkpoint-every 1 --checkpoint room | error: room: needs ");
}

TEST_CASE(
    "train weights: those that are not finite are not saved, also after a bad update of the last step") {
  Weights const sh;
  sh.passes("cp start.safetensors old");
  sh.refuses(sh.small + "-q",
             "7 | --steps 50 --learning-rate 1e30 --save start.safetensors | not finite in step | nothing "
             "was saved");
  // A bad update in the last step changes no loss, because no step follows. `train` therefore checks the
  // weights themselves before it saves them.
  std::string const bad = sh.small + "-q --steps 1 --learning-rate 3e38 --weight-decay 1e38";
  std::string const text = " | not finite after the last step: h.0.attn.c_attn.bias holds";
  sh.passes(": > infinite.jsonl");  // refuses() expects no new file
  for (std::string const more : {"", "--log infinite.jsonl", "--ranks 2 --stage 3"})
    sh.refuses(bad, "7 | --save start.safetensors " + more + text + " | --learning-rate | nothing was saved");
  sh.refuses(bad, "7 | " + text);
  CHECK(sh.equal("start.safetensors", "old"));
}

TEST_CASE(
    "train weights: an output is neither a file of the loaded weights nor in a folder that --init names") {
  Weights const sh;
  sh.passes("mkdir hub; cp start.safetensors hub/part.safetensors");
  test::Json index;
  for (auto const& name :
       test::matches(sh.text("start.safetensors").substr(0, 2000), R"([a-z_.0-9]+\.(weight|bias))"))
    index["weight_map"][name] = "part.safetensors";
  sh.write("hub/model.safetensors.index.json", index.dump());
  CHECK(sh.starts_equal(sh.small + "--init hub"));
  sh.refuses(sh.small + "--steps 1", each("OUT", "--log --save", R"(
      2 | --init hub/model.safetensors.index.json OUT hub/part.safetensors | OUT 'hub/part.safetensors' | --init | same file
      2 | --init hub OUT hub/part.safetensors | OUT 'hub/part.safetensors' | --init 'hub' | outside
      2 | --init hub/model.safetensors.index.json OUT ./hub/model.safetensors.index.json | OUT './hub/model.safetensors.index.json' | --init | same file
      2 | --init hub OUT hub/new | OUT 'hub/new' | --init 'hub' | outside)"));
  sh.refuses(
      sh.small + "--steps 1",
      "2 | --init copy.safetensors --log copy.safetensors | --log 'copy.safetensors' | --init | same file");
  CHECK(sh.equal("start.safetensors", "hub/part.safetensors"));
}
