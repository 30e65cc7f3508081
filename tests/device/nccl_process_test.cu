// SPDX-License-Identifier: Apache-2.0
// Tests NCCL between processes: how processes connect, how each process learns at which collective the others
// are, and that the error names a lost rank.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <vector>

#include <doctest/doctest.h>

#include "device/nccl_support.cuh"

/// This test case is the code of one rank. The other test cases of this file start it in a child process.
TEST_CASE("a rank that is a process" * doctest::skip()) {
  char const* const mode = std::getenv("TESSERA_NCCL_TEST");
  REQUIRE(mode);
  bool const dies = std::string(mode).find("dies") == 0;
  ts::comm::NcclOptions options;
  options.timeout = 20s;
  try {
    Comm const comm = ts::comm::nccl_from_environment(options);
    Transport& transport = comm.transport();
    CHECK(transport.name() == "nccl");
    CHECK(transport.traffic().collectives == 0);

    Sum const sum;
    sum.enqueue(transport, "h.1");
    finish(transport, sum.stream.get());
    transport.barrier({"test"});
    for (int wait = 0; wait < 100 && ts::comm::sequence_of(transport.word(1 - comm.rank())) < 2; ++wait)
      std::this_thread::sleep_for(30ms);  // each process sends its sequence number twice a second
    CHECK(ts::comm::sequence_of(transport.word(1 - comm.rank())) >= 2);
    if (std::string(mode) == "dies" && comm.rank() == 1) raise(SIGKILL);
    if (std::string(mode) == "dies sharing") {
      constexpr std::int64_t piece = 8 << 20;
      DeviceBytes const memory(3 * piece);
      std::shared_ptr<void> const access = memory.share(transport);
      REQUIRE(access);
      for (char const* const unit : {"h.2", "h.3"}) {
        transport.on_stream(sum.stream.get());
        transport.all_gather(memory.data() + 2 * piece, memory.data(), piece, {"gather", unit});
        transport.on_stream(nullptr);
        try {
          finish(transport, sum.stream.get());
        } catch (ts::PeerLost const&) {  // the stream must not wait for the copies of the lost rank
          ts::cuda::require(cudaStreamSynchronize(sum.stream.get()), "cudaStreamSynchronize");
          throw;
        }
        if (comm.rank() == 1) raise(SIGKILL);
      }
    }

    auto const cases = all_cases(comm.world());
    Expected const expected = expected_of(comm.world(), cases, 7);
    auto const& mine = expected.buffers[static_cast<std::size_t>(comm.rank())];
    OnDevice const device(cases, comm.rank(), comm.world(), 7);
    for (int const turn : {0, 1, 2, 3}) {
      int const channel = turn % 2;
      bool const shared = turn >= 2;
      INFO("channel ", channel, ", shared ", shared);
      std::shared_ptr<void> const access = shared ? device.share(transport) : nullptr;
      CHECK(shared == (access != nullptr));
      ProcessGroup const peers = transport.over({.channel = channel});
      device.reset();
      transport.barrier();  // other GPUs write into this rank's buffers
      transport.on_stream(sum.stream.get());
      for (std::size_t index = 0; index < cases.size(); ++index)
        perform(transport, cases[index], device.send(index), device.recv(index), peers);
      transport.on_stream(nullptr);
      finish(transport, sum.stream.get());
      for (std::size_t index = 0; index < cases.size(); ++index) {
        INFO(cases[index].text());
        CHECK(device.now(index) == mine[index]);
        Buffers host(cases[index], comm.rank(), comm.world(), 7 + static_cast<unsigned>(index));
        perform(transport, cases[index], host.send.data(), host.recv.data(), peers);
        CHECK(host == mine[index]);
      }
    }
    // The data of this collective is in host memory, so NCCL sends it through a staging buffer. The data is
    // larger than this staging buffer.
    Case const large{Move::all_to_all, ts::DType::f32, (3 << 20) + 1, -1, false};
    Buffers host(large, comm.rank(), comm.world(), 9);
    perform(transport, large, host.send.data(), host.recv.data(), transport.everyone());
    CHECK(host == expected_of(comm.world(), {large}, 9).buffers[static_cast<std::size_t>(comm.rank())][0]);
    // Every rank gets the same piece. Memory after this piece cannot be read.
    std::size_t const size = std::size_t{1} << 20;
    void* const memory =
        ::mmap(nullptr, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(memory != MAP_FAILED);
    REQUIRE(::mprotect(static_cast<std::byte*>(memory) + size, size, PROT_NONE) == 0);
    std::memset(memory, comm.rank() + 1, size);
    Bytes pieces(static_cast<std::size_t>(comm.world()) * size);
    transport.all_to_all(memory, pieces.data(), static_cast<std::int64_t>(size), {"test"}, 1);
    for (int rank = 0; rank < comm.world(); ++rank)
      for (std::size_t const at : {std::size_t{0}, size - 1})
        CHECK(pieces[static_cast<std::size_t>(rank) * size + at] == static_cast<std::byte>(rank + 1));
    ::munmap(memory, 2 * size);
    agree(transport, 42, "number");
  } catch (ts::PeerLost const& lost) {
    std::string const text = lost.what();
    bool const named = lost.rank() == 1 && holds(text, "its process ended");
    if (!dies || !named) MESSAGE(text);
    std::_Exit(dies && named ? exit_code(ts::ErrorKind::peer_lost) : 99);
  }
}

TEST_CASE("ranks that are processes exchange what threads do, and end cleanly") {
  TESSERA_NEEDS_GPUS(2);
  int const port = free_port();
  pid_t const first = start_child(0, 2, port, "works");
  pid_t const second = start_child(1, 2, port, "works");
  CHECK(end_of(first) == 0);
  CHECK(end_of(second) == 0);
}

TEST_CASE("a process that is killed is named by the other") {
  TESSERA_NEEDS_GPUS(2);
  int const port = free_port();
  auto const start = Clock::now();
  char const* mode = nullptr;
  SUBCASE("without shared memory") { mode = "dies"; }
  SUBCASE("with shared memory") { mode = "dies sharing"; }
  pid_t const first = start_child(0, 2, port, mode);
  pid_t const second = start_child(1, 2, port, mode);
  CHECK(end_of(second) == 128 + SIGKILL);
  CHECK(end_of(first) == exit_code(ts::ErrorKind::peer_lost));
  CHECK(seconds_since(start) < 50);
}

TEST_CASE("a process has the GPU of its local rank, or the only one it sees") {
  ts::comm::LaunchEnvironment launch;
  launch.source = "SLURM";
  launch.rank = 5;
  launch.world = 8;
  launch.local_rank = 1;
  CHECK(ts::comm::detail::device_of(launch, 4) == 1);
  CHECK(ts::comm::detail::device_of(launch, 1) == 0);
  launch.local_rank = 4;
  CHECK_THROWS_WITH_AS(ts::comm::detail::device_of(launch, 4), doctest::Contains("4 GPUs"), ts::Error);
  launch.local_rank = -1;
  CHECK_THROWS_WITH_AS(ts::comm::detail::device_of(launch, 4), doctest::Contains("rank on this host"),
                       ts::Error);
  CHECK(ts::comm::detail::device_of(launch, 1) == 0);
}

TEST_CASE("the numbers of captured collectives keep their texts") {
  ts::comm::detail::History history;
  auto const put = [&](std::uint64_t sequence, bool captured) {
    std::string const unit = "h." + std::to_string(sequence);
    ts::comm::Request request;
    request.move = Move::all_gather;
    request.id = {"write_back", unit.c_str(), 0};
    request.sequence = sequence;
    request.bytes = 64;
    history.put(request, captured);
  };
  auto const text = [&](std::uint64_t sequence) {
    return history.text(ts::comm::watch_word(sequence, Move::all_gather));
  };
  for (std::uint64_t sequence = 1; sequence <= 5000; ++sequence)
    put(sequence, 10 <= sequence && sequence < 1000);
  CHECK(text(10) == "10, all_gather of 64 bytes (write_back h.10, micro-batch 0)");
  CHECK(text(999) == "999, all_gather of 64 bytes (write_back h.999, micro-batch 0)");
  CHECK(text(5000) == "5000, all_gather of 64 bytes (write_back h.5000, micro-batch 0)");
  CHECK(text(9) == "9, all_gather");
  CHECK(text(0) == "0, all_gather");
  CHECK(history.text(ts::comm::watch_word(10, Move::gather)) == "10, gather");
  CHECK(history.last_unit() == "h.5000");
}
