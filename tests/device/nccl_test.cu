// SPDX-License-Identifier: Apache-2.0
// Tests NCCL between GPUs, in streams and in graphs. The results must equal the results of the collectives
// between CPU threads. Also tests the errors after a rank is lost.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
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

TEST_CASE("a channel of its own does what threads do: two GPUs") {
  TESSERA_NEEDS_GPUS(2);
  compare_with_threads(2, 1);
}
TEST_CASE("rows and columns of four GPUs do what those of threads do") {
  TESSERA_NEEDS_GPUS(4);
  for (bool const shared : {false, true})
    for (int const channel : {0, 1}) {
      compare_with_threads(
          4, 2,
          [](int rank) {
            return ProcessGroup{rank - rank % 2, 1, 2};
          },
          channel, shared);
      compare_with_threads(
          4, 2,
          [](int rank) {
            return ProcessGroup{rank % 2, 2, 2};
          },
          channel, shared);
    }
}

TEST_CASE("a group of ranks without a communicator is refused") {
  TESSERA_NEEDS_GPUS(4);
  Outcome const outcome = outcome_of(
      4,
      [&](Transport& transport) {
        Sum const sum;
        transport.on_stream(sum.stream.get());
        transport.all_reduce(ts::DType::f32, sum.memory.data(), sum.count, {"reduce", "h.1"},
                             {transport.rank() % 2, 2, 2});
      },
      60);
  CHECK(outcome.kind == ts::ErrorKind::usage);
  CHECK(holds(outcome.text, "Transport::over"));
}

TEST_CASE("two channels of one graph run at the same time, by kernels and by copies") {
  TESSERA_NEEDS_GPUS(2);
  bool shared = false;
  SUBCASE("kernels") {}
  SUBCASE("copies") { shared = true; }
  constexpr std::int64_t count = std::int64_t{4} << 20;
  constexpr std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    ProcessGroup const second = transport.over({.channel = 1});
    if (second.communicator == 0 || transport.over({.channel = 1}).communicator != second.communicator)
      differences.add(comm.rank(), "ways");
    DeviceBytes const mine(bytes), all(2 * bytes);
    std::shared_ptr<void> const access = shared ? all.share(transport) : nullptr;
    Sum const sum(count);
    ts::cuda::Stream const forked = ts::cuda::make_stream();
    ts::cuda::Event const fork = ts::cuda::make_event(), join = ts::cuda::make_event();
    std::vector<float> const values(static_cast<std::size_t>(count), 1.0f + static_cast<float>(comm.rank()));
    ts::cuda::require(cudaMemcpy(mine.data(), values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    auto const graph = capture(sum.stream.get(), [&] {
      ts::cuda::require(cudaEventRecord(fork.get(), sum.stream.get()), "cudaEventRecord");
      ts::cuda::require(cudaStreamWaitEvent(forked.get(), fork.get(), 0), "cudaStreamWaitEvent");
      for (int round = 0; round < 4; ++round) {
        sum.enqueue(transport, "h.1");
        transport.on_stream(forked.get());
        transport.all_gather(mine.data(), all.data(), static_cast<std::int64_t>(bytes), {"gather", "h.2"},
                             second);
        transport.on_stream(nullptr);
      }
      ts::cuda::require(cudaEventRecord(join.get(), forked.get()), "cudaEventRecord");
      ts::cuda::require(cudaStreamWaitEvent(sum.stream.get(), join.get(), 0), "cudaStreamWaitEvent");
    });
    transport.barrier();
    for (int replay = 0; replay < 200; ++replay)
      ts::cuda::require(cudaGraphLaunch(graph.get(), sum.stream.get()), "cudaGraphLaunch");
    finish(transport, sum.stream.get());
    std::vector<float> gathered(2 * values.size());
    ts::cuda::require(cudaMemcpy(gathered.data(), all.data(), 2 * bytes, cudaMemcpyDeviceToHost),
                      "cudaMemcpy");
    bool right = true;
    for (std::size_t at = 0; at < gathered.size(); ++at)
      right &= gathered[at] == (at < values.size() ? 1.0f : 2.0f);
    if (!right) differences.add(comm.rank(), "what was gathered");
    if (transport.copied_calls() != (shared ? 4 : 0))
      differences.add(comm.rank(), "number of calls that used copies");
    transport.barrier();
  });
  CHECK(differences.text() == "");
}

TEST_CASE("two ranks pass memory to each other, in host memory, streams and graphs") {
  TESSERA_NEEDS_GPUS(2);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank(), other = 1 - rank;
    constexpr std::size_t count = 1000, bytes = count * sizeof(int);
    std::vector<int> const mine(count, rank + 1), theirs(count, other + 1);
    std::vector<int> got(count);
    if (rank == 0) transport.send(other, mine.data(), bytes);
    if (rank == 1) transport.receive(other, got.data(), bytes);
    if (rank == 1 && got != theirs) differences.add(rank, "host memory");

    DeviceBytes const from(bytes), to(bytes);
    ts::cuda::Stream const stream = ts::cuda::make_stream();
    ts::cuda::require(cudaMemcpy(from.data(), mine.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    auto const swap = [&] {
      transport.on_stream(stream.get());
      transport.begin_group();
      transport.send(other, from.data(), bytes, {"pass", "h.1"});
      transport.receive(other, to.data(), bytes, {"pass", "h.1"});
      transport.end_group();
      transport.on_stream(nullptr);
    };
    auto const check = [&](char const* how) {
      finish(transport, stream.get());
      ts::cuda::require(cudaMemcpy(got.data(), to.data(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
      if (got != theirs) differences.add(rank, how);
      ts::cuda::require(cudaMemset(to.data(), 0, bytes), "cudaMemset");
      ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      transport.barrier();
    };
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    swap();
    check("stream");
    auto const graph = capture(stream.get(), swap);
    for (int replay = 0; replay < 3; ++replay) {
      ts::cuda::require(cudaGraphLaunch(graph.get(), stream.get()), "cudaGraphLaunch");
      check("graph");
    }
  });
  CHECK(differences.text() == "");
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

/// Enqueues collectives whose names begin with `first`, on the stream of the collectives.
using Enqueue = std::function<void(char const* first)>;

/// Two ranks run collectives. Then rank 0 throws while rank 1 waits for it in collectives that were enqueued
/// directly, and then in captured ones. Checks the errors of both ranks, and that the stream of rank 1
/// becomes idle within 5 s. body(transport, test) prepares the collectives of a rank, and calls test(stream,
/// enqueue). `place` is the collective that the error of rank 1 must name.
template <class Body>
void throw_while_other_waits(Body const& body, std::string const& place) {
  for (bool const graph : {false, true}) {
    CAPTURE(graph);
    double freed = 0;
    Outcome const outcome = outcome_of(
        2,
        [&](Transport& transport) {
          body(transport, [&](cudaStream_t stream, Enqueue const& enqueue) {
            enqueue("h.1");  // the first collective connects the ranks
            finish(transport, stream);
            transport.barrier();
            auto const start = Clock::now();
            if (transport.rank() == 0) {
              std::this_thread::sleep_for(300ms);
              throw std::runtime_error("a test's own error");
            }
            ts::cuda::Graph replay;
            if (graph) {
              replay = capture(stream, [&] { enqueue("h.2"); });
              ts::cuda::require(cudaGraphLaunch(replay.get(), stream), "cudaGraphLaunch");
            } else {
              enqueue("h.2");
            }
            try {
              finish(transport, stream);
            } catch (ts::PeerLost const&) {
              ts::cuda::require(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
              freed = seconds_since(start);
              throw;
            }
          });
        },
        60);
    CHECK(outcome.kind == ts::ErrorKind::failed);
    CHECK(holds(outcome.text, "a test's own error"));
    REQUIRE(outcome.lost.count(1) == 1);
    CHECK(outcome.lost.at(1).rank == 0);
    CHECK(holds(outcome.lost.at(1).text, "a test's own error"));
    CHECK(holds(outcome.lost.at(1).text, place));
    CHECK(freed > 0.25);
    CHECK(freed < 5);
  }
}

TEST_CASE("a rank that throws ends the others' waits and their kernels") {
  TESSERA_NEEDS_GPUS(2);
  throw_while_other_waits(
      [](Transport& transport, auto const& test) {
        Sum const sum;
        test(sum.stream.get(), [&](char const* first) { sum.enqueue(transport, first); });
      },
      "all_reduce of 65536 fp32 values (reduce h.2, micro-batch 3)");
}

TEST_CASE("a rank that throws ends the waits of others for its copies, and their GPUs work afterwards") {
  TESSERA_NEEDS_GPUS(2);
  throw_while_other_waits(
      [](Transport& transport, auto const& test) {
        constexpr std::int64_t piece = 8 << 20;
        DeviceBytes const memory(4 * piece);
        ts::cuda::Stream const stream = ts::cuda::make_stream();
        std::shared_ptr<void> const access = memory.share(transport);
        if (!access) throw std::runtime_error("the memory is not shared");
        test(stream.get(), [&](char const* first) {
          transport.on_stream(stream.get());
          for (char const* const unit : {first, "h.3", "h.4"})
            transport.all_gather(memory.data() + 2 * piece, memory.data(), piece, {"gather", unit, 3});
          transport.on_stream(nullptr);
        });
      },
      "all_gather of 8388608 bytes (gather h.2, micro-batch 3)");
  compare_with_threads(2);
}

TEST_CASE("a rank that leaves while others wait for its copies is named") {
  TESSERA_NEEDS_GPUS(2);
  Outcome const outcome = outcome_of(
      2,
      [&](Transport& transport) {
        DeviceBytes const memory(std::size_t{16} << 20);
        ts::cuda::Stream const stream = ts::cuda::make_stream();
        std::shared_ptr<void> const access = memory.share(transport);
        if (!access) throw std::runtime_error("the memory is not shared");
        auto const sum = [&](char const* unit) {
          transport.on_stream(stream.get());
          transport.all_reduce(ts::DType::f32, memory.data(), 1 << 20, {"reduce", unit});
          transport.on_stream(nullptr);
        };
        sum("h.1");
        finish(transport, stream.get());
        if (transport.rank() == 1) return;
        sum("h.2");
        try {
          finish(transport, stream.get());
        } catch (ts::PeerLost const&) {  // the stream still waits, and later copies to the other rank
          ts::cuda::require(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
          throw;
        }
      },
      60);
  CHECK(outcome.kind == ts::ErrorKind::peer_lost);
  REQUIRE(outcome.lost.count(0) == 1);
  CHECK(outcome.lost.at(0).rank == 1);
  CHECK(outcome.lost.at(0).seconds < 20);
  CHECK(holds(outcome.lost.at(0).text, "it left"));
  compare_with_threads(2);
}

TEST_CASE("a rank that throws while its copies are enqueued reports its own error") {
  TESSERA_NEEDS_GPUS(2);
  for (bool const other_first : {false, true}) {
    CAPTURE(other_first);
    Outcome const outcome = outcome_of(
        2,
        [&](Transport& transport) {
          DeviceBytes const memory(std::size_t{16} << 20);
          ts::cuda::Stream const stream = ts::cuda::make_stream();
          std::shared_ptr<void> const access = memory.share(transport);
          if (!access) throw std::runtime_error("the memory is not shared");
          if ((transport.rank() == 0) == other_first) std::this_thread::sleep_for(300ms);
          if (transport.rank() == 1) return;
          transport.on_stream(stream.get());
          transport.all_reduce(ts::DType::f32, memory.data(), 1 << 20, {"reduce", "h.1"});
          transport.on_stream(nullptr);
          throw std::runtime_error("a test's own error");
        },
        60);
    CHECK(outcome.kind == ts::ErrorKind::failed);
    CHECK(holds(outcome.text, "a test's own error"));
  }
  compare_with_threads(2);
}

TEST_CASE("shared memory is freed as soon as no rank has access, also while exceptions are handled") {
  TESSERA_NEEDS_GPUS(2);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    for (bool const throws : {false, true}) {
      std::weak_ptr<void> owner;
      try {
        auto const memory = std::make_shared<DeviceBytes>(std::size_t{1} << 20);
        owner = memory;
        std::shared_ptr<void> const access = transport.share(memory, memory->data(), 1 << 20, 1);
        if (!access) differences.add(comm.rank(), "its memory is not shared");
        // The ranks end the access at different times. While an exception is handled, a rank waits only 1 s.
        std::this_thread::sleep_for(std::chrono::milliseconds((throws ? 2000 : 200) * comm.rank()));
        if (throws) throw std::runtime_error("a test's own error");
      } catch (std::runtime_error const&) {
      }
      transport.barrier();
      transport.barrier();
      if (!owner.expired()) differences.add(comm.rank(), "the memory is not freed");
    }
    transport.barrier();
  });
  CHECK(differences.text() == "");
}

TEST_CASE("sums on two streams of shared memory do not disturb each other") {
  TESSERA_NEEDS_GPUS(2);
  constexpr int rounds = 20;
  constexpr std::int64_t count = std::int64_t{2} << 20;
  constexpr std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    ProcessGroup const second = transport.over({.channel = 1});
    DeviceBytes const memory(2 * bytes);
    std::shared_ptr<void> const access = memory.share(transport);
    if (!access) differences.add(comm.rank(), "its memory is not shared");
    ts::cuda::Stream const streams[] = {ts::cuda::make_stream(), ts::cuda::make_stream()};
    std::vector<float> values(2 * static_cast<std::size_t>(count));
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t at = 0; at < values.size(); ++at)
        values[at] = static_cast<float>(at % 1000 + static_cast<std::size_t>(round));
      ts::cuda::require(cudaMemcpy(memory.data(), values.data(), 2 * bytes, cudaMemcpyHostToDevice),
                        "cudaMemcpy");
      ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      transport.barrier();
      for (int which = 0; which < 2; ++which) {
        transport.on_stream(streams[which].get());
        transport.all_reduce(ts::DType::f32, memory.data() + static_cast<std::size_t>(which) * bytes, count,
                             {}, which == 0 ? transport.everyone() : second);
      }
      transport.on_stream(nullptr);
      for (ts::cuda::Stream const& stream : streams) finish(transport, stream.get());
      std::vector<float> sums(values.size());
      ts::cuda::require(cudaMemcpy(sums.data(), memory.data(), 2 * bytes, cudaMemcpyDeviceToHost),
                        "cudaMemcpy");
      for (std::size_t at = 0; at < sums.size(); ++at)
        if (sums[at] != 2 * values[at]) return differences.add(comm.rank(), "value " + std::to_string(at));
    }
    // The buffer for summands belongs to the first stream, so the sums on the other stream use NCCL.
    if (transport.copied_calls() != rounds) differences.add(comm.rank(), "number of calls that used copies");
    transport.barrier();
  });
  CHECK(differences.text() == "");
}

TEST_CASE("the environment can turn copies off") {
  TESSERA_NEEDS_GPUS(2);
  for (char const* const text : {"1", "0"}) {
    ::setenv("TESSERA_COPY_ENGINES", text, 1);
    std::atomic<int> shared{0};
    ts::run_gpus(2, [&](Comm& comm) {
      DeviceBytes const memory(std::size_t{1} << 20);
      if (memory.share(comm.transport())) ++shared;
      comm.transport().barrier();
    });
    ::unsetenv("TESSERA_COPY_ENGINES");
    CHECK(shared == (std::string(text) == "1" ? 2 : 0));
  }
}

TEST_CASE("a batch of copies is one exchange, and memory of different sizes is not shared") {
  TESSERA_NEEDS_GPUS(2);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank();
    constexpr std::int64_t piece = 3000;
    DeviceBytes const memory(8 * piece);
    DeviceBytes const smaller(static_cast<std::size_t>((8 - rank) * piece));
    if (smaller.share(transport)) differences.add(rank, "different sizes");
    if (memory.share(transport, static_cast<std::uint64_t>(rank))) differences.add(rank, "different layouts");
    std::shared_ptr<void> const access = memory.share(transport);
    if (!access) differences.add(rank, "its memory is not shared");
    ts::cuda::Stream const stream = ts::cuda::make_stream();
    Bytes got(4 * piece);
    ts::cuda::require(cudaMemset(memory.data(), rank + 1, 4 * piece), "cudaMemset");
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    transport.barrier();
    transport.reset_traffic();
    transport.on_stream(stream.get());
    transport.begin_group();
    transport.all_to_all(memory.data(), memory.data() + 4 * piece, piece);
    transport.all_gather(memory.data() + 2 * piece, memory.data() + 6 * piece, piece);
    transport.end_group();
    transport.on_stream(nullptr);
    finish(transport, stream.get());
    if (transport.traffic().calls != 1) differences.add(rank, "calls");
    ts::cuda::require(cudaMemcpy(got.data(), memory.data() + 4 * piece, got.size(), cudaMemcpyDeviceToHost),
                      "cudaMemcpy");
    for (std::int64_t at = 0; at < 4 * piece; ++at)
      if (got[static_cast<std::size_t>(at)] != static_cast<std::byte>(at / piece % 2 + 1))
        return differences.add(rank, "byte " + std::to_string(at));
    transport.barrier();
  });
  CHECK(differences.text() == "");
}

TEST_CASE("a batch of sums by copies is one call, also if a sum does not fit the buffer for summands") {
  TESSERA_NEEDS_GPUS(2);
  Differences differences;
  ts::run_gpus(2, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank();
    constexpr std::int64_t large = (17 << 20) + 6, odd = 4099, all = 2 * large + odd;  // fp32 values
    constexpr std::size_t bytes = static_cast<std::size_t>(all) * sizeof(float);
    DeviceBytes const memory(bytes);
    std::shared_ptr<void> const access = memory.share(transport);
    if (!access) differences.add(rank, "its memory is not shared");
    ts::cuda::Stream const stream = ts::cuda::make_stream();
    std::vector<float> values(static_cast<std::size_t>(all));
    for (std::size_t at = 0; at < values.size(); ++at)
      values[at] = static_cast<float>(at % 1000) + static_cast<float>(rank) * 0.5f;
    ts::cuda::require(cudaMemcpy(memory.data(), values.data(), bytes, cudaMemcpyHostToDevice), "cudaMemcpy");
    ts::cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    transport.barrier();
    transport.reset_traffic();
    auto* const first = reinterpret_cast<float*>(memory.data());
    transport.on_stream(stream.get());
    transport.begin_group();
    transport.reduce_scatter(ts::DType::f32, first, first + rank * large, large);
    transport.all_reduce(ts::DType::f32, first + 2 * large, odd);
    transport.end_group();
    transport.on_stream(nullptr);
    finish(transport, stream.get());
    if (transport.traffic().calls != 1) differences.add(rank, "calls");
    std::vector<float> sums(values.size());
    ts::cuda::require(cudaMemcpy(sums.data(), memory.data(), bytes, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::int64_t at = 0; at < all; ++at) {
      bool const summed = at >= 2 * large || at / large == rank;
      float const value = static_cast<float>(at % 1000);
      float const right = summed ? 2.0f * value + 0.5f : value + static_cast<float>(rank) * 0.5f;
      if (sums[static_cast<std::size_t>(at)] != right)
        return differences.add(rank, "value " + std::to_string(at));
    }
    transport.barrier();
  });
  CHECK(differences.text() == "");
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
        // The graph of rank 0 has one more collective than the graph of rank 1. Only rank 1 reaches this
        // line. Rank 0 still waits for rank 1 in the additional collective.
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
        // The first collective connects the ranks, so NCCL possibly waits here for the other rank.
        sum.enqueue(transport, "h.1");
        finish(transport, sum.stream.get());
      },
      60);
  CHECK(holds(outcome.text, "never connects"));
  REQUIRE(outcome.lost.count(1) == 1);
  CHECK(outcome.lost.at(1).rank == 0);
  CHECK(outcome.lost.at(1).seconds < 20);
}
