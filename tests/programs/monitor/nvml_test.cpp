// SPDX-License-Identifier: Apache-2.0
// Tests how the programs read NVML (NVIDIA's library that reports the state of GPUs). A stub library replaces
// NVML. The tests check every field, values that are missing, and libraries that cannot be opened.
#include "machine/nvml.hpp"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "machine/gpu_watch.hpp"
#include "machine/gpus.hpp"
#include "monitor/sampler.hpp"

namespace cli = programs::cli;
namespace nvml = programs::nvml;
using cli::Json;

namespace {

/// Sets NVML_STUB_MODE, which selects a special case of the stub, for the lifetime of this object.
struct Mode {
  explicit Mode(char const* name) { ::setenv("NVML_STUB_MODE", name, 1); }
  ~Mode() { ::unsetenv("NVML_STUB_MODE"); }
};

}  // namespace

TEST_CASE("every field of a GPU that answers") {
  nvml::Library const library(NVML_STUB);
  REQUIRE_MESSAGE(library, library.reason());
  CHECK(library.driver() == "580.65.06");
  REQUIRE(library.size() == 2);
  nvml::Facts const gpu = library.facts(0);
  CHECK(gpu.index == 0);
  CHECK(gpu.name == "NVIDIA H200");
  CHECK(gpu.uuid == "GPU-01234567-89ab-cdef-0123-456789abcdef");
  CHECK(gpu.pci_bus_id == "00000000:1B:00.0");
  CHECK(gpu.memory_bytes == 150754820096);
  CHECK(gpu.power_limit_w == doctest::Approx(600.0));
  CHECK(gpu.default_power_limit_w == doctest::Approx(700.0));
  CHECK(gpu.max_sm_clock_mhz == 1980);
  CHECK(gpu.max_memory_clock_mhz == 3202);
  CHECK(gpu.ecc == true);
  CHECK(gpu.mig == false);  // the mode now; the mode after a restart can differ
  CHECK(gpu.persistence == true);
  REQUIRE(gpu.processes);
  REQUIRE(gpu.processes->size() == 40);
  CHECK(gpu.processes->front().pid == 1000);
  CHECK(gpu.processes->front().memory_bytes == 1 << 20);
  CHECK_FALSE((*gpu.processes)[1].memory_bytes);
  CHECK(gpu.processes->back().memory_bytes == 40 << 20);

  nvml::Sample const now = library.sample(0);
  CHECK((now.utilization_pct == 90 || now.utilization_pct == 100));
  CHECK(now.memory_utilization_pct == 41);
  CHECK(now.memory_used_bytes == 1074790400);
  CHECK(now.temperature_c == 61);
  CHECK(now.sm_clock_mhz == 1755);
  CHECK(now.memory_clock_mhz == 3201);
  CHECK(now.power_w == doctest::Approx(650.25));
  CHECK(now.power_instant_w == doctest::Approx(688.7));
  CHECK(now.power_average_w == doctest::Approx(655.4));
  CHECK(now.energy_j.value() > 12345678901.0);
  CHECK(now.throttle_reasons == 0x24);
}

TEST_CASE("what a GPU does not support is absent") {
  nvml::Library const library(NVML_STUB);
  REQUIRE(library.size() == 2);
  nvml::Facts const gpu = library.facts(1);
  CHECK(gpu.name == "NVIDIA Old");
  CHECK(gpu.pci_bus_id == "00000000:9C:00.0");
  CHECK_FALSE(gpu.uuid);
  CHECK_FALSE(gpu.memory_bytes);
  CHECK_FALSE(gpu.power_limit_w);
  CHECK_FALSE(gpu.ecc);
  CHECK_FALSE(gpu.mig);
  CHECK_FALSE(gpu.persistence);
  CHECK_FALSE(gpu.processes);
  nvml::Sample const now = library.sample(1);
  CHECK(now.temperature_c == 44);
  CHECK_FALSE(now.utilization_pct);
  CHECK_FALSE(now.memory_used_bytes);
  CHECK_FALSE(now.power_w);
  CHECK_FALSE(now.power_instant_w);
  CHECK_FALSE(now.power_average_w);
  CHECK_FALSE(now.energy_j);
  CHECK_FALSE(now.throttle_reasons);
}

TEST_CASE("functions that a driver lacks") {
  nvml::Library const library(NVML_OLD_STUB);
  REQUIRE(library);
  nvml::Sample const now = library.sample(0);
  CHECK(now.power_w == doctest::Approx(650.25));
  CHECK_FALSE(now.power_instant_w);
  CHECK_FALSE(now.energy_j);
  CHECK(now.throttle_reasons == 0x8);  // read with NVML's older function
  CHECK_FALSE(library.facts(0).processes);
}

TEST_CASE("no library, a foreign one, one without a driver, no GPU, a lost one") {
  nvml::Library const missing("libno-such-nvml.so.1");
  CHECK_FALSE(missing);
  CHECK(missing.reason().find("libno-such-nvml.so.1") != std::string::npos);
  CHECK(missing.size() == 0);
  CHECK_FALSE(missing.driver());
  nvml::Library const foreign("libm.so.6");
  CHECK(foreign.reason().find("libm.so.6 lacks functions of NVML") == 0);
  {
    Mode const mode("dead");
    nvml::Library const dead(NVML_STUB);
    CHECK(dead.reason() == "NVML's nvmlInit_v2 returns 9, Driver Not Loaded");
    CHECK(dead.size() == 0);
  }
  {
    Mode const mode("none");
    nvml::Library const none(NVML_STUB);
    CHECK(none);
    CHECK(none.size() == 0);
  }
  Mode const mode("lost");
  nvml::Library const lost(NVML_STUB);
  REQUIRE(lost.size() == 2);
  CHECK_FALSE(lost.facts(0).name);
  CHECK_FALSE(lost.sample(0).temperature_c);
  CHECK(lost.facts(1).name == "NVIDIA Old");  // GPU 0 is lost; GPU 1 keeps its index
}

TEST_CASE("addresses of CUDA and of NVML") {
  CHECK(nvml::same_address("0000:1b:00.0", "00000000:1B:00.0"));
  CHECK_FALSE(nvml::same_address("0000:1b:00.0", "00000000:1C:00.0"));
  CHECK_FALSE(nvml::same_address("0001:1b:00.0", "00000000:1B:00.0"));
  CHECK_FALSE(nvml::same_address("", ""));
}

TEST_CASE("the environment of results, and what is warned of") {
  cli::GpuState const state = cli::state_of(nvml::Library(NVML_STUB));
  // The PCI addresses of the GPUs in the order of CUDA, which differs from the order of NVML.
  std::vector<std::string> const addresses{"0000:9c:00.0", "0000:1b:00.0"};
  Json environment = Json::object();
  cli::add_gpus(environment, state, addresses);
  CHECK(environment["nvidia_driver"] == "580.65.06");
  CHECK(environment["gpus_reason"].is_null());
  REQUIRE(environment["gpus"].size() == 2);
  Json const& gpu = environment["gpus"][0];
  CHECK(gpu["index"] == 0);
  CHECK(gpu["cuda_device"] == 1);
  CHECK(gpu["power_limit_w"] == 600.0);
  CHECK(gpu["memory_used_bytes"] == 1074790400);
  CHECK(gpu["throttle_reasons"] == Json::array({"sw_power_cap", "sw_thermal_slowdown"}));
  CHECK(gpu["processes"].size() == 40);
  CHECK(gpu["processes"][1]["memory_bytes"].is_null());
  Json const& other = environment["gpus"][1];
  CHECK(other["cuda_device"] == 0);
  CHECK(other["temp_c"] == 44);
  for (char const* const absent : {"uuid", "power_limit_w", "ecc", "mig", "throttle_reasons", "processes"})
    CHECK_MESSAGE(other[absent].is_null(), absent);

  CHECK(cli::gpu_warnings(state, addresses, 1).empty());  // CUDA's first device is idle
  cli::Names const warnings = cli::gpu_warnings(state, addresses, 2);
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("GPU 1 is in use by other processes (1000 with 1 MiB, 1001, ") == 0);
  CHECK(warnings[1].find("(sw_power_cap|sw_thermal_slowdown)") != std::string::npos);
  CHECK(cli::gpu_warnings(state, {}, 2).empty());

  cli::add_gpus(environment, cli::state_of(nvml::Library("libno-such-nvml.so.1")), {});
  CHECK(environment["gpus"].is_null());
  CHECK(environment["nvidia_driver"].is_null());
  CHECK(environment["gpus_reason"].is_string());
  CHECK(cli::throttle_text(0) == "none");
  CHECK(cli::throttle_text(0x44) == "sw_power_cap|hw_thermal_slowdown");
  CHECK(cli::throttle_text(std::uint64_t{1} << 40) == "other");
}

TEST_CASE("an idle GPU is not held down, and a reason without a name is other everywhere") {
  CHECK(cli::slowing(0x1 | 0x2 | 0x4 | 0x10 | 0x100) == 0x4);
  Mode const mode("idle");
  nvml::Library const library(NVML_STUB);
  Json environment = Json::object();
  cli::add_gpus(environment, cli::state_of(library), {});
  CHECK(environment["gpus"][0]["throttle_reasons"] == Json::array({"gpu_idle", "other"}));
  programs::monitor::Sampler sampler(library, programs::monitor::CpuUse(0), 10, 100);
  CHECK(sampler.take(0, 0.0).dump().find("\"gpu_idle|other\"") != std::string::npos);
  Json const shares = sampler.gpu_summary()[0]["throttle_reasons_pct"];
  CHECK(shares == Json({{"gpu_idle", 100.0}, {"other", 100.0}}));
  CHECK(sampler.table(200).find("| clocks held down: other 100.0%\n") != std::string::npos);
}

TEST_CASE("NVML's numbers of CUDA's devices") {
  cli::GpuState const state = cli::state_of(nvml::Library(NVML_STUB));
  CHECK(cli::nvml_indices(state, {"0000:9c:00.0", "0000:1b:00.0"}, 2) == std::vector<int>{1, 0});
  CHECK(cli::nvml_indices(state, {"0000:9c:00.0"}, 1) == std::vector<int>{1});
  CHECK(cli::nvml_indices(state, {"0000:9c:00.0", "0000:77:00.0"}, 2).empty());
}

TEST_CASE("figures of some seconds are those of all GPUs, and of long enough a time") {
  nvml::Sample one, other;
  one.utilization_pct = 80;
  one.power_instant_w = 500.0;
  one.power_w = 1.0;
  one.temperature_c = 50;
  other.utilization_pct = 40;
  other.power_w = 300.0;
  other.temperature_c = 60;
  cli::GpuSums sums;
  CHECK_FALSE(sums.use());
  sums.add(100.0, {one, other});
  one.utilization_pct = 100;
  one.power_instant_w = 700.0;
  one.temperature_c = 70;
  sums.add(102.4, {one, other});
  CHECK_FALSE(sums.use());
  sums.add(102.6, {one, other});
  auto const use = sums.use().value();
  CHECK(*use.util_pct == doctest::Approx((60.0 + 70.0 + 70.0) / 3.0));
  CHECK(*use.power_w == doctest::Approx((800.0 + 1000.0 + 1000.0) / 3.0));
  CHECK(use.peak_power_w == 1000.0);
  CHECK(use.temp_start_c == 60.0);
  CHECK(use.temp_end_c == 70.0);
  CHECK(use.temp_min_c == 50.0);
  CHECK(use.temp_max_c == 70.0);
  CHECK(use.peak_power_each_w == std::vector<double>{700.0, 300.0});

  // In `counted`, both GPUs have an energy counter, so the mean power is computed from the energy. One GPU
  // reports no utilization in the second sample, so the mean utilization is missing.
  cli::GpuSums counted;
  one.energy_j = 10000.0;
  other.energy_j = 5000.0;
  counted.add(0.0, {one, other});
  one.energy_j = 16000.0;
  other.energy_j = 6000.0;
  other.utilization_pct.reset();
  counted.add(10.0, {one, other});
  CHECK(counted.use()->power_w == doctest::Approx(700.0));
  CHECK_FALSE(counted.use()->util_pct);
  cli::GpuSums none;
  none.add(0.0, {nvml::Sample()});
  none.add(10.0, {nvml::Sample()});
  REQUIRE(none.use());
  CHECK_FALSE(none.use()->power_w);
  CHECK_FALSE(none.use()->peak_power_w);
  CHECK_FALSE(none.use()->temp_end_c);
  CHECK_FALSE(none.use()->temp_max_c);
  CHECK(none.use()->peak_power_each_w.empty());
}

TEST_CASE("a watch samples until it goes") {
  nvml::Library const library(NVML_STUB);
  cli::GpuWatch watch(library, {0}, std::chrono::milliseconds(1));
  while (watch.sums().samples() < 3) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.begin();
  while (watch.sums().samples() < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  // The time since begin() is too short for means.
  CHECK_FALSE(watch.sums().use());
}

TEST_CASE("this process is no other process") {
  cli::GpuState state = cli::state_of(nvml::Library(NVML_STUB));
  state.facts[0].processes = {{::getpid(), std::nullopt}};
  // The GPU reports that it is idle. An idle GPU does not count as throttled.
  state.samples[0].throttle_reasons = 0x1;
  CHECK(cli::gpu_warnings(state, {"0000:1b:00.0"}, 1).empty());
}
