// SPDX-License-Identifier: Apache-2.0
// Tests the script examples/slurm/train.sh with commands that take the place of sbatch and srun.
#include "programs/train.hpp"

using test::Train;

namespace {

/// Runs commands in a folder with a copy of a part of the repository: the script, and a program that prints
/// its arguments. The commands `sbatch` and `srun` print their arguments too.
struct Slurm : Train {
  Slurm() {
    passes(R"(mkdir -p repository/examples/slurm repository/build/cuda/bin repository/build/cpu/bin bin
      cp "$TESSERA_SOURCE"/examples/slurm/train.sh repository/examples/slurm
      for file in bin/sbatch bin/srun repository/build/cuda/bin/train repository/build/cpu/bin/train; do
        printf '#!/bin/sh\necho "${0##*/}" "$@"\n' > $file; chmod +x $file
      done)");
  }
  static inline std::string const script = "PATH=$PWD/bin:$PATH; repository/examples/slurm/train.sh ";
};

}  // namespace

TEST_CASE("train slurm: the default program belongs to the repository of the script, in every folder") {
  Slurm const sh;
  for (auto const& row : test::table(R"(
      --gpus 4 | cuda
      --cpus 2 | cpu)"))
    sh.passes(sh.script + row[0] + " --data text.txt -- --steps 3",
              "^sbatch .*/train.sh --program /.*/repository/build/" + row[1] + "/bin/train " + row[0] +
                  " --data text.txt -- --steps 3\n$");
  // sbatch runs a copy of the script in another folder, with the arguments of the line above.
  sh.passes("mkdir spool; cp repository/examples/slurm/train.sh spool/slurm_script");
  sh.passes(
      "PATH=$PWD/bin:$PATH; SLURM_JOB_ID=7 spool/slurm_script --program $PWD/repository/build/cuda/bin/train "
      "--gpus 4 --data text.txt -- --steps 3",
      "^srun .*/repository/build/cuda/bin/train --device cuda --stage zs2 --data text.txt .*--steps 3\n$");
  CHECK(sh.run("SLURM_JOB_ID=7 spool/slurm_script --gpus 4").err ==
        "train.sh: the program build/cuda/bin/train does not exist; build it with: cmake --preset cuda && "
        "cmake "
        "--build "
        "--preset cuda --target tessera_train, or give --program\n");
}

TEST_CASE(
    "train slurm: --dry-run prints the command and the options of sbatch, and submits and creates nothing") {
  Slurm const sh;
  auto const dry = sh.run(sh.script + "--gpus 4 --dry-run --data text.txt -- --steps 3 --dry-run");
  CHECK(dry.code == 0);
  test::shows(
      dry.out,
      "^sbatch --nodes=1 --ntasks-per-node=4 --gpus-per-node=4 --output=runs/zs2/job-%j.out "
      ".*/train.sh --program .*/repository/build/cuda/bin/train --gpus 4 --data text.txt -- "
      "--steps 3 --dry-run\n# sbatch also reads from the script: --job-name=tessera --signal=TERM@120 "
      "--open-mode=append\n$");
  CHECK(dry.err == "");
  test::shows(
      sh.run("export SBATCH_PARTITION=gpu SBATCH_TIMELIMIT=60; " + sh.script + "--gpus 4 --dry-run").out,
      "^SBATCH_PARTITION=gpu SBATCH_TIMELIMIT=60 sbatch --nodes=1 ");
  // The line of the README can be tried before the data and the program exist.
  auto const early = sh.run(sh.script + "--gpus 4 --data nowhere.bin --dry-run");
  CHECK(early.code == 0);
  CHECK(early.out.starts_with("sbatch "));
  CHECK(early.err ==
        "train.sh: warning: the file nowhere.bin does not exist; give --data a file or folder that exists on "
        "every node\n");
  CHECK(sh.run("export SLURM_JOB_ID=7; " + sh.script + "--gpus 4 --dry-run").err ==
        "train.sh: --dry-run prints the command of sbatch, but this is already job 7; leave it out\n");
  sh.passes("rm repository/build/cuda/bin/train");
  auto const unbuilt = sh.run(sh.script + "--gpus 4 --dry-run");
  CHECK(unbuilt.code == 0);
  CHECK(unbuilt.out.starts_with("sbatch "));
  test::shows(unbuilt.err,
              "^train.sh: warning: the program /.*/repository/build/cuda/bin/train does not exist; build it "
              "with: cmake --preset cuda .*\n$");
  CHECK_FALSE(sh.exists("runs"));
}

TEST_CASE("train slurm: missing data and a missing program are refused before the job is submitted") {
  Slurm const sh;
  auto const data = sh.run(sh.script + "--gpus 4 --data nowhere.bin");
  CHECK(data.code == 2);
  CHECK(data.out == "");
  CHECK(data.err ==
        "train.sh: the file nowhere.bin does not exist; give --data a file or folder that exists on every "
        "node\n");
  CHECK_FALSE(sh.exists("runs"));
  sh.passes("rm repository/build/cuda/bin/train");
  auto const program = sh.run(sh.script + "--gpus 4 --data text.txt");
  CHECK(program.code == 2);
  test::shows(
      program.err,
      "^train.sh: the program /.*/repository/build/cuda/bin/train does not exist; build it with: cmake "
      "--preset cuda ");
  sh.passes("rm repository/build/cpu/bin/train");
  test::shows(sh.run(sh.script + "--cpus 2").err, "; build it with: cmake --preset cpu && ");
  CHECK_FALSE(sh.exists("runs"));
}
