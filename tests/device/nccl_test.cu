// SPDX-License-Identifier: Apache-2.0
// NCCL between GPUs against the exchange between threads, in streams and in graphs; lost ranks.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "device/nccl_support.cuh"

TEST_CASE("NCCL does what threads do, in host memory, streams and graphs: one GPU") {
  TESSERA_NEEDS_GPUS(1);
  compare_with_threads(1);
}
TEST_CASE("NCCL does what threads do, in host memory, streams and graphs: two GPUs") {
  TESSERA_NEEDS_GPUS(2);
  compare_with_threads(2);
}
TEST_CASE("NCCL does what threads do, in host memory, streams and graphs: four GPUs") {
  TESSERA_NEEDS_GPUS(4);
  compare_with_threads(4);
}

TEST_CASE("more ranks than GPUs are refused, with the number of GPUs") {
  TESSERA_NEEDS_GPUS(1);
  int const count = test::gpu_count();
  try {
    ts::run_gpus(count + 1, [](Comm&) {});
    FAIL("run_gpus returned");
  } catch (ts::Error const& error) {
    CHECK(error.kind() == ts::ErrorKind::unsupported);
    CHECK(holds(error.what(), std::to_string(count) + " GPU"));
  }
}

TEST_CASE("a rank that throws ends the others' waits and their kernels") {
  TESSERA_NEEDS_GPUS(2);
  for (bool const graph : {false, true}) {
    CAPTURE(graph);
    double freed = 0;
    Outcome const outcome = outcome_of(
        2,
        [&](Transport& transport) {
          Sum const sum;
          sum.enqueue(transport, "h.1");  // connects
          finish(transport, sum.stream.get());
          transport.barrier();
          auto const start = Clock::now();
          if (transport.rank() == 0) {
            std::this_thread::sleep_for(300ms);
            throw std::runtime_error("a test's own error");
          }
          ts::cuda::Graph replay;
          if (graph) {
            replay = capture(sum.stream.get(), [&] { sum.enqueue(transport, "h.2"); });
            ts::cuda::require(cudaGraphLaunch(replay.get(), sum.stream.get()), "cudaGraphLaunch");
          } else {
            sum.enqueue(transport, "h.2");
          }
          try {
            finish(transport, sum.stream.get());
          } catch (ts::PeerLost const&) {
            cudaStreamSynchronize(sum.stream.get());
            freed = seconds_since(start);
            throw;
          }
        },
        60);
    CHECK(outcome.kind == ts::ErrorKind::failed);
    CHECK(holds(outcome.text, "a test's own error"));
    REQUIRE(outcome.lost.count(1) == 1);
    CHECK(outcome.lost.at(1).rank == 0);
    CHECK(holds(outcome.lost.at(1).text, "a test's own error"));
    CHECK(holds(outcome.lost.at(1).text, "all_reduce of 65536 fp32 values (reduce h.2, micro-batch 3)"));
    CHECK(freed > 0.25);
    CHECK(freed < 5);
  }
}

TEST_CASE("a rank that leaves while others wait for it is named") {
  TESSERA_NEEDS_GPUS(2);
  Outcome const outcome = outcome_of(
      2,
      [&](Transport& transport) {
        Sum const sum;
        sum.enqueue(transport, "h.1");
        finish(transport, sum.stream.get());
        if (transport.rank() == 1) return;
        sum.enqueue(transport, "h.2");
        finish(transport, sum.stream.get());
      },
      60);
  CHECK(outcome.kind == ts::ErrorKind::peer_lost);
  REQUIRE(outcome.lost.count(0) == 1);
  CHECK(outcome.lost.at(0).rank == 1);
  CHECK(outcome.lost.at(0).seconds < 20);
  CHECK(holds(outcome.lost.at(0).text, "it left"));
}

TEST_CASE("a rank whose graph skips a collective is named within the timeout, with both collectives") {
  TESSERA_NEEDS_GPUS(2);
  Outcome const outcome = outcome_of(
      2,
      [&](Transport& transport) {
        Sum const sum;
        auto const step = [&](bool whole) {
          sum.enqueue(transport, "h.1");
          if (whole) sum.enqueue(transport, "h.2");
          sum.enqueue(transport, "head");
        };
        step(true);
        finish(transport, sum.stream.get());
        auto const graph = capture(sum.stream.get(), [&] { step(transport.rank() == 0); });
        for (int replay = 0; replay < 2; ++replay)
          ts::cuda::require(cudaGraphLaunch(graph.get(), sum.stream.get()), "cudaGraphLaunch");
        finish(transport, sum.stream.get());
        // Only the rank that skips comes here, if any.
        transport.await([] { return false; }, "the others");
      },
      2);
  CHECK(outcome.kind == ts::ErrorKind::peer_lost);
  REQUIRE(outcome.lost.count(0) == 1);
  CHECK(outcome.lost.at(0).rank == 1);
  CHECK(outcome.lost.at(0).seconds < 20);
  INFO(outcome.lost.at(0).text);
  CHECK(holds(outcome.lost.at(0).text, "no sign of life for 2 s"));
  CHECK(holds(outcome.lost.at(0).text, "all_reduce of 65536 fp32 values (reduce h.2, micro-batch 3)"));
  CHECK(outcome.lost.count(1) == 1);
}

TEST_CASE("a call that connects can be given up") {
  TESSERA_NEEDS_GPUS(2);
  Outcome const outcome = outcome_of(
      2,
      [&](Transport& transport) {
        if (transport.rank() == 0) {
          std::this_thread::sleep_for(300ms);
          throw std::runtime_error("never connects");
        }
        Sum const sum;
        sum.enqueue(transport, "h.1");  // the first one: NCCL may wait for the other rank in the call
        finish(transport, sum.stream.get());
      },
      60);
  CHECK(holds(outcome.text, "never connects"));
  REQUIRE(outcome.lost.count(1) == 1);
  CHECK(outcome.lost.at(1).rank == 0);
  CHECK(outcome.lost.at(1).seconds < 20);
}
