// SPDX-License-Identifier: Apache-2.0
// Tests `info --fitness`, which puts recipes (combinations of policies) into classes by their need of memory.
// The tests use limits just inside and just outside of the bounds of each class. Also tests the printed
// report and the refusals.
#include "programs/harness.hpp"

using test::field, test::Json, test::Shell, test::table;

namespace {

std::string const fitness = "info --fitness --model layers=2,heads=2,channels=64 --batch 2 --sequence 16 ";
std::string const gpu = "--device cuda --ranks 2 --memory ";
std::string const large_gpu = gpu + "80GiB ";

struct Fitness : Shell {
  /// Checks the fitness class of recipes. Each line of `rows` has the form "class | offload and other flags |
  /// text | text". The reasons that `info` gives for the class must contain all texts of the line.
  void is(std::string const& flags, std::string const& rows) const {
    for (std::vector<std::string> const& row : table(rows)) {
      auto const result = run(fitness + flags + " --json --offloads " + row.at(1));
      Json const found = field(Json::parse(result.out), "rows", 0);
      INFO(flags, " ", row[1], ": ", found, result.err);
      CHECK(found.at("fitness") == row[0]);
      for (std::size_t i = 2; i < row.size(); ++i)
        CHECK_MESSAGE(test::has(found.at("reasons").dump(), row[i]), row[i]);
      CHECK(found.at("best") == (row[0] != "UNFIT"));
      CHECK(result.code == (row[0] == "UNFIT" ? 5 : 0));
      if (row[0] == "UNFIT") test::shows(result.err, R"(^error: no strategy fits .+\n$)");
    }
  }

  /// Returns the bytes that a rank needs in the memory `place`, which is "device", "host" or "nvme". The rank
  /// trains with ZeRO stage 0 and the offload policy `offload`.
  std::int64_t planned(std::string const& offload, std::string const& place) const {
    auto const plan = Json::parse(passes(fitness + large_gpu + "--json --stages zs0 --offloads " + offload));
    return field(plan, "rows", 0, place + "_bytes").get<std::int64_t>();
  }
};

/// Returns the flag `flag` with the number of bytes `value` as its value.
std::string bytes(std::string const& flag, std::int64_t value) { return flag + std::to_string(value); }

}  // namespace

TEST_CASE("fitness: the class depends on how full the device is, without the 1 GiB of a GPU for libraries") {
  Fitness const sh;
  std::int64_t const planned = sh.planned("none", "device");
  auto const memory = [&](std::int64_t room) { return "--stages zs0 " + bytes(gpu, room + (1 << 30)); };
  for (auto const& row : table("59 | EXCELLENT\n 61 | GOOD\n 79 | GOOD\n 81 | FAIR\n 94 | FAIR\n 96 | POOR"))
    sh.is(memory(planned * 100 / std::stoi(row[0])),
          row[1] + " | none | device " + row[0] + "% full | all state is on the device");
  sh.is(memory(planned), "POOR | none | device 100% full");
  sh.is(memory(planned - 1), "UNFIT | none | does not fit: a rank plans | on its device, the limit is");
  sh.is(memory((planned * 100 + 59) / 60), "EXCELLENT | none | device 60% full");
}

TEST_CASE("fitness: the class depends on the tier of the state and on how full the tier is") {
  Fitness const sh;
  sh.is(large_gpu + "--stages zs0", R"(
      GOOD | cpu_optimizer | "GOOD:  | of the state is in host memory, behind the link
      FAIR | cpu_full | "FAIR: 100% of the state is in host memory, behind the link, including weights
      POOR | nvme_optimizer | "POOR:  | of the state is on NVMe
      POOR | nvme | "POOR:  | of the state is on NVMe
      POOR | infinity | "POOR:  | of the state is on NVMe
      POOR | nvme_parameters | "POOR:  | of the state is on NVMe)");
  auto const host = [&](std::int64_t room) { return bytes(large_gpu + "--stages zs0 --host-memory ", room); };
  std::int64_t const planned = sh.planned("cpu_optimizer", "host");
  for (auto const& row : table("79 | GOOD\n 81 | FAIR\n 94 | FAIR\n 96 | POOR")) {
    sh.is(host(planned * 100 / std::stoi(row[0])),
          row[1] + " | cpu_optimizer | host memory " + row[0] + "% full");
    sh.is(host(planned * 100 / std::stoi(row[0])), "EXCELLENT | none | all state is on the device");
  }
  sh.is(host(planned - 1), "UNFIT | cpu_optimizer | of host memory, the limit is");
  auto const nvme = [&](std::int64_t room) { return bytes(large_gpu + "--stages zs0 --nvme-memory ", room); };
  sh.is(nvme(sh.planned("nvme", "nvme")), "POOR | nvme | on NVMe");
  sh.is(nvme(sh.planned("nvme", "nvme") - 1), "UNFIT | nvme | on NVMe, the limit is");
}

TEST_CASE("fitness: the class depends on the work of a step") {
  Fitness const sh;
  sh.is(large_gpu, R"(
      GOOD | none --stages zs3 | "GOOD: a rank gathers the 50% of the weights
      GOOD | none --stages zs3 --ranks 4 | gathers the 75% of the weights
      EXCELLENT | none --stages zs3 --mesh replicate=2
      GOOD | none --stages dp | "GOOD: only rank 0 updates
      GOOD | none --stages zs0 --recompute block | "GOOD: backward recomputes forward
      EXCELLENT | none --stages zs0 --recompute gelu)");
  for (std::string const stage : {"dp", "zs0", "zs1", "zs2", "zs3"})
    sh.is(large_gpu, "EXCELLENT | none --ranks 1 --stages " + stage);
  // On the CPU, device memory is host memory, so an offload to the host transfers nothing over a link.
  sh.is("--device cpu --ranks 2 --host-memory 64GiB --stages zs0", R"(
      EXCELLENT | cpu_full | host memory  | all state is in host memory, which is the memory of the devices
      POOR | nvme --nvme-memory 64GiB | of the state is on NVMe)");
}

TEST_CASE("fitness: the report has one line per strategy, the best first, and says why a recipe is refused") {
  Shell const sh;
  sh.passes(fitness + large_gpu + "--stages dp,0,1,2,3", R"(
      EXCELLENT with zs0, offload none
      dp   none            GOOD      device\x20
      zs3  nvme            POOR      device\x20
      limits: 80\.00 GiB for each rank's device)");
  auto const tf32 = sh.run(
      fitness +
      "--stages 2 --offloads none --precisions bf16,tf32 --device cpu --ranks 2 --memory 80GiB --json");
  Json const refused = field(Json::parse(tf32.out), "rows", 1);
  CHECK(refused.at("fitness") == "UNFIT");
  test::shows(refused.at("reasons").dump(), "refused: --precision tf32");
}

TEST_CASE("fitness: wrong flags are refused") {
  Shell const sh;
  sh.refuses("info", R"(
      2 | --fitness | --fitness needs a model; give --model gpt2
      2 | --fitness --model gpt2-xll | --model | 'gpt2-xll' | nearest is 'gpt2-xl'
      2 | --fitness --model gpt2 --memory much | --memory | 'much'
      2 | --fitness --model gpt2 --memroy 1GB | --memroy | --memory
      1 | --fitness --model gpt2 --json no/such/fit.json | no/such/fit.json
      3 | --fitness --model opt-350m --device cuda --memory 80GB --stages 0 --offloads none | opt-350m
      2 | --fitnes --model gpt2 | --fitnes | nearest is --fitness)");
}
