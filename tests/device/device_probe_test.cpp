// SPDX-License-Identifier: Apache-2.0
// Tests how the library measures the GPU itself: the speed of a matrix product, the times of collectives
// between GPUs, and the bytes that memory arenas occupy on the device.
#include "tessera/train/device_probe.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/policy/parse.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "device/skip.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;

RecipeTable on_gpu(std::string_view precision) {
  SlotNames names;
  names.device = "cuda";
  names.precision = precision;
  return parse_recipe(names);
}

}  // namespace

TEST_CASE("a large product on a GPU has a rate, which is measured once") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const precision : {"fp64", "fp32", "tf32", "bf16x6", "bf16x3", "fp16", "bf16"}) {
    INFO(std::string(precision));
    auto const rate = product_rate(on_gpu(precision));
    REQUIRE(rate);
    CHECK(*rate > 1e11);
    CHECK(*rate < 1e16);
    CHECK(product_rate(on_gpu(precision)) == rate);
  }
  CHECK(*product_rate(on_gpu("bf16")) > *product_rate(on_gpu("fp32")));
}

TEST_CASE("collectives between two GPUs have times, and later collectives use host memory again") {
  TESSERA_NEEDS_GPUS(2);
  std::vector<comm::Request> requests;
  for (std::int64_t const bytes : {std::int64_t{4096}, std::int64_t{64} << 20})
    for (Move const move : {Move::all_gather, Move::reduce_scatter, Move::all_to_all, Move::gather,
                            Move::all_reduce, Move::broadcast}) {
      comm::Request request;
      request.move = move;
      request.bytes = bytes;
      if (move == Move::gather || move == Move::broadcast) request.root = 0;
      requests.push_back(request);
    }
  run_ranks(on_gpu("bf16"), 2, [&](comm::Comm& comm) {
    std::vector<double> const seconds = device_collective_seconds(comm, requests);
    CHECK(comm::unanimous(comm, seconds.size() == requests.size()));
    if (!comm.is_root()) return;
    for (std::size_t at = 0; at < seconds.size(); ++at) {
      INFO(std::string(name_of(requests[at].move)));
      CHECK(seconds[at] > 1e-7);
      CHECK(seconds[at] < 1.0);
      if (at >= 6) CHECK(seconds[at] > seconds[at - 6]);
    }
  });
}

TEST_CASE("what arenas hold of a GPU is there as long as their trainer") {
  TESSERA_NEEDS_GPU();
  std::int64_t const before = allocated_bytes(Device::cuda, 0).value();
  {
    auto const trainer = make_trainer(any_model(tiny), on_gpu("bf16"), comm::Comm(), options_of(Run{}));
    std::int64_t const planned = trainer->plan().arena_bytes[static_cast<std::size_t>(Tier::device)];
    std::int64_t const held = allocated_bytes(Device::cuda, 0).value() - before;
    CHECK(held >= planned);
    CHECK(held < planned + (std::int64_t{16} << 20));  // CUDA rounds up the size of each arena
  }
  CHECK(allocated_bytes(Device::cuda, 0) == before);
  CHECK(allocated_bytes(Device::cuda, 999) == 0);
}
