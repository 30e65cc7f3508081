// SPDX-License-Identifier: Apache-2.0
// Tests the flat result files of `compare` (files without nested values, for published comparisons): file
// names that contain a time, the keys and the types of values, equal content of JSON and CSV, and the full
// result document next to the flat files.
#include "programs/compare_support.hpp"

using test::Compare, test::field, test::Json, test::matches;

namespace {

std::string const flat_rows =
    "compare --model layers=2,heads=2,channels=32 --data text.txt --seq-length 16 --num-steps 3 "
    "--warmup-steps 1 ";

char const* const flat_figures[] = {
    "throughput_tokens_per_sec", "gpu_peak_gb", "memory_peak_gb", "gpu_allocated_gb",
    "memory_allocated_gb",       "cpu_used_gb", "cpu_memory_gb",  "avg_step_time_ms"};

/// Checks the row `row` of a flat result file, whose strategy must be `strategy`. `ran` says whether the
/// training of the row succeeded. If it succeeded, the row's figures must be numbers. Otherwise the figures
/// must be null, and the row must have an error text.
void is_flat_row(Json const& row, bool ran, std::string const& strategy) {
  INFO(row);
  for (char const* key : flat_figures) CHECK((ran ? row.at(key).is_number() : row.at(key).is_null()));
  CHECK(row.at("success") == ran);
  CHECK(row.at("strategy") == strategy);
  CHECK((ran ? row.at("error").is_null() : row.at("error").is_string()));
}

}  // namespace

TEST_CASE("compare flat: each run keeps the earlier files, and adds files named after its time") {
  Compare const sh;
  for (int run = 0; run < 3; ++run) sh.passes(flat_rows + "--output-dir out");
  std::set<std::string> wanted;
  auto const times = matches(sh.passes("ls -d out/2*"),
                             "20[0-9]{2}[01][0-9][0-3][0-9]_[0-2][0-9][0-5][0-9][0-5][0-9](?=\n)");
  for (std::string const& time : times)
    wanted.insert({time, "compare_" + time + ".json", "report_" + time + ".html",
                   "zero_comparison_" + time + ".csv", "zero_comparison_" + time + ".json"});
  CHECK(wanted.size() == 15);
  auto const files = matches(sh.passes("ls out"), "[^\n]+");
  CHECK(std::set(files.begin(), files.end()) == wanted);
  CHECK(sh.passes("cd out/" + times.at(0) + "; echo *") ==
        "zs0_bf16_ranks1_bs4_sl16 zs1_bf16_ranks1_bs4_sl16 zs2_bf16_ranks1_bs4_sl16 "
        "zs3_bf16_ranks1_bs4_sl16\n");
}

TEST_CASE("compare flat: the JSON and the CSV of the sharding stages have the figures of the document") {
  Compare const sh;
  sh.passes(flat_rows +
            "--output-dir out; cd out; mv zero*.json ../flat.json; mv zero*.csv ../flat.csv; mv "
            "compare*.json ../document.json");
  Json const rows = sh.json("flat.json"), document = sh.json("document.json").at("rows");
  CHECK(rows.size() == 4);
  auto const lines = sh.lines("flat.csv");
  CHECK(lines.size() == 5);
  std::string header = "stage,strategy,";
  for (char const* key : flat_figures) header += std::string(key) + ",";
  CHECK(lines.at(0).starts_with(header + "success,error,"));
  for (std::size_t i = 0; i < 4; ++i) {
    Json const& row = rows.at(i);
    is_flat_row(row, true, "none");
    CHECK(row.at("stage") == i);
    CHECK(row.at("throughput_tokens_per_sec") == field(document, i, "median_tokens_per_sec"));
    auto const equal = [](double flat, double wanted) { CHECK(flat == doctest::Approx(wanted)); };
    double const gb = 1024.0 * 1024.0 / 1e9;  // one MB (2^20 bytes) in units of 10^9 bytes
    equal(row.at("gpu_peak_gb"), field(document, i, "peak_gpu_mem_mb").get<double>() * gb);
    equal(row.at("gpu_allocated_gb"), field(document, i, "arena_mb").get<double>() * gb);
    equal(row.at("cpu_used_gb"), field(document, i, "process_mem_mb").get<double>() * gb);
    CHECK(row.at("memory_peak_gb") == row.at("gpu_peak_gb"));
    CHECK(row.at("memory_allocated_gb") == row.at("gpu_allocated_gb"));
    CHECK(row.at("cpu_memory_gb") == row.at("cpu_used_gb"));
    equal(row.at("avg_step_time_ms"), field(document, i, "avg_step_time_s").get<double>() * 1000);
    std::string start = std::to_string(i) + ",none,";
    for (char const* key : flat_figures) start += row.at(key).dump() + ",";
    CHECK(lines.at(i + 1).starts_with(start + "true,,"));
  }
}

TEST_CASE("compare flat: offloads have a file of their own, and a refused row has the reason") {
  Compare const sh;
  sh.passes(flat_rows + "--strategies none cpu_optimizer --output-dir off");
  CHECK(matches(sh.passes("ls off"), "offload_comparison_").size() == 2);
  sh.passes(flat_rows + "--strategies none cpu_full --precision fp32,tf32 --json refused.json");
  Json const rows = sh.json("refused.json");
  is_flat_row(rows.at(0), true, "none");
  is_flat_row(rows.at(3), false, "cpu_full");
}

TEST_CASE("compare flat: --timestamp adds the time to the other names too") {
  Compare const sh;
  sh.passes("compare --ranks 1 --stages 0 --precisions fp32 --offloads none --timestamp --output-dir plain" +
            sh.brief);
  CHECK(matches(sh.passes("ls plain"), "compare_[^\n]*.json").size() == 1);
}
