// SPDX-License-Identifier: Apache-2.0
// Tests training with state in a file on a disk. A step must read and write exactly the planned bytes.
// Weights can be set again after training has begun. If the disk fails, training must end on every rank.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "support/file_support.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;
using file_support::TemporaryFolder;

constexpr std::array nvme_offloads{"nvme_optimizer", "nvme", "infinity", "nvme_parameters"};

Batch batch_of(Run const& run, int step, int rank) {
  return make_batch(step, rank, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every);
}

}  // namespace

TEST_CASE("a step reads and writes the planned bytes of its file and no others") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const precision : {"fp32", "bf16"})
      for (std::string_view const offload : nvme_offloads) {
        INFO(std::string(sharding), " ", std::string(precision), " ", std::string(offload));
        TemporaryFolder const folder;
        Run run;
        run.split = {3, 2};
        run.options.nvme_directory = folder.path().string();
        tessera::run(3, [&](comm::Comm comm) {
          auto const trainer =
              make_trainer(any_model(tiny), recipe(sharding, precision, offload), comm, options_of(run));
          StepPlan const& plan = trainer->plan();
          bool const has_file = plan.file_bytes() > 0;
          CHECK((has_file || (sharding == "dp" && offload == std::string_view("nvme_optimizer")) ||
                 (sharding == "dp" && offload == std::string_view("infinity"))));
          FileTraffic before = trainer->file_use().bytes;
          for (int step = 0; step < 2; ++step) {
            (void)trainer->step(batch_of(run, step, comm.rank())).get();
            FileTraffic const now = trainer->file_use().bytes;
            CHECK(FileTraffic{now.read - before.read, now.written - before.written} == plan.file_traffic());
            before = now;
          }
          CHECK(trainer->peak_bytes(Tier::nvme) == plan.file_bytes());
          CHECK(trainer->peak_bytes(Tier::host) == plan.arena_bytes[1]);
          CHECK(trainer->file_use().engine.empty() == !has_file);
          comm.transport().barrier({"test"});
          if (comm.is_root())
            CHECK(folder.entries() ==
                  (sharding == "dp" && plan.placement().parameters.tier != Tier::nvme ? 1 : 3));
          comm.transport().barrier({"test"});
        });
        CHECK(folder.entries() == 0);
      }
}

TEST_CASE("what killed runs have left in the folder is gone before its room is counted") {
  TemporaryFolder const folder;
  file_support::write(folder / "tessera-scratch-999999999-0-0.bin", "left");
  Run run;
  run.options.nvme_directory = folder.path().string();
  // This is less than the size of the state file, so the file must not be created.
  run.options.memory_limit = 1;
  CHECK_ERROR(out_of_memory,
              make_trainer(any_model(tiny), recipe("zs0", "fp32", "nvme"), comm::Comm(), options_of(run)),
              "1 B are available");
  CHECK(folder.entries() == 0);
}

TEST_CASE("weights and moments in a file start anew with fill") {
  for (std::string_view const offload : nvme_offloads)
    for (std::string_view const precision : {"fp32", "bf16"}) {
      INFO(std::string(offload), " ", std::string(precision));
      Run run;
      run.split = {2, 1};
      tessera::run(2, [&](comm::Comm comm) {
        auto const trainer =
            make_trainer(any_model(tiny), recipe("zs2", precision, offload), comm, options_of(run));
        auto const fill = [&] {
          trainer->fill([](int unit, int parameter, std::int64_t offset, std::span<float> out) {
            for (std::size_t i = 0; i < out.size(); ++i)
              out[i] =
                  0.01f * static_cast<float>(
                              (7 * unit + 3 * parameter + offset + static_cast<std::int64_t>(i)) % 11 - 5);
          });
        };
        auto const trained = [&] {
          fill();
          for (int step = 0; step < 3; ++step) (void)trainer->step(batch_of(run, step, comm.rank())).get();
          return hash_weights(*trainer);
        };
        std::string const first = trained();
        CHECK(trained() == first);
        fill();
        std::string const filled = hash_weights(*trainer);
        CHECK((comm.is_root() ? filled != first : filled == first));
      });
    }
}

TEST_CASE("everything that changes no bit changes none with state in files") {
  for (std::string_view const precision : {"fp32", "fp16"}) {
    Run alone;
    alone.split = {1, 4};
    alone.options.clip = 0.5;
    alone.options.loss_scale.initial = 0x1p22;  // so large that fp16 skips the first steps
    auto const outcome = [&](RecipeTable const& table, Run const& run) {
      return train(run, [&](comm::Comm const& comm, TrainerOptions const& options) {
        return make_trainer(any_model(tiny), table, comm, options);
      });
    };
    Outcome const want = outcome(recipe("zs0", precision), alone);
    CHECK(want.skipped.front() == (precision == "fp16"));
    int number = 0;
    for (std::string_view const offload : nvme_offloads)
      for (std::string_view const recompute : recomputes)
        for (int const prefetch : {0, 1, 3}) {
          Run run = alone;
          run.split = number % 2 == 0 ? Spread{4, 1} : Spread{2, 2};
          run.options.prefetch = prefetch;
          run.options.recompute_every = 2;
          run.options.bucket_bytes = number % 3 == 0 ? 20000 : 0;
          run.options.channels = 1 + number % 2;
          run.options.replicas = number % 4 == 0 ? 2 : 1;
          run.options.threads = 1 + number % 2;
          std::string_view const sharding = shardings[static_cast<std::size_t>(number) % shardings.size()];
          ++number;
          INFO(std::string(precision), " ", std::string(sharding), " ", std::string(offload), " ",
               std::string(recompute), " prefetch ", prefetch, " ranks ", run.split.ranks);
          CHECK(outcome(recipe(sharding, precision, offload, recompute), run) == want);
        }
    // Also tests frozen parameters that are kept in a file. They are read but never written.
    Run frozen = alone;
    frozen.options.freeze = [](std::string_view name) {
      return name.starts_with("h.0.") || name == "wpe.weight";
    };
    Outcome const frozen_want = outcome(recipe("zs0", precision), frozen);
    frozen.split = {2, 2};
    for (std::string_view const offload : nvme_offloads)
      CHECK(outcome(recipe("zs3", precision, offload), frozen) == frozen_want);
  }
}

TEST_CASE("a file that fails within a step ends the run on every rank and is removed") {
  for (std::string_view const offload : nvme_offloads) {
    INFO(std::string(offload));
    TemporaryFolder const folder;
    Run run;
    run.split = {3, 1};
    run.options.nvme_directory = folder.path().string();
    std::array<std::string, 3> messages;
    std::string thrown;
    try {
      tessera::run(3, [&](comm::Comm comm) {
        auto const trainer =
            make_trainer(any_model(tiny), recipe("zs3", "bf16", offload), comm, options_of(run));
        (void)trainer->step(batch_of(run, 0, comm.rank())).get();
        comm.transport().barrier({"test"});
        if (comm.rank() == 1)
          for (auto const& entry : std::filesystem::directory_iterator(folder.path()))
            if (entry.path().filename().string().find("-1-") != std::string::npos)
              std::filesystem::resize_file(entry.path(), 4096);
        comm.transport().barrier({"test"});
        try {
          for (int step = 1; step < 3; ++step) (void)trainer->step(batch_of(run, step, comm.rank())).get();
        } catch (PeerLost const& error) {
          CHECK(comm.rank() != 1);
          CHECK(error.rank() == 1);
          throw;
        } catch (Error const& error) {
          CHECK(comm.rank() == 1);
          messages[1] = error.what();
          CHECK_THROWS_AS(trainer->step(batch_of(run, 3, comm.rank())).get(), Error);
          throw;
        }
      });
    } catch (Error const& error) {
      CHECK(error.kind() == ErrorKind::failed);
      thrown = error.what();
    }
    CHECK(messages[1].find("tessera-scratch-") != std::string::npos);
    CHECK(messages[1].find("the state in it is lost") != std::string::npos);
    CHECK(thrown.find(messages[1]) != std::string::npos);
    CHECK(folder.entries() == 0);
  }
}
