// SPDX-License-Identifier: Apache-2.0
// Tests the pool of worker threads of the CPU backend. For any number of loops, threads and pools, every task
// must run exactly once with a valid worker index.
#include "tessera/backend/cpu/pool.hpp"

#include <atomic>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include "support/sanitizers.hpp"

using tessera::cpu::ThreadPool;

TEST_CASE("pool runs every task exactly once") {
  for (int threads : {1, 2, 3, 7}) {
    ThreadPool pool(threads);
    REQUIRE(pool.threads() == threads);
    for (std::int64_t tasks : {0, 1, 2, 3, 16, 17, 100, 1000, 12345}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(tasks));
      std::atomic<int> strangers{0};
      pool.parallel_for(tasks, [&](std::int64_t task, int worker) {
        runs[static_cast<std::size_t>(task)].fetch_add(1);
        if (worker < 0 || worker >= threads) strangers.fetch_add(1);
      });
      int wrong = 0;
      for (auto const& count : runs) wrong += count.load() != 1;
      CHECK(wrong == 0);
      CHECK(strangers.load() == 0);
    }
  }
}

TEST_CASE("pool of one thread runs on the caller in order") {
  ThreadPool pool(1);
  std::thread::id const caller = std::this_thread::get_id();
  std::vector<std::int64_t> order;
  pool.parallel_for(5, [&](std::int64_t task, int) {
    CHECK(std::this_thread::get_id() == caller);
    order.push_back(task);
  });
  CHECK(order == std::vector<std::int64_t>{0, 1, 2, 3, 4});
}

TEST_CASE("pool publishes what a loop wrote to the next loop") {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(257, 0);
  std::int64_t const loops = 2000;
  for (std::int64_t loop = 0; loop < loops; ++loop)
    pool.parallel_for(257, [&](std::int64_t task, int) {
      // Loops with an odd number access the values in reverse order. Each task therefore reads a value that
      // another task wrote in the previous loop.
      if (loop % 2 == 0)
        values[static_cast<std::size_t>(task)] += 1;
      else
        values[static_cast<std::size_t>(256 - task)] += 1;
    });
  int wrong = 0;
  for (std::int64_t value : values) wrong += value != loops;
  CHECK(wrong == 0);
}

TEST_CASE("pools of several ranks share the cores") {
  std::vector<std::thread> ranks;
  std::atomic<std::int64_t> total{0};
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([&total] {
      ThreadPool pool(2);
      for (int loop = 0; loop < 300; ++loop) {
        std::atomic<std::int64_t> sum{0};
        pool.parallel_for(20, [&](std::int64_t task, int) { sum.fetch_add(task); });
        total.fetch_add(sum.load());
      }
    });
  for (std::thread& rank : ranks) rank.join();
  CHECK(total.load() == 4 * 300 * 190);
}

TEST_CASE("pool is created and destroyed without work") {
  for (int round = 0; round < 50; ++round) ThreadPool pool(3);
  CHECK(ThreadPool(0).threads() == 1);
}

// The next test limits the address space of the process. Sanitizers reserve more memory than this limit, so
// builds with a sanitizer leave the test out.
#if !TESSERA_TEST_ADDRESS_SANITIZER && !TESSERA_TEST_THREAD_SANITIZER
TEST_CASE("a pool whose threads do not all start is an error, and those that did have ended") {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  REQUIRE(pages > 0);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_AS, &before) == 0);
  // The limit is the current size plus 64 MiB, which is enough for the stacks of a few threads.
  rlimit const tight{static_cast<rlim_t>(pages) * 4096 + (rlim_t{64} << 20), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_AS, &tight) == 0);
  std::string text;
  try {
    ThreadPool pool(500);
  } catch (tessera::Error const& error) {
    CHECK(error.kind() == tessera::ErrorKind::failed);
    text = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_AS, &before) == 0);
  INFO(text);
  CHECK(text.find("needs 500 threads, but the system started only ") != std::string::npos);
  CHECK(text.find("; lower --threads") != std::string::npos);
}
#endif
