// SPDX-License-Identifier: Apache-2.0
// Tests saving a checkpoint while training steps run. The files must contain the state from before these
// steps, the save must use the planned memory, and a failed save must be reported once.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <thread>

#include <doctest/doctest.h>

#include "support/checkpoints.hpp"
#include "support/file_support.hpp"

namespace {

using namespace support;
using file_support::TemporaryFolder;
namespace fs = std::filesystem;

/// Returns the message of the error that call() throws, or an empty string if it throws no error.
template <class Call>
std::string thrown(Call&& call) {
  try {
    call();
  } catch (Error const& error) {
    return error.what();
  }
  return {};
}

/// Sets all weights of the trainer to 0.5. If `infinite` is not -1, sets parameter number `infinite` of unit
/// 1, the first block, to infinity instead.
void fill(AnyTrainer& trainer, int infinite = -1) {
  trainer.fill([infinite](int unit, int parameter, std::int64_t, std::span<float> out) {
    bool const here = unit == 1 && parameter == infinite;
    std::fill(out.begin(), out.end(), here ? std::numeric_limits<float>::infinity() : 0.5f);
  });
}

}  // namespace

TEST_CASE("what is written while steps run is the state before them to the byte") {
  for (Setting const& setting :
       {Setting{"zs0", "none", "fp32", {1, 6}}, Setting{"zs0", "none", "fp32", {3, 2}},
        Setting{"zs1", "none", "fp32", {2, 3}}, Setting{"zs3", "none", "bf16", {3, 2}},
        Setting{"zs1", "cpu_optimizer", "fp16", {2, 3}}, Setting{"zs2", "cpu_full", "bf16", {2, 3}},
        Setting{"zs3", "nvme", "fp32", {2, 3}}, Setting{"dp", "none", "fp16", {3, 2}},
        Setting{"zs2", "none", "fp64", {2, 3}}})
    check_async_save(setting);
}

TEST_CASE("saves while steps run wait for each other and a rank reads on where the newest ends") {
  TemporaryFolder const folder;
  Checkpoints const series(folder.path(), 2);
  Run const run = run_async({.split = {2, 3}});
  std::array<std::string, 2> hashes;
  for (bool const again : {false, true})
    tessera::run(2, [&](comm::Comm comm) {
      auto const trainer = make_trainer(any_model(tiny), recipe("zs2"), comm, options_of(run));
      AsyncCheckpoint saving;
      std::int64_t const first = again ? resume(*trainer, series.path(*series.newest())).step : 0;
      for (std::int64_t number = first; number < 6; ++number) {
        step(*trainer, run, number, comm.rank());
        if (!again && number < 4) CHECK(series.save(*trainer, saving) == series.path(number + 1));
      }
      saving.wait();
      CHECK(!saving.busy());
      saving.wait();
      std::string const hash = hash_weights(*trainer);
      if (comm.is_root()) hashes[again] = hash;
    });
  CHECK(hashes[0] == hashes[1]);
  CHECK(series.steps() == std::vector<std::int64_t>{3, 4});
  CHECK(file_support::read(folder / "latest") == "step-00000004\n");
  CHECK(folder.entries() == 3);
}

TEST_CASE("what saving takes is planned") {
  auto const plan_with = [](CheckpointMemory memory, std::string_view sharding, Spread split) {
    StepPlan plan;
    tessera::run(split.ranks, [&](comm::Comm comm) {
      Run const run = run_async({.split = split}, memory);
      auto const trainer = make_trainer(any_model(tiny), recipe(sharding), comm, options_of(run));
      if (comm.is_root()) plan = trainer->plan();
    });
    return plan;
  };
  auto const host = static_cast<std::size_t>(Tier::host);
  for (Spread const split : {Spread{1, 6}, Spread{3, 2}})
    for (std::string_view const sharding : {"zs0", "zs3"}) {
      StepPlan const none = plan_with(CheckpointMemory::none, sharding, split),
                     staging = plan_with(CheckpointMemory::staging, sharding, split),
                     snapshot = plan_with(CheckpointMemory::snapshot, sharding, split);
      CHECK(memory_report(none).categories.size() == 6);
      CHECK(staging.arena_bytes[host] - none.arena_bytes[host] == SaveStaging::bytes);
      MemoryReport const report = memory_report(snapshot);
      CHECK(report.categories[6].name == "staging");
      CHECK(report.categories[6].bytes[host] == SaveStaging::bytes);
      CHECK(report.categories[7].name == "snapshot");
      std::int64_t share = 0;  // for each parameter: 4 bytes of fp32 weight and 8 bytes of moments
      for (Flat const of : snapshot.flats())
        share += 12 * round_up((snapshot.flat(of).padded + split.ranks - 1) / split.ranks, shard_alignment);
      CHECK(report.categories[7].bytes[host] == share);
      CHECK(snapshot.arena_bytes[host] == staging.arena_bytes[host] + share);
    }
}

TEST_CASE("a save while steps run that fails says so once on every rank and the run goes on") {
  Run const run = run_async({.split = {2, 3}});
  // Parameter 2 is in the shard of rank 0, and parameter 11 is in the shard of rank 1.
  for (int const parameter : {2, 11}) {
    TemporaryFolder const folder;
    std::array<std::string, 2> there, infinite, next;
    std::array<bool, 2> failed{};
    tessera::run(2, [&](comm::Comm comm) {
      auto const rank = static_cast<std::size_t>(comm.rank());
      auto const trainer = make_trainer(any_model(tiny), recipe("zs3"), comm, options_of(run));
      AsyncCheckpoint saving;
      saving.save(*trainer, folder / "first");
      there[rank] = thrown([&] { saving.save(*trainer, folder / "first"); });
      fill(*trainer, parameter);
      saving.save(*trainer, folder / "infinite");
      fill(*trainer);
      while (rank == (parameter == 2 ? 0 : 1) && !saving.failed()) std::this_thread::yield();
      failed[rank] = saving.failed();
      infinite[rank] = thrown([&] { saving.save(*trainer, folder / "second"); });
      CHECK(!saving.failed());
      next[rank] = thrown([&] {
        saving.save(*trainer, folder / "second");
        saving.wait();
      });
    });
    CHECK(there[0].find("first: exists already") != std::string::npos);
    CHECK(there[0] == there[1]);
    CHECK(failed == std::array<bool, 2>{parameter == 2, parameter == 11});
    CHECK(infinite[0].find("the weights are not finite after step 0: h.0.") == 0);
    CHECK(infinite[0] == infinite[1]);
    CHECK(next == std::array<std::string, 2>{});
    CHECK(folder.entries() == 2);
  }
}

TEST_CASE("a trainer without a planned copy and one that goes while it is saved") {
  TemporaryFolder const folder;
  Run run = run_async({.split = {1, 6}}, CheckpointMemory::staging);
  auto const staged = make_trainer(any_model(tiny), recipe("zs0"), {}, options_of(run));
  AsyncCheckpoint saving;
  CHECK(thrown([&] { saving.save(*staged, folder / "none"); }).find("CheckpointMemory::snapshot") !=
        std::string::npos);
  CHECK(folder.entries() == 0);
  save_checkpoint(*staged, folder / "staged");
  run.options.checkpoints = CheckpointMemory::none;
  auto const plain = make_trainer(any_model(tiny), recipe("zs0"), {}, options_of(run));
  save_checkpoint(*plain, folder / "plain");
  CHECK((files_in(folder / "staged") == files_in(folder / "plain")));
  {
    run.options.checkpoints = CheckpointMemory::snapshot;
    auto const trainer = make_trainer(any_model(tiny), recipe("zs0"), {}, options_of(run));
    AsyncCheckpoint given_up;
    given_up.save(*trainer, folder / "given up");
  }
  if (fs::exists(folder / "given up")) CHECK(files_in(folder / "given up") == files_in(folder / "plain"));
}

TEST_CASE("a rank that dies during a save costs that checkpoint at most") {
  TemporaryFolder const folder;
  Checkpoints series(folder.path());
  Run const run = run_async({.split = {3, 2}});
  std::string const text = thrown([&] {
    tessera::run(3, [&](comm::Comm comm) {
      auto const trainer = make_trainer(any_model(tiny), recipe("zs2"), comm, options_of(run));
      AsyncCheckpoint saving;
      for (int number = 0; number < 3; ++number) {
        step(*trainer, run, number, comm.rank());
        series.save(*trainer, saving);
        if (number == 2 && comm.rank() == 1) throw Error(ErrorKind::failed, "struck by lightning");
      }
      saving.wait();
    });
  });
  CHECK(text.find("struck by lightning") != std::string::npos);
  CHECK(*series.newest() >= 2);
  series.lock();
  verify_checkpoint(read_checkpoint(series.path(*series.newest())));
}
