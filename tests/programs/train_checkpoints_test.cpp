// SPDX-License-Identifier: Apache-2.0
// Tests the checkpoints of the program `train`. If `train` is interrupted and resumes with other policies,
// its results must equal the results without interruption. Also tests processes that are killed, and damaged
// checkpoint files.
#include <random>

#include "programs/train.hpp"

using test::Json, test::Train;

namespace {

struct Checkpoints : Train {
  std::string const batch_of_12 =
      tiny + "--data text.txt --global-batch 12 --reduction ordered --clip 1 --schedule linear ";
  std::string const saving = batch_of_12 + "--checkpoint ck --checkpoint-every 5 ";

  /// Returns the objects of the log `log` that describe steps, without the fields that contain times.
  std::vector<Json> steps_of(std::string const& log) const {
    std::vector<Json> steps = lines(log, "step");
    for (Json& step : steps)
      for (char const* key : {"tokens_per_sec", "ms"}) step.erase(key);
    return steps;
  }
  /// Trains 20 steps on three ranks. `train` saves a checkpoint every 5 steps and keeps only the last two
  /// checkpoints.
  void saves_20() const { passes(saving + "--steps 20 --ranks 3 --stage 3 --keep 2"); }
  /// Whether the folder `ck` has exactly the last two checkpoints.
  bool has_two() const { return passes("ls -A ck") == "latest\nstep-00000015\nstep-00000020\n"; }

  /// Does this `kills` times: starts `train` with a checkpoint after every step, kills it, and resumes from
  /// its last checkpoint. The killed process can have completed at most one step after this checkpoint, or
  /// two steps if it saved checkpoints asynchronously.
  void survives_kills(int kills) const {
    std::string const each = batch_of_12 +
                             "--schedule constant --ranks 2 --log kill.jsonl --checkpoint kill "
                             "--checkpoint-every 1 --keep 2 --resume ";
    std::mt19937 random(std::random_device{}());
    for (int turn = 1; turn <= kills; ++turn) {
      bool const async = turn % 2 == 1;
      std::string const milliseconds = std::to_string(1000 + random() % 1000).substr(1);
      INFO("killed ", milliseconds, " ms after a checkpoint");
      write("out.txt", "");
      REQUIRE(signalled("KILL", "checkpoint kill", "out.txt",
                        each + "--steps 10000000" + (async ? " --checkpoint-async" : ""),
                        "0." + milliseconds) == 137);
      REQUIRE(text("err.txt") == "");
      int const before = static_cast<int>(lines("kill.jsonl", "step").size());
      std::string const out = passes(each + "--steps " + std::to_string(before + 1));
      std::smatch found;
      REQUIRE(std::regex_search(out, found, std::regex("resumed kill/step-0*([0-9]+) after")));
      CHECK(std::stoi(found[1]) >=
            // If checkpoints are asynchronous, the checkpoint of the previous step is possibly incomplete
            // too.
            before - 1 - async);
      CHECK(std::stoi(found[1]) <= before);
      CHECK(lines("kill.jsonl", "step").size() == before + 1u);
    }
  }
};

}  // namespace

TEST_CASE("train checkpoints: saving changes neither the run nor, if it is asynchronous, the files") {
  Checkpoints const sh;
  sh.passes(sh.batch_of_12 + "--ranks 1 --steps 20 --log whole.jsonl");
  sh.passes(sh.saving + "--steps 20 --ranks 1 --resume --log part.jsonl",
            "no checkpoint in ck; starts from step 1");
  CHECK(sh.steps_of("part.jsonl") == sh.steps_of("whole.jsonl"));
  sh.passes("mv ck at-once");
  std::string const out =
      sh.passes(sh.saving + "--checkpoint-async --steps 20 --ranks 1 --resume --log part.jsonl");
  CHECK(test::matches(out, "checkpoint ck/step-000000[0-9]+ ") ==
        std::vector<std::string>{"checkpoint ck/step-00000005 ", "checkpoint ck/step-00000010 ",
                                 "checkpoint ck/step-00000015 ", "checkpoint ck/step-00000020 "});
  sh.passes("diff -r at-once ck");
  CHECK(sh.steps_of("part.jsonl") == sh.steps_of("whole.jsonl"));
}

TEST_CASE(
    "train checkpoints: a run resumed on other ranks, stages and offloads equals the uninterrupted run") {
  Checkpoints const sh;
  sh.passes(sh.batch_of_12 + "--ranks 1 --steps 20 --log whole.jsonl --save whole.safetensors");
  sh.passes(sh.saving + "--steps 20 --ranks 1 --log part.jsonl");
  sh.passes("rm -r ck/step-00000015 ck/step-00000020");
  sh.passes(sh.saving + "--steps 20 --ranks 2 --stage 2 --offload cpu_optimizer --resume --log part.jsonl",
            "resumed ck/step-00000010 after step 10.*\ntrained 10 more steps, 20 in all \\| loss ");
  sh.passes("rm -r ck/step-00000020; mkdir -p ck/.step-00000020.partial/model ck/.step-00000001.old");
  sh.passes(sh.saving +
            "--steps 20 --ranks 3 --stage 3 --resume --keep 2 --log part.jsonl --save part.safetensors");
  CHECK(sh.equal("whole.safetensors", "part.safetensors"));
  CHECK(sh.steps_of("part.jsonl") == sh.steps_of("whole.jsonl"));
  CHECK(sh.has_two());
  CHECK(sh.passes("cat ck/latest") == "step-00000020\n");
  // If `train` resumes and all steps are already complete, it writes the weights again. The folder `model` in
  // a checkpoint is a Hugging Face model folder.
  sh.passes(sh.saving + "--steps 20 --resume --log part.jsonl --save again.safetensors");
  CHECK(sh.equal("whole.safetensors", "again.safetensors"));
  sh.passes(
      "train --model ck/step-00000020/model --data text.txt --sequence 8 --steps 0 --save again.safetensors");
  CHECK(sh.equal("whole.safetensors", "again.safetensors"));
}

TEST_CASE("train checkpoints: the folder may contain a folder named checkpoints") {
  test::Shell const sh;
  sh.passes(
      "mkdir -p out/checkpoints && train --steps 1 --model layers=1,heads=1,channels=8 -q --checkpoint out");
  CHECK(test::has(sh.passes("ls out"), "step-00000001"));
}

TEST_CASE("train checkpoints: contradictory flags, other data and other logs are refused") {
  Checkpoints const sh;
  sh.passes(sh.saving + "--steps 20 --log part.jsonl");
  sh.write("none.jsonl", "");
  sh.write("short.jsonl", "{\"step\":19,\"loss\":1}\n{\"step\":20,\"lo");
  sh.refuses(sh.batch_of_12, R"(
      2 | --resume | --resume needs a folder
      2 | --keep 2 | --keep needs a folder
      2 | --checkpoint-async | --checkpoint-async needs a folder
      1 | --checkpoint text.txt/ck | text.txt is not a folder)");
  sh.refuses(sh.saving + "--steps 30", R"(
      2 |  | holds checkpoints, the newest of step 20 | give --resume
      3 | --steps 10 --resume | after step 20, beyond --steps 10
      3 | --resume --seed 2 | other data | seed 1 and now 2
      3 | --resume --sequence 4 | sequence 8 and now 4
      3 | --resume --global-batch 14 | no step of a global batch of 14 begins there
      4 | --resume --log none.jsonl | ends with step 0 | give --log another file
      4 | --resume --log short.jsonl | ends with step 19
      4 | --resume --freeze wpe.weight | does not match the model and its trained parameters | not needed: wpe.weight.exp_avg)");
  sh.refuses("flock ck " + sh.saving, "1 | --steps 30 --resume | another run writes its checkpoints there");
  sh.passes(sh.saving +
            "--steps 21 --resume --global-batch 24 --log part.jsonl");  // sample 240 begins a step of 24
}

TEST_CASE("train checkpoints: damage is refused with the file's name, before a step") {
  Checkpoints const sh;
  sh.saves_20();
  std::string const newest = "ck/step-00000020/";
  sh.passes("cp -r ck good");
  for (std::string const file :
       {"trainer.json", "model/config.json", "model/model.safetensors", "optimizer-1-of-3.safetensors"}) {
    sh.passes("printf X | dd of=" + newest + file + " bs=1 seek=300 conv=notrunc status=none");
    sh.refuses(sh.saving, "4 | --steps 30 --resume | " + file);
    sh.passes("rm " + newest + file);
    sh.refuses(sh.saving, "4 | --steps 30 --resume | " + file);
    sh.passes("rm -r ck; cp -r good ck");
  }
  sh.passes("cp " + newest + "model/model.safetensors " + newest + "model/other.safetensors");
  sh.refuses(sh.saving, "4 | --steps 30 --resume | not part of this checkpoint: model/other.safetensors");
}

TEST_CASE("train checkpoints: a full disk gives one error with the file, and earlier checkpoints stay") {
  Checkpoints const sh;
  sh.saves_20();
  for (std::string const async : {"", "--checkpoint-async"}) {
    auto const full =
        sh.run("ulimit -f 4; " + sh.saving + async + " --steps 30 --ranks 2 --stage 1 --resume");
    CHECK(full.code == 1);
    test::shows(full.err, R"(^error: ck/.step-00000025.partial/[^\n]*: cannot write [^\n]*\n$)");
    CHECK(sh.has_two());
  }
}

TEST_CASE("train checkpoints: a signal saves and ends the run, within --grace-period") {
  Checkpoints const sh;
  std::string const run = sh.batch_of_12 + "--ranks 2 --log term.jsonl --checkpoint term ";
  CHECK(sh.signalled("TERM", "\"step\":3,", "term.jsonl",
                     run + "--steps 10000000 "
                           "--checkpoint-every 2 --checkpoint-async --keep 3 --grace-period 600") == 143);
  auto const last = std::stoul(sh.text("term/latest").substr(5)) + 2;
  sh.passes(run + "--schedule constant --resume --steps " + std::to_string(last));
  CHECK(sh.lines("term.jsonl", "step").size() == last);
}

TEST_CASE("train checkpoints: a run that is killed can be resumed") { Checkpoints().survives_kills(6); }

TEST_CASE("train checkpoints: a run that is killed 200 times can be resumed" * doctest::skip()) {
  Checkpoints().survives_kills(200);  // CMakeLists.txt gives this test case the label "deep"
}

TEST_CASE(
    "train checkpoints: a resumed run with one step has a rate, and a changed micro-batch gives a warning") {
  Checkpoints const sh;
  std::string const run = sh.batch_of_12 + "--checkpoint ck ";
  sh.passes(run + "--steps 2 --save two.safetensors");
  // The folder `model` in a checkpoint can be used as a model.
  sh.passes(
      "train --model ck/step-00000002/model --sequence 8 --data text.txt --steps 0 --save again.safetensors");
  CHECK(sh.equal("two.safetensors", "again.safetensors"));
  CHECK(test::matches(sh.passes(run + "--steps 3 --resume"), "[ |]0 tok/s").empty());
  auto const changed = sh.run(run + "--steps 4 --resume --batch 4 --reduction ordered");
  CHECK(changed.code == 0);
  test::shows(
      changed.err,
      R"(^warning: the micro-batch was 2 in ck/step-00000003 and is 4 now: [^\n]*; give --batch 2 for equal bits\n$)");
  sh.passes(run + "--steps 5 --resume --batch 4 --ranks 3");
}

TEST_CASE("train checkpoints: a run that has all its steps says that there is nothing to do") {
  Train const sh;
  for (auto const& row : test::table(R"(
      --steps 3 | 3 | --steps
      --samples 4 --epochs 2 | 4 | --epochs)")) {
    std::string const run = sh.small + row[0] + " --checkpoint run ";
    CHECK_FALSE(test::has(sh.passes(run), "nothing to do"));
    sh.passes(run + "--resume", "\nnothing to do: the checkpoint is at step " + row[1] + " of " + row[1] +
                                    "; raise " + row[2] + "\n");
    CHECK(sh.passes(run + "--resume -q") == "");
    sh.passes(run + "--resume --save w.safetensors --validation text.txt",
              "\nnothing to train: the checkpoint is at step [^]+\nvalidation after step [^]+\nsaved "
              "w.safetensors");
    sh.passes("rm -r run");
  }
}
