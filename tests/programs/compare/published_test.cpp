// SPDX-License-Identifier: Apache-2.0
// Tests how `compare` prints the figures of published comparisons next to the rows of its own result table.
// Some of these rows were measured and others failed.
#include "results/published.hpp"

#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

using namespace tessera;
using namespace programs;
using results::Row;

/// The precision and the sizes of a row. They differ between the published comparisons.
struct RunShape {
  char const* precision = "bf16";
  int world = 1, batch = 4, sequence = 512;
};

/// Returns a row of the result table for the model gpt2 on GPUs, with the sharding policy `sharding` and the
/// status `status`. Only a row with the status "ok" has measured values.
Row row_of(std::string const& sharding, std::string const& status, RunShape const& shape = {}) {
  Row row = results::empty_row();
  row["model"] = "gpt2";
  row["sharding"] = sharding;
  row["precision"] = shape.precision;
  row["offload"] = "none";
  row["device"] = "cuda";
  row["world"] = shape.world;
  row["batch"] = shape.batch;
  row["sequence"] = shape.sequence;
  row["accumulation"] = 1;
  row["status"] = status;
  row["planned_gpu_mem_mb"] = 2048.0;
  if (status != "ok") return row;
  row["peak_gpu_mem_mb"] = 4198.4;  // 4.1 GB
  row["tokens_per_sec_per_rank"] = 90000.0;
  row["avg_step_time_s"] = 0.0225;
  return row;
}

/// The settings of the comparison zero2-two-h100.
constexpr RunShape two_h100 = {.precision = "fp16", .world = 2, .batch = 8, .sequence = 1024};
/// The settings of the comparison zero-stages-gpt2 in fp16.
constexpr RunShape fp16_stages = {.precision = "fp16", .batch = 32, .sequence = 128};

bool holds(std::string const& text, std::string const& part) {
  CAPTURE(text);
  CAPTURE(part);
  return text.find(part) != text.npos;
}

}  // namespace

TEST_CASE("a row with the shape of a published one has its figures and the ratios") {
  std::vector<Row> rows = {row_of("zs0", "ok"), row_of("zs3", "oom"), row_of("dp", "ok")};
  cli::add_published(rows, {"stage-sweep-7b", "stage-sweep"});
  Row const& found = rows[0].at("published");
  CHECK(found.at("comparison") == "stage-sweep");
  CHECK(found.at("machine") == "one A100 80 GB");
  CHECK(found.at("figures").at("tokens_per_sec_per_gpu") == 45000);
  CHECK(found.at("ratios").at("tokens_per_sec_per_gpu").get<double>() == doctest::Approx(2.0));
  CHECK(found.at("ratios").at("step_ms").get<double>() == doctest::Approx(0.5));
  CHECK(found.at("ratios").at("peak_gb").get<double>() == doctest::Approx(4.1984 * 1.048576 / 8.2));
  CHECK(rows[1].at("published").at("ratios").empty());
  CHECK(rows[1].at("published").at("figures").at("peak_gb") == 4.5);
  CHECK_FALSE(rows[2].contains("published"));
}

TEST_CASE("the closing table has the published figures, our figures and their ratios") {
  std::vector<Row> const rows = {row_of("zs0", "ok"), row_of("zs3", "oom")};
  std::string const text = cli::published_text(rows, {"stage-sweep"}, "NVIDIA H200", {});
  CHECK(holds(text, "published, stage-sweep: stages 0 to 3"));
  CHECK(holds(text, "45000  90000   2.00"));
  CHECK(holds(text, "8.2    4.40   0.54"));
  CHECK(holds(text, "4.5  (2.15)"));
  CHECK(holds(text, "published on: one A100 80 GB, DeepSpeed\nhere on: NVIDIA H200\n"));
  CHECK(holds(text, "source: the page \"DeepSpeed Performance Benchmarking Suite\""));
  CHECK(holds(text, "not repeated here: 2 of the 4 rows"));
  CHECK(cli::published_text(rows, {}, "NVIDIA H200", {}).empty());
}

TEST_CASE("published power is compared GPU by GPU, and published temperatures can be ranges") {
  Row row = row_of("zs2", "ok", two_h100);
  row["avg_power_w"] = 1200.0;
  row["peak_power_w"] = 1350.0;
  row["peak_power_each_w"] = {690.0, 675.0};
  row["temp_start_c"] = 40.0;
  row["temp_end_c"] = 60.0;
  row["temp_min_c"] = 35.0;
  row["temp_max_c"] = 62.0;
  std::string const text = cli::published_text({row}, {"zero2-two-h100"}, "two GPUs", {});
  CHECK(holds(text, "529   690   1.30"));
  CHECK(holds(text, "540   675   1.25"));
  CHECK(holds(text, "28-29    40   1.38"));
  CHECK(holds(text, "30-31    60   1.94"));
  CHECK(holds(text, "28    35   1.25"));
  CHECK(holds(text, "31    62   2.00"));
  CHECK(holds(text, "529 W and 540 W, of 700, are the peaks of GPU 0 and GPU 1"));
  row["peak_power_each_w"] = {690.0};  // of one GPU only
  CHECK(holds(cli::published_text({row}, {"zero2-two-h100"}, "two GPUs", {}), "540     -"));
}

TEST_CASE("the deviation of a published figure has ours next to it") {
  Row row = row_of("zs3", "ok", fp16_stages);
  row["median_tokens_per_sec"] = 23845.97;
  row["std_tokens_per_sec"] = 120.26;
  row["std_step_time_s"] = 0.00123;
  CHECK(holds(cli::published_text({row}, {"zero-stages-gpt2"}, "", {}),
              "11923 +- 282.6  23846 +- 120.3   2.00"));
  CHECK(holds(cli::published_text({row}, {"zero-stages-gpt2"}, "", {}), "0.361 +- 0.0085  0.022 +- 0.0012"));
  std::vector<Row> rows = {row};
  cli::add_published(rows, {"zero-stages-gpt2"});
  CHECK(rows[0].at("published").at("ours").at("tokens_per_sec") == 23845.97);
  CHECK(rows[0].at("published").at("our_deviations").at("tokens_per_sec") == 120.26);
}

TEST_CASE("a model from a folder has the figures of the model with its sizes") {
  std::vector<Row> rows = {row_of("zs0", "ok")};
  rows[0]["model"] = "downloads/gpt2";
  cli::PublishedModels const models = {{"downloads/gpt2", "gpt2"}};
  CHECK(holds(cli::published_text(rows, {"stage-sweep"}, "", {}), "published: no row here has"));
  std::string const text = cli::published_text(rows, {"stage-sweep"}, "", {}, models);
  CHECK(holds(text, "45000  90000   2.00"));
  CHECK(holds(text, "models: downloads/gpt2 has the sizes of gpt2"));
  cli::add_published(rows, {"stage-sweep"}, models);
  CHECK(rows[0].at("published").at("model") == "gpt2");
}

TEST_CASE("a row that did not run has its planned memory and its predicted rate and step in brackets") {
  Row row = row_of("zs0", "refused");
  row["predicted_tokens_per_sec"] = 60000.0;
  row["predicted_step_time_s"] = 0.0335;
  std::string const text = cli::published_text({row}, {"stage-sweep"}, "", {});
  CHECK(holds(text, "45000  (60000)"));
  CHECK(holds(text, "45  (33.5)"));
  CHECK(holds(text, "8.2  (2.15)"));
  // Of several ranks, the planned rate is divided by their number.
  row["model"] = "llama-2-7b";
  row["world"] = 4;
  CHECK(holds(cli::published_text({row}, {"stage-sweep-7b"}, "", {}), "11400  (15000)"));
  // The published host memory is of the whole machine, so the plan of a rank is multiplied by their number.
  row["model"] = "llama-2-70b";
  row["world"] = 8;
  row["sharding"] = "zs3";
  row["offload"] = "cpu_optimizer";
  row["planned_host_mem_mb"] = 1000.0;  // 1.05 GB
  CHECK(holds(cli::published_text({row}, {"large-models"}, "", {}), "180  (8.4)"));
  row["planned_host_mem_mb"] = 0.0;  // a plan without offloaded state is not the memory of a machine
  CHECK_FALSE(holds(cli::published_text({row}, {"large-models"}, "", {}), "(0.0)"));
}

TEST_CASE("rows that did not run have the speed-up of their predicted rates in brackets") {
  Row one = row_of("zs0", "refused");
  one["precision"] = "fp32";
  one["batch"] = 8;
  one["sequence"] = 1024;
  one["predicted_tokens_per_sec"] = 20000.0;
  Row two = one;
  two["world"] = 2;
  two["predicted_tokens_per_sec"] = 38000.0;
  std::string text = cli::published_text({one, two}, {"scaling-gpt2"}, "", {});
  CHECK(holds(text, "1.910  (1.900)"));
  CHECK(holds(text, "1.0  (1.000)"));
  // A predicted speed-up needs a prediction for one rank. A measured speed-up needs a measured row of one
  // rank.
  CHECK(holds(cli::published_text({two}, {"scaling-gpt2"}, "", {}), "1.910     -"));
  two["status"] = "ok";
  two["scaling_efficiency"] = 0.5;
  CHECK(holds(cli::published_text({one, two}, {"scaling-gpt2"}, "", {}), "1.910        -"));
}

TEST_CASE("published figures have the digits and the deviations that were printed") {
  Row row = row_of("zs3", "ok", fp16_stages);
  row["median_tokens_per_sec"] = 23845.97;
  std::vector<Row> rows = {row, row};
  rows[1]["sharding"] = "zs1";
  std::string const text = cli::published_text(rows, {"zero-stages-gpt2"}, "NVIDIA H200", {});
  CHECK(holds(text, "11923 +- 282.6  23846   2.00"));
  CHECK(holds(text, "0.361 +- 0.0085"));
  CHECK(holds(text, "0.200 +- 0.0002"));
  CHECK(holds(text, "46.1"));
  CHECK(holds(text, "restarts its clock every ten steps only"));
  cli::add_published(rows, {"zero-stages-gpt2"});
  CHECK(rows[0].at("published").at("deviations").at("tokens_per_sec") == 282.62374);
  CHECK(rows[0].at("published").at("figures").at("tokens_per_sec") == 11922.985);
}

TEST_CASE("a published rate of one of two GPUs is compared with our rate per GPU") {
  Row row = row_of("zs2", "ok", two_h100);
  row["median_tokens_per_sec"] = 612000.0;
  row["tokens_per_sec_per_rank"] = 306000.0;
  CHECK(holds(cli::published_text({row}, {"zero2-two-h100"}, "two GPUs", {}), "~153K  306000   2.00"));
}

TEST_CASE("brackets are explained where there are some") {
  std::string const brackets = "(in brackets)";
  CHECK(holds(cli::published_text({row_of("zs3", "oom")}, {"stage-sweep"}, "a CPU", {}), brackets));
  Row refused = row_of("zs3", "refused");
  refused["planned_gpu_mem_mb"] = nullptr;
  std::string const text = cli::published_text({refused}, {"stage-sweep"}, "a CPU", {});
  CHECK(holds(text, "published, stage-sweep"));
  CHECK(text.find(brackets) == text.npos);
}

TEST_CASE("speed-ups, step times and memory at the end have the published digits") {
  Row row = row_of("zs2", "ok", {.precision = "fp32", .world = 2, .batch = 8, .sequence = 1024});
  row["offload"] = "cpu_optimizer";
  row["scaling_efficiency"] = 0.733;
  row["avg_step_time_s"] = 2.46341;
  row["allocated_mb"] = 1303.42;
  Row one = row;  // the same recipe on one rank
  one["world"] = 1;
  std::string text = cli::published_text({one, row}, {"scaling-gpt2"}, "two GPUs", {});
  CHECK(holds(text, "1.466  1.466   1.00"));
  CHECK(holds(text, "1.232  2.463   2.00"));
  CHECK(holds(text, "652  1303   2.00"));
  row["sharding"] = "zs0";
  row["offload"] = "none";
  row["scaling_efficiency"] = 0.955;
  one["sharding"] = "zs0";
  one["offload"] = "none";
  text = cli::published_text({one, row}, {"scaling-gpt2"}, "two GPUs", {});
  CHECK(holds(text, "1.910  1.910   1.00"));
  // Without the row on one rank, the scaling efficiency is relative to another number of ranks.
  CHECK_FALSE(holds(cli::published_text({row}, {"scaling-gpt2"}, "two GPUs", {}), "1.910  1.910"));
  CHECK(holds(text, "source: https://github.com/XXXG00W0/hpml_project"));
}

TEST_CASE("accumulation makes another shape") {
  std::vector<Row> rows = {row_of("zs0", "ok")};
  rows[0]["accumulation"] = 2;
  cli::add_published(rows, {"stage-sweep"});
  CHECK_FALSE(rows[0].contains("published"));
  CHECK(holds(cli::published_text(rows, {"stage-sweep"}, "", {}), "published: no row here has"));
}

TEST_CASE("a row of epochs has the figures of a comparison without any") {
  std::vector<Row> rows = {row_of("zs0", "ok")};
  rows[0]["samples"] = 100;
  rows[0]["epochs"] = 1;
  cli::add_published(rows, {"stage-sweep"});
  CHECK(rows[0].at("published").at("ratios").size() == 3);
  std::string const text = cli::published_text(rows, {"stage-sweep"}, "NVIDIA H200", {});
  CHECK(holds(text, "45000  90000   2.00"));
  CHECK_FALSE(holds(text, "epoch"));
}

TEST_CASE("figures of epochs are only compared with epochs of equally many samples") {
  Row row = row_of("zs3", "ok", {.precision = "fp16", .batch = 2});
  row["model"] = "gpt2-large";
  row["samples"] = 1000;
  row["epochs"] = 2;
  row["avg_epoch_time_s"] = 10.647;
  row["samples_per_sec"] = 95.0;
  row["first_epoch_loss"] = row["final_epoch_loss"] = 4.0;
  auto const published = [](Row of) {
    std::vector<Row> rows = {std::move(of)};
    cli::add_published(rows, {"zero3-large-offload"});
    return rows[0].at("published").at("ratios");
  };
  auto const text = [](Row const& of) {
    return cli::published_text({of}, {"zero3-large-offload"}, "NVIDIA H200", {});
  };
  CHECK(published(row).at("epoch_s").get<double>() == doctest::Approx(0.1));
  CHECK(published(row).contains("final_epoch_loss"));
  CHECK_FALSE(holds(text(row), " there, so values that depend on it are left out"));
  row["epochs"] = 1;
  CHECK(published(row).contains("first_epoch_loss"));
  CHECK_FALSE(published(row).contains("final_epoch_loss"));
  row["samples"] = 100;
  CHECK_FALSE(published(row).contains("epoch_s"));
  CHECK_FALSE(published(row).contains("first_epoch_loss"));
  CHECK(published(row).at("samples_per_sec").get<double>() == doctest::Approx(10.0));
  std::string const shown = text(row);
  CHECK_FALSE(holds(shown, "10.65"));
  CHECK(holds(shown,
              "1 epoch of 100 samples here, 2 epochs of 1000 samples there, so values that depend on it are "
              "left out"));
}
