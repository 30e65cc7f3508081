// SPDX-License-Identifier: Apache-2.0
// Tests the machines whose times are part of the programs, the files of machine times that the program `plan`
// reads, and the script that computes such files for machines on which nothing was measured.
#include <map>

#include "programs/harness.hpp"

using test::field, test::Json, test::replaced, test::Shell;

namespace {

std::filesystem::path const repository = TESSERA_SOURCE;
std::string const one_gpu =
    "plan --model gpt2 --device cuda --memory 80GB --ranks 1 --stages 0 --offloads none --precisions "
    "bf16,fp16,fp32 "
    "--batch 8 --sequence 128 --no-search ";

std::string l4() { return test::read(repository / "examples/machines/l4.json"); }

}  // namespace

TEST_CASE(
    "machines: plan reads each by its name, says where its times are from, and predicts that the H200 is the "
    "fastest") {
  Shell const sh;
  std::map<std::string, std::vector<double>> seconds;
  for (auto const& file : std::filesystem::directory_iterator(repository / "examples/machines")) {
    std::string const name = file.path().stem();
    Json const times = Json::parse(test::read(file.path()));
    std::string const source = times.at("source");
    std::string const device = times.at("machine");
    if (source != "measured on " + device)
      CHECK(source == device + ", scaled from the times of NVIDIA H200 by data sheet; not measured");
    CHECK(test::has(sh.passes(one_gpu + "--json plan.json --machine " + name),
                    "\ntimes: " + name + ", " + source + "\n"));
    Json const plan = sh.json("plan.json");
    CHECK(field(plan, "environment", "machine_source") == source);
    for (std::size_t i = 0; i < 3; ++i) {
      seconds[name].push_back(field(plan, "rows", i, "predicted_step_time_s"));
      CHECK(field(plan, "rows", i, "predicted_guessed_pct") == 0.0);
    }
  }
  std::string names;
  for (auto const& [name, steps] : seconds) {
    names += ", " + name;
    // The data sheet of the RTX 4090 has a higher rate of fp32 than that of the H200.
    for (std::size_t i = 0; i < (name == "rtx4090" ? 2 : 3) && name != "h200"; ++i)
      CHECK(steps[i] > seconds.at("h200")[i]);
  }
  CHECK(names == ", a100-80gb, h100-nvl, h100-sxm, h200, l4, rtx3090, rtx4090");
  sh.passes("plan --help", names.substr(2));
  sh.passes(one_gpu + "--json none.json");
  CHECK(field(sh.json("none.json"), "environment", "machine_source").is_null());
}

TEST_CASE(
    "machines: no GPU with lower rates in its data sheet is predicted to be faster than the H200, also for "
    "work that was not measured") {
  Shell const sh;
  for (std::string const recipes :
       {"--model llama-2-7b --ranks 1,4 --sequence 4096 --batch 1", "--model opt-1.3b --ranks 4 --batch 2",
        "--model gpt2-xl --ranks 2 --batch 2 --sequence 1024"}) {
    std::string const plan =
        "plan --device cuda --precisions bf16,fp32 --stages 0,1,2,3 --no-search --brief "
        "--offloads none,cpu_optimizer --json plan.json " +
        recipes + " --machine ";
    auto const seconds = [&](std::string const& machine) {
      int const code = sh.run(plan + machine).code;
      CHECK((code == 0 || code == 5));  // rows that do not fit are predicted too
      std::vector<double> all;
      Json const rows = sh.json("plan.json").at("rows");
      for (Json const& row : rows) all.push_back(row.at("predicted_step_time_s"));
      return all;
    };
    std::vector<double> const h200 = seconds("h200");
    for (std::string const machine : {"h100-sxm", "h100-nvl", "a100-80gb", "l4"}) {
      std::vector<double> const other = seconds(machine);
      REQUIRE(other.size() == h200.size());
      CAPTURE(machine + " " + recipes);
      // In the simulation, a slower computation can hide a transfer, so a step can be shorter by very little.
      for (std::size_t i = 0; i < h200.size(); ++i) CHECK(other[i] > 0.999 * h200[i]);
    }
  }
  sh.write("self.json", replaced(l4(), R"("machine":"h200")", R"("machine":"l4")"));
  sh.write("rate.json", replaced(l4(), R"("rates": \{"memory_bytes_per_s":3e\+11)",
                                 R"("rates": {"memory_bytes_per_s":0)"));
  sh.refuses(one_gpu, R"(
      4 | --machine self.json | 'machine' is not a machine with measured times, which are h200
      4 | --machine rate.json | scaled_from or rates cannot be read ( | 'memory_bytes_per_s' is not a number)");
}

TEST_CASE(
    "machines: a file gives the same times as its name, and its source is printed, or its machine if it has "
    "none") {
  Shell const sh;
  sh.passes(one_gpu + "--machine l4 --json name.json");
  sh.passes(one_gpu + R"(--machine "$TESSERA_SOURCE"/examples/machines/l4.json --json path.json)");
  CHECK(field(sh.json("name.json"), "rows", 0, "predicted_step_time_s") ==
        field(sh.json("path.json"), "rows", 0, "predicted_step_time_s"));
  sh.write("l4", replaced(l4(), R"("source": .*\n)", ""));
  sh.passes(one_gpu + "--machine ./l4", R"(\ntimes: \./l4, measured on NVIDIA L4\n)");
  sh.refuses(one_gpu, R"(
      2 | --machine l4 | l4 is both a machine that comes with the programs and a file in this folder | give ./l4 for the file)");
  sh.write("book", replaced(l4(), R"("source": .*\n)", "\"source\": \"from a book\",\n"));
  sh.passes(one_gpu + "--machine book --json book.json", R"(\ntimes: book, NVIDIA L4, from a book\n)");
  CHECK(field(sh.json("book.json"), "environment", "machine_source") == "NVIDIA L4, from a book");
}

TEST_CASE(
    "machines: a damaged file is refused with what is wrong in it, and for a timing with its number and "
    "key") {
  Shell const sh;
  for (auto const& row : test::table(R"(
      "source": .*\n | "source": 7, | has a source that is not text
      "device": "cuda" | "device": "CUDA" | has times of device 'CUDA', but the devices are cpu and cuda
      "flops": | "flopz": | timing 1 cannot be read ( | it has no 'flops'
      "move":false | "move":0 | timing 1 cannot be read ( | 'move' is not true or false
      "seconds": | "seconds":- | timing 1 cannot be read ( | 'seconds' is not a number from 1e-09)")) {
    sh.write("bad.json", replaced(l4(), row[0], row[1]));
    sh.refuses(one_gpu, "4 | --machine bad.json | bad.json: " + row[2] + " | " + row.back());
  }
}

TEST_CASE("machines: unknown names and the wrong device are refused") {
  Shell const sh;
  sh.passes("mkdir folder");
  sh.refuses(one_gpu, R"(
      2 | --machine h300 | no machine is called 'h300' | a100-80gb, h100-nvl, h100-sxm, h200, l4 | info --measure FILE
      2 | --machine H200 | no machine is called 'H200'
      2 | --machine h300.json | no machine is called 'h300.json', and no file has this name | choose from a100-80gb
      4 | --machine ./h300.json | h300.json: is not a readable file
      2 | --machine folder | no machine is called 'folder' | choose from a100-80gb
      3 | --machine h200 --device cpu | h200 has times of device cuda, but --device is cpu | give --device cuda)");
}

TEST_CASE(
    "machines: plan picks recipes for several GPUs that are not here, with their memory and their link") {
  Shell const sh;
  struct Row {
    char const *flags, *limit, *collectives;
    int rows;  // number of rows with a prediction
  };
  for (Row const& row :
       {Row{"--machine a100-80gb --gpus 4 --model llama-2-7b --batch 2 --sequence 512 --stages 1,2,3",
            "80.00 GiB for each rank's device, the memory of NVIDIA A100-SXM4-80GB, 1.00 GiB of it",
            "NVLink 3 with 600 GB/s, computed from the data sheet", 3},
        Row{"--machine a100-80gb --gpus 8 --model llama-2-70b --batch 1 --sequence 512 --offloads cpu_full "
            "--stages 3",
            "the memory of NVIDIA A100-SXM4-80GB", "NVLink 3", 1},
        Row{"--machine l4 --gpus 2 --model gpt2 --stages 0,1,2,3", "22.49 GiB for each rank's device",
            "PCIe 4", 4},
        Row{"--machine l4 --gpus 4 --model gpt2 --stages 0,1,2,3", "the memory of NVIDIA L4", "PCIe 4", 4}})
    for (std::string const preference : {"speed", "memory", "efficiency"}) {
      std::string const out =
          sh.passes("plan --precisions bf16 --no-search --json plan.json --offloads none --prefer " +
                    preference + " " + row.flags);
      CHECK(test::has(out, row.limit));
      CHECK(test::has(out, std::string("\ncollectives: ") + row.collectives));
      test::shows(
          out,
          R"(\npick for .* ms a step, [0-9,]+ tok/s predicted, (error possibly above )?\+-[0-9]+% \(link times from its data sheet.* per GiB of a rank's memory\n)");
      CHECK_FALSE(test::has(out, "not predicted"));
      for (int i = 0; i < row.rows; ++i)
        CHECK(field(sh.json("plan.json"), "rows", static_cast<std::size_t>(i), "predicted_step_time_s") >
              0.0);
    }
  std::string const one = sh.passes(
      "plan --machine l4 --gpus 1 --model gpt2-large --precisions bf16 --stages 0 --offloads none "
      "--prefer speed --no-search");
  test::shows(one, R"(\npick for .* ms a step, [0-9,]+ tok/s predicted, )");
  CHECK_FALSE(test::has(one, "collectives: "));  // one GPU has no collectives
  sh.passes(
      "plan --machine a100-80gb --gpus 1 --model llama-2-13b --precisions bf16 --prefer speed --no-search "
      "--offloads cpu_optimizer,cpu_full",
      R"(\npick for .*_offcpu.*, .* ms a step, [0-9,]+ tok/s predicted, )");
  // The user's limit replaces the limit of the machine, and a measured link is not called link data.
  std::string const own = sh.passes(
      "plan --machine h200 --gpus 4 --model gpt2 --memory 40GiB --precisions bf16 "
      "--offloads none --prefer speed --no-search");
  CHECK(test::has(own, "limits: 40.00 GiB for each rank's device, 1.00 GiB"));
  CHECK_FALSE(test::has(own, "link times from its data sheet"));
  sh.passes(
      "plan --machine l4 --gpus 1,2 --model gpt2 --precisions bf16 --stages 2 --offloads none --no-search "
      "--json link.json");
  CHECK(field(sh.json("link.json"), "rows", 0, "predicted_from_link_data") == false);
  CHECK(field(sh.json("link.json"), "rows", 1, "predicted_from_link_data") == true);
}

TEST_CASE("machines: more ranks are faster, a slower link is slower, and a host has only so many GPUs") {
  Shell const sh;
  std::string const base =
      "plan --model gpt2 --precisions bf16 --batch 8 --sequence 512 --offloads none "
      "--no-search --json plan.json --stages 2 ";
  auto const rates = [&](std::string const& flags) {
    sh.passes(base + flags);
    std::vector<double> all;
    Json const plan = sh.json("plan.json");
    for (std::size_t i = 0; i < field(plan, "rows").size(); ++i)
      all.push_back(field(plan, "rows", i, "predicted_tokens_per_sec"));
    return all;
  };
  std::vector<double> const l4 = rates("--machine l4 --gpus 1,2,4");
  CHECK(l4[1] > 1.3 * l4[0]);
  CHECK(l4[1] < 2.0 * l4[0]);
  CHECK(l4[2] > 1.3 * l4[1]);
  CHECK(l4[2] < 2.0 * l4[1]);
  // With the link of the H200, the same GPUs scale better.
  Json h200 = Json::parse(test::read(repository / "examples/machines/h200.json"));
  Json fast = Json::parse(::l4());
  fast["collectives"] = h200["collectives"];
  sh.write("fast.json", fast.dump());
  CHECK(rates("--machine ./fast.json --gpus 2")[0] > l4[1]);
  sh.passes(
      "plan --machine a100-80gb --gpus 16 --model gpt2 --precisions bf16 --offloads none --prefer speed "
      "--no-search",
      R"(
      \nnot predicted: .*: a host with NVIDIA A100-SXM4-80GB has up to 8 GPUs, but the row has 16 ranks\n
      \n  no recipe that fits has a predicted time: a host with NVIDIA A100)");
}

TEST_CASE("machines: the script copies measured collectives into the file of the H200") {
  Shell const sh;
  sh.passes(R"(cp -r "$TESSERA_SOURCE"/examples/machines .)");
  std::string const script = R"("$TESSERA_SOURCE"/benchmarks/machines.sh )";
  sh.passes("info --measure two.json --device cpu --precisions bf16 --ranks 1,2 --measure-time 0");
  sh.passes(script + "--fold two.json machines", "wrote the collectives of two.json to machines/h200.json");
  CHECK(sh.run(script + "--check machines").code == 0);
  Json const measured = sh.json("two.json").at("collectives").at("points");
  CHECK(measured.size() > 10);
  auto const of_two = [](Json const& machine) {
    Json points = Json::array();
    for (Json const& point : machine.at("collectives").at("points"))
      if (point.at("ranks") == 2) points.push_back(point);
    return points;
  };
  CHECK(of_two(sh.json("machines/h200.json")) == measured);
  std::size_t const before = Json::parse(test::read(repository / "examples/machines/h200.json"))
                                 .at("collectives")
                                 .at("points")
                                 .size();
  CHECK(sh.json("machines/h200.json").at("collectives").at("points").size() == before + measured.size());
  sh.passes(script + "--fold two.json machines");  // replaces the points of the first time
  CHECK(of_two(sh.json("machines/h200.json")) == measured);
  CHECK(of_two(sh.json("machines/l4.json")).size() == measured.size());
  sh.passes(
      "plan --machine machines/l4.json --gpus 2 --model gpt2 --precisions bf16 --no-search --offloads none");
  sh.ends(2, script + "--fold machines/absent.json machines 2>&1", "absent.json has no collectives");
}

TEST_CASE(
    "machines: the script makes the files that were not measured, and its check finds a changed figure") {
  Shell const sh;
  std::string const script = R"("$TESSERA_SOURCE"/benchmarks/machines.sh )";
  CHECK(sh.run(script + "--check").code == 0);
  sh.passes(R"(cp -r "$TESSERA_SOURCE"/examples/machines .)");
  sh.write("machines/l4.json", replaced(l4(), R"("seconds":[0-9.e-]+)", R"("seconds":0.5)"));
  sh.ends(1, script + "--check machines 2>&1", "l4.json differs from the output of benchmarks/machines.sh");
  for (std::string const arguments : {"--chek", "-h", "--check --check", "--check a b"})
    sh.ends(2, script + arguments + " 2>&1",
            R"(is not a valid list of arguments; give \[--check \| --fold FILE\] \[FOLDER\])");
  sh.write("machines/h200.json", replaced(sh.text("machines/h200.json"), R"("ranks":1,)", R"("ranks":2,)"));
  sh.ends(2, script + "--check machines 2>&1", "is of several ranks");
}

TEST_CASE("machines: the script and the programs have the same peak figures") {
  std::string const peaks = test::read(repository / "examples/programs/machine/peaks.hpp");
  auto const rows = test::matches(test::read(repository / "benchmarks/machines.sh"),
                                  R"(\n[a-z0-9-]+ +[|] NVIDIA [^|]+[|] +[0-9]+ [|] [0-9.]+ [|] [0-9.]+ [|])");
  CHECK(rows.size() == 7);
  for (std::string const& row : rows)
    test::shows(peaks,
                replaced(row, R"(\n.*[|] (NVIDIA [^|]*[^| ]) *[|] +[0-9]+ [|] ([0-9.]+) [|] ([0-9.]+) [|])",
                         R"(\{"$1", $2, [0-9.]+, $3\})"));
}

TEST_CASE("machines: report shows the planned memory and the predicted speed next to published figures") {
  Shell const sh;
  sh.run(
      "plan @\"$TESSERA_SOURCE\"/examples/experiments/large-models.flags --device cuda --machine a100-80gb "
      "--nvme-memory 2TB --no-search --json large.json");
  Json const plan = sh.json("large.json");
  Json const& row = plan.at("rows").at(1);
  CHECK(field(row, "status") == "oom");
  double const peak = row.at("planned_gpu_mem_mb").get<double>() * 1048576e-9;
  CHECK(field(row, "published", "planned", "peak_gb") == doctest::Approx(peak));
  CHECK(field(row, "published", "planned", "tokens_per_sec_per_gpu") ==
        doctest::Approx(row.at("predicted_tokens_per_sec").get<double>() / 8));
  CHECK(field(row, "published", "ours") == Json::object());

  sh.passes("report large.json --markdown page.md");
  test::shows(sh.text("page.md"), R"(
      Planned is the planned memory or the predicted speed of a row that did not run
      Cannot be: offload none: 72 GB on each of eight
      \| figure \| published \| \+- \| ours \| \+- ours \| ratio \| planned \|
      \| large-models \| .* \| peak GB \| 72 \| - \| - \| - \| - \| [0-9.]+ \|)");

  // The same table for plans that were made without --published.
  sh.run(
      "plan --model llama-2-7b --device cuda --machine a100-80gb --gpus 4 --batch 4 --sequence 512 "
      "--stages 3 --offloads none --precisions bf16 --no-search --json seven.json");
  sh.passes("report seven.json --markdown none.md");
  CHECK_FALSE(test::has(sh.text("none.md"), "Published figures"));
  sh.passes("report seven.json --published stage-sweep-7b --markdown seven.md");
  test::shows(sh.text("seven.md"), R"(\| stage-sweep-7b \| .* \| peak GB \| 18 \| .* \| [0-9.]+ \|)");
}
