// SPDX-License-Identifier: Apache-2.0
// Tests collectives of groups of ranks. The ranks are threads. Groups must make progress independently, and
// errors must name the ranks that caused them.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/board.hpp"
#include "tessera/comm/communicator.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/comm/threads.hpp"
#include "tessera/plan/step_plan.hpp"

#include "support/step_plans.hpp"
#include "unit/allocation_support.hpp"

namespace {

namespace ts = tessera;
using namespace std::chrono_literals;
using ts::comm::Comm;
using ts::comm::ProcessGroup;
using ts::comm::Transport;

/// The errors of all ranks, and the duration of the test in seconds. `texts`, `kinds` and `lost` have one
/// element for each rank and describe the error that this rank caught.
struct Errors {
  std::vector<std::string> texts;
  std::vector<ts::ErrorKind> kinds;
  std::vector<int> lost;  ///< the rank that this rank's error names (Error::rank)
  double seconds = 0;

  bool all_have(std::string const& part) const {
    for (std::string const& text : texts)
      if (text.find(part) == text.npos) return false;
    return true;
  }
};

Errors errors_of(int world, std::function<void(Transport&)> const& body, ts::RunOptions const& options = {}) {
  auto const ranks = static_cast<std::size_t>(world);
  Errors errors{std::vector<std::string>(ranks), std::vector<ts::ErrorKind>(ranks), std::vector<int>(ranks)};
  auto const start = std::chrono::steady_clock::now();
  try {
    ts::run(
        world,
        [&](Comm& comm) {
          try {
            body(comm.transport());
          } catch (ts::Error const& error) {
            auto const rank = static_cast<std::size_t>(comm.rank());
            errors.texts[rank] = error.what();
            errors.kinds[rank] = error.kind();
            errors.lost[rank] = error.rank();
            throw;
          }
        },
        options);
  } catch (ts::Error const&) {  // this error is already in `errors`, which has the errors of all ranks
  }
  errors.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return errors;
}

double sum_in(Transport& transport, ProcessGroup const& group, double value, std::int64_t round = -1) {
  transport.all_reduce(ts::DType::f64, &value, 1, {"sum", "h.0", round}, group);
  return value;
}

/// Waits until rank `rank` is inside a collective.
void await_inside(Transport& transport, int rank) {
  while (transport.where(rank).find("in collective") == std::string::npos) std::this_thread::sleep_for(1ms);
}

}  // namespace

TEST_CASE("groups of ranks make different numbers of collectives") {
  std::atomic<int> wrong{0};
  ts::run(4, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank(), first = rank / 2 * 2, rounds = first == 0 ? 7 : 300;
    ProcessGroup const pair{first, 1, 2};
    for (int round = 0; round < rounds; ++round)
      wrong += sum_in(transport, pair, rank + round, round) != 2 * first + 1 + 2 * round;
    wrong += ts::comm::sequence_of(transport.word(rank)) != static_cast<std::uint64_t>(rounds);
    wrong += sum_in(transport, {}, rank) != 6;
    wrong += ts::comm::sequence_of(transport.word(rank)) != 1;  // each group counts its own collectives
    wrong += sum_in(transport, {rank % 2, 2, 2}, rank) != 2 + 2 * (rank % 2);
    wrong += sum_in(transport, {rank, 1, 1}, rank) != rank;
    transport.barrier({}, pair);
  });
  CHECK(wrong == 0);
}

TEST_CASE("a rank that is slow delays only its own group") {
  std::atomic<bool> first_is_done{false};
  ts::run(4,
          [&](Comm& comm) {
            int const rank = comm.rank();
            if (rank == 3)
              while (!first_is_done) std::this_thread::sleep_for(1ms);
            for (int round = 0; round < 50; ++round)
              (void)sum_in(comm.transport(), {rank / 2 * 2, 1, 2}, 1.0);
            if (rank == 0) first_is_done = true;
          },
          {.timeout = 20s});
  CHECK(first_is_done);
}

TEST_CASE("rows, columns and channels of a mesh meet in any number") {
  std::atomic<int> wrong{0};
  ts::run(6, [&](Comm& comm) {
    Transport& transport = comm.transport();
    int const rank = comm.rank(), row = rank / 2, column = rank % 2;
    for (int step = 0; step < 40; ++step) {
      for (int round = 0; round < 1 + (row + step) % 4; ++round)
        wrong += sum_in(transport, {2 * row, 1, 2, round % 2}, rank) != 4 * row + 1;
      for (int round = 0; round < 1 + column; ++round)
        wrong += sum_in(transport, {column, 2, 3}, rank) != 6 + 3 * column;
    }
    wrong += sum_in(transport, {}, 1.0) != 6;
  });
  CHECK(wrong == 0);
}

TEST_CASE("collectives of a group that has met allocate nothing") {
  std::atomic<std::int64_t> grown{-1};
  ts::run(4, [&](Comm& comm) {
    Transport& transport = comm.transport();
    ProcessGroup const row{comm.rank() / 2 * 2, 1, 2}, column{comm.rank() % 2, 2, 2, 1};
    auto const meet = [&] {
      for (int round = 0; round < 20; ++round)
        (void)(sum_in(transport, row, 1.0) + sum_in(transport, column, 2.0));
    };
    meet();
    transport.barrier();
    std::int64_t const before = allocation_support::count();
    transport.barrier();
    meet();
    transport.barrier();
    if (comm.is_root()) grown = allocation_support::count() - before;
    transport.barrier();
  });
  CHECK(grown == 0);
}

TEST_CASE("ranks that wait for each other in different groups all get both requests at once") {
  double const limit = 10;  // seconds; far less than the timeout of 300 s
  auto const crossing = errors_of(4, [](Transport& transport) {
    int const rank = transport.rank();
    (void)sum_in(transport, {}, 1.0);
    if (rank == 0) await_inside(transport, 1);
    double value = 1.0;
    if (rank == 0)
      transport.broadcast(0, &value, 8, {"row", "h.1"}, {0, 1, 2});
    else
      transport.all_reduce(ts::DType::f64, &value, 1, {"all", "h.2"});
  });
  CHECK(crossing.all_have(
      "ranks request different collectives: rank 0 requests number 1, broadcast of 8 bytes from rank 0 (row "
      "h.1), among ranks 0, 1; rank 1 requests number 2, all_reduce of 1 fp64 values (all h.2), among ranks "
      "0, 1, 2, 3; every rank must run the same steps"));
  for (ts::ErrorKind const kind : crossing.kinds) CHECK(kind == ts::ErrorKind::failed);
  CHECK(crossing.seconds < limit);

  auto const channels = errors_of(2, [](Transport& transport) {
    (void)sum_in(transport, {.first = 0, .count = 2, .channel = transport.rank()}, 1.0);
  });
  CHECK(channels.all_have("among ranks 0, 1; rank 1 requests"));
  CHECK(channels.all_have("among ranks 0, 1 on channel 1"));
  CHECK(channels.seconds < limit);

  // Ranks 0, 1 and 2 wait for each other in a cycle: 0 for 1, 1 for 2, and 2 for 0. Rank 3 waits for all
  // three.
  auto const cycle = errors_of(4, [](Transport& transport) {
    int const rank = transport.rank();
    ProcessGroup const groups[] = {{0, 1, 2}, {1, 1, 2}, {0, 2, 2}};
    if (rank == 3) return transport.barrier();
    (void)sum_in(transport, groups[rank], 1.0);
  });
  CHECK(cycle.all_have("ranks request different collectives: rank 0 requests"));
  CHECK(cycle.all_have("among ranks 0, 1; rank 1 requests"));
  CHECK(cycle.all_have("among ranks 1, 2; rank 2 requests"));
  CHECK(cycle.seconds < limit);
}

TEST_CASE("requests are compared within their group") {
  auto const errors = errors_of(4, [](Transport& transport) {
    int const rank = transport.rank();
    ProcessGroup const pair{rank / 2 * 2, 1, 2};
    (void)sum_in(transport, pair, 1.0, rank / 2);  // the two pairs have different requests
    if (rank < 2) (void)sum_in(transport, {}, 1.0);
    (void)sum_in(transport, pair, 1.0, rank);
  });
  // Ranks 2 and 3 call different collectives as their second call. Ranks 0 and 1 wait for ranks 2 and 3
  // meanwhile.
  CHECK(errors.all_have(
      "ranks request different collectives: rank 2 requests number 2, all_reduce of 1 fp64 "
      "values (sum h.0, micro-batch 2); rank 3 requests number 2, all_reduce of 1 fp64 values "
      "(sum h.0, micro-batch 3); every rank"));
}

TEST_CASE("a timeout names a rank of the group that waits for no other group") {
  std::atomic<bool> freed{false};
  auto const errors =
      errors_of(4,
                [&](Transport& transport) {
                  int const rank = transport.rank();
                  if (rank == 2)
                    while (!freed) std::this_thread::sleep_for(1ms);
                  try {
                    if (rank == 0)
                      (void)sum_in(transport, {0, 1, 2}, 1.0);  // waits for rank 1, which waits for rank 2
                    if (rank == 1) (void)sum_in(transport, {1, 1, 2}, 1.0);
                    if (rank >= 2) (void)sum_in(transport, {2, 1, 2}, 1.0);
                  } catch (...) {
                    freed = true;
                    throw;
                  }
                },
                {.timeout = 300ms});
  CHECK(errors.all_have("it gave no sign of life for 0.3 s"));
  CHECK(errors.all_have("not arrived: rank 2;"));
  for (int const lost : errors.lost) CHECK(lost == 2);
}

TEST_CASE("a rank that leaves is lost only to those who wait for it") {
  ts::run(4, [](Comm& comm) {
    int const rank = comm.rank();
    if (rank == 3) return;
    if (rank < 2)
      for (int round = 0; round < 20; ++round) {
        std::this_thread::sleep_for(1ms);
        (void)sum_in(comm.transport(), {0, 1, 2}, 1.0);
      }
  });
  auto const errors = errors_of(4, [](Transport& transport) {
    int const rank = transport.rank();
    if (rank == 3) return await_inside(transport, 2);
    if (rank == 2) (void)sum_in(transport, {2, 1, 2}, 1.0);
    for (;;) (void)sum_in(transport, {0, 1, 2}, 1.0);
  });
  for (std::size_t const rank : {0u, 1u, 2u}) {
    CHECK(errors.texts[rank].find("rank 3 is lost: it left before its first collective") !=
          std::string::npos);
    CHECK(errors.lost[rank] == 3);
  }
}

TEST_CASE("a group without the calling rank, or with ranks outside the world, is refused") {
  auto const refusal = [](ProcessGroup const& group, bool opens) {
    Errors const errors = errors_of(4, [&](Transport& transport) {
      if (transport.rank() > 0) return;
      if (opens) (void)transport.over(group);
      (void)sum_in(transport, group, 1.0);
    });
    CHECK(errors.kinds[0] == ts::ErrorKind::usage);
    return errors.texts[0];
  };
  CHECK(refusal({1, 1, 2}, false) ==
        "rank 0 requested all_reduce: the group of ranks 1, 2 does not contain this rank");
  CHECK(refusal({1, 2, 2}, true) ==
        "rank 0 opens a communicator: the group of ranks 1, 3 does not contain this rank");
  CHECK(refusal({0, 1, 5}, false) ==
        "rank 0 requested all_reduce: the group of 5 ranks from 0 on, with a stride of 1, reaches beyond the "
        "world of 4 ranks");
  for (bool const opens : {false, true})
    for (ProcessGroup const& beyond : {ProcessGroup{0, 2, 3}, {-1, 1, 2}, {0, 0, 2}, {0, -1, 2}})
      CHECK(refusal(beyond, opens).find("reaches beyond the world of 4 ranks") != std::string::npos);
  ts::comm::Single single;
  CHECK_THROWS_WITH_AS(single.barrier({}, {0, 1, 2}), doctest::Contains("beyond the world of 1 ranks"),
                       ts::Error);
}

TEST_CASE("a history tells apart the collectives of groups with equal numbers") {
  ts::comm::detail::History history;
  auto const put = [&](ProcessGroup const& group, char const* unit, bool captured) {
    ts::comm::Request request;
    request.move = ts::Move::all_gather;
    request.id = {"gather", unit};
    request.sequence = 7;
    request.bytes = 64;
    request.group = group;
    history.put(request, captured);
  };
  put({0, 1, 4}, "wte", false);
  put({0, 1, 2, 0, 1}, "h.1", false);
  put({0, 2, 2, 1, 2}, "h.2", true);
  auto const text = [&](int communicator, int rank) {
    return history.text(ts::comm::watch_word(7, ts::Move::all_gather, communicator), rank);
  };
  CHECK(text(0, 3) == "7, all_gather of 64 bytes (gather wte)");
  CHECK(text(1, 1) == "7, all_gather of 64 bytes (gather h.1)");
  CHECK(text(2, 2) == "7, all_gather of 64 bytes (gather h.2)");
  CHECK(text(1, 3) == "7, all_gather");  // rank 3 is in another group, so its calls are unknown
  CHECK(history.last_unit() == "h.2");
}

TEST_CASE("a schedule's group of which no engine knows the ranks is refused") {
  using namespace support;
  StepShape shape;
  shape.batch = shape.sequence = 4;
  shape.world = 4;
  shape.rank = 2;
  shape.replicas = 2;
  StepPlan const plan = make_plan(TiedModel{}.units({4, 4}), recipe("zs1", "fp32", "none"), shape);
  Entry entry;
  entry.verb = Verb::cross;
  entry.unit = 1;
  entry.group = Group::shards;
  CHECK(plan.ranks_of(entry).same({2, 1, 2}));
  entry.group = Group::replicas;
  CHECK(plan.ranks_of(entry).same({0, 2, 2}));
  for (Group const group : {Group::next, Group::previous, Group::tensor}) {
    entry.group = group;
    std::string const text = "the entry cross " + plan.units[1].name + " of the schedule has the group " +
                             std::string(name_of(group)) + ", and no engine knows its ranks";
    CHECK_THROWS_WITH_AS((void)plan.ranks_of(entry), doctest::Contains(text.c_str()), ts::Error);
    try {
      (void)plan.ranks_of(entry);
    } catch (ts::Error const& error) {
      CHECK(error.kind() == ts::ErrorKind::unsupported);
    }
  }
}
