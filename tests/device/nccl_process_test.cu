// SPDX-License-Identifier: Apache-2.0
// Tests NCCL between processes: how they connect, what a process knows of the others, and how the error names
// a lost rank.
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "device/nccl_support.cuh"

/// Runs one rank for the test cases below, which start it as a child process.
TEST_CASE("a rank that is a process" * doctest::skip()) {
  char const* const mode = std::getenv("TESSERA_NCCL_TEST");
  REQUIRE(mode);
  bool const dies = std::string(mode) == "dies";
  ts::comm::NcclOptions options;
  options.timeout = 20s;
  try {
    Comm const comm = ts::comm::nccl_from_environment(options);
    Transport& transport = comm.transport();
    CHECK(std::getenv("NCCL_COMM_ID") == nullptr);
    CHECK(transport.name() == "nccl");
    CHECK(transport.traffic().collectives == 0);

    Sum const sum;
    sum.enqueue(transport, "h.1");
    finish(transport, sum.stream.get());
    transport.barrier({"test"});
    CHECK(ts::comm::sequence_of(transport.word(1 - comm.rank())) >= 4);  // two of the calls connect the ranks
    if (dies && comm.rank() == 1) raise(SIGKILL);

    auto const cases = all_cases(comm.world());
    Expected const expected = expected_of(comm.world(), cases, 7);
    auto const& mine = expected.buffers[static_cast<std::size_t>(comm.rank())];
    OnDevice const device(cases, comm.rank(), comm.world(), 7);
    for (int const channel : {0, 1}) {
      INFO("channel ", channel);
      Peers const peers = transport.over({.channel = channel});
      device.reset();
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
    // The buffers are larger than the staging buffer.
    Case const large{Move::all_to_all, ts::DType::f32, (3 << 20) + 1, -1, false};
    Buffers host(large, comm.rank(), comm.world(), 9);
    perform(transport, large, host.send.data(), host.recv.data(), transport.everyone());
    CHECK(host == expected_of(comm.world(), {large}, 9).buffers[static_cast<std::size_t>(comm.rank())][0]);
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
  pid_t const first = start_child(0, 2, port, "dies");
  pid_t const second = start_child(1, 2, port, "dies");
  CHECK(end_of(second) == 128 + SIGKILL);
  CHECK(end_of(first) == exit_code(ts::ErrorKind::peer_lost));
  CHECK(seconds_since(start) < 50);
}

TEST_CASE("processes meet at the master's address, or next to a launcher that listens there") {
  ts::comm::LaunchEnvironment launch;
  launch.source = "deepspeed";
  launch.world = 4;
  launch.master_address = "10.0.0.1";
  launch.master_port = 29500;
  CHECK(ts::comm::detail::nccl_address(launch, nullptr) == "10.0.0.1:29500");
  CHECK(ts::comm::detail::nccl_address(launch, "host:1") == "host:1");
  launch.master_port_taken = true;
  CHECK(ts::comm::detail::nccl_address(launch, "") == "10.0.0.1:29501");
  launch.master_port = 65535;
  CHECK(ts::comm::detail::nccl_address(launch, nullptr) == "10.0.0.1:65534");
  launch.master_address = "fe80::1";
  CHECK(ts::comm::detail::nccl_address(launch, nullptr) == "[fe80::1]:65534");
  launch.master_address.clear();
  CHECK_THROWS_WITH_AS(ts::comm::detail::nccl_address(launch, nullptr), doctest::Contains("MASTER_ADDR"),
                       ts::Error);
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

TEST_CASE("processes of one host see each other's words, faults, leaving and death") {
  using ts::comm::detail::ProcessPeers;
  int names[2][2];
  REQUIRE(pipe(names[0]) == 0);
  REQUIRE(pipe(names[1]) == 0);
  int next[2];
  REQUIRE(pipe(next) == 0);
  pid_t const child = fork();
  bool const parent = child > 0;
  int const rank = parent ? 0 : 1;
  auto const send_all = [&](ProcessPeers const& peers) {
    return write(names[rank][1], peers.name(), sizeof(ProcessPeers::Name)) == sizeof(ProcessPeers::Name);
  };
  auto const receive_all = [&](ProcessPeers& peers) {
    ProcessPeers::Name name;
    if (read(names[1 - rank][0], name, sizeof name) != sizeof name) return false;
    peers.see(1 - rank, name);
    return true;
  };
  if (!parent) {
    ProcessPeers peers(1, 3);
    bool const exchanged = send_all(peers) && receive_all(peers) && peers.board(0);
    peers.board(1)->word = ts::comm::watch_word(17, Move::gather);
    peers.lose(1, "it threw: boom");
    char byte = exchanged ? 'y' : 'n';
    if (write(next[1], &byte, 1) != 1) _exit(1);
    pause();  // the parent kills this process
    _exit(0);
  }
  ProcessPeers peers(0, 3);
  REQUIRE(send_all(peers));
  REQUIRE(receive_all(peers));
  CHECK(peers.board(2) == nullptr);
  REQUIRE(peers.board(1) != nullptr);
  char byte = 0;
  REQUIRE(read(next[0], &byte, 1) == 1);
  CHECK(byte == 'y');
  CHECK(peers.board(1)->word.load() == ts::comm::watch_word(17, Move::gather));
  peers.lose(2, "this comes too late");
  REQUIRE(peers.fault());
  CHECK(peers.fault()->first == 1);
  CHECK(peers.fault()->second == "it threw: boom");
  CHECK_FALSE(peers.died(1));
  CHECK_FALSE(peers.has_left(1));
  REQUIRE(kill(child, SIGKILL) == 0);
  CHECK(end_of(child) == 128 + SIGKILL);
  CHECK(peers.died(1));
  CHECK_FALSE(peers.died(0));
  CHECK_FALSE(peers.died(2));
  std::string const page = "/dev/shm" + std::string(peers.name());
  CHECK(access(page.c_str(), F_OK) == 0);
  peers.hide();
  CHECK(access(page.c_str(), F_OK) != 0);
  for (int const file : {names[0][0], names[0][1], names[1][0], names[1][1], next[0], next[1]}) ::close(file);
}

TEST_CASE("a fault of the host's ranks is the first one's own, and a rank that leaves has not died") {
  using ts::comm::detail::ProcessPeers;
  ProcessPeers first(0, 2);
  ProcessPeers second(1, 2);
  first.see(1, second.name());
  second.see(0, first.name());
  CHECK_FALSE(first.fault());
  CHECK_FALSE(first.died(1));
  second.leave();
  CHECK(first.has_left(1));
  CHECK_FALSE(first.died(1));
  first.lose(0, std::string(5000, 'x'));
  REQUIRE(second.fault());
  CHECK(second.fault()->first == 0);
  CHECK(second.fault()->second.size() == 2047);
  second.hide();
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
