// SPDX-License-Identifier: Apache-2.0
// Tests the errors that all ranks get when one rank throws, ends early, is late, or calls a different
// collective.
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/comm/communicator.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/comm/threads.hpp"

namespace {

namespace ts = tessera;
using namespace std::chrono_literals;
using ts::Move;
using ts::comm::Comm;
using ts::comm::Transport;

bool holds(std::string const& text, std::string const& part) { return text.find(part) != text.npos; }

/// The errors after ts::run with several ranks: the errors that the ranks caught, and the error that ts::run
/// threw.
struct Outcome {
  struct Lost {
    int by;
    int rank;
    std::string unit, text;
  };
  /// Every PeerLost error: rank `by` caught the error, which says that rank `rank` is lost.
  std::vector<Lost> lost;
  std::string text;  ///< the text of the error that ts::run threw
  ts::ErrorKind kind = ts::ErrorKind::failed;
  int rank = -1;
  bool threw = false;
};

template <class Fn>
Outcome outcome_of(int world, Fn const& fn, ts::RunOptions const& options = {}) {
  Outcome outcome;
  std::mutex mutex;
  try {
    ts::run(
        world,
        [&](Comm& comm) {
          try {
            fn(comm.transport());
          } catch (ts::PeerLost const& lost) {
            std::lock_guard lock(mutex);
            outcome.lost.push_back({comm.rank(), lost.rank(), lost.unit(), lost.what()});
            throw;
          }
        },
        options);
  } catch (ts::Error const& error) {
    outcome.threw = true;
    outcome.text = error.what();
    outcome.kind = error.kind();
    outcome.rank = error.rank();
  }
  return outcome;
}

struct Buffers {
  std::vector<float> send = std::vector<float>(256);
  std::vector<float> recv = std::vector<float>(256);
};

void call(Transport& transport, Move collective, Buffers& buffers, std::int64_t size = 16) {
  ts::comm::CollectiveId const id{"verb", "h.3", 2};
  void* const send = buffers.send.data();
  void* const recv = buffers.recv.data();
  switch (collective) {
    case Move::all_to_all:
      return transport.all_to_all(send, recv, size, id);
    case Move::all_gather:
      return transport.all_gather(send, recv, size, id);
    case Move::gather:
      return transport.gather(0, send, recv, size, id);
    case Move::broadcast:
      return transport.broadcast(0, send, size, id);
    case Move::all_reduce:
      return transport.all_reduce(ts::DType::f32, send, size, id);
    case Move::reduce_scatter:
      return transport.reduce_scatter(ts::DType::f32, send, recv, size, id);
    case Move::barrier:
      return transport.barrier(id);
    case Move::send:
    case Move::receive:
    case Move::none:
    case Move::copy:
      return;
  }
}

constexpr Move all_collectives[] = {Move::all_to_all, Move::all_gather, Move::gather,        Move::broadcast,
                                    Move::all_reduce, Move::barrier,    Move::reduce_scatter};

struct Odd : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace

TEST_CASE("a rank that throws frees the others in every collective") {
  for (Move collective : all_collectives)
    for (int world : {2, 5}) {
      auto const outcome = outcome_of(world, [&](Transport& transport) {
        Buffers buffers;
        for (int step = 0; step < 20; ++step) {
          if (transport.rank() == 1 && step == 7)
            throw ts::Error(ts::ErrorKind::data, "token 300 is too large");
          call(transport, collective, buffers);
        }
      });
      CAPTURE(ts::name_of(collective));
      CHECK(outcome.text == "rank 1: token 300 is too large");
      CHECK(outcome.kind == ts::ErrorKind::data);
      CHECK(outcome.rank == 1);
      CHECK(outcome.lost.size() == static_cast<std::size_t>(world - 1));
      for (auto const& lost : outcome.lost) {
        CHECK(lost.rank == 1);
        CHECK(lost.unit == "h.3");
        CHECK(holds(lost.text, "rank 1 is lost: it threw: token 300 is too large"));
        CHECK(holds(lost.text, "[rank " + std::to_string(lost.by) + " was in collective 8, " +
                                   std::string(ts::name_of(collective))));
        CHECK(holds(lost.text, "(verb h.3, micro-batch 2)"));
      }
    }
}

TEST_CASE("the caller gets the first cause in its own form") {
  auto const meet = [](Transport& transport) { transport.barrier(); };
  auto const thrower = [&](auto thrown) {
    return [&meet, thrown](Comm& comm) {
      if (comm.rank() == 2) throw thrown;
      meet(comm.transport());
    };
  };
  // If a rank throws a std::exception, ts::run throws an Error with the number of this rank and the original
  // text.
  try {
    ts::run(3, thrower(Odd("odd weather")));
    FAIL("nothing was thrown");
  } catch (ts::Error const& error) {
    CHECK(std::string(error.what()) == "rank 2: odd weather");
    CHECK(error.rank() == 2);
    CHECK(error.kind() == ts::ErrorKind::failed);
    CHECK_THROWS_AS(std::rethrow_if_nested(error), Odd);
  }
  auto const memory = outcome_of(3, [](Transport& transport) {
    if (transport.rank() == 1) throw std::bad_alloc();
    transport.barrier();
  });
  CHECK(memory.kind == ts::ErrorKind::out_of_memory);
  CHECK(memory.rank == 1);
  // If a rank throws something that is not derived from std::exception, ts::run throws it unchanged.
  CHECK_THROWS_AS(ts::run(3, thrower(17)), int);
  // If a rank throws an Error that already names a rank, ts::run keeps its text.
  try {
    ts::run(3, thrower(ts::Error(ts::ErrorKind::diverged, "the loss is not finite", 2, "head")));
    FAIL("nothing was thrown");
  } catch (ts::Error const& error) {
    CHECK(std::string(error.what()) == "the loss is not finite");
    CHECK(error.unit() == "head");
  }
  // With a single rank, ts::run throws the original exception.
  CHECK_THROWS_AS(ts::run(1, [](Comm&) { throw Odd("alone"); }), Odd);
  // Here rank 1 calls ts::run itself, and a rank of this inner call is lost. The error of the outer call must
  // give this lost rank as its cause.
  auto const nested = outcome_of(2, [](Transport& transport) {
    if (transport.rank() == 1)
      ts::run(3, [](Comm& inner) {
        if (inner.rank() == 0) return;
        inner.transport().barrier({"inner"});
      });
    transport.barrier({"outer"});
  });
  CHECK(holds(nested.text, "rank 0 is lost: it left before its first collective"));
  CHECK(holds(nested.text, "(inner)"));
}

TEST_CASE("a rank that returns early is lost to those who go on") {
  for (int when : {0, 3}) {
    auto const outcome = outcome_of(4, [&](Transport& transport) {
      Buffers buffers;
      for (int step = 0; step < 6; ++step) {
        if (transport.rank() == 2 && step == when) return;
        call(transport, Move::all_gather, buffers);
      }
    });
    CHECK(outcome.lost.size() == 3);
    CHECK(outcome.kind == ts::ErrorKind::peer_lost);
    CHECK(outcome.rank == 2);
    CHECK(holds(outcome.text, when == 0
                                  ? "rank 2 is lost: it left before its first collective"
                                  : "rank 2 is lost: it left after collective 3, all_gather of 16 bytes"));
  }
  // Rank 1 leaves only after rank 0 waits in a barrier.
  auto const outcome =
      outcome_of(2,
                 [](Transport& transport) {
                   if (transport.rank() == 0) return transport.barrier({"gather", "wte"});
                   while (!holds(transport.where(0), "in collective 1, barrier (gather wte)"))
                     std::this_thread::sleep_for(1ms);
                 },
                 {.timeout = 5s});
  CHECK(holds(outcome.text, "rank 1 is lost: it left before its first collective"));
  // Ranks may return at different times if no other rank waits for them.
  ts::run(3, [](Comm& comm) {
    comm.transport().barrier();
    std::this_thread::sleep_for(comm.rank() * 10ms);
  });
}

TEST_CASE("a rank that does not arrive is named after the timeout") {
  auto const start = std::chrono::steady_clock::now();
  std::atomic<bool> freed{false};
  auto const outcome = outcome_of(3,
                                  [&](Transport& transport) {
                                    Buffers buffers;
                                    call(transport, Move::all_reduce, buffers);
                                    if (transport.rank() == 1)
                                      while (!freed) std::this_thread::sleep_for(5ms);
                                    try {
                                      call(transport, Move::reduce_scatter, buffers);
                                    } catch (...) {
                                      freed = true;
                                      throw;
                                    }
                                  },
                                  {.timeout = 300ms});
  auto const took = std::chrono::steady_clock::now() - start;
  CHECK(took >= 300ms);
  CHECK(took < 5s);
  CHECK(outcome.kind == ts::ErrorKind::peer_lost);
  CHECK(outcome.rank == 1);
  CHECK(outcome.lost.size() == 3);
  for (auto const& lost : outcome.lost) {
    CHECK(lost.rank == 1);
    CHECK(holds(lost.text,
                lost.by == 1 ? "rank 1 was declared lost by the other ranks: " : "rank 1 is lost: "));
    CHECK(holds(lost.text, "it gave no sign of life for 0.3 s"));
    CHECK(holds(lost.text,
                "last seen after collective 1, all_reduce of 16 fp32 values (verb h.3, micro-batch 2)"));
    CHECK(holds(lost.text, "not arrived: rank 1"));
    CHECK(
        holds(lost.text, "was in collective 2, reduce_scatter of 16 fp32 values (verb h.3, micro-batch 2)]"));
  }
}

TEST_CASE("heartbeats and late starts keep slow ranks alive") {
  ts::run(3,
          [](Comm& comm) {
            // Both ranks call no collective for longer than the timeout. This is not an error, because no
            // rank waits for another rank yet.
            std::this_thread::sleep_for(comm.rank() == 0 ? 350ms : 400ms);
            comm.transport().barrier();
            if (comm.rank() == 1)
              for (int beat = 0; beat < 12; ++beat) {
                std::this_thread::sleep_for(50ms);
                comm.transport().heartbeat();
              }
            comm.transport().barrier();
          },
          {.timeout = 300ms});
}

TEST_CASE("ranks that ask for different things all throw and name the requests") {
  struct Case {
    std::function<void(Transport&)> odd;
    char const* text;
  };
  std::vector<float> send(64), recv(256);
  auto const usual = [](Transport& transport, Buffers& buffers) {
    transport.all_gather(buffers.send.data(), buffers.recv.data(), 64, {"gather", "h.3", 0});
  };
  auto* const to = recv.data();
  auto* const from = send.data();
  std::vector<Case> const cases{
      {[=](Transport& t) {
         t.barrier({"gather", "h.3", 0});
       },
       "barrier (gather h.3, micro-batch 0)"},
      {[=](Transport& t) {
         t.all_gather(from, to, 60, {"gather", "h.3", 0});
       },
       "all_gather of 60 bytes"},
      {[=](Transport& t) {
         t.all_gather(from, to, 64, {"gather", "h.4", 0});
       },
       "(gather h.4, micro-batch 0)"},
      {[=](Transport& t) {
         t.all_gather(from, to, 64, {"write_back", "h.3", 0});
       },
       "(write_back h.3, micro-batch 0)"},
      {[=](Transport& t) {
         t.all_gather(from, to, 64, {"gather", "h.3", 1});
       },
       "(gather h.3, micro-batch 1)"},
      {[=](Transport& t) {
         t.all_gather(from, to, 0, {"gather", "h.3", 0});
       },
       "all_gather of 0 bytes"},
  };
  for (auto const& each : cases) {
    std::atomic<int> threw{0};
    auto const outcome = outcome_of(4, [&](Transport& transport) {
      Buffers buffers;
      usual(transport, buffers);
      try {
        if (transport.rank() == 2)
          each.odd(transport);
        else
          usual(transport, buffers);
      } catch (ts::Error const& error) {
        threw += holds(error.what(), "ranks request different collectives");
        throw;
      }
    });
    CHECK(threw == 4);
    CHECK(outcome.kind == ts::ErrorKind::failed);
    CHECK(holds(outcome.text,
                "ranks 0, 1, 3 request number 2, all_gather of 64 bytes (gather h.3, micro-batch 0)"));
    CHECK(holds(outcome.text, "rank 2 requests number 2, "));
    CHECK(holds(outcome.text, each.text));
  }
  // Two calls of one collective with different roots or different element types are a mismatch too.
  auto const roots = outcome_of(2, [](Transport& transport) {
    Buffers buffers;
    transport.broadcast(transport.rank(), buffers.send.data(), 8);
  });
  CHECK(holds(roots.text, "rank 0 requests number 1, broadcast of 8 bytes from rank 0; rank 1 requests"));
  auto const types = outcome_of(2, [](Transport& transport) {
    Buffers buffers;
    if (transport.rank() == 0)
      transport.all_reduce(ts::DType::f32, buffers.send.data(), 8);
    else
      transport.all_reduce(ts::DType::f16, buffers.send.data(), 16);
  });
  CHECK(holds(types.text, "all_reduce of 8 fp32 values"));
  CHECK(holds(types.text, "all_reduce of 16 fp16 values"));
}

TEST_CASE("a rank may end the communicator by itself") {
  auto const outcome = outcome_of(3, [](Transport& transport) {
    if (transport.rank() == 0)
      transport.poison("the disk is full");
    else
      transport.barrier({"write_back", "head"});
  });
  CHECK(outcome.lost.size() == 2);
  CHECK(holds(outcome.text, "rank 0 is lost: the disk is full"));
}

TEST_CASE("destructors and copies of a handle never wait") {
  std::vector<Comm> comms;
  std::mutex mutex;
  ts::run(2, [&](Comm& comm) {
    comm.transport().barrier();
    std::lock_guard lock(mutex);
    comms.push_back(comm);
  });
  CHECK_THROWS_AS(comms[0].transport().barrier(), ts::PeerLost);  // the other ranks have left
  comms.clear();

  auto ranks = ts::comm::threads(2);
  std::string text;
  std::thread waiting([&] {
    try {
      ranks[0].transport().barrier();
    } catch (ts::PeerLost const& lost) {
      text = lost.what();
    }
  });
  ranks.pop_back();  // destroys the only handle of rank 1, which means that rank 1 leaves
  waiting.join();
  CHECK(holds(text, "rank 1 is lost: it left before its first collective"));
}

TEST_CASE("a rank that never ends is reported to the caller") {
  std::atomic<bool> freed{false};
  std::string report;
  ts::RunOptions options{.timeout = 100ms, .grace = 100ms, .stuck = [&](std::string const& text) {
                           report = text;
                           freed = true;
                         }};
  auto const outcome = outcome_of(
      3,
      [&](Transport& transport) {
        if (transport.rank() == 0)
          while (!freed) std::this_thread::sleep_for(5ms);
        if (transport.rank() == 1) throw Odd("the wire is cut");
        transport.barrier({"gather", "wte"});
      },
      options);
  CHECK(holds(report, "rank 0 did not end within 0.1 s after the run had failed"));
  CHECK(holds(report, "before its first collective"));
  CHECK(holds(report, "rank 1: it threw: the wire is cut"));
  CHECK(outcome.text == "rank 1: the wire is cut");
}

TEST_CASE("losses at random moments never hang and never change the cause") {
  for (int round = 0; round < 150; ++round) {
    int const world = 2 + round % 4;
    int const victim = round % world;
    int const step_lost = round / 5;
    auto const outcome = outcome_of(world, [&](Transport& transport) {
      Buffers buffers;
      for (int step = 0; step < 40; ++step) {
        if (transport.rank() == victim && step == step_lost) throw Odd("round " + std::to_string(round));
        call(transport, all_collectives[static_cast<std::size_t>(step % 7)], buffers, 4);
      }
    });
    CHECK(outcome.text == "rank " + std::to_string(victim) + ": round " + std::to_string(round));
    CHECK(outcome.lost.size() == static_cast<std::size_t>(world - 1));
  }
}
