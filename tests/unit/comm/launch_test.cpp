// SPDX-License-Identifier: Apache-2.0
// Tests training ranks that are separate processes. The processes must find each other, compute the same
// results as ranks that are threads, and notice every failure.
#include "tessera/comm/launch.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/processes.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/comm/run_in_launch.hpp"
#include "tessera/comm/socket.hpp"

#include "support/processes.hpp"

namespace {

namespace ts = tessera;
using namespace std::chrono_literals;
using test::Ended;
using ts::DType;
using ts::comm::Comm;
using ts::comm::Launch;
using ts::comm::Transport;

bool holds(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }

/// Returns the port at which the ranks of this test connect. The port depends on the process id, so that
/// tests that run at the same time usually have different ports. If a port is already in use, the ranks use
/// the next free port.
int own_port() { return 20000 + ::getpid() % 9000; }

ts::comm::LaunchOptions quick() { return {.join_timeout = 20s, .silence = 5s}; }

std::shared_ptr<Launch> join(test::Environment const& variables, ts::comm::LaunchOptions const& options) {
  auto const get = test::reader(variables);
  return std::make_shared<Launch>(ts::comm::launch_environment(get), get, options);
}

/// Calls fn(comm, launch) in `world` new processes, which are the ranks of one launch. Returns how each
/// process ended.
std::vector<Ended> in_processes(int world, std::function<std::string(Comm&, Launch&)> const& fn,
                                ts::comm::LaunchOptions const& options = quick()) {
  int const port = own_port();
  return test::run_processes(world, [&](int rank) {
    auto const launch = join(test::rank_environment(rank, world, port), options);
    launch->begin();
    Comm comm = ts::comm::processes(launch);
    return fn(comm, *launch);
  });
}

/// Runs every collective with several sizes and number formats. Returns a hash of all results of this rank.
std::string results_of(Transport& transport) {
  std::uint64_t hash = 14695981039346656037ull;
  auto const mix = [&](std::vector<std::byte> const& bytes) {
    for (std::byte const each : bytes) hash = (hash ^ static_cast<std::uint64_t>(each)) * 1099511628211ull;
  };
  int const rank = transport.rank(), world = transport.world();
  std::uint64_t state = 77 + static_cast<std::uint64_t>(rank);
  auto const values = [&](DType dtype, std::int64_t count) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(count) * ts::size_of(dtype));
    ts::with_type(dtype, [&]<class T>(T*) {
      for (std::int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        T const value = static_cast<T>(static_cast<float>(state >> 40) * 0x1p-20f - 8.0f);
        std::memcpy(bytes.data() + static_cast<std::size_t>(i) * sizeof(T), &value, sizeof(T));
      }
    });
    return bytes;
  };
  std::vector<ts::comm::ProcessGroup> groups{transport.everyone()};
  if (world == 4) groups.push_back(transport.over({rank / 2 * 2, 1, 2}));
  if (world == 4) groups.push_back(transport.over({rank % 2, 2, 2}));
  for (ts::comm::ProcessGroup const& group : groups)
    for (DType const dtype : {DType::f32, DType::bf16, DType::f16, DType::f64})
      for (std::int64_t const count : {0, 1, 7, 70001, 400003}) {
        auto const size = static_cast<std::int64_t>(ts::size_of(dtype));
        auto const ranks = static_cast<std::size_t>(group.count);
        ts::comm::CollectiveId const id{"check", "h.1", count};
        std::vector<std::byte> buffer = values(dtype, count);
        transport.all_reduce(dtype, buffer.data(), count, id, group);
        mix(buffer);
        std::vector<std::byte> all = values(dtype, count * group.count), part(buffer.size());
        transport.reduce_scatter(dtype, all.data(), part.data(), count, id, group);
        mix(part);
        std::vector<std::byte> gathered(part.size() * ranks);
        transport.all_gather(part.data(), gathered.data(), count * size, id, group);
        mix(gathered);
        std::vector<std::byte> exchanged(part.size() * ranks);
        transport.all_to_all(all.data(), exchanged.data(), count * size, id, 0, group);
        mix(exchanged);
        std::vector<std::byte> to_root(part.size() * ranks);
        transport.gather(1, part.data(), to_root.data(), count * size, id, group);
        mix(to_root);
        transport.broadcast(1, part.data(), count * size, id, group);
        mix(part);
        transport.begin_group();
        int const own = group.index_of(rank);
        std::vector<std::byte> passed(part.size());
        transport.send((own + 1) % group.count, buffer.data(), count * size, id, group);
        transport.receive((own + group.count - 1) % group.count, passed.data(), count * size, id, group);
        transport.end_group();
        mix(passed);
      }
  transport.barrier();
  return std::to_string(hash);
}

TEST_CASE("processes compute the bits of threads in every collective") {
  auto const results = [](Comm& comm, Launch&) { return results_of(comm.transport()); };
  std::vector<std::vector<Ended>> const worlds{in_processes(2, results), in_processes(4, results)};
  for (std::vector<Ended> const& processes : worlds) {
    int const world = static_cast<int>(processes.size());
    std::vector<std::string> expected(processes.size());
    ts::run(world, [&](Comm& comm) {
      expected[static_cast<std::size_t>(comm.rank())] = results_of(comm.transport());
    });
    for (std::size_t rank = 0; rank < processes.size(); ++rank) {
      CHECK_MESSAGE(processes[rank].code == 0, processes[rank].text);
      CHECK(processes[rank].text == expected[rank]);
    }
  }
}

/// Checks how each rank in `ranks` ended: with the exit code `code`, in less than `seconds` seconds, and with
/// an error message that contains every string in `texts`.
void check_survivors(std::vector<Ended> const& ended, std::vector<int> const& ranks, int code,
                     std::vector<std::string> const& texts, double seconds) {
  for (int const rank : ranks) {
    Ended const& end = ended[static_cast<std::size_t>(rank)];
    CAPTURE(rank);
    CAPTURE(end.text);
    CHECK(end.code == code);
    CHECK(end.seconds < seconds);
    for (std::string const& text : texts) CHECK_MESSAGE(holds(end.text, text), text);
  }
}

/// Starts 3 ranks, which are processes and call all_reduce 64 times. Before its fifth call, rank 1 calls
/// `fault`. If `throws` is false, rank 1 then ends normally. Returns how each process ended.
std::vector<Ended> with_fault(std::function<void(Comm&)> const& fault, bool throws = true) {
  return in_processes(3, [&](Comm& comm, Launch&) -> std::string {
    std::vector<float> values(100003, 1.0f);
    for (int i = 0; i < 64; ++i) {
      if (comm.rank() == 1 && i == 4) {
        fault(comm);
        if (!throws) return "left";
      }
      comm.transport().all_reduce(DType::f32, values.data(), 100003, {"reduce", "h.3", i});
    }
    return "done";
  });
}

TEST_CASE("ranks of one host know that they share it") {
  for (Ended const &ended : in_processes(3, [](Comm&comm, Launch&launch) {
         return std::to_string(comm.transport().ranks_on_host()) + " ranks, interface '" +
                launch.network_interface() + "'";
       }))
    CHECK(ended.text == "3 ranks, interface ''");
  CHECK(ts::comm::detail::interface_of("127.0.0.1") == "lo");
  CHECK(ts::comm::detail::interface_of("192.0.2.1").empty());  // a reserved address that no machine has
}

TEST_CASE("the end of an old communicator does not end the new one that replaces it") {
  int const port = own_port();
  for (Ended const& ended : test::run_processes(2, [&](int rank) {
         auto const launch = join(test::rank_environment(rank, 2, port), quick());
         launch->begin();
         Comm comm = ts::comm::processes(launch);
         launch->begin();
         comm = ts::comm::processes(launch);  // destroys the old communicator after the new one is made
         if (rank == 1) std::this_thread::sleep_for(3s);  // longer than rank 0 waits for a rank that has left
         comm.transport().barrier();
         return std::string("done");
       }))
    CHECK(ended.text == "done");
}

TEST_CASE("all ranks name a rank whose process is killed, at once") {
  auto const ended = with_fault([](Comm& comm) {
    // Waits until the other ranks are in the collective that the message must name.
    for (int const rank : {0, 2})
      while (ts::comm::sequence_of(comm.transport().word(rank)) < 5) std::this_thread::sleep_for(1ms);
    ::raise(SIGKILL);
  });
  CHECK(ended[1].code == 128 + SIGKILL);
  check_survivors(ended, {0, 2}, 6,
                  {"rank 1 (process ", " is lost: its process ended",
                   "was in collective 5, all_reduce of 100003 fp32 values (reduce h.3, micro-batch 4)]"},
                  10);
}

TEST_CASE("all ranks name a rank whose process is stopped, when its silence is over") {
  int const port = own_port();
  auto const ended = test::run_processes(
      3,
      [&](int rank) -> std::string {
        auto const launch = join(test::rank_environment(rank, 3, port), {.join_timeout = 20s, .silence = 2s});
        launch->begin();
        Comm comm = ts::comm::processes(launch);
        std::vector<float> values(1000, 1.0f);
        for (int i = 0; i < 64; ++i) {
          if (rank == 1 && i == 4) ::raise(SIGSTOP);
          comm.transport().all_reduce(DType::f32, values.data(), 1000, {"reduce", "h.3", i});
        }
        return "done";
      },
      10);
  check_survivors(ended, {0, 2}, 6, {"rank 1 (process ", "it gave no sign of life for 2 s"}, 9);
}

TEST_CASE("all ranks get the cause when a rank throws") {
  auto const ended = with_fault([](Comm&) { throw ts::Error(ts::ErrorKind::data, "file x is damaged", 1); });
  CHECK(ended[1].code == 4);
  check_survivors(ended, {0, 2}, 6, {"rank 1 (process ", "it ended with an exception"}, 10);
}

TEST_CASE("all ranks name a rank that leaves before the others") {
  auto const ended = with_fault([](Comm&) {}, false);
  CHECK(ended[1].text == "left");
  check_survivors(ended, {0, 2}, 6, {"rank 1 (process ", "is lost: "}, 10);
}

TEST_CASE("groups of processes make different numbers of collectives, and a rank that leaves is missed") {
  auto const ended = in_processes(4, [](Comm& comm, Launch&) -> std::string {
    Transport& transport = comm.transport();
    int const rank = comm.rank(), first = rank / 2 * 2;
    double value = 1.0;
    for (int i = 0; i < (first == 0 ? 3 : 20); ++i)
      transport.all_reduce(DType::f64, &value, 1, {"reduce", "h.3", i}, {first, 1, 2});
    if (value != (first == 0 ? 8.0 : 1048576.0)) return "wrong";
    if (first == 2) return "left";  // ranks 2 and 3 have called more collectives than ranks 0 and 1
    transport.all_reduce(DType::f64, &value, 1, {"reduce", "h.4"}, {0, 1, 3});
    return "done";
  });
  CHECK(ended[2].text == "left");
  CHECK(ended[3].text == "left");
  check_survivors(ended, {0, 1}, 6, {"rank 2 (process ", "it left", "(reduce h.4)]"}, 6);
}

TEST_CASE("processes that wait for each other in different groups name both") {
  auto const ended = in_processes(2, [](Comm& comm, Launch&) -> std::string {
    double value = 1.0;
    comm.transport().all_reduce(DType::f64, &value, 1, {}, {0, 1, 2, comm.rank()});
    return "done";
  });
  check_survivors(ended, {0, 1}, 1, {"ranks request different collectives: rank 0 requests number 1"}, 4);
  check_survivors(ended, {0, 1}, 1, {", among ranks 0, 1; ", ", among ranks 0, 1 on channel 1; "}, 4);
}

TEST_CASE("all ranks name both collectives if a rank enters another one") {
  auto const ended = with_fault([](Comm& comm) { comm.transport().barrier({"elsewhere"}); });
  check_survivors(ended, {0, 1, 2}, 1,
                  {"ranks request different collectives: ", "requests number 5, all_reduce of 100003 fp32",
                   "rank 1 requests number 5, barrier (elsewhere)"},
                  10);
}

TEST_CASE("a launch with a missing rank ends with a sentence on all ranks") {
  int const port = own_port();
  auto const ended = test::run_processes(2, [&](int index) -> std::string {
    auto const launch = join(test::rank_environment(2 * index, 3, port), {.join_timeout = 3s, .silence = 5s});
    return "met";
  });
  check_survivors(ended, {0, 1}, 3,
                  {"rank 1 of 3 did not join within 3 s at rank 0 (process ",
                   "start each rank from 0 to 2 once, with its own RANK", ", or raise TESSERA_JOIN_TIMEOUT"},
                  10);
}

TEST_CASE("ranks without rank 0 say where they looked") {
  int const port = own_port();
  auto const ended = test::run_processes(1, [&](int) -> std::string {
    auto const launch = join(test::rank_environment(1, 2, port), {.join_timeout = 1s, .silence = 5s});
    return "met";
  });
  // The message also says whether another program listens at one of these ports. Tests that run at the same
  // time can listen there, so the test does not compare this sentence.
  check_survivors(ended, {0}, 3,
                  {"rank 1 (process ",
                   "did not find rank 0 within 1 s at 127.0.0.1, ports " + std::to_string(port) + " to ",
                   " there; start each rank from 0 to 1 once"},
                  8);
}

/// Starts 2 ranks that look for rank 0 at `address`, for 3 s. Returns how they ended.
std::vector<Ended> with_address(char const* address) {
  int const port = own_port();
  return test::run_processes(2, [&](int rank) -> std::string {
    test::Environment variables = test::rank_environment(rank, 2, port);
    variables["MASTER_ADDR"] = address;
    auto const launch = join(variables, {.join_timeout = 3s, .silence = 5s});
    return "met";
  });
}

TEST_CASE("a name of rank 0's host that does not exist ends all ranks, also rank 0") {
  std::string const host = ts::comm::detail::host_name();
  check_survivors(with_address("no-such-host.invalid"), {0, 1}, 3,
                  {"'no-such-host.invalid' of rank 0 cannot be resolved on " + host,
                   "set MASTER_ADDR to an address or to a name that " + host + " knows"},
                  20);
}

TEST_CASE("an address of another host than that of rank 0 is named") {
  auto const ended = with_address("fe80::1");  // without an interface, so no packet leaves this machine
  check_survivors(ended, {0}, 3,
                  {"rank 1 of 2 did not join within 3 s at rank 0 (process ",
                   "; the other ranks look for it at fe80::1, which is not an address of this host); "},
                  10);
  check_survivors(ended, {1}, 3,
                  {"rank 1 (process ", "did not find rank 0 within 3 s at fe80::1, ports ",
                   "; set MASTER_ADDR to an address of rank 0's host, and check the network between it and "},
                  10);
}

TEST_CASE("two sizes of the world, and two processes with one rank, are refused by name") {
  int const port = own_port();
  auto ended = test::run_processes(2, [&](int rank) -> std::string {
    auto const launch = join(test::rank_environment(rank, 2 + rank, port), quick());
    return "met";
  });
  check_survivors(
      ended, {0, 1}, 3,
      {"rank 1 (process ", "belongs to a world of 3 ranks, but rank 0 (process ", "to a world of 2"}, 10);
  ended = test::run_processes(3, [&](int index) -> std::string {
    auto const launch = join(test::rank_environment(std::min(index, 1), 3, port), quick());
    return "met";
  });
  check_survivors(ended, {0, 1, 2}, 3, {"two processes have rank 1: process ", "its own RANK"}, 10);
  ended = test::run_processes(2, [&](int) -> std::string {
    auto const launch = join(test::rank_environment(0, 2, port), quick());
    return "met";
  });
  check_survivors(ended, {0, 1}, 3, {"two processes have rank 0: process ", "its own RANK"}, 10);
}

TEST_CASE("ranks meet if a foreign program holds the port") {
  int const port = own_port();
  // This program never answers.
  ts::comm::detail::Descriptor const foreign = ts::comm::detail::listen_on(port);
  REQUIRE(foreign);
  auto const ended = test::run_processes(2, [&](int rank) -> std::string {
    auto const launch = join(test::rank_environment(rank, 2, port), {.join_timeout = 20s, .silence = 5s});
    return launch->all_gather(std::to_string(rank), "compare").back();
  });
  for (Ended const& end : ended) CHECK_MESSAGE(end.text == "1", end.text);
}

TEST_CASE("ranks that wait for a late one longer than the limit of silence are not lost") {
  int const port = own_port();
  auto const ended = test::run_processes(2, [&](int rank) -> std::string {
    if (rank == 1) std::this_thread::sleep_for(3s);
    auto const launch = join(test::rank_environment(rank, 2, port), {.join_timeout = 20s, .silence = 2s});
    std::this_thread::sleep_for(200ms);
    return launch->all_gather(std::to_string(rank), "compare").back();
  });
  for (Ended const& end : ended) CHECK_MESSAGE(end.text == "1", end.text);
}

TEST_CASE("launches that start at once with one port do not mix") {
  int const port = own_port();
  constexpr int launches = 40;
  auto const ended = test::run_processes(
      launches,
      [&](int number) -> std::string {
        auto const ranks = test::run_processes(2, [&](int rank) -> std::string {
          auto const launch =
              join(test::rank_environment(rank, 2, port), {.join_timeout = 30s, .silence = 10s});
          auto const all = launch->all_gather(std::to_string(number), "compare");
          return all[0] + " " + all[1];
        });
        return ranks[0].text + ", " + ranks[1].text;
      },
      60);
  for (int number = 0; number < launches; ++number) {
    std::string const both = std::to_string(number) + " " + std::to_string(number);
    CHECK(ended[static_cast<std::size_t>(number)].text == both + ", " + both);
  }
}

TEST_CASE("a failed run does not concern the next one of a launch, and gives its first cause on all ranks") {
  int const port = own_port();
  auto const ended = test::run_processes(3, [&](int rank) -> std::string {
    auto const launch = join(test::rank_environment(rank, 3, port), quick());
    auto const connect = [&] { return ts::comm::processes(launch); };
    std::string text;
    for (int run = 0; run < 4; ++run) {
      try {
        ts::comm::run_in_launch(*launch, connect, [&](Comm& comm) {
          float value = 1.0f;
          comm.transport().all_reduce(DType::f32, &value, 1);
          if (run % 2 == 1 && comm.rank() == run / 2)
            throw ts::Error(ts::ErrorKind::out_of_memory, "too big");
          comm.transport().all_reduce(DType::f32, &value, 1);
          text += std::to_string(static_cast<int>(value)) + " ";
        });
      } catch (ts::Error const& error) {
        CHECK(error.kind() == ts::ErrorKind::out_of_memory);
        text += holds(error.what(), "rank " + std::to_string(run / 2) + " (process ") &&
                        holds(error.what(), "): too big")
                    ? "cause "
                    : error.what();
      }
    }
    return text;
  });
  for (Ended const& end : ended) CHECK_MESSAGE(end.text == "9 cause 9 cause ", end.text);
}

}  // namespace
