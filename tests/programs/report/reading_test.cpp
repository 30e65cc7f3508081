// SPDX-License-Identifier: Apache-2.0
// Tests how the program `report` reads rows of results from the files of other programs and from the files of
// older versions.
#include "report/reading.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

#include "report/judge.hpp"

namespace fs = std::filesystem;
using namespace programs::reporting;

namespace {

struct Folder {
  fs::path path = fs::temp_directory_path() / ("tessera-report-" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  fs::path write(std::string const& name, std::string const& text) const {
    fs::create_directories((path / name).parent_path());
    std::ofstream(path / name) << text;
    return path / name;
  }
};

Inputs read(fs::path const& file) {
  Inputs inputs;
  read_file(file, inputs);
  return inputs;
}

std::string old_document(int version) {
  return R"({"schema_version": )" + std::to_string(version) + R"(, "command": "compare", "environment": {
    "host": "box", "memory_bytes": 2147483648, "gpus": [{"name": "A"}, {"name": "A"}]}, "rows": [
    {"experiment": "zs1_fp32_ranks2_bs4_sl64", "stage": 1, "status": "ok", "attention": "fused",
     "median_tokens_per_sec": 1000.0, "std_tokens_per_sec": 100.0, "avg_step_time_s": 0.5,
     "median_step_time_s": 0.4, "std_step_time_s": 0.05, "world": 2, "losses": [5, null, 4.5]}]})";
}

}  // namespace

TEST_CASE("report: results of every version are read, each as its version means it") {
  Folder const folder;
  Inputs const first = read(folder.write("a.json", old_document(1)));
  REQUIRE(first.rows.size() == 1);
  Row const& old = first.rows[0];
  CHECK(old[Word::sharding] == "1");
  CHECK(old[Word::attention].empty());
  CHECK_FALSE(old[Number::std_step_time_s]);
  CHECK(*old[Number::step_to_step_std_s] == 0.05);
  CHECK(*old[Number::spread_pct] == doctest::Approx(10.0));
  CHECK(old.is_unsteady());
  CHECK(old.losses.size() == 3);
  CHECK_FALSE(old.losses[1]);
  CHECK(first.sources[0].notes.size() == 1);
  CHECK(first.sources[0].notes[0].find("version 1") != std::string::npos);
  CHECK(first.sources[0].environment[1].second == "2.0 GiB");
  CHECK(first.sources[0].environment[2].second == "2 x A");
  CHECK(read(folder.write("b.json", old_document(2))).rows[0][Word::attention] == "fused");
  Row const newest = read(folder.write("c.json", old_document(3))).rows[0];
  CHECK(*newest[Number::std_step_time_s] == 0.05);
  CHECK_FALSE(newest[Number::spread_pct]);
  CHECK_THROWS_AS(read(folder.write("d.json", old_document(4))), tessera::Error const&);
}

TEST_CASE("report: names of experiments say what their rows are") {
  Row row;
  row[Word::experiment] = "zs2_fp16_ranks4_bs8_sl128_offcpufull_acc2";
  describe_by_name(row);
  CHECK(row[Word::sharding] == "zs2");
  CHECK(row[Word::precision] == "fp16");
  CHECK(row[Word::offload] == "cpu_full");
  CHECK(*row[Number::world] == 4.0);
  CHECK(*row[Number::batch] == 8.0);
  CHECK(*row[Number::sequence] == 128.0);
  CHECK(*row[Number::accumulation] == 2.0);
  Row other;
  other[Word::experiment] = "my-run_fp16";
  describe_by_name(other);
  CHECK(other[Word::sharding].empty());
}

TEST_CASE("report: step logs are folded over their repeats, without the steps that warm up") {
  Folder const folder;
  std::string const head = "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n";
  std::string const name = "logs/zs0_fp32_ranks2_bs4_sl64/run";
  folder.write(name + "1/step_log.csv", head + "1,9.0,1,7.5,5.0\n2,0.5,200,8.5,4.0\n3,0.5,200,8.5,3.0\n");
  folder.write(name + "2/step_log.csv",
               head + "1,9.0,1,7.5,5.0\r\n2,0.25,400,8.5,4.0\r\n3,0.25,400,8.0,3.0\r\n");
  Inputs inputs;
  auto const logs = step_logs_below(folder.path / "logs");
  REQUIRE(logs.size() == 2);
  read_step_logs(folder.path / "logs", logs, 1, inputs);
  REQUIRE(inputs.rows.size() == 1);
  Row const& row = inputs.rows[0];
  CHECK(*row[Number::median_tokens_per_sec] == doctest::Approx(300.0));
  CHECK(*row[Number::std_tokens_per_sec] == doctest::Approx(141.42135));
  CHECK(*row[Number::avg_step_time_s] == doctest::Approx(0.375));
  CHECK(*row[Number::step_to_step_std_s] == doctest::Approx(0.0));
  CHECK(*row[Number::peak_gpu_mem_mb] == 8.5);
  CHECK(*row[Number::repeats] == 2.0);
  CHECK(*row[Number::final_loss] == 3.0);
  CHECK(row.is_unsteady());
  CHECK(row[Word::device] == "cpu");
  // If all steps of a log are warm-up steps, no step is timed. The row of this log then has no rate, and its
  // `reason` says why.
  Inputs none;
  read_step_logs(folder.path / "logs", logs, 3, none);
  CHECK_FALSE(none.rows[0][Number::median_tokens_per_sec]);
  CHECK(none.rows[0][Word::reason].find("no step was timed") != std::string::npos);
}

TEST_CASE("report: a summary of step logs has the worst status of the rows of its runs") {
  Folder const folder;
  std::string const name = "zs0_fp32_ranks2_bs4_sl64";
  auto const run = [&](std::string const& time, std::string const& status, int number, int steps) {
    folder.write(
        "results/compare_" + time + ".json",
        R"({"schema_version": 3, "command": "compare", "environment": {}, "rows": [{"experiment": ")" + name +
            R"(", "model": "tiny", "sharding": "zs0", "status": )" + status + "}]}");
    std::string log = "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n";
    for (int step = 1; step <= steps; ++step) log += std::to_string(step) + ",0.5,200,8.5,5.0\n";
    folder.write("results/" + time + "/" + name + "/run" + std::to_string(number) + "/step_log.csv", log);
  };
  auto const summary = [&] {
    Inputs inputs;
    read_step_logs(folder.path / "results", step_logs_below(folder.path / "results"), 1, inputs);
    REQUIRE(inputs.rows.size() == 1);
    return inputs.rows[0][Word::status] + ": " + inputs.rows[0][Word::reason];
  };
  run("20261125_100010", R"("ok")", 1, 5);
  CHECK(summary() == "ok: ");
  std::string const interrupted = R"("failed", "reason": "interrupted by SIGINT after step 3")";
  run("20261125_100011", interrupted, 1, 5);
  run("20261125_100011", interrupted, 2, 3);
  CHECK(summary() ==
        "failed: 2 of 3 runs belong to rows with this status: interrupted by SIGINT after step 3");
  run("20261125_100012", R"("oom", "reason": "needs 9 GiB")", 1, 2);
  CHECK(summary().starts_with("failed: 3 of 4 runs belong to rows"));
  // Without result files the reason says that runs have different lengths.
  for (char const* const time : {"10", "11", "12"})
    fs::remove(folder.path / ("results/compare_20261125_1000" + std::string(time) + ".json"));
  CHECK(summary() ==
        "ok: 2 of 4 runs have fewer than 5 steps and no result file, so it is not known whether it was "
        "interrupted");
}

TEST_CASE("report: step logs of two models, or of two learning rates, are not folded") {
  Folder const folder;
  std::string const name = "zs0_fp32_ranks2_bs4_sl64";
  auto const run = [&](std::string const& time, char const* model, char const* rate, double tokens,
                       bool flat) {
    std::string const row = R"({"schema_version": 3, "experiment": ")" + name +
                            R"(", "status": "ok", "model": ")" + model +
                            R"(", "sharding": "zs0", "world": 2})";
    folder.write(
        "results/compare_" + time + ".json",
        flat ? "[" + row + "]"
             : R"({"schema_version": 3, "command": "compare", "environment": {"settings": {"steps": )" +
                   time.substr(13) + R"(, "learning_rate": )" + rate + R"(}}, "rows": [)" + row + "]}");
    folder.write("results/" + time + "/" + name + "/run1/step_log.csv",
                 "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n1,1,1,8.5,5.0\n2,0.5," +
                     std::to_string(tokens) + ",8.5,4.0\n");
  };
  run("20261125_100010", "tiny", "0.001", 200, false);
  run("20261125_100011", "tiny", "0.001", 400, false);
  run("20261125_100012", "gpt2", "0.001", 600, false);
  run("20261125_100013", "gpt2", "0.002", 800, false);
  run("20261125_100014", "opt", "0.002", 1000, true);
  Inputs inputs;
  read_step_logs(folder.path / "results", step_logs_below(folder.path / "results"), 1, inputs);
  REQUIRE(inputs.rows.size() == 4);
  std::string found;
  for (Row const& row : inputs.rows)
    found += row[Word::model] + " " + std::to_string(static_cast<int>(*row[Number::median_tokens_per_sec])) +
             " " + std::to_string(static_cast<int>(*row[Number::repeats])) + "; ";
  CHECK(found == "gpt2 600 1; gpt2 800 1; opt 1000 1; tiny 300 2; ");
  CHECK(inputs.rows[0][Word::experiment] == name + " in 20261125_100012");
}

TEST_CASE("report: step logs without their comparison are told apart by their memory") {
  Folder const folder;
  for (char const* memory : {"8.5", "9.5"})
    folder.write("logs/" + std::string(memory) + "/zs0_fp32/run1/step_log.csv",
                 std::string("global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n1,1,1,") + memory +
                     ",5.0\n2,0.5,200," + memory + ",4.0\n");
  Inputs inputs;
  read_step_logs(folder.path / "logs", step_logs_below(folder.path / "logs"), 1, inputs);
  CHECK(inputs.rows.size() == 2);
}

TEST_CASE("report: step logs without their comparison and without memory are never folded over folders") {
  Folder const folder;
  for (char const* run : {"one/zs0_fp32/run1", "one/zs0_fp32/run2", "other/zs0_fp32/run1"})
    folder.write("logs/" + std::string(run) + "/step_log.csv",
                 "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n1,1,1,,5.0\n2,0.5,200,,4.0\n");
  Inputs inputs;
  read_step_logs(folder.path / "logs", step_logs_below(folder.path / "logs"), std::nullopt, inputs);
  REQUIRE(inputs.rows.size() == 2);
  CHECK(*inputs.rows[0][Number::repeats] + *inputs.rows[1][Number::repeats] == 3.0);
}

TEST_CASE("report: a run without --warmup has the warm-up of its comparison") {
  Folder const folder;
  std::string const name = "zs0_fp32_ranks2_bs4_sl64";
  folder.write("results/compare.json",
               R"({"schema_version": 3, "command": "compare", "environment": {}, "rows": [{"experiment": ")" +
                   name + R"(", "status": "ok", "model": "tiny", "warmup": 2}]})");
  folder.write("results/" + name + "/run1/step_log.csv",
               "global_step,step_time_s,tokens_per_sec,gpu_max_mem_mb,loss\n1,9,1,8.5,5\n2,9,1,8.5,4\n"
               "3,0.5,200,8.5,3\n");
  auto const steps_of = [&](std::optional<std::size_t> warmup) {
    Inputs inputs;
    read_step_logs(folder.path / "results", step_logs_below(folder.path / "results"), warmup, inputs);
    return *inputs.rows.at(0)[Number::train_time_s];
  };
  CHECK(steps_of(std::nullopt) == 0.5);
  CHECK(steps_of(1) == 9.5);
}

TEST_CASE("report: of a folder the newest comparison is read, by whatever name") {
  Folder const folder;
  auto const write = [&](std::string const& name, int age) {
    fs::last_write_time(folder.write("results/" + name, "{}"),
                        fs::file_time_type::clock::now() - std::chrono::hours(age));
  };
  CHECK_THROWS_AS(files_of(folder.path), tessera::Error const&);
  auto const only_file = [&] {
    auto const files = files_of(folder.path / "results");
    return files.size() == 1 ? files.front().filename().string() : std::string();
  };
  write("zero_comparison_20261125_100000.json", 5);
  CHECK(only_file() == "zero_comparison_20261125_100000.json");
  write("compare_20261125_100000.json", 6);  // the full document of the comparison above
  CHECK(only_file() == "compare_20261125_100000.json");
  write("compare.json", 7);
  write("offload_comparison_20261125_110000.json", 4);
  write("compare_notes.json", 1);
  auto const found = comparisons_in(folder.path / "results");
  REQUIRE(found.size() == 3);
  CHECK(found[0].filename() == "offload_comparison_20261125_110000.json");
  CHECK(found[1].filename() == "compare_20261125_100000.json");
  CHECK(found[2].filename() == "compare.json");
}

TEST_CASE("report: times in the names of comparisons count, not the order in which a folder was copied") {
  Folder const folder;
  auto const write = [&](std::string const& name, int age) {
    fs::last_write_time(folder.write("results/" + name, "{}"),
                        fs::file_time_type::clock::now() - std::chrono::hours(age));
  };
  write("compare_20261125_100000.json", 1);  // copied last
  write("compare_20261125_120000.json", 2);
  write("compare_20261125_110000.json", 3);
  auto found = comparisons_in(folder.path / "results");
  REQUIRE(found.size() == 3);
  CHECK(found[0].filename() == "compare_20261125_120000.json");
  CHECK(found[2].filename() == "compare_20261125_100000.json");
  write("compare.json", 9);  // an old result must not hide the newer ones
  CHECK(files_of(folder.path / "results").front().filename() == "compare_20261125_120000.json");
  write("compare.json", 0);
  CHECK(files_of(folder.path / "results").front().filename() == "compare.json");
}

TEST_CASE("report: all JSON files of a folder without a comparison are read") {
  Folder const folder;
  folder.write("h200/sizes.json", old_document(3));
  folder.write("h200/rivals.json", "{}");
  folder.write("h200/date.txt", "2026");
  auto const files = files_of(folder.path / "h200");
  REQUIRE(files.size() == 2);
  CHECK(files[0].filename() == "rivals.json");
  CHECK(files[1].filename() == "sizes.json");
}

TEST_CASE("report: rows that are one program are never ranked, and disturbed rows are not either") {
  Folder const folder;
  auto const row = [](char const* name, double rate, std::string const& more) {
    return std::string(R"({"experiment": ")") + name + R"(", "sharding": ")" + name +
           R"(", "model": "tiny", "status": "ok", "median_tokens_per_sec": )" + std::to_string(rate) +
           R"(, "spread_pct": 1.0, "speedup_against": "zs0")" + more + "}";
  };
  auto const document = [&](std::string const& rows) {
    return read(folder.write(
        "rows.json",
        R"({"schema_version": 3, "command": "compare", "environment": {}, "rows": [)" + rows + "]}"));
  };
  std::string const twin = R"(, "same_program_as": "zs0", "speedup": 9.6, "speedup_uncertainty": 0.1)";
  auto const says = [](Inputs const& inputs, std::string const& part) {
    for (std::string const& line : verdict(inputs))
      if (line.find(part) != line.npos) return true;
    return false;
  };
  std::string const twins = row("zs0", 100, "") + "," + row("zs3", 960, twin);
  Inputs inputs = document(twins);
  CHECK(says(inputs, "Fastest: none, all 2 rows run the same program: zs0 = zs3."));
  CHECK(is_inconclusive_speedup(inputs.rows[1]));
  CHECK_FALSE(is_faster(inputs.rows[1], inputs.rows[0]));
  CHECK(fastest_of({&inputs.rows[0], &inputs.rows[1]}).empty());
  CHECK(says(document(twins + "," + row("dp", 20, "")),
             "Fastest: none; all rows differ by less than they vary"));
  inputs = document(row("zs0", 100, "") + "," + row("zs3", 110, twin) + "," + row("dp", 20, ""));
  CHECK(says(inputs, "Fastest: zs0 = zs3 with 100 +- 1 tokens/s."));
  inputs = document(row("zs0", 100, R"(, "disturbed": true)") + "," + row("dp", 900, "") + "," +
                    row("zs2", 500, ""));
  CHECK(says(inputs, "Fastest: dp with"));
  CHECK(says(inputs, "Busy: other programs used the processor while 1 row ran"));
  CHECK(inputs.rows[0].is_unsteady());
}

TEST_CASE("report: a row with a rate of 0 counts as failed, and a note says so") {
  Folder const folder;
  auto const row = [](char const* name, char const* rate) {
    return std::string(R"({"experiment": ")") + name + R"(", "sharding": ")" + name +
           R"(", "status": "ok", "precision": "fp32", "verdict": "optimal", "efficiency": 5, )" +
           R"("peak_gpu_mem_mb": 1, "spread_pct": 1.0, "median_tokens_per_sec": )" + rate + "}";
  };
  Inputs const inputs = read(folder.write(
      "zero.json", R"({"schema_version": 3, "command": "compare", "environment": {}, "rows": [)" +
                       row("zs0", "0") + "," + row("zs1", "100") + "," + row("zs2", "50") + "]}"));
  CHECK(inputs.rows[0][Word::status] == "failed");
  CHECK(inputs.rows[0][Word::verdict].empty());
  CHECK_FALSE(inputs.rows[0][Number::median_tokens_per_sec]);
  CHECK_FALSE(inputs.rows[0][Number::efficiency]);
  REQUIRE(inputs.sources[0].notes.size() == 1);
  CHECK(inputs.sources[0].notes[0] ==
        "row zs0 counts as failed: its rate is 0 tokens/s, but a measured rate is above 0; measure it again, "
        "or "
        "correct the file");
  std::string text;
  for (std::string const& line : verdict(inputs)) text += line + "\n";
  CHECK(text.find("Rows: 1 failed, 2 ok.") != text.npos);
  CHECK(text.find("Fastest: zs1 with 100 +- 1") != text.npos);
  CHECK_THROWS_AS(read(folder.write("below.json", R"({"schema_version": 3, "command": "compare", "rows": [)" +
                                                      row("zs0", "-1") + "]}")),
                  tessera::Error const&);
}

TEST_CASE("report: files without verdicts get the verdicts of compare, also with --reduction and offload") {
  Folder const folder;
  auto const row = [](char const* name, std::string const& more) {
    return std::string(R"({"experiment": ")") + name +
           R"(", "sharding": "zs0", "device": "cpu", "model": "tiny", "precision": "fp32", "status": "ok", )" +
           R"("spread_pct": 1.0, "device_limit_mb": 1000, )" + more + "}";
  };
  auto const verdicts = [&](std::string const& rows) {
    std::string text;
    for (Row const& one :
         read(folder.write("rows.json",
                           R"({"schema_version": 3, "command": "compare", "environment": {}, "rows": [)" +
                               rows + "]}"))
             .rows)
      text += one[Word::verdict] + ";";
    return text;
  };
  // On the CPU the reduction "ordered" is the default, so its row is the plainer one.
  std::string const same = R"(, "median_tokens_per_sec": 100, "peak_gpu_mem_mb": 50)";
  CHECK(verdicts(row("a", R"("reduction": "fast")" + same) + "," +
                 row("b", R"("reduction": "ordered")" + same)) == "works;optimal;");
  CHECK(verdicts(row("a", R"("reduction": "ordered", "attention_policy": "reference")" + same) + "," +
                 row("b", R"("reduction": "ordered", "attention_policy": "auto")" + same)) ==
        "works;optimal;");
  // On the CPU the offloaded state is in the same memory as the arena of the device.
  CHECK(verdicts(row("a", R"("offload": "none", "host_mem_mb": 0)" + same) + "," +
                 row("b", R"("offload": "cpu_full", "peak_gpu_mem_mb": 20, "host_mem_mb": 40,
                            "median_tokens_per_sec": 50)")) == "optimal;unnecessary;");
  Inputs const inputs = read(folder.path / "rows.json");
  std::string text;
  for (std::string const& line : verdict(inputs)) text += line + "\n";
  CHECK(text.find("Least device and host memory: 50.00 MB a rank: offload none.") != text.npos);
  CHECK(frontier({&inputs.rows[0], &inputs.rows[1]}).size() == 1);
}

TEST_CASE("report: the log of a run that was cut off has what it holds") {
  Folder const folder;
  Inputs const inputs = read(folder.write(
      "run.jsonl",
      "{\"schema_version\": 1, \"config\": {\"model\": \"tiny\", \"world\": 2}, \"command\": \"train\"}\n"
      "{\"step\": 1, \"loss\": 5.0, \"ms\": 900, \"tokens_per_sec\": 10}\n"
      "{\"step\": 2, \"loss\": 4.0, \"ms\": 100, \"tokens_per_sec\": 90}\n"
      "{\"step\": 3, \"loss\": 3.0, \"ms\": 100, \"tokens_per_sec\": 90}\n"));
  REQUIRE(inputs.rows.size() == 1);
  Row const& row = inputs.rows[0];
  CHECK(row[Word::experiment] == "run");
  CHECK(*row[Number::median_tokens_per_sec] == doctest::Approx(90.0));
  CHECK(*row[Number::final_loss] == 3.0);
  CHECK(row[Word::reason].find("no summary") != std::string::npos);
}

TEST_CASE("report: sources have short names that differ") {
  std::vector<Source> sources(4);
  sources[0].path = "here/results/compare.json";
  sources[1].path = "there/results/compare.json";
  sources[2].path = "plan.json";
  sources[3].path = "old/plan.json";
  name_sources(sources);
  CHECK(sources[0].label == "here/results");
  CHECK(sources[1].label == "there/results");
  CHECK(sources[2].label != sources[3].label);
  sources[3].path = "./plan.json";
  CHECK_THROWS_AS(name_sources(sources), tessera::Error const&);
}
