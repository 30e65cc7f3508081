// SPDX-License-Identifier: Apache-2.0
// Tests lists of cores, the division of cores among ranks, and the option bind_threads. The tests that bind
// threads need two cores and are skipped on a machine with one.
#include "tessera/train/thread_binding.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cpu/pool.hpp"
#include "tessera/comm/run.hpp"
#include "tessera/detail/affinity.hpp"
#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "support/tied_model.hpp"

namespace {

using namespace support;
using affinity::Cores;
using tessera::detail::share_of;
using Tied = Trainer<TiedModel>;
using Nodes = std::vector<std::pair<int, Cores>>;

/// Returns the cores on which each thread of this process may run, as Linux reports them.
std::multiset<std::string> masks_of_threads() {
  std::multiset<std::string> masks;
  for (auto const& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "status");
    for (std::string line; std::getline(file, line);)
      if (line.starts_with("Cpus_allowed_list:")) masks.insert(line.substr(line.find_last_of(" \t") + 1));
  }
  return masks;
}

Run usual() {
  Run run;
  run.vocabulary = TiedModel{}.words;
  run.options.learning_rate = 1e-2;
  return run;
}

/// Trains two steps on `ranks` ranks and returns the hash of the weights. `seen` gets the masks of all
/// threads of the process after the steps of rank 0. A thread of a pool binds itself when it first runs,
/// possibly after the steps. So the function waits up to 20 s until each of `cores` is the mask of a thread.
std::string hash_after_steps(TrainerOptions const& options, int ranks, Cores const& cores,
                             std::multiset<std::string>& seen) {
  Run const run = usual();
  std::string hash;
  tessera::run(ranks, [&](comm::Comm comm) {
    Tied trainer(TiedModel{}, comm, options);
    for (int step = 0; step < 2; ++step)
      (void)trainer.step(
          make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary, run.mask_every));
    comm.transport().barrier();
    auto const all_seen = [&] {
      seen = masks_of_threads();
      return std::all_of(cores.begin(), cores.end(),
                         [&](int core) { return seen.count(std::to_string(core)) > 0; });
    };
    for (int round = 0; comm.is_root() && !all_seen() && round < 2000; ++round)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::string const own = hash_weights(trainer);
    if (comm.is_root()) hash = own;
    comm.transport().barrier();
  });
  return hash;
}

}  // namespace

TEST_CASE("a list of cores has the form of taskset") {
  CHECK(affinity::cores_in("0-3,8") == Cores{0, 1, 2, 3, 8});
  CHECK(affinity::cores_in("5,1-2,2\n") == Cores{1, 2, 5});
  CHECK(affinity::cores_in("") == Cores{});
  CHECK(affinity::cores_in("x") == Cores{});
  CHECK(affinity::cores_in("3-x") == Cores{});
  CHECK(affinity::text_of({0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(affinity::text_of({4, 5}) == "4-5");
  CHECK(affinity::text_of({}) == "");
}

TEST_CASE("cores belong to the NUMA nodes of the system") {
  std::filesystem::path const root = std::filesystem::temp_directory_path() / "tessera_nodes_test";
  std::filesystem::remove_all(root);
  for (auto const& [node, list] : {std::pair("node0", "0-3,8-11"), std::pair("node1", "4-7,12-15")}) {
    std::filesystem::create_directories(root / node);
    std::ofstream(root / node / "cpulist") << list << "\n";
  }
  std::ofstream(root / "online") << "0-1\n";
  CHECK(affinity::nodes_of({2, 3, 4, 8, 40}, root) == Nodes{{0, {2, 3, 8}}, {1, {4}}, {-1, {40}}});
  CHECK(affinity::nodes_of({5, 6}, root) == Nodes{{1, {5, 6}}});
  CHECK(affinity::nodes_of({1, 2}, root / "nothing") == Nodes{{-1, {1, 2}}});
  std::filesystem::remove_all(root);
}

TEST_CASE("ranks that share a mask get disjoint cores, near their GPUs if these are known") {
  Nodes const nodes{{0, {0, 1, 2, 3, 8, 9, 10, 11}}, {1, {4, 5, 6, 7, 12, 13, 14, 15}}};
  std::vector<int> const unknown(4, -1), gpus{1, 1, 0, 0}, partly{1, -1, 0, 0};
  CHECK(share_of(BindThreads::none, nodes, gpus, 1) == Cores{});
  CHECK(share_of(BindThreads::cores, nodes, gpus, 0) == Cores{4, 5, 6, 7});
  CHECK(share_of(BindThreads::cores, nodes, gpus, 1) == Cores{12, 13, 14, 15});
  CHECK(share_of(BindThreads::cores, nodes, gpus, 3) == Cores{8, 9, 10, 11});
  CHECK(share_of(BindThreads::numa, nodes, gpus, 1) == nodes[1].second);
  CHECK(share_of(BindThreads::cores, nodes, unknown, 1) == Cores{8, 9, 10, 11});
  CHECK(share_of(BindThreads::cores, nodes, partly, 2) == Cores{4, 5, 6, 7});
  CHECK(share_of(BindThreads::numa, nodes, unknown, 1) == nodes[0].second);
  CHECK(share_of(BindThreads::numa, nodes, unknown, 2) == nodes[1].second);
  CHECK(share_of(BindThreads::numa, nodes, {-1}, 0).size() == 16);  // one rank uses all nodes
  // 3 cores for 2 ranks, and fewer cores than ranks
  CHECK(share_of(BindThreads::cores, {{-1, {2, 3, 7}}}, {-1, -1}, 0) == Cores{2});
  CHECK(share_of(BindThreads::cores, {{-1, {2, 3, 7}}}, {-1, -1}, 1) == Cores{3, 7});
  CHECK(share_of(BindThreads::cores, {{-1, {2}}}, {-1, -1}, 0) == Cores{});
}

TEST_CASE("too many threads for the cores of a NUMA node: the error has the cores of this node") {
  Nodes const nodes{{0, {0, 1, 2, 3, 8}}, {1, {4, 5, 6, 7}}};
  auto const error = [&](int threads, std::vector<int> const& near, int index) -> std::string {
    tessera::detail::RankCores const cores{.ranks = static_cast<int>(near.size()),
                                           .threads = threads,
                                           .share = share_of(BindThreads::cores, nodes, near, index),
                                           .of_workers = {}};
    try {
      tessera::detail::check_cores(cores, nodes, near, index, index);
    } catch (Error const& refused) {
      CHECK(refused.kind() == ErrorKind::config);
      return refused.what();
    }
    return "";
  };
  auto const has = [](std::string const& text, std::string const& part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  CHECK(error(4, {1, 0}, 0) == "");
  has(error(5, {1, 0}, 0),
      "needs 5 cores of NUMA node 1 (ranks with a GPU at this node 1 x threads 5), but the affinity mask "
      "has 4 cores of this node (4-7); choose fewer threads or ranks");
  has(error(3, {0, 1, 0}, 0),
      "needs 6 cores of NUMA node 0 (ranks with a GPU at this node 2 x threads 3), but the affinity mask "
      "has 5 cores of this node (0-3,8); choose");
  has(error(6, {-1, -1}, 1),
      "needs 12 cores (ranks 2 x threads 6), but the affinity mask has 9 (0-8); choose");
}

TEST_CASE("the number of cores is the number of cores in the affinity mask") {
  Cores const all = affinity::allowed_cores();
  std::thread([&] {
    REQUIRE(affinity::bind_thread({all.front()}) == 0);
    CHECK(affinity::allowed_cores() == Cores{all.front()});
    CHECK(affinity::core_count() == 1);
    CHECK(threads_of_rank(0, 1) == 1);
  }).join();
  CHECK(affinity::allowed_cores() == all);
  CHECK(affinity::bind_thread({1 << 19}) != 0);  // no machine has this core
}

TEST_CASE("a bound thread reports its mask from before, and gets it back") {
  Cores const all = affinity::allowed_cores();
  {
    affinity::BoundThread const outer({all.front()}), inner({all.back()});
    CHECK(outer.error() == 0);
    CHECK(affinity::allowed_cores() == all);
    CHECK(affinity::helper_cores() == Cores{all.back()});
    CHECK(affinity::detail::mask_of_thread() == Cores{all.back()});
  }
  CHECK(affinity::detail::mask_of_thread() == all);
  CHECK(affinity::helper_cores() == Cores{});
}

TEST_CASE("a thread gets its mask back if another thread destroys its binding") {
  Cores const all = affinity::allowed_cores();
  std::optional<affinity::BoundThread> outer, inner;
  outer.emplace(Cores{all.front()});
  inner.emplace(Cores{all.front()});
  std::thread([&] { outer.reset(); }).join();
  CHECK(affinity::detail::mask_of_thread() == Cores{all.front()});  // `inner` still binds this thread
  std::thread([&] { inner.reset(); }).join();
  CHECK(affinity::detail::mask_of_thread() == all);
  CHECK(affinity::helper_cores() == Cores{});

  std::optional<affinity::BoundThread> of_ended;
  std::thread([&] { of_ended.emplace(Cores{all.front()}); }).join();
  of_ended.reset();  // the thread has ended, so there is no mask to restore
  CHECK(affinity::detail::mask_of_thread() == all);
}

TEST_CASE("a trainer that another thread destroys leaves its creator unbound") {
  Cores const all = affinity::allowed_cores();
  if (all.size() < 2) return;
  TrainerOptions options = options_of(usual());
  options.threads = 1;
  options.bind_threads = BindThreads::cores;
  std::optional<Tied> trainer;
  trainer.emplace(TiedModel{}, comm::Comm(), options);
  CHECK(affinity::detail::mask_of_thread() == Cores{all.front()});
  std::thread([&] { trainer.reset(); }).join();
  CHECK(affinity::detail::mask_of_thread() == all);
}

TEST_CASE("threads of a pool get all cores of the rank, not the one core of the thread that starts them") {
  Cores const all = affinity::allowed_cores();
  if (all.size() < 2) return;
  Cores mask;
  std::thread([&] {
    affinity::BoundThread const bound(all);
    REQUIRE(affinity::bind_thread({all.front()}) == 0);  // the binding of another trainer
    std::atomic<bool> found{false};
    cpu::ThreadPool pool(2);
    while (!found.load())
      pool.parallel_for(64, [&](std::int64_t, int worker) {
        if (worker == 1 && !found.exchange(true)) mask = affinity::detail::mask_of_thread();
      });
  }).join();
  CHECK(mask == all);
}

TEST_CASE("bind_threads cores gives each thread of each rank its own core, and changes no weight") {
  Cores const all = affinity::allowed_cores();
  if (all.size() < 2) return;
  TrainerOptions options = options_of(usual());
  options.threads = 2;
  std::multiset<std::string> free, bound, split;
  std::string const hash = hash_after_steps(options, 1, {}, free);
  options.bind_threads = BindThreads::cores;
  CHECK(hash_after_steps(options, 1, {all[0], all[1]}, bound) == hash);
  CHECK(free.count(std::to_string(all[0])) == 0);
  CHECK(bound.count(std::to_string(all[0])) == 1);
  CHECK(bound.count(std::to_string(all[1])) == 1);
  CHECK(affinity::detail::mask_of_thread() == all);

  options.threads = 1;
  (void)hash_after_steps(options, 2, {all[0], all[all.size() / 2]}, split);
  CHECK(split.count(std::to_string(all[0])) == 1);
  CHECK(split.count(std::to_string(all[all.size() / 2])) == 1);
}

TEST_CASE("bind_threads cores refuses more threads than cores") {
  TrainerOptions options = options_of(usual());
  options.bind_threads = BindThreads::cores;
  options.threads = affinity::core_count() + 1;
  std::string text;
  try {
    Tied trainer(TiedModel{}, comm::Comm(), options);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::config);
    text = error.what();
  }
  CHECK(text.find("needs " + std::to_string(options.threads) + " cores (ranks 1 x threads " +
                  std::to_string(options.threads) + "), but the affinity mask has " +
                  std::to_string(options.threads - 1) + " (" + affinity::text_of(affinity::allowed_cores()) +
                  ")") != std::string::npos);
  CHECK(affinity::detail::mask_of_thread() == affinity::allowed_cores());
  options.bind_threads = static_cast<BindThreads>(9);
  CHECK_THROWS_WITH_AS(Tied(TiedModel{}, comm::Comm(), options),
                       doctest::Contains("bind_threads has the value 9"), Error);
}
