// SPDX-License-Identifier: Apache-2.0
// Tests the programs `train`, `compare` and `info` if a launcher starts their ranks as processes. The results
// must have the bits of the results with ranks as threads. Only rank 0 prints, and the other ranks notice
// every failure.
#include "tessera/detail/affinity.hpp"

#include "programs/harness.hpp"

using test::field, test::has, test::Json, test::Result, test::Shell;

namespace {

/// Runs commands in a folder with the script `launch N COMMAND...`. The script starts N ranks of COMMAND with
/// the environment variables of torchrun, and prints the exit code and the output of each rank.
struct Launcher : Shell {
  Launcher() {
    write("launch", R"sh(#!/bin/sh
world=$1 port=$((20000 + $$ % 9000)); shift
for rank in $(seq 0 $((world - 1))); do
  RANK=$rank WORLD_SIZE=$world LOCAL_RANK=$rank LOCAL_WORLD_SIZE=$world MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
    "$@" > out-$rank 2>&1 &
  eval "pid_$rank=$!"
  echo $! > pid-$rank
done
for rank in $(seq 0 $((world - 1))); do
  eval "wait \$pid_$rank" && code=0 || code=$?
  echo "rank $rank: $code: $(cat out-$rank)"
done
)sh");
    passes("chmod +x launch");
  }
};

std::string const launched = "--model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --steps 4 -q";

}  // namespace

TEST_CASE("launch: processes train the weights of threads, in every stage, with and without offload") {
  Launcher const sh;
  for (int const world : {2, 4})
    for (std::string const recipe :
         {"--stage dp", "--stage 0", "--stage 1", "--stage 2", "--stage 3", "--stage 3 --offload cpu_full",
          "--stage 2 --offload cpu_optimizer --precision bf16", "--stage 3 --mesh replicate=2"}) {
      std::string const ranks = std::to_string(world), command = "train " + launched + " " + recipe;
      sh.passes(command + " --ranks " + ranks + " --save threads.safetensors");
      std::string const out =
          sh.passes("./launch " + ranks + " " + command + " --save processes.safetensors");
      INFO(recipe, " ", out);
      CHECK(has(out, "rank 0: 0: \nrank 1: 0: \n"));
      sh.passes("cmp threads.safetensors processes.safetensors");
    }
}

TEST_CASE("launch: only rank 0 prints, or --log-ranks has a file for each rank") {
  Launcher const sh;
  std::string const command = "train --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --steps 4";
  std::string out = sh.passes("./launch 2 " + command + " --local_rank 1");
  test::shows(out, R"(
      batch 2 x ranks 2 x accumulation 1 = 4
      step 4 \|
      rank 1: 0: )");
  out = sh.passes("./launch 2 " + command + " --log-ranks logs");
  test::shows(out, R"(
      rank 0: 0: 
      rank 1: 0: )");
  test::shows(sh.text("logs/rank-0.log"), "step 4 ");
}

TEST_CASE("launch: processes with one mask share its cores, and a process with its own mask uses all of it") {
  Launcher const sh;
  auto const cores = tessera::affinity::allowed_cores();
  if (cores.size() < 2 || sh.run("taskset -c 0 true").code != 0) return;
  std::string const first = std::to_string(cores[0]), second = std::to_string(cores[1]);
  std::string const train =
      "train " + launched.substr(0, launched.find("--steps")) + "--bind-threads cores -q ";
  CHECK(sh.passes("taskset -c " + first + "," + second + " ./launch 2 " + train +
                  "--steps 1000000 --log run.jsonl > ends & until grep -qs step.:3 run.jsonl; do sleep 0.1; "
                  "done; grep -h Cpus_allowed_list /proc/$(cat pid-0)/status /proc/$(cat pid-1)/status; "
                  "kill $(cat pid-0); wait") ==
        "Cpus_allowed_list:\t" + first + "\nCpus_allowed_list:\t" + second + "\n");
  // Each process has one core. If the two divided it, one of them would have none, and --bind-threads would
  // be refused.
  sh.write("own", "#!/bin/sh\n[ $RANK = 0 ] && core=" + first + " || core=" + second +
                      "\nexec taskset -c $core \"$@\"\n");
  CHECK(
      has(sh.passes("chmod +x own; ./launch 2 ./own " + train + "--steps 2"), "rank 0: 0: \nrank 1: 0: \n"));
}

TEST_CASE("launch: a signal to any rank ends all after one step, with a checkpoint") {
  Launcher const sh;
  std::string const out = sh.passes(
      "./launch 3 train --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --steps 1000000 -q "
      "--log run.jsonl "
      "--checkpoint saved > ends & until grep -qs step.:3 run.jsonl; do sleep 0.1; done; kill $(cat pid-2); "
      "wait; "
      "cat "
      "ends; ls saved");
  test::shows(out, R"(
      rank 0: 143: 
      rank 1: 143: 
      rank 2: 143: 
      step-)");
}

TEST_CASE("launch: the others name a process that is killed, and end with code 6") {
  Launcher const sh;
  std::string const out = sh.passes(
      "./launch 3 train --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --steps 1000000 -q "
      "--log run.jsonl > "
      "ends & "
      "until grep -qs step.:3 run.jsonl; do sleep 0.1; done; kill -9 $(cat pid-2); wait; cat ends");
  test::shows(out, R"(
      rank 0: 6: error: rank 2 \(process [0-9]+ on .*\) is lost: its process ended.* \[rank 0 on .* was in collective
      rank 1: 6: error: rank 2 \(process [0-9]+ on .*\) is lost: its process ended.* \[rank 1 on .* was in collective
      rank 2: 137: )");
}

TEST_CASE("launch: all ranks end as after SIGTERM if their launcher is killed") {
  Launcher const sh;
  sh.write("launcher", R"(
for rank in 0 1; do  # the variables of deepspeed
  RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_SIZE=2 CROSS_SIZE=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 \
    train --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --steps 1000000 -q --log run.jsonl \
    --checkpoint saved > out-$rank 2>&1 &
  echo $! > pid-$rank
done
wait
)");
  sh.passes(
      "sh launcher $((20000 + $$ % 9000)) & launcher=$!; until grep -qs step.:3 run.jsonl; do sleep 0.1; "
      "done; "
      "kill -9 $launcher; for rank in 0 1; do while kill -0 $(cat pid-$rank) 2> /dev/null; do sleep 0.1; "
      "done; "
      "done; wait || true; ls saved/step-*; ! grep -q error out-0 out-1");
}

TEST_CASE("launch: what all ranks refuse is printed once, and half a launch ends with a sentence") {
  Launcher const sh;
  std::string out = sh.passes("./launch 3 train --data nowhere.txt");
  test::shows(out, R"(
      rank 0: 4: error: nowhere.txt: no such file; check the path
      rank 1: 4: 
      rank 2: 4: )");
  out = sh.passes("./launch 3 train --ranks 2");
  test::shows(out, R"(
      rank 0: 3: error: --ranks 2 contradicts the launcher: torchrun: rank 0 of 3, .*; leave --ranks out
      rank 1: 3: )");
  Result const half = sh.run(
      "RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + $$ % 9000)) "
      "TESSERA_JOIN_TIMEOUT=1 TORCHELASTIC_ERROR_FILE=error.json train -q");
  CHECK(half.code == 3);
  test::shows(half.err,
              "^error: rank 1 of 2 did not join within 1 s at rank 0 .*; start each rank from 0 to 1 once, "
              "with its own RANK");
  CHECK(has(field(sh.json("error.json"), "message", "message").get<std::string>(), "did not join"));
  Result const other_half = sh.run(
      "RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
      "MASTER_PORT=$((20000 + $$ % 9000)) TESSERA_JOIN_TIMEOUT=1 train -q");
  CHECK(other_half.code == 3);
  test::shows(other_half.err, "^error: rank 1 .* did not find rank 0 within 1 s");
  sh.refuses("train", "2 | --log-ranks logs | no launcher started this program");
}

TEST_CASE("launch: flags and data that differ between ranks are refused by name") {
  Launcher const sh;
  auto const says = [&](std::string const& flags, std::string const& message) {
    sh.write("each", "#!/bin/sh\nexec train " + launched + " " + flags + "\n");
    sh.passes("chmod +x each");
    std::string const out = sh.passes("./launch 3 ./each");
    INFO(flags, " ", out);
    test::shows(out, "rank 0: 3: error: " + message);
    test::shows(out, "rank 1: 3: \nrank 2: 3: \n");
  };
  says(
      "$([ $RANK != 1 ] || echo --learning-rate 1e-3)",
      "ranks were started with different flags: rank 0 has no --learning-rate, rank 1 .* has --learning-rate "
      "1e-3; start every rank with the same flags");
  says("$([ $RANK = 0 ] && echo --data each || echo --data launch)",
       "ranks were .* --data each, rank 1 .* --data launch");
  says("$([ $RANK = 2 ] || echo --bf16)", "ranks were .* rank 0 has --bf16, rank 2 .* has no --bf16");
  sh.passes("mkdir 0 1 2 && seq 9000 > 0/text && seq 9000 > 1/text && seq 9001 > 2/text");
  sh.write("there",
           "#!/bin/sh\ncd $RANK && exec train " + launched + " --threads $((RANK + 1)) --data text\n");
  sh.passes("chmod +x there");
  test::shows(sh.passes("./launch 3 ./there"),
              "ranks disagree on the training data: ranks 0, 1 have 0x[0-9a-f]*; rank 2 has 0x");
  sh.passes("cp 0/text 2/text");
  CHECK(sh.passes("./launch 3 ./there") == "rank 0: 0: \nrank 1: 0: \nrank 2: 0: \n");
}

TEST_CASE("launch: compare measures its rows in processes, also after a row that fails on all") {
  Launcher const sh;
  std::string const rows =
      "compare --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --stages 0 3 --precisions fp32 "
      "--offloads none cpu_full --steps 3 --warmup 1 ";
  sh.passes(rows + "--ranks 2 --json threads.json");
  std::string const out = sh.passes("./launch 2 " + rows + "--json processes.json");
  test::shows(out, R"(
      all 4 rows equal to the bit
      rank 1: 0: )");
  Json const threads = sh.json("threads.json"), processes = sh.json("processes.json");
  for (std::size_t row = 0; row < 4; ++row)
    for (char const* key : {"experiment", "weights_hash", "losses", "status"})
      CHECK(field(threads, "rows", row, key) == field(processes, "rows", row, key));
}

TEST_CASE("launch: info names the launcher, and times steps in processes") {
  Launcher const sh;
  test::shows(sh.passes("./launch 2 info"), R"(
      launched by \.+ \[OKAY\] torchrun: rank 0 of 2, local rank 0 of 2
      rank 1: 0: )");
  sh.passes("./launch 2 info --measure times.json --measure-time 0");
  CHECK(sh.exists("times.json"));
}

TEST_CASE("launch: a trace holds the entries of all ranks") {
  Launcher const sh;
  sh.passes("./launch 2 train " + launched + " --steps 6 --trace trace.json");
  std::set<int> ranks;
  for (Json const& event : field(sh.json("trace.json"), "traceEvents"))
    ranks.insert(event.at("pid").get<int>());
  CHECK(ranks.size() >= 2);
}
