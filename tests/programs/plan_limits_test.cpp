// SPDX-License-Identifier: Apache-2.0
// Tests the limits that the program `plan` knows (device memory, host memory and NVMe), and its message if no
// recipe (combination of policies) fits into the limits.
#include "programs/harness.hpp"

using test::field, test::Json, test::Shell;

namespace {

std::string const small_plan =
    "plan --model layers=2,heads=2,channels=32 --sequence 16 --batch 2 --precisions fp32 ";

struct Limits : Shell {
  /// Checks the limit of memory that the last flag of the command `call` sets. With a limit of `bytes` bytes,
  /// the row that `plan` prints must fit. With one byte less, the row must not fit, for the reason `reason`.
  void last_byte_counts(std::string const& call, std::int64_t bytes, std::string const& reason) const {
    for (int missing : {0, 1}) {
      ends(missing == 0 ? 0 : 5, call + std::to_string(bytes - missing) + " --json rows.json");
      Json const row = field(json("rows.json"), "rows", 0);
      CHECK(row.at("status") == (missing == 0 ? "fits" : "oom"));
      if (missing != 0) test::shows(row.at("reason"), reason);
    }
  }
};

}  // namespace

TEST_CASE("plan: in --memory a GB is a GiB, in other flags it is 10^9 bytes") {
  Shell const sh;
  for (std::string const value : {"1GB", "1GiB", "1G", "1gb", "'1 GB'"}) {
    sh.passes(small_plan +
              "--ranks 1 --stages 0 --offloads none --host-memory 1GB --nvme-memory 1GB --no-search --json "
              "size.json "
              "--memory " +
              value);
    Json const row = field(sh.json("size.json"), "rows", 0);
    CHECK(row.at("limit_device_bytes") == 1073741824);
    CHECK(row.at("limit_host_bytes") == 1000000000);
    CHECK(row.at("limit_nvme_bytes") == 1000000000);
  }
}

// The checks below hold for both devices, cpu and cuda. They do not depend on the machine or the build on
// which `plan` runs.
TEST_CASE("plan: device and host have separate limits, so an offload frees device memory") {
  Limits const sh;
  std::string const call =
      "plan --model gpt2-large --ranks 2 --batch 2 --sequence 1024 --precisions bf16 --stages 2 "
      "--search-time 300 ";
  for (std::string const device : {"cpu", "cuda"}) {
    std::string const limited = call + "--memory 24GB --device " + device;
    sh.passes(limited + " --offloads none,cpu_optimizer --json rows.json",
              "limits: 24.00 GiB for each rank's device.*; host memory is not limited");
    Json const rows = sh.json("rows.json").at("rows");
    CHECK(field(rows, 1, "largest_batch") > field(rows, 0, "largest_batch"));
    CHECK(field(rows, 1, "limit_host_bytes").is_null());
    std::int64_t bytes = 2 * field(rows, 1, "bytes", "host", "total").get<std::int64_t>();
    // On the CPU, device memory is host memory, so the host needs all bytes of all ranks.
    if (device == "cpu") bytes = field(rows, 1, "all_ranks_bytes");
    sh.last_byte_counts(limited + " --offloads cpu_optimizer --host-memory ", bytes,
                        "^all ranks plan .* of host memory, the limit is ");
  }
  // The memory plan of a GPU includes the workspace of cuBLASLt. The limit of device memory is 1 GiB below
  // the value of --memory, because the libraries of CUDA need memory too.
  Json const gpu = field(sh.json("rows.json"), "rows", 0);
  CHECK(field(gpu, "bytes", "device", "workspace") == 67108864);
  CHECK(gpu.at("limit_device_bytes") == 25769803776 - (1 << 30));
  sh.ends(5, call + "--offloads none,cpu_optimizer --device cuda --memory 8GB --batch 8",
          "nothing fits .* a rank plans [0-9.]+ GiB on its device, the limit is 7.00 GiB; largest batch");
  if (sh.run("nvidia-smi -L").code != 0)
    sh.refuses("plan --device cuda",
               "2 |  | the memory of a GPU is unknown, because this build or this machine has none | "
               "--memory 24GiB");
}

TEST_CASE("plan: the disk for state on NVMe has a limit, which counts all ranks to the last byte") {
  Limits const sh;
  std::string const call = small_plan + "--ranks 2 --stages 1 --offloads nvme_optimizer ";
  sh.passes(call + "--json rows.json --nvme-path .",
            R"(limits: .* on NVMe for all ranks, the free space of \.;)");
  sh.last_byte_counts(call + "--nvme-memory ", field(sh.json("rows.json"), "rows", 0, "all_ranks_nvme_bytes"),
                      "^all ranks plan .* on NVMe, the limit is ");
  sh.passes(call + "--memory 1GiB", "NVMe is not limited; --nvme-memory or --nvme-path sets");
  sh.refuses(call, "2 | --nvme-path absent | --nvme-path absent is not a folder");
}

TEST_CASE("plan: if nothing fits, the message suggests only options that are not used yet and that help") {
  Shell const sh;
  std::string const all_used = "--ranks 64 --stages 3 --recompute block --offloads none --memory 1KiB";
  CHECK_FALSE(test::has(sh.ends(5, small_plan + all_used, "nothing fits "), "; try "));
  for (auto const& row : test::table(R"(
      --ranks 4 --stages 1 --offloads none --memory 1KiB | ; try --recompute block or --stages 3\n
      --ranks 2 --stages 1 --offloads nvme_optimizer --nvme-memory 1KiB | \x20on NVMe, the limit is 1024 B; try --offloads that keep less on NVMe\n
      --ranks 2 --stages 1 --offloads nvme --nvme-memory 1KiB | ; try --stages 3 or --offloads that keep less on NVMe\n)"))
    sh.ends(5, small_plan + row[0], row[1]);
}

TEST_CASE("plan: if only some recipes fit, it succeeds and picks one that fits") {
  Shell const sh;
  sh.passes(
      "plan --model gpt2 --ranks 4 --batch 4 --sequence 256 --precisions fp32 --host-memory 10GB --json "
      "some.json");
  Json const rows = sh.json("some.json").at("rows");
  std::set<std::string> statuses;
  for (Json const& row : rows) {
    statuses.insert(row.at("status"));
    if (row.at("picked") == true) CHECK(row.at("status") == "fits");
  }
  CHECK(Json(statuses).dump() == R"(["fits","oom"])");
}

TEST_CASE(
    "plan: large models have their number of parameters, and each row that does not fit has its reason") {
  Shell const sh;
  sh.passes(
      "plan --model opt-1.3b llama-2-7b llama-2-13b llama-2-70b --device cuda --memory 80GB --host-memory "
      "1TB --ranks 8 "
      "--batch 1 --sequence 512 --precisions bf16 --stages 0,3 --offloads none,cpu_full --no-search --json "
      "large.json");
  Json const rows = sh.json("large.json").at("rows");
  CHECK(rows.size() == 16);
  std::set<std::string> found;
  for (Json const& row : rows) {
    found.insert(row.at("model").get<std::string>() + " " + row.at("params").dump() + " " +
                 row.at("status").get<std::string>());
    if (row.at("status") == "oom")
      test::shows(row.at("reason"),
                  "plans? [0-9.]+ GiB (on its device|of host memory), the limit is [0-9.]+ GiB");
  }
  CHECK(Json(found) == Json{"llama-2-13b 13015864320 fits", "llama-2-13b 13015864320 oom",
                            "llama-2-70b 68976648192 oom", "llama-2-7b 6738415616 fits",
                            "llama-2-7b 6738415616 oom", "opt-1.3b 1315758080 fits"});
}
