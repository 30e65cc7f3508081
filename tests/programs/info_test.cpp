// SPDX-License-Identifier: Apache-2.0
// Tests the program `info`: its printed report, its JSON, and its flags --measure and --help.
#include "tessera/detail/affinity.hpp"

#include "programs/harness.hpp"

using test::field, test::Json, test::Shell;

TEST_CASE("info: the report has a line for each component") {
  Shell const sh;
  std::string const report = sh.passes("unset TESSERA_NVML; info");
  for (std::string const part : {"compiler", "Eigen", "CPU backend", "CUDA backend", "NVIDIA driver", "NVML",
                                 "CUDA toolkit", "NCCL", "cuDNN", "io_uring", "launched by", "default data"})
    test::shows(report, R"(\n  )" + part + R"( \.\.+ \[(OKAY|NO)\] +.+\n)");
}

TEST_CASE("info: the JSON is complete") {
  Shell const sh;
  Json const report = Json::parse(sh.passes("info --json"));
  CHECK(report.at("schema_version") == 1);
  CHECK(field(report, "environment", "cores") >= 1);
  CHECK(report.at("recipes").size() >= 5);
  CHECK(report.at("components").size() >= 10);
  for (Json const& component : report.at("components")) {
    CHECK((component.at("status") == "OKAY" || component.at("status") == "NO"));
    CHECK(component.at("detail").get<std::string>() != "");
  }
  CHECK(field(report, "slots", "sharding", "zs3", "status") == "OKAY");
  CHECK(field(report, "slots", "attention", "cudnn", "reason").get<std::string>() != "");
  CHECK(sh.passes("info --json out.json") == "");
  CHECK(sh.exists("out.json"));
  sh.refuses("info", "1 | --json no/such/out.json | no/such/out.json");
}

TEST_CASE("info: the number of cores is the number of cores in the affinity mask") {
  Shell const sh;
  int const core = tessera::affinity::allowed_cores().front();
  if (sh.run("taskset -c " + std::to_string(core) + " true").code != 0) return;
  std::string const report = sh.passes("taskset -c " + std::to_string(core) + " info --json");
  CHECK(field(Json::parse(report), "environment", "cores") == 1);
}

TEST_CASE("info: --measure times at least one training, and refuses wrong flags before anything runs") {
  Shell const sh;
  sh.passes("info --measure machine.json --device cpu --precisions bf16 --ranks 1 --measure-time 0", R"(
      trainings were left out after 0 s
      timed [0-9]+ kinds and sizes of work on .+ cores\nwrote machine.json\n$)");
  // With --nvme-path, the second training has state on disk and gives the speed of the disk.
  sh.passes(
      "mkdir disk && info --measure disk.json --device cpu --precisions fp32 --ranks 2 --measure-time 5 "
      "--nvme-path disk",
      R"(
      \nthe disk moved [0-9.]+ GB/s(; 5 GB/s or more are advised for state on NVMe)?\ntimed )");
  Json const times = sh.json("machine.json");
  CHECK(times.at("device") == "cpu");
  CHECK(field(times, "timings", 0, "precision") == "bf16");
  sh.refuses("info", R"(
      2 | --ranks 2 | unknown flag '--ranks'
      2 | --jsn | --json
      2 | --nproc_per_node=2 | '--nproc_per_node' is a flag of the launcher | info needs no launcher, so leave it out
      2 | --measure m.json --json o.json | unknown flag '--json'
      2 | --measure m.json --batch 2 | --batch needs a model
      3 | --measure m.json --model gpt2 --sequence 2048 | --sequence 2048 is beyond
      3 | --measure m.json --precisions tf32 --device cpu | tf32
      2 | --measure m.json --nvme-path absent | absent is not a folder
      2 | --measure m.json --precisions bf17 | nearest
      1 | --measure no/such/m.json | no/such
      3 | --measure m.json --model opt-350m | opt-350m)");
}

TEST_CASE("info: an incomplete launch is reported, and so is a launch of one process") {
  Shell const sh;
  sh.passes("RANK=0 info", R"(launched by \.+ \[NO\] +WORLD_SIZE is not set)");
  sh.passes("RANK=0 WORLD_SIZE=1 info", R"(launched by \.+ \[OKAY\] +torchrun: rank 0 of 1, )");
}

TEST_CASE(
    "info: the command lines that --help mentions work in any order, and every help ends with the exit "
    "codes") {
  Shell const sh;
  for (std::string const flags : {"--help", "--measure --help", "--help --measure", "--measure -h",
                                  "--measure m.json --help", "--fitness --help"}) {
    std::string const help = sh.passes("info " + flags, R"(
        \nExit codes of the programs: 0 done, 1 failed, 2 wrong command line, 3 [^:]+; 129, 130 and 143\ninterrupted.\n+$)");
    if (test::has(flags, "measure")) test::shows(help, "--measure-time");
  }
}

TEST_CASE("info: with so little memory that cuDNN ends the process which loads it, info survives") {
  Shell const sh;
  std::string const limit = "ulimit -v 200000; ";
  if (sh.run(limit + "info --version").code != 0) return;  // with a sanitizer, the program cannot start
  sh.passes(limit + "info", R"(\n  cuDNN \.\.+ \[(OKAY|NO)\] +.+\n)");
}
