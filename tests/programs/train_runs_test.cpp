// SPDX-License-Identifier: Apache-2.0
// Tests the results of the program `train`: one log line for each step, equal weights for every sharding
// policy, and the flags that set the number of steps.
#include "programs/train.hpp"

using test::field, test::has, test::Json, test::Train;

namespace {

/// Returns the value of the key `step` in each line of the log `log` that has this key. Each such line must
/// have all fields of a step.
std::vector<int> steps_of(Train const& sh, std::string const& log) {
  std::vector<int> steps;
  for (Json const& line : sh.lines(log, "step")) {
    steps.push_back(line.at("step"));
    for (char const* key : {"loss", "grad_norm", "lr", "scale", "skipped", "tokens_per_sec", "ms"})
      CHECK_MESSAGE(line.contains(key), line);
  }
  return steps;
}

}  // namespace

TEST_CASE("train: a log has the settings, then every step and validation, then the summary") {
  Train const sh;
  sh.passes(sh.small +
                "--steps 6 --log run.jsonl --validation text.txt --validate-every 4 --clip 1 "
                "--schedule linear --warmup-steps 2 --learning-rate 0.01",
            "step 6 \\| loss\ntrained 6 steps");
  CHECK(steps_of(sh, "run.jsonl") == std::vector{1, 2, 3, 4, 5, 6});
  sh.logs("run.jsonl",
          R"({"precision": "fp32", "stage": 0, "global_batch": 2, "vocabulary": 256, "schedule": "linear",
      "seed": 1, "order": "shuffled", "steps": 6, "reduction": "ordered"})");
  Json const config = field(sh.json_lines("run.jsonl"), 0, "config");
  CHECK(config.at("clip") == 1);
  CHECK(config.at("learning_rate") == doctest::Approx(0.01));
  CHECK(config.at("product_plans").is_null());  // only a GPU has product plans
  auto const validations = sh.lines("run.jsonl", "validation_loss");
  CHECK(validations.size() == 2);
  CHECK(validations[0].at("after_step") == 4);
  CHECK(sh.lines("run.jsonl", "step")[0].at("lr") == doctest::Approx(0.005));  // the warm-up starts
  // The summary at the end of the log has the times of the steps and their spread. On a CPU, the values about
  // GPUs are null.
  Json const summary = sh.summary("run.jsonl");
  for (char const* key :
       {"avg_tokens_per_sec", "train_time_s", "avg_step_time_s", "step_to_step_std_s", "spread_pct"})
    CHECK(summary.at(key) > 0);
  CHECK(summary.at("unsteady").is_boolean());
  for (char const* key : {"mfu_pct", "mfu_against", "avg_gpu_util_pct", "avg_power_w", "energy_j",
                          "allocated_mb", "library_mb"})
    CHECK(summary.at(key).is_null());
}

TEST_CASE("train: the first step is timed from the start of the process, here a shell that sleeps at first") {
  Train const sh;
  double const took = std::stod(sh.passes(R"(b=$(date +%s%N)
      sh -c "sleep 0.5; exec train --steps 1 --batch 1 --sequence 8 --log first.jsonl" > /dev/null
      echo $(($(date +%s%N) - b)))")) /
                      1e9;
  double const first = sh.summary("first.jsonl").at("first_step_s");
  CHECK(first >= 0.5);
  CHECK(first <= took + 1);
}

TEST_CASE("train: with --steps 0 the loss of the initial weights is measured once") {
  Train const sh;
  sh.passes(sh.small + "--steps 0 --validation text.txt --validate-every 1 --log none.jsonl",
            R"((^|\n)validation after step 0 \| loss [0-9.]+\x20)");
  CHECK(sh.lines("none.jsonl", "validation_loss").size() == 1);
}

TEST_CASE("train: the logged settings include the whole schedule, and what other spellings of flags give") {
  Train const sh;
  sh.passes(sh.small +
            "--steps 4 --schedule warmupcosinelr --warmup-steps 2 --schedule-steps 9 --final-fraction 0.25 "
            "--first-rate 0.5 --warmup-type linear --log schedule.jsonl");
  sh.logs("schedule.jsonl", R"({"schedule": "warmupcosinelr", "warmup_steps": 2, "schedule_steps": 9,
      "final_fraction": 0.25, "first_rate": 0.5, "warmup_type": "linear"})");
  sh.passes(
      "train --model layers=1,heads=2,channels=8,positions=16 --data text.txt --gpus 2 --batch-size 3 "
      "--seq-length 8 --grad-accum 2 --num-steps 2 --strategies zero2 --offload-strategies cpu --bf16 "
      "--log spelled.jsonl");
  sh.logs("spelled.jsonl",
          R"({"world": 2, "batch": 3, "sequence": 8, "accumulation": 2, "steps": 2, "stage": 2,
      "offload": "cpu_optimizer", "precision": "bf16"})");
  sh.passes(sh.small + "--fp16 --steps 1", "precision +fp16 +flag");
}

TEST_CASE("train: only one run at a time can write to a log or to event files") {
  Train const sh;
  sh.passes("run='" + sh.small + R"(-q'
      $run --steps 10000000 --log one.jsonl --tensorboard one > out.txt 2>&1 & pid=$!
      until grep -q '"step":3,' one.jsonl 2> /dev/null; do sleep 0.05; done
      $run --steps 1 --log one.jsonl 2> log.txt || echo $? >> log.txt
      $run --steps 1 --tensorboard one 2> events.txt || echo $? >> events.txt
      kill $pid; wait $pid || :)");
  test::shows(sh.text("log.txt"), R"(^error: one.jsonl: another run writes there; [^\n]*\n1\n$)");
  test::shows(sh.text("events.txt"), R"(^error: one: another run writes there; [^\n]*\n1\n$)");
  CHECK(sh.lines("one.jsonl", "config").size() == 1);
  CHECK(sh.json_lines("one.jsonl")[0].contains("config"));
}

TEST_CASE("train: --min-time adds steps until enough time is measured, and then the validation runs") {
  Train const sh;
  sh.passes(
      sh.small + "--steps 2 --min-time 0.5 --validation text.txt --validate-every 1000000 --log long.jsonl",
      "trained [0-9,]+ steps");
  Json const summary = sh.summary("long.jsonl");
  CHECK(summary.at("steps_done") > 2);
  CHECK(summary.at("train_time_s") >= 0.5);
  CHECK(summary.at("interrupted") == false);
  auto const validations = sh.lines("long.jsonl", "validation_loss");
  CHECK(validations.size() == 1);
  CHECK(validations[0].at("after_step") == summary.at("steps_done"));
  sh.passes(sh.small + "--steps 3 --min-time 0.000001 --log long.jsonl");
  CHECK(sh.summary("long.jsonl").at("steps_done") == 3);
  sh.passes(sh.small + "--steps 1 --min-time 0.000001 --log long.jsonl");
  CHECK(sh.summary("long.jsonl").at("steps_done") == 2);  // the first step is not timed
}

TEST_CASE(
    "train: with equal global batches, shardings, worlds, splits, offload and recomputation give equal "
    "bits") {
  Train const sh;
  for (std::string const precision : {"fp32", "bf16", "fp16"}) {
    std::string first;
    for (std::string const recipe :
         {"--ranks 1 --accumulation 6 --stage 0", "--ranks 6 --stage 3 --threads 2",
          "--ranks 2 --accumulation 3 --stage dp",
          "--ranks 3 --accumulation 2 --stage 1 --offload cpu_optimizer",
          "--ranks 3 --accumulation 2 --stage 2 --recompute block",
          "--global-batch 6 --ranks 2 --stage ddp"}) {
      INFO(precision, " ", recipe);
      sh.passes(sh.small + "--batch 1 --steps 5 --learning-rate 0.01 --clip 1 --log bits.jsonl --precision " +
                precision + " " + recipe);
      std::string const hash = sh.weights_hash("bits.jsonl");
      if (first.empty()) first = hash;
      CHECK(hash == first);
    }
  }
}

TEST_CASE("train: the loss falls") {
  Train const sh;
  sh.passes(sh.small + "--steps 120 --learning-rate 0.02 --log learn.jsonl");
  CHECK(sh.summary("learn.jsonl").at("first_loss") > 5.4);
  CHECK(sh.summary("learn.jsonl").at("final_loss") < 3.2);
}

TEST_CASE(
    "train: in fp16 a step that overflows is skipped and names the tensor, and the next has half the scale") {
  Train const sh;
  sh.passes(sh.small + "--steps 10 --learning-rate 1 --precision fp16 --log overflow.jsonl",
            R"(\nstep 2 [^\n]* skipped: overflow in [a-z][a-z0-9_.]*(weight|bias)\n)");
  auto const steps = sh.lines("overflow.jsonl", "step");
  CHECK(steps.at(1).at("skipped") == true);
  CHECK(steps.at(2).at("scale") == steps.at(1).at("scale").get<double>() / 2);
}

TEST_CASE(
    "train: --samples, --epochs and both give the number of steps, and the last of two equal flags counts") {
  Train const sh;
  // The last step of an epoch has only half of the samples and is padded. It counts as a whole step.
  std::size_t const epoch = ((sh.words.size() - 1) / 8 + 1) / 2;
  for (auto const& [flags, steps] :
       std::vector<std::pair<std::string, std::size_t>>{{"--samples 20", 10},
                                                        {"--samples 20 --epochs 3", 30},
                                                        {"--epochs 1", epoch},
                                                        {"--steps 9 --steps 2", 2}}) {
    sh.passes(sh.small + "--log long.jsonl " + flags);
    CHECK(steps_of(sh, "long.jsonl").size() == steps);
  }
  CHECK(sh.passes(sh.small + "--steps 2 --quiet") == "");
}

TEST_CASE("train: a NaN is printed without a sign, and control characters in names are escaped") {
  Train const sh;
  std::string const out = sh.run(sh.small + "--steps 3 --learning-rate 1e30 --precision fp16").out;
  test::shows(out, R"(step 2 \| loss nan \| norm nan)");
  CHECK_FALSE(has(out, "-nan"));
  std::string const name = "\"$(printf 'two\\nlines\\033')\"";
  sh.passes(sh.small + "--steps 0 --save " + name, R"(saved two\\x0alines\\x1b \| weights)");
  sh.passes(sh.small + "--steps 0 --init " + name, R"(two\\x0alines\\x1b +flag)");
}

TEST_CASE("train: on a terminal it shows a progress bar, and lines of losses stay after the bar is gone") {
  Train const sh;
  if (sh.run("command -v script").code != 0) return;
  std::string const out =
      sh.passes("script -qec '" + sh.small + "--steps 60' /dev/null", "step 60 \\| loss\n100%, 60/60");
  auto const lines = test::matches(out, R"(step [0-9]+ \| loss [0-9.]+ \| norm)").size();
  CHECK(lines >= 20);
  CHECK(lines <= 22);
}

TEST_CASE("train: --help lists the flags with their defaults, and examples") {
  Train const sh;
  std::string const help = sh.passes("train --help", R"(
      --learning-rate[^\n]*\[0.0003\]
      Examples:)");
  for (std::string const flag :
       {"model",        "ranks",       "batch",        "sequence",   "accumulation",
        "global-batch", "stage",       "precision",    "offload",    "recompute",
        "reduction",    "capture",     "attention",    "data",       "order",
        "vocabulary",   "seed",        "threads",      "steps",      "epochs",
        "samples",      "samples-are", "field",        "separator",  "learning-rate",
        "beta1",        "beta2",       "epsilon",      "min-time",   "weight-decay",
        "clip",         "schedule",    "warmup-steps", "validation", "validate-every",
        "init",         "save",        "log",          "quiet",      "product-plans",
        "help"})
    CHECK_MESSAGE(has(help, "--" + flag), flag);
}
