// SPDX-License-Identifier: Apache-2.0
// Tests how rows of results are judged: verdicts, rows with the same program, the best rows of a figure, and
// sentences about precisions and the utilization of GPUs.
#include "results/verdicts.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "row_support.hpp"

namespace ts = tessera;
namespace results = programs::results;
using namespace row_support;
using results::Candidate;

namespace {

/// Returns a row with a rate that varies by 1%. Its device has 1000 MB.
Candidate row(std::string const& sharding, double rate, double peak_mb) {
  Candidate made;
  made.name = made.recipe = made.sharding = sharding;
  made.work = "tiny";
  made.precision = "fp16";
  made.status = "ok";
  made.rate = rate;
  made.spread = 0.01;
  made.peak_mb = peak_mb;
  made.limit_mb = 1000.0;
  return made;
}
Candidate oom(std::string const& sharding) {
  Candidate made = row(sharding, 0, 0);
  made.status = "oom";
  made.rate = made.spread = made.peak_mb = std::nullopt;
  return made;
}
/// Returns the verdicts of the rows as text, "-" for a row without a verdict.
std::string verdicts(std::vector<Candidate> const& rows) {
  std::string text;
  for (auto const& verdict : results::verdicts(rows))
    text += (text.empty() ? "" : "; ") + verdict.value_or("-");
  return text;
}

}  // namespace

TEST_CASE("verdicts: a slower row is unnecessary or overkill if memory is not short") {
  CHECK(verdicts({row("zs0", 100, 500), row("zs2", 90, 400), row("zs3", 70, 300)}) ==
        "optimal; unnecessary; overkill");
  // A slower row without less memory is unnecessary, even if it is much slower.
  CHECK(verdicts({row("zs0", 100, 500), row("zs3", 50, 500)}) == "optimal; unnecessary");
  // If several rows are equally fast, the plainest row is optimal.
  CHECK(verdicts({row("dp", 101, 300), row("zs1", 101, 400), row("zs0", 100, 500), row("zs2", 90, 450)}) ==
        "works; works; optimal; unnecessary");
  std::vector<Candidate> rows = {row("zs0", 101, 500), row("zs1", 100, 500)};
  rows[0].recipe = "zs0 offload cpu_optimizer";
  CHECK(verdicts(rows) == "works; optimal");
}

TEST_CASE("verdicts: a slower row works or is a fallback if memory is short") {
  CHECK(verdicts({row("zs0", 100, 700), row("zs2", 70, 400), row("zs3", 60, 300)}) ==
        "optimal; works; fallback");
  // Memory is not short if 60% of it is in use.
  CHECK(verdicts({row("zs0", 100, 600), row("zs2", 70, 400)}) == "optimal; overkill");
  // If several rows are equally fast, the row with the least memory is optimal.
  CHECK(verdicts({row("zs0", 101, 700), row("zs1", 100, 300), row("zs2", 90, 400)}) ==
        "works; optimal; unnecessary");
  CHECK(verdicts({oom("zs0"), row("zs2", 100, 400), row("zs3", 90, 300), row("zs3", 50, 200)}) ==
        "oom; optimal; works; fallback");
  // The only row that fits is a fallback: it is faster than no other row.
  CHECK(verdicts({oom("zs0"), oom("zs1"), row("zs3", 90, 300)}) == "oom; oom; fallback");
}

TEST_CASE("verdicts: a row has no verdict if too little was measured") {
  CHECK(verdicts({row("zs0", 100, 500)}) == "-");
  CHECK(verdicts({oom("zs0")}) == "oom");
  Candidate other = row("zs2", 90, 400);
  other.work = "another model";
  CHECK(verdicts({row("zs0", 100, 500), other}) == "-; -");
  other.work = "tiny";
  other.precision = "fp32";
  CHECK(verdicts({row("zs0", 100, 500), other}) == "-; -");
  other.precision = "fp16";
  CHECK(verdicts({row("zs0", 100, 500), other}) == "optimal; unnecessary");
  // A disturbed row is not judged. Here only one other row is left, which then cannot be compared.
  other.ranked = false;
  CHECK(verdicts({row("zs0", 100, 500), other}) == "-; -");
  CHECK(verdicts({oom("zs0"), row("zs3", 100, 500), other}) == "oom; -; -");
  other.ranked = true;
  other.spread.reset();  // only one step was timed
  CHECK(verdicts({row("zs0", 100, 500), other}) == "-; -");
  // Without the limit of the memory, it is unknown whether memory is short.
  std::vector<Candidate> rows = {row("zs0", 100, 500), row("zs2", 90, 400), row("zs3", 90, 500)};
  for (Candidate& each : rows) each.limit_mb.reset();
  CHECK(verdicts(rows) == "optimal; -; unnecessary");
  for (char const* status : {"refused", "failed"}) {
    rows[0].status = status;
    CHECK(verdicts(rows) == "-; optimal; works");
    rows[0] = row("zs0", 100, 500);
  }
}

TEST_CASE("verdicts: a rate that is not a number above 0 takes part in no comparison") {
  for (double const rate : {0.0, -90.0, static_cast<double>(NAN), static_cast<double>(INFINITY)}) {
    std::vector<Candidate> rows = {row("zs0", rate, 500), row("zs2", 90, 400), row("zs3", 50, 300)};
    CHECK(verdicts(rows) == "-; optimal; overkill");
    CHECK(results::leaders_of(rows, &results::rate_of).rows == std::vector<std::size_t>{1});
    CHECK(results::ranked_programs(rows) == std::vector<std::size_t>{1, 2});
    // Another row with the same program represents it.
    rows[0].program = rows[1].program = 0;
    CHECK(results::represented_by(rows, 0) == 1);
  }
}

TEST_CASE("verdicts: a recipe names each policy that is not the default of its slot") {
  auto const recipe = [](ts::SlotNames const& names) {
    Candidate made;
    made.work = "tiny";
    results::describe_recipe(made, names);
    return made.recipe + (made.work == "tiny" ? "" : " of " + made.work);
  };
  CHECK(recipe({.device = "cpu", .sharding = "zs2", .reduction = "ordered"}) == "zs2");
  CHECK(recipe({.device = "cpu", .sharding = "zs2", .reduction = "fast"}) == "zs2 reduction fast");
  CHECK(recipe({.device = "cuda", .sharding = "zs2", .reduction = "fast"}) == "zs2");
  CHECK(recipe({.device = "cuda", .sharding = "zs2", .reduction = "ordered"}) == "zs2 reduction ordered");
  CHECK(recipe({.sharding = "zs3", .precision = "fp16", .loss_scale = "dynamic", .offload = "cpu_full"}) ==
        "zs3 offload cpu_full");
  CHECK(recipe({.sharding = "zs1", .precision = "fp8", .adapters = "lora"}) == "zs1 of tiny, adapters lora");
}

TEST_CASE("verdicts: on the CPU the host memory of an offload counts, on a GPU it does not") {
  CHECK(results::rank_memory_mb("cuda", "cpu_full", 10.0, 5.0) == 10.0);
  CHECK(results::rank_memory_mb("cpu", "cpu_full", 10.0, 5.0) == 15.0);
  CHECK(results::rank_memory_mb("cpu", "none", 10.0, 5.0) == 10.0);
  CHECK(results::rank_memory_mb("cpu", "none", 10.0, std::nullopt) == 10.0);
  CHECK_FALSE(results::rank_memory_mb("cpu", "cpu_full", 10.0, std::nullopt));
  CHECK_FALSE(results::rank_memory_mb("cpu", "cpu_full", std::nullopt, 5.0));

  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs2"};
  matrix.slots.of<ts::slot::offload>() = {"none", "cpu_full"};
  compare::Settings const settings = asked(matrix);
  std::vector<compare::Measured> rows = measured(settings);
  constexpr std::int64_t mb = 1 << 20;
  for (compare::Measured& row : rows) row.device_limit = 1000 * mb;
  rows[0].repeats[0].peak_device = 100 * mb;
  rows[1].repeats[0].peak_device = 40 * mb;
  rows[1].repeats[0].arena_host = 70 * mb;
  set_steps(rows[1], {200, 200, 200, 200});
  auto const made = compare::measurements(rows, settings, ts::device_facts(ts::Device::cpu));
  CHECK(made[1].verdict == "unnecessary");  // with the 40 MB of the device alone it would be overkill
  CHECK(made[1].memory_saved_pct == doctest::Approx(-10.0));
  CHECK(made[1].efficiency == doctest::Approx(*made[1].median_tokens_per_sec * 1024.0 / 110.0));
  std::string const text = table(rows, settings);
  CHECK(has(text, "least device and host memory: 100.00 MB a rank: " + rows[0].point.experiment + "\n"));
  CHECK(has(text, "tok/s per GB of device and host memory\n"));
  CHECK(has(squeezed(text), "100.00*"));
}

TEST_CASE("verdicts: rows with the same program are one row, the plainest") {
  std::vector<Candidate> rows = {row("zs3", 140, 500), row("zs1", 100, 500), row("dp", 90, 500)};
  for (Candidate& each : rows) each.program = 0;
  CHECK(verdicts(rows) == "same program as zs1; -; same program as zs1");
  rows.push_back(row("zs2", 120, 400));
  // Only the plainest row of the program counts. It is slower than zs2, though another row of the program
  // happened to be measured as faster.
  CHECK(verdicts(rows) == "same program as zs1; unnecessary; same program as zs1; optimal");
  CHECK(results::leaders_of(rows, &results::rate_of).rows == std::vector<std::size_t>{3});
  CHECK(results::leaders_of(rows, &results::rate_of).programs == 2);
  // If the plainest row was disturbed, another row represents the program.
  rows[1].ranked = false;
  CHECK(verdicts(rows) == "optimal; same program as zs3; same program as zs3; unnecessary");
}

TEST_CASE("verdicts: published rows get the published words, except for two groups") {
  auto const published = [](std::string const& name, double rate, double peak_gb) {
    Candidate made = row(name, rate, peak_gb);
    made.limit_mb = 80.0;
    made.spread = 0.001;
    return made;
  };
  // examples/experiments/published.json has these figures, in tokens/s and GB.
  CHECK(verdicts({published("zs0", 45000, 8.2), published("zs1", 44500, 8.2), published("zs2", 42500, 6.8),
                  published("zs3", 33000, 4.5)}) == "optimal; unnecessary; unnecessary; overkill");
  CHECK(verdicts({oom("zs2"), published("zs3", 3000, 72), published("zs3 cpu_optimizer", 2850, 58),
                  published("zs3 nvme", 1700, 35)}) == "oom; optimal; works; fallback");
  // The published word of the last row is overkill, though rows without offload do not fit.
  CHECK(verdicts({oom("zs3"), published("zs3 cpu_optimizer", 4900, 68), published("zs3 cpu_full", 3500, 42),
                  published("zs3 nvme", 2400, 25)}) == "oom; optimal; works; fallback");
  // The published words are: works but wasteful, good option, optimal, unnecessary.
  CHECK(verdicts({published("zs0", 11400, 52), published("zs1", 11000, 38), published("zs2", 10500, 28),
                  published("zs3", 8700, 18)}) == "optimal; works; works; works");
}

TEST_CASE("verdicts: the best efficiency is tokens per second for the peak memory") {
  CHECK(*results::efficiency_of(21566.0, 7582.0) == doctest::Approx(21566.0 / (7582.0 / 1024.0)));
  CHECK_FALSE(results::efficiency_of(21566.0, std::nullopt));
  CHECK_FALSE(results::efficiency_of(21566.0, 0.0));
  CHECK(*results::percent_less(9.64, 13.62) == doctest::Approx(29.2).epsilon(0.01));
  CHECK(*results::percent_less(2.0, 1.0) == -100.0);
  CHECK_FALSE(results::percent_less(1.0, 0.0));
  CHECK(cli::fixed(*results::percent_less(1.0001, 1.0), 1) == "0.0");  // not "-0.0"
  CHECK(cli::fixed(-0.06, 1) == "-0.1");
  auto const most_efficient = [](std::vector<Candidate> const& rows) {
    return results::leaders_of(rows, [](Candidate const& one) { return results::efficiency_of(one); });
  };
  std::vector<Candidate> rows = {row("zs0", 100, 500), row("zs2", 95, 300), row("zs3", 95, 299)};
  CHECK(most_efficient(rows).rows == std::vector<std::size_t>{2, 1});  // equal within 1%
  rows[2].peak_mb = 200;
  CHECK(most_efficient(rows).rows == std::vector<std::size_t>{2});
  rows[2].spread.reset();
  CHECK_FALSE(most_efficient(rows).is_known);
}

TEST_CASE("verdicts: sentences compare precisions of equal recipes") {
  auto const in = [](Candidate made, char const* precision) {
    made.precision = precision;
    return made;
  };
  std::vector<Candidate> rows = {in(row("zs2", 31, 79), "fp16"), in(row("zs2", 10, 100), "fp32")};
  auto const said = [&] {
    std::string text;
    for (std::string const& sentence : results::observations(rows)) text += sentence + "\n";
    return text;
  };
  CHECK(said() == "fp16 is 3.1 times as fast as fp32 at zs2, and uses 0.79 of its device memory\n");
  rows.push_back(in(row("zs3", 17, 78), "fp16"));
  CHECK(said() == "fp16 is 3.1 times as fast as fp32 at zs2, and uses 0.79 of its device memory\n");
  rows.push_back(in(row("zs3", 10, 100), "fp32"));
  CHECK(
      said() ==
      "fp16 is 1.7 (zs3) to 3.1 (zs2) times as fast as fp32 with equal recipes, and uses 0.78 to 0.79 of its "
      "device memory\n");
  rows.resize(2);
  rows[0].rate = 10.1;  // within the variation of the rows
  CHECK(said().empty());
  rows[0].rate = 31.0;
  rows[1].ranked = false;
  CHECK(said().empty());
  rows[1] = in(row("zs2", 10, 100), "bf16");
  CHECK(said().starts_with("fp16 is 3.1 times as fast as bf16 at zs2"));
  for (std::size_t at = 0; at < 2; ++at) {
    rows.push_back(rows[at]);
    rows.back().work = "large";
  }
  CHECK(said() ==
        "fp16 is 3.1 times as fast as bf16 at zs2, and uses 0.79 of its device memory (tiny)\n"
        "fp16 is 3.1 times as fast as bf16 at zs2, and uses 0.79 of its device memory (large)\n");
}

TEST_CASE("verdicts: sentences compare the utilization of GPUs") {
  std::vector<Candidate> rows = {row("zs0", 100, 500), row("zs2", 95, 400), row("zs3", 50, 300)};
  auto const use = [&](std::size_t at, double pct, std::optional<double> deviation) {
    rows[at].utilization_pct = pct;
    rows[at].utilization_deviation_pct = deviation;
  };
  CHECK(results::observations(rows).empty());
  use(0, 90, 1.0);
  use(1, 78, 1.0);
  use(2, 46, 2.0);
  REQUIRE(results::observations(rows).size() == 1);
  CHECK(results::observations(rows)[0] ==
        "zs3 lowers the utilization of the GPUs in fp16 to 46%, from 90% with zs0");
  use(2, 46, 50.0);
  CHECK(results::observations(rows).empty());  // the lowest value varies too much
  use(2, 46, std::nullopt);                    // only one repeat
  CHECK(results::observations(rows)[0].find("zs2 lowers") == 0);
  use(1, 86, 0.1);
  CHECK(results::observations(rows).empty());  // a difference of 4% is not reliable
}

TEST_CASE("verdicts: the fastest row of a file is the plainest of its program") {
  auto const made = [](char const* name, double rate, char const* twin = nullptr, bool disturbed = false) {
    results::Row one = {{"experiment", name},
                        {"sharding", name},
                        {"status", "ok"},
                        {"median_tokens_per_sec", rate},
                        {"disturbed", disturbed}};
    if (twin != nullptr) one["same_program_as"] = twin;
    return one;
  };
  std::vector<results::Row> rows = {made("zs3", 120), made("zs0", 100, "zs3"), made("zs2", 110, "zs3")};
  CHECK(results::fastest_row(rows) == 1);
  rows.push_back(made("zs1", 105));
  CHECK(results::fastest_row(rows) == 3);
  rows[3] = made("zs1", 105, nullptr, true);
  CHECK(results::fastest_row(rows) == 1);
  rows[3] = made("zs1", 105);
  rows[3]["disturbed"] = nullptr;
  for (double const rate : {0.0, -105.0}) {
    rows[1]["median_tokens_per_sec"] = rate;
    for (std::size_t const at : {0u, 2u, 3u}) rows[at]["status"] = "oom";
    CHECK_FALSE(results::fastest_row(rows));
    rows[3]["status"] = "ok";
    CHECK(results::fastest_row(rows) == 3);
  }
  for (results::Row& one : rows) one["status"] = "oom";
  CHECK_FALSE(results::fastest_row(rows));
}

TEST_CASE("verdicts: a disk below 5 GB/s gets a sentence") {
  CHECK(results::slow_disk_text(std::nullopt).empty());
  CHECK(results::slow_disk_text(5.0).empty());
  CHECK(results::slow_disk_text(1.1) ==
        "the disk moved 1.1 GB/s; 5 GB/s or more are advised for state on NVMe");
  CHECK(results::slow_disk_text(0.04).starts_with("the disk moved 0.040 GB/s"));
}

TEST_CASE(
    "a row has its figures relative to the base, and the figures of the row that represents its program") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  constexpr std::int64_t mb = 1 << 20;
  rows[0].repeats[1].peak_device = 1000 * mb;  // the peak is the maximum over the repeats
  rows[1].repeats[0].peak_device = 710 * mb;
  for (auto& repeat : rows[1].repeats) {
    repeat.log.push_back({.global_step = 2, .step_time_s = 0.1, .tokens_per_sec = 1.0, .loss = 2.0});
    repeat.hashed_after = 2;
  }
  auto known = compare::result_rows(rows, settings);
  double const rate = known[1]["median_tokens_per_sec"];
  CHECK(known[1]["efficiency"].get<double>() == doctest::Approx(rate / (710.0 / 1024.0)));
  CHECK(known[0]["memory_saved_pct"] == 0.0);
  CHECK(known[1]["memory_saved_pct"].get<double>() == doctest::Approx(29.0));
  CHECK(known[1]["loss_reduction_pct"].get<double>() == doctest::Approx(60.0));
  CHECK(known[0]["verdict"] == "optimal");
  CHECK(known[1]["verdict"] == "works");
  rows[0].device_limit = 1600 * mb;  // row 0 uses 62.5% of it
  CHECK(compare::result_rows(rows, settings)[1]["verdict"] == "optimal");
  CHECK(compare::result_rows(rows, settings)[0]["device_limit_mb"] == 1600.0);
  std::string const text = table(rows, settings);
  CHECK(has(text,
            "best efficiency: zs2_bf16_ranks4_bs4_sl128 with 29,537 +- 0 tok/s per GB of device memory\n"));
  CHECK(has(squeezed(text), " works 01234567\n"));

  // Two rows with the same program have the speedup and the efficiency of the plainest one. The table says
  // that they are the same program.
  cli::MatrixFlags matrix = lists();
  matrix.slots.of<ts::slot::sharding>() = {"zs3", "zs0", "zs2"};
  compare::Settings const three = asked(matrix);
  std::vector<compare::Measured> twins;
  for (compare::Measured& each : measured(three)) {
    bool const first_two = twins.size() < 2;
    each.schedule_hash = first_two ? "1" : "2";
    each.repeats[0].peak_device = (first_two ? 100 : 50) * mb;
    set_steps(each, twins.empty() ? std::vector{90.0, 91.0} : std::vector{100.0, 101.0});
    twins.push_back(each);
    compare::note_twins(twins);
  }
  known = compare::result_rows(twins, three);
  for (char const* field : {"speedup", "efficiency", "speedup_uncertainty"}) {
    INFO(field);
    CHECK(known[0][field] == known[1][field]);
  }
  CHECK(known[0]["speedup"] == 1.0);
  CHECK(known[0]["speedup_against"] == known[1]["experiment"]);
  CHECK(known[0]["verdict"] == "same program as " + known[1]["experiment"].get<std::string>());
  std::string const three_text = table(twins, three);
  CHECK(has(squeezed(three_text), "\nzs3 22630"));
  CHECK(has(three_text, " same program "));
  CHECK(has(three_text, ": zs0_bf16_ranks4_bs4_sl128 = zs3_bf16_ranks4_bs4_sl128"));
}

TEST_CASE("rows have the times of CPU and GPUs, and the console their use") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings, 4, 2);
  for (auto& repeat : rows[0].repeats) {
    repeat.window_s = 0.4;
    repeat.cpu_seconds = 1.5;
    repeat.total_s = 2.0;
  }
  auto known = compare::result_rows(rows, settings);
  CHECK(known[0]["cpu_time_s"] == 3.0);
  CHECK(known[0]["gpu_busy_s"].is_null());
  CHECK(known[1]["cpu_time_s"].is_null());
  std::string text = squeezed(table(rows, settings));
  CHECK_FALSE(has(text, "GPU"));
  CHECK(has(text, " 0.8 4.0 "));  // seconds of the timed steps, and of the whole row
  rows[0].repeats[0].gpus.emplace().util_pct = 90.0;
  rows[0].repeats[1].gpus.emplace().util_pct = 80.0;
  known = compare::result_rows(rows, settings);
  CHECK(known[0]["gpu_busy_s"].get<double>() == doctest::Approx(0.85 * 0.8 * 4));  // of four GPUs
  CHECK(known[0]["std_gpu_util_pct"].get<double>() == doctest::Approx(std::sqrt(50.0)));
  text = squeezed(table(rows, settings));
  CHECK(has(text, " GPU "));
  CHECK(has(text, " 85 "));
}

TEST_CASE("rows with state on NVMe have the speed of the disk") {
  compare::Settings const settings = asked(lists());
  auto rows = measured(settings);
  CHECK(compare::result_rows(rows, settings)[0]["nvme_gb_per_s"].is_null());
  rows[0].repeats[0].nvme_engine = "io_uring";
  rows[0].repeats[0].nvme_bytes_per_s = 1.1e9;
  CHECK(compare::result_rows(rows, settings)[0]["nvme_gb_per_s"].get<double>() == doctest::Approx(1.1));
  CHECK(has(table(rows, settings), "disk: the disk moved 1.1 GB/s; 5 GB/s or more are advised"));
  rows[0].repeats[0].nvme_bytes_per_s = 6e9;
  CHECK_FALSE(has(table(rows, settings), "disk: "));
}
