// SPDX-License-Identifier: Apache-2.0
// Tests checkpoints on GPUs. Training that resumes from a checkpoint must give the bits of training without
// interruption, even if it resumes with another policy for CUDA-graph capture, another offload or another
// number of GPUs. The CPU must be able to resume from a checkpoint of a GPU, and a GPU from a checkpoint of
// the CPU.
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "device/skip.hpp"
#include "support/checkpoints.hpp"
#include "support/file_support.hpp"

namespace {

using namespace support;
using file_support::TemporaryFolder;

void check_resumed_on_gpus(int gpus) {
  for (std::string_view const precision : {"fp32", "fp16", "bf16"}) {
    TemporaryFolder const folder;
    Setting const alone{"zs0", "none", precision, {1, 6}, "cuda", "graph"};
    Trained const whole = train_part(alone, 0, 9, {}, folder / "whole");
    std::vector<Setting> settings{alone};
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full", "nvme"})
      for (std::string_view const capture : {"eager", "graph"})
        settings.push_back({gpus > 1 ? "zs3" : "zs1", offload, precision, {gpus, 6 / gpus}, "cuda", capture});
    for (std::size_t at = 0; at < settings.size(); ++at) {
      Setting const& before = settings[at];
      Setting const& then = settings[(at + 4) % settings.size()];
      INFO(text_of(before), " -> ", text_of(then));
      TemporaryFolder const parts;
      (void)train_part(before, 0, 5, {}, parts / "saved");
      Trained const rest = train_part(then, 5, 9, parts / "saved", parts / "end");
      Trained const want = after(whole, 5);
      CHECK(rest.losses == want.losses);
      CHECK(rest.norms == want.norms);
      CHECK(rest.scales == want.scales);
      CHECK(rest.scalars == want.scalars);
      CHECK((rest.state == want.state));
    }
  }
}

}  // namespace

TEST_CASE("a run on a GPU is resumed to the bit under other captures and offloads") {
  TESSERA_NEEDS_GPU();
  check_resumed_on_gpus(1);
}
TEST_CASE("a run on two GPUs is resumed to the bit of one") {
  TESSERA_NEEDS_GPUS(2);
  check_resumed_on_gpus(2);
}

TEST_CASE("a checkpoint passes from the GPU to the CPU and back") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const precision : {"fp32", "fp16", "bf16"}) {
    INFO(std::string(precision));
    TemporaryFolder const folder;
    Setting const gpu{"zs0", "cpu_optimizer", precision, {1, 6}, "cuda", "graph"},
        cpu{"zs3", "none", precision, {3, 2}};
    Trained const saved = train_part(gpu, 0, 4, {}, folder / "gpu");
    Trained const there = train_part(cpu, 4, 4, folder / "gpu", folder / "cpu");
    CHECK((there.state == saved.state));
    CHECK(there.scalars == saved.scalars);
    Trained const back = train_part(gpu, 4, 4, folder / "cpu", folder / "back");
    CHECK((back.state == saved.state));
    CHECK(back.scalars == saved.scalars);
  }
}

TEST_CASE("what a GPU's run writes while steps run is the state before them to the byte") {
  TESSERA_NEEDS_GPU();
  // The model is large, so the copies of its state into the checkpoint need some time. During this time the
  // next step could already change the state.
  Gpt2Options const model{.layers = 2, .heads = 8, .channels = 512, .positions = 64, .vocabulary = 61};
  for (std::string_view const precision : {"fp32", "fp16", "bf16"})
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full", "nvme"})
      for (std::string_view const capture : {"eager", "graph"})
        check_async_save({"zs1", offload, precision, {1, 6}, "cuda", capture}, model);
}
TEST_CASE("what two GPUs write while steps run is the state before them to the byte") {
  TESSERA_NEEDS_GPUS(2);
  for (std::string_view const sharding : {"zs0", "zs3"})
    for (std::string_view const capture : {"eager", "graph"})
      check_async_save({sharding, "none", "bf16", {2, 3}, "cuda", capture});
}
