// SPDX-License-Identifier: Apache-2.0
// Tests why_unusable(), which returns the error message that explains why a program cannot use a GPU.
#include "tessera/backend/cuda/runtime/usable.hpp"

#include <optional>
#include <string>

#include <doctest/doctest.h>

namespace {

using tessera::cuda::DeviceAnswers;
using tessera::cuda::why_unusable;

/// Returns the answers of the CUDA runtime on a machine with two GPUs that the program can use. In these
/// answers, the program was compiled with CUDA 13.0 for Hopper and newer GPUs.
DeviceAnswers usable() {
  DeviceAnswers all;
  all.runtime = all.driver = 13000;
  all.count = 2;
  all.device = 1;
  all.name = "NVIDIA H200";
  all.capability = 90;
  all.compiled = {90};
  return all;
}
DeviceAnswers without_gpus() {
  DeviceAnswers all = usable();
  all.count = 0;
  return all;
}

}  // namespace

TEST_CASE("a GPU that can be used has nothing said of it") {
  CHECK(!why_unusable(usable()));
  DeviceAnswers newer = usable();
  newer.driver = 13020;
  CHECK(!why_unusable(newer));
  newer.driver = 14000;
  CHECK(!why_unusable(newer));
  newer = usable();
  // The driver has the same major version, so it can run the machine code of the program.
  newer.runtime = 13020;
  CHECK(!why_unusable(newer));
}

TEST_CASE("a machine without a driver is told to install one") {
  DeviceAnswers all = without_gpus();
  all.driver = 0;
  all.failure = "cudaErrorInsufficientDriver (CUDA driver version is insufficient)";
  CHECK(
      why_unusable(all) ==
      "no CUDA device can be used: NVIDIA's driver (libcuda.so.1) was not found; install it, in a container "
      "run with --gpus all, or use the CPU");
}

TEST_CASE("a driver that is too old is named with what it would have to serve") {
  DeviceAnswers all = without_gpus();
  all.driver = 12080;
  all.failure = "cudaErrorInsufficientDriver (CUDA driver version is insufficient)";
  all.visible = "0";
  CHECK(why_unusable(all) ==
        "no CUDA device can be used: the driver supports CUDA 12.8 and older, but this program was compiled "
        "with CUDA 13.0; install a driver that supports CUDA 13.0 or newer (nvidia-smi shows it), or use the "
        "CPU");
  all.runtime = 13010;
  CHECK(
      why_unusable(all)->find("compiled with CUDA 13.1; install a driver that supports CUDA 13.0 or newer") !=
      std::string::npos);
}

TEST_CASE("CUDA_VISIBLE_DEVICES that hides every GPU is quoted") {
  DeviceAnswers all = without_gpus();
  for (char const* const value : {"", "-1", "7"}) {
    all.visible = value;
    CHECK(why_unusable(all) == "no CUDA device can be used: CUDA_VISIBLE_DEVICES is '" + std::string(value) +
                                   "', which hides all GPUs from this program; unset it, or name GPUs of "
                                   "this machine such as 0,1, or use "
                                   "the CPU");
  }
}

TEST_CASE("a driver that sees no GPU, and one that fails, are told apart") {
  DeviceAnswers all = without_gpus();
  CHECK(why_unusable(all) ==
        "no CUDA device can be used: the driver finds no GPU; run on a machine with one (nvidia-smi lists "
        "them), in a container with --gpus all, or use the CPU");
  all.failure = "cudaErrorSystemNotReady (system not yet initialized)";
  all.visible = "0,1";
  CHECK(why_unusable(all) ==
        "no CUDA device can be used: cudaErrorSystemNotReady (system not yet initialized); run nvidia-smi "
        "for details, or use the CPU");
}

TEST_CASE("a rank beyond the last GPU is told how many there are") {
  DeviceAnswers all = usable();
  all.device = 2;
  CHECK(why_unusable(all) == "GPU 2 was requested, but the number of visible GPUs is 2; use fewer ranks");
}

TEST_CASE("a GPU that the program has no code for is named with what the program was compiled for") {
  DeviceAnswers all = usable();
  all.has_code = false;
  all.name = "NVIDIA A100";
  all.capability = 80;
  CHECK(why_unusable(all) ==
        "GPU 1 (NVIDIA A100) has compute capability 8.0, but this program was compiled only for 9.0; "
        "configure with -DCMAKE_CUDA_ARCHITECTURES=80-real, or for every GPU with -DTESSERA_FAT=ON");
  all.capability = 90;
  CHECK(why_unusable(all)->find("-DCMAKE_CUDA_ARCHITECTURES=90a-real") != std::string::npos);
  all.capability = 103;
  all.compiled = {80, 86, 90};
  CHECK(why_unusable(all)->find(
            "has compute capability 10.3, but this program was compiled only for 8.0, 8.6 and "
            "9.0; configure") != std::string::npos);
  all.runtime = 13010;  // CUDA 13.1 is newer than the driver's 13.0, which cannot translate PTX of 13.1
  CHECK(why_unusable(all)->find(", or update the driver, which supports CUDA 13.0 and cannot translate code "
                                "from the compiler of CUDA 13.1") != std::string::npos);

  all.name = "Tesla T4";
  all.capability = 75;
  CHECK(why_unusable(all) ==
        "GPU 1 (Tesla T4) has compute capability 7.5, but at least 8.0 is needed; use a newer GPU, or use "
        "the CPU");
}
