// SPDX-License-Identifier: Apache-2.0
// Tests the programs `compare` and `train` with training state in files on NVMe: the folder of these files,
// their removal, the NVMe columns of the result table, and refusals before step 1. Also tests the limit of
// host memory and the recipes (combinations of policies) that `compare` selects by default.
#include "programs/compare_support.hpp"

using test::Compare, test::Json, test::shows;

namespace {

/// Runs commands in a folder with two subfolders, `temporary` and `disk`. The commands use `temporary` as
/// $TMPDIR, where programs create a folder for their NVMe files if no flag names one. --nvme-path can name
/// `disk`.
struct NvmeFolders : Compare {
  NvmeFolders() { passes("mkdir temporary disk"); }

  void leaves_nothing() const { CHECK(passes("ls temporary disk") == "disk:\n\ntemporary:\n"); }
  Json rows_on_nvme(std::string const& flags, std::string const& expressions = "", int code = 0) const {
    ends(code, in_temporary + "compare --json rows.json" + brief + "--ranks 2 " + flags, expressions);
    leaves_nothing();
    return json("rows.json").at("rows");
  }

  static inline std::string const in_temporary = "export TMPDIR=$PWD/temporary; ";
};

/// Returns all pairs of policies that occur together in a row of the result table: sharding and precision,
/// sharding and offload, precision and offload.
std::set<std::string> pairs_of_choices(Json const& rows) {
  std::set<std::string> pairs;
  for (Json const& row : rows) {
    std::string const sharding = row.at("sharding"), precision = row.at("precision"),
                      offload = row.at("offload");
    pairs.insert({sharding + "/" + precision, sharding + "/" + offload, precision + "/" + offload});
  }
  return pairs;
}

}  // namespace

TEST_CASE("compare nvme: rows have the planned bytes, and what they read and write, and leave no file") {
  NvmeFolders const sh;
  sh.write("temporary/tessera-nvme-killed/tessera-scratch-1-0-0.bin", "left by a killed run");
  Json const rows = sh.rows_on_nvme(
      "--stages dp,3 --precisions bf16 --strategies none nvme_optimizer nvme_parameters nvme infinity", R"(
      nvme path +/[^ \n]+/temporary/tessera-nvme-
      all 10 rows equal to the bit)");
  CHECK(rows.size() == 10);
  double complete = 0;
  for (Json const& row : rows) {
    std::string const experiment = row.at("experiment");
    INFO(experiment);
    CHECK(row.at("status") == "ok");
    if (row.at("offload") == "none") {
      for (char const* key :
           {"nvme_mb", "planned_nvme_mb", "nvme_read_mb", "nvme_write_mb", "nvme_engine", "nvme_gb_per_s"})
        CHECK_MESSAGE(row.at(key).is_null(), key);
      continue;
    }
    CHECK(row.at("nvme_mb") == row.at("planned_nvme_mb"));
    CHECK(row.at("nvme_read_mb") > 0);
    CHECK(row.at("nvme_write_mb") > 0);
    CHECK(row.at("nvme_gb_per_s") > 0);
    shows(row.at("nvme_engine"), R"(
        ^(io_uring|threads: [^,]+), [0-9]+ requests of [0-9]+ KiB(, buffered: no O_DIRECT here)?$)");
    if (experiment.starts_with("zs3") && experiment.ends_with("offnvme")) complete = row.at("nvme_read_mb");
  }
  Json const diverged =
      sh.rows_on_nvme("--stages 3 --precisions bf16 --strategies nvme --learning-rate 1e30 --clip 0", "", 1)
          .at(0);
  CHECK(diverged.at("status") == "failed");
  CHECK(diverged.at("nvme_read_mb") > 0);
  CHECK(diverged.at("nvme_read_mb") <= complete);  // not more than one complete step reads
}

TEST_CASE("compare nvme: --nvme-path gets the files, and those of a killed run are removed") {
  NvmeFolders const sh;
  std::string const on_disk = " --offloads nvme --precisions fp32 --nvme-path disk ";
  sh.rows_on_nvme("--stages 1" + on_disk);
  sh.passes(sh.in_temporary +
                "train --data text.txt --steps 3 --ranks 2 --stage 3 --offload infinity --nvme-path disk "
                "--log log.jsonl" +
                sh.small,
            R"(
      nvme path +disk +flag
      memory of rank 0: [^\n]*, on NVMe [0-9.]+ [KMG]?i?B \()");
  sh.leaves_nothing();
  // `compare` first removes the NVMe files of a killed process, and then determines the free space. It
  // removes the files even if it trains for no row afterwards.
  sh.write("disk/tessera-scratch-999999999-0-0.bin", "left");
  sh.rows_on_nvme("--stages 0 --host-memory 100KB" + on_disk);
}

TEST_CASE("compare nvme: a wrong --nvme-path is refused") {
  NvmeFolders const sh;  // even root cannot create files in /proc
  sh.refuses("TMPDIR=$PWD/absent compare" + sh.brief, R"(
      2 | --offloads nvme --nvme-path absent | --nvme-path absent is not a folder
      2 | --offloads none --nvme-path text.txt | --nvme-path text.txt is not a folder
      1 | --offloads nvme --nvme-path /proc | --nvme-path /proc: cannot create files
      1 | --offloads nvme | TMPDIR | /absent)");
}

TEST_CASE("compare nvme: --host-memory limits rows of compare, and ends train") {
  NvmeFolders const sh;
  Json const rows =
      sh.rows_on_nvme("--stages 0 --precisions fp32 --offloads none,cpu_optimizer --host-memory 100KB");
  CHECK(rows.at(1).at("status") == "oom");
  CHECK(rows.at(1).at("verdict") == "oom");
  shows(rows.at(1).at("reason"), "^out of memory: 2 ranks plan .* and 100000 B are available");
  auto const end = sh.run("train --data text.txt --host-memory 100KB" + sh.small);
  CHECK(end.code == 5);
  shows(end.err, "100000 B are available");
}

TEST_CASE("compare nvme: the default selection has fewer rows than --full, and all pairs of choices") {
  NvmeFolders const sh;
  std::string const one = sh.in_temporary +
                          "compare --model layers=1,heads=1,channels=8 --sequence 16 --batch 1 --ranks 1 "
                          "--data text.txt --steps 1 "
                          "--warmup 0 --json rows.json ";
  std::string text = sh.passes(one + "--full");
  Json const all = sh.json("rows.json").at("rows");
  std::string const count = std::to_string(all.size());
  shows(text, "rows: " + count + R"( ok\n)");
  auto const pairs = pairs_of_choices(all);
  for (char const* pair : {"dp/bf16", "zs3/infinity", "fp32/none"}) CHECK(pairs.contains(pair));

  text = sh.passes(one);
  Json const some = sh.json("rows.json").at("rows");
  CHECK(some.size() < all.size());
  shows(text, "rows +" + std::to_string(some.size()) + " of " + count + R"(: [^\n]*--full)");
  CHECK(pairs_of_choices(some) == pairs);
  shows(sh.passes("compare --help"), "--pairs +" + std::to_string(some.size()) + " of these: every sharding");
  sh.leaves_nothing();
}
