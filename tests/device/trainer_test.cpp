// SPDX-License-Identifier: Apache-2.0
// Tests whole training runs on a GPU. They are compared with runs on the CPU, and with each other for
// identical bits.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/attention/attention_cudnn.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"

#include "device/runs.hpp"
#include "device/skip.hpp"
#include "support/runs.hpp"

namespace {

using namespace support;
using test::largest_difference;
using test::on_gpu;
using test::trained;

Run some_run(int accumulation = 1) {
  Run run;
  run.steps = 6;
  run.batch = 2;
  run.split = {1, accumulation};
  run.options.clip = 0.5;
  run.options.learning_rate = 1e-2;
  return run;
}

/// Returns the batch that the rank `rank` trains on in step `index`.
Batch batch_of(Run const& run, std::int64_t index, int rank = 0) {
  return make_batch(index, rank, run.split, run.batch, run.sequence, run.vocabulary, run.mask_every);
}

}  // namespace

TEST_CASE("losses and norms are those of the CPU") {
  TESSERA_NEEDS_GPU();
  for (auto const& [precision, tolerance] :
       {std::pair{"fp64", 1e-11}, {"fp32", 2e-5}, {"bf16", 3e-2}, {"fp16", 5e-3}})
    for (int const accumulation : {1, 3}) {
      INFO(precision, " accumulation ", accumulation);
      Run const run = some_run(accumulation);
      Outcome const gpu = trained(on_gpu(precision), run);
      Outcome const cpu = trained(recipe("zs0", precision), run);
      CHECK(gpu.losses.size() == 6);
      CHECK(gpu.losses.back() != gpu.losses.front());
      CHECK(largest_difference(gpu.losses, cpu.losses) < tolerance);
      CHECK(largest_difference(gpu.norms, cpu.norms) < 10 * tolerance);
      CHECK(std::fabs(gpu.evaluation - cpu.evaluation) < 10 * tolerance);
      CHECK(gpu.scales == cpu.scales);
    }
}

TEST_CASE("a GPU starts from the CPU's weights, wherever they lie") {
  TESSERA_NEEDS_GPU();
  Run run = some_run();
  run.steps = 0;
  for (std::string_view const precision : {"fp64", "fp32", "bf16", "fp16"})
    for (std::string_view const offload : {"none", "cpu_optimizer", "cpu_full", "nvme"}) {
      INFO(std::string(precision), " ", std::string(offload));
      std::string const weights = trained(recipe("zs0", precision), run).weights;
      CHECK(trained(on_gpu(precision, "graph", offload), run).weights == weights);
    }
}

TEST_CASE("a graph has the bits of eager steps and runs repeat") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const precision : {"fp32", "bf16", "fp16"})
    for (int const accumulation : {1, 4}) {
      INFO(std::string(precision), " accumulation ", accumulation);
      Outcome const graph = trained(on_gpu(precision), some_run(accumulation));
      CHECK(graph == trained(on_gpu(precision), some_run(accumulation)));
      CHECK(graph == trained(on_gpu(precision, "eager"), some_run(accumulation)));
    }
}

/// Checks that training on `ranks` GPUs gives the results of training on one GPU with the same global batch.
void compare_splits(int ranks) {
  for (std::string_view const precision : {"fp32", "bf16", "fp16"}) {
    Run run = some_run(4);
    Outcome const alone = trained(on_gpu(precision), run);
    run.split = {ranks, 4 / ranks};
    for (std::string_view const sharding : shardings)
      for (std::string_view const capture : {"graph", "eager"})
        for (std::string_view const offload : {"none", "cpu_optimizer", "nvme", "nvme_optimizer"}) {
          INFO(std::string(precision), " ", std::string(sharding), " ", std::string(capture), " ",
               std::string(offload), " ranks ", ranks);
          CHECK(alone == trained(on_gpu(precision, capture, offload, "none", sharding), run));
        }
  }
}

TEST_CASE("two GPUs and every stage have the bits of one") {
  TESSERA_NEEDS_GPUS(2);
  compare_splits(2);
}
TEST_CASE("four GPUs and every stage have the bits of one") {
  TESSERA_NEEDS_GPUS(4);
  compare_splits(4);
}

TEST_CASE("two GPUs that are connected by NVLink exchange by copies") {
  TESSERA_NEEDS_GPUS(2);
  Run run = some_run(1);
  run.split = {2, 1};
  for (char const* const sharding : {"zs0", "zs1", "zs2", "zs3"}) {
    CAPTURE(sharding);
    RecipeTable const table = on_gpu("bf16", "graph", "none", "none", sharding);
    std::array<std::int64_t, 2> copied{};
    run_ranks(table, 2, [&](comm::Comm& comm) {
      auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
      trainer->step(batch_of(run, 0, comm.rank())).get();
      copied[static_cast<std::size_t>(comm.rank())] = comm.transport().copied_calls();
    });
    CHECK(copied[0] > 0);
    CHECK(copied[1] > 0);
  }
}
TEST_CASE("buckets of two GPUs have the bits of one") {
  TESSERA_NEEDS_GPUS(2);
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run run = some_run(4);
    Outcome const alone = trained(on_gpu(precision), run);
    run.split = {2, 2};
    for (std::string_view const sharding : shardings)
      for (std::string_view const capture : {"graph", "eager"})
        for (std::int64_t const bucket : {std::int64_t{100} << 10, std::int64_t{1} << 40}) {
          INFO(std::string(precision), " ", std::string(sharding), " ", std::string(capture), " ", bucket);
          run.options.bucket_bytes = bucket;
          CHECK(alone == trained(on_gpu(precision, capture, "none", "none", sharding), run));
        }
  }
}

TEST_CASE("two channels of two GPUs have the bits of one") {
  TESSERA_NEEDS_GPUS(2);
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run run = some_run(4);
    Outcome const alone = trained(on_gpu(precision), run);
    run.split = {2, 2};
    run.options.channels = 2;
    for (std::string_view const sharding : {"zs2", "zs3"})
      for (std::string_view const capture : {"graph", "eager"})
        for (int const prefetch : {0, 1, 2}) {
          INFO(std::string(precision), " ", std::string(sharding), " ", std::string(capture), " ", prefetch);
          run.options.prefetch = prefetch;
          CHECK(alone == trained(on_gpu(precision, capture, "none", "none", sharding), run));
        }
  }
}

TEST_CASE("gradients of weights at the same time as those of inputs have the bits of sequential ones") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const precision : {"fp32", "bf16", "fp16", "bf16x6"})
    for (std::string_view const capture : {"graph", "eager"})
      for (std::string_view const recompute : {"none", "gelu", "block"}) {
        Run run = some_run(2);
        Outcome const sequential = trained(on_gpu(precision, capture, "none", recompute), run);
        for (run.options.weight_lag = 1; run.options.weight_lag < 4; ++run.options.weight_lag) {
          INFO(std::string(precision), " ", std::string(capture), " ", std::string(recompute), " ",
               run.options.weight_lag);
          CHECK(sequential == trained(on_gpu(precision, capture, "none", recompute), run));
        }
      }
}

TEST_CASE("gradients of weights at the same time as those of inputs on two GPUs have the bits of one") {
  TESSERA_NEEDS_GPUS(2);
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run run = some_run(4);
    Outcome const alone = trained(on_gpu(precision), run);
    run.split = {2, 2};
    run.options.weight_lag = 1;
    for (std::string_view const sharding : shardings)
      for (std::string_view const offload : {"none", "cpu_optimizer"}) {
        INFO(std::string(precision), " ", std::string(sharding), " ", std::string(offload));
        CHECK(alone == trained(on_gpu(precision, "graph", offload, "none", sharding), run));
      }
  }
}

TEST_CASE("four GPUs as two rows of two have the bits of one") {
  TESSERA_NEEDS_GPUS(4);
  for (std::string_view const precision : {"fp32", "bf16"}) {
    Run run = some_run(4);
    Outcome const alone = trained(on_gpu(precision), run);
    run.split = {4, 1};
    run.options.replicas = 2;
    for (std::string_view const sharding : {"zs0", "zs1", "zs2", "zs3"})
      for (std::string_view const capture : {"graph", "eager"}) {
        INFO(std::string(precision), " ", std::string(sharding), " ", std::string(capture));
        CHECK(alone == trained(on_gpu(precision, capture, "none", "none", sharding), run));
      }
  }
}

TEST_CASE("fast sums over rows and columns of four GPUs stay close to the CPU's") {
  TESSERA_NEEDS_GPUS(4);
  Run run = some_run(1);
  run.split = {4, 1};
  run.options.replicas = 2;
  for (std::string_view const sharding : {"zs1", "zs2", "zs3"}) {
    INFO(std::string(sharding));
    SlotNames names = on_gpu("fp32", "graph", "none", "none", sharding).names;
    names.reduction = "fast";
    Outcome const gpu = trained(parse_recipe(names), run);
    Outcome const cpu = trained(recipe(sharding, "fp32"), run);
    CHECK(largest_difference(gpu.losses, cpu.losses) < 2e-5);
    CHECK(largest_difference(gpu.norms, cpu.norms) < 2e-4);
  }
}

TEST_CASE("fast sums over GPUs stay close to the CPU's") {
  TESSERA_NEEDS_GPUS(2);
  Run run = some_run(1);
  run.split = {2, 1};
  for (std::string_view const sharding : shardings) {
    INFO(std::string(sharding));
    SlotNames names = on_gpu("fp32", "graph", "none", "none", sharding).names;
    names.reduction = "fast";
    Outcome const gpu = trained(parse_recipe(names), run);
    Outcome const cpu = trained(recipe(sharding, "fp32"), run);
    CHECK(largest_difference(gpu.losses, cpu.losses) < 2e-5);
    CHECK(largest_difference(gpu.norms, cpu.norms) < 2e-4);
  }
}

TEST_CASE("offload and recomputation change no bit") {
  TESSERA_NEEDS_GPU();
  for (std::string_view const precision : {"fp32", "bf16", "fp16"}) {
    INFO(std::string(precision));
    Outcome const plain = trained(on_gpu(precision), some_run(2));
    for (std::string_view const capture : {"graph", "eager"})
      for (std::string_view const offload : offloads) {
        INFO(std::string(capture), " ", std::string(offload));
        CHECK(plain == trained(on_gpu(precision, capture, offload), some_run(2)));
      }
    for (std::string_view const recompute : {"gelu", "block", "every"})
      CHECK(plain == trained(on_gpu(precision, "graph", "none", recompute), some_run(2)));
  }
}

TEST_CASE("an overflow on the GPU is skipped and named") {
  TESSERA_NEEDS_GPU();
  Run run = some_run();
  run.options.loss_scale.initial = 0x1p24;
  Outcome const gpu = trained(on_gpu("fp16"), run);
  CHECK(gpu.skipped.front());
  CHECK(gpu.overflows.front() != "");
  CHECK(gpu.scales[1] == gpu.scales[0] / 2);
}

TEST_CASE("padding on the GPU counts as on the CPU, and a batch of nothing else is skipped") {
  TESSERA_NEEDS_GPU();
  for (auto const& [precision, tolerance] : {std::pair{"fp32", 2e-5}, {"fp16", 5e-3}}) {
    INFO(precision);
    Run const run = some_run(2);
    auto const losses = [&, name = precision](bool gpu) {
      std::vector<double> found;
      RecipeTable const table = gpu ? on_gpu(name) : recipe("zs0", name);
      run_ranks(table, 1, [&](comm::Comm& comm) {
        auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
        for (std::int64_t step = 0; step < 6; ++step) {
          Batch batch = batch_of(run, step);
          for (std::size_t row = 0; row < 4; ++row)  // sample 2 has no target in any step
            for (std::size_t t = row == 2 || step == 3 ? 0 : 2 + 3 * row; t < 13; ++t) {
              batch.tokens[row * 13 + t] = 0;
              batch.targets[row * 13 + t] = -1;
            }
          std::string const before = step == 3 ? hash_weights(*trainer) : "";
          StepReport const report = trainer->step(batch);
          CHECK(report.valid_tokens == batch.valid_tokens());
          CHECK(report.skipped == (step == 3));
          if (step == 3) CHECK(hash_weights(*trainer) == before);
          found.push_back(report.loss);
        }
      });
      return found;
    };
    CHECK(largest_difference(losses(true), losses(false)) < tolerance);
  }
}

TEST_CASE("tickets are read late and in any order") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run();
  std::vector<double> losses;
  comm::Comm const comm;
  auto const trainer = make_trainer(any_model(tiny), on_gpu("fp32"), comm, options_of(run));
  std::vector<Ticket> tickets;
  for (int step = 0; step < 12; ++step) tickets.push_back(trainer->step(batch_of(run, step)));
  for (int step = 11; step >= 0; --step)
    CHECK(tickets[static_cast<std::size_t>(step)].get().step == step + 1);
  Outcome const at_once = trained(on_gpu("fp32"), run);
  for (std::size_t step = 0; step < at_once.losses.size(); ++step)
    CHECK(tickets[step].get().loss == at_once.losses[step]);
}

TEST_CASE("offloaded steps run ahead of the host to the bits of steps read at once") {
  TESSERA_NEEDS_GPU();
  Run run = some_run(2);
  run.steps = 60;
  Outcome const plain = trained(on_gpu("bf16"), run);
  for (std::string_view const capture : {"graph", "eager"})
    for (std::string_view const offload : {"cpu_optimizer", "cpu_full", "nvme", "nvme_optimizer"}) {
      INFO(std::string(capture), " ", std::string(offload));
      auto const trainer =
          make_trainer(any_model(tiny), on_gpu("bf16", capture, offload), comm::Comm(), options_of(run));
      std::vector<Ticket> tickets;
      for (int step = 0; step < run.steps; ++step) tickets.push_back(trainer->step(batch_of(run, step)));
      bool same = true;
      for (std::size_t step = tickets.size(); step-- > 0;)
        same &= tickets[step].get().loss == plain.losses[step];
      CHECK(same);
      CHECK(hash_weights(*trainer) == plain.weights);
    }
}

TEST_CASE("a GPU's steps read and write the planned bytes of the file and no others") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run(2);
  for (std::string_view const capture : {"graph", "eager"})
    for (std::string_view const offload : offloads) {
      INFO(std::string(capture), " ", std::string(offload));
      auto const trainer =
          make_trainer(any_model(tiny), on_gpu("bf16", capture, offload), comm::Comm(), options_of(run));
      FileTraffic const before = trainer->file_use().bytes, planned = trainer->plan().file_traffic();
      for (int step = 0; step < 3; ++step) trainer->step(batch_of(run, step)).get();
      trainer->synchronize();
      FileTraffic const after = trainer->file_use().bytes;
      CHECK(after == FileTraffic{before.read + 3 * planned.read, before.written + 3 * planned.written});
      CHECK(trainer->peak_bytes(Tier::nvme) == trainer->plan().file_bytes());
    }
}

TEST_CASE("a file that fails under a GPU's steps ends the run in words") {
  TESSERA_NEEDS_GPU();
  Run run = some_run();
  std::filesystem::path const folder =
      std::filesystem::temp_directory_path() / ("tessera-device-" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  run.options.nvme_directory = folder.string();
  for (std::string_view const capture : {"graph", "eager"}) {
    INFO(std::string(capture));
    auto const trainer =
        make_trainer(any_model(tiny), on_gpu("fp32", capture, "nvme"), comm::Comm(), options_of(run));
    trainer->step(batch_of(run, 0)).get();
    for (auto const& entry : std::filesystem::directory_iterator(folder))
      std::filesystem::resize_file(entry.path(), 4096);
    CHECK_THROWS_WITH_AS(trainer->step(batch_of(run, 1)).get(), doctest::Contains("the state in it is lost"),
                         Error);
    CHECK_THROWS_AS(trainer->step(batch_of(run, 2)).get(), Error);
  }
  CHECK(std::filesystem::is_empty(folder));
  std::filesystem::remove(folder);
}

TEST_CASE("intervals lie between the ends of steps however late reports are read") {
  TESSERA_NEEDS_GPU();
  using Clock = std::chrono::steady_clock;
  Run const run = some_run(2);
  for (std::string_view const capture : {"graph", "eager"}) {
    INFO(std::string(capture));
    auto const trainer =
        make_trainer(any_model(tiny), on_gpu("fp32", capture), comm::Comm(), options_of(run));
    StepReport const first = trainer->step(batch_of(run, 0));
    CHECK(first.interval == first.seconds);
    CHECK_FALSE(first.comm_seconds.has_value());  // not measured: the host only enqueues collectives
    auto const began = Clock::now();
    std::vector<Ticket> tickets;
    for (int step = 1; step < 12; ++step) tickets.push_back(trainer->step(batch_of(run, step)));
    double sum = 0.0;
    // Reads the reports from the last step to the first, while the last steps still run.
    for (std::size_t at = tickets.size(); at-- > 0;) {
      StepReport const& report = tickets[at].get();
      CHECK(report.interval >= report.seconds * 0.999);
      sum += report.interval;
    }
    double const host = std::chrono::duration<double>(Clock::now() - began).count();
    CHECK(sum < host + 1e-3);
    CHECK(sum > 0.5 * host);
  }
}

TEST_CASE("a trainer may go while its steps are under way") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run(2);
  for (std::string_view const capture : {"graph", "eager"})
    for (int repeat = 0; repeat < 20; ++repeat) {
      comm::Comm const comm;
      std::optional<Ticket> unread;
      {
        auto const trainer =
            make_trainer(any_model(tiny), on_gpu("fp32", capture, "cpu_optimizer"), comm, options_of(run));
        for (int step = 0; step < 3; ++step) unread.emplace(trainer->step(batch_of(run, step)));
      }
      CHECK_THROWS_WITH_AS(unread->get(), doctest::Contains("after its trainer was destroyed"), Error);
    }
}

TEST_CASE("a rank that goes alone is named by the one that evaluates") {
  TESSERA_NEEDS_GPUS(2);
  Run run = some_run(1);
  run.split = {2, 1};
  RunOptions options;
  options.timeout = std::chrono::seconds(5);
  RecipeTable const table = on_gpu("fp32", "graph", "none", "none", "zs3");
  auto const start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(run_ranks(
                      table, 2,
                      [&](comm::Comm& comm) {
                        auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
                        trainer->step(batch_of(run, 0, comm.rank())).get();
                        if (comm.is_root()) trainer->evaluate(batch_of(run, 1, 0));
                      },
                      options),
                  PeerLost);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
}

TEST_CASE("steps that were enqueued behind a gradient that is not finite change no weight") {
  TESSERA_NEEDS_GPU();
  Run run = some_run(1);
  run.options.weight_decay = 0.1;
  for (std::string_view const capture : {"graph", "eager"}) {
    auto const trainer =
        make_trainer(any_model(tiny), on_gpu("fp32", capture), comm::Comm(), options_of(run));
    auto const& units = trainer->plan().units;
    trainer->fill([&](int unit, int parameter, std::int64_t offset, std::span<float> out) {
      bool const huge =
          units[static_cast<std::size_t>(unit)].parameters[static_cast<std::size_t>(parameter)].name ==
          "ln_f.weight";  // makes the squares of the output head's gradient overflow
      for (std::size_t i = 0; i < out.size(); ++i)
        out[i] = huge ? 1e22f : 0.01f * static_cast<float>((offset + static_cast<std::int64_t>(i)) % 7 - 3);
    });
    std::string const before = hash_weights(*trainer);
    Batch harmless = batch_of(run, 1);
    std::fill(harmless.targets.begin(), harmless.targets.end(), -1);
    Ticket const bad = trainer->step(batch_of(run, 0));
    Ticket const next = trainer->step(harmless), last = trainer->step(harmless);
    for (Ticket const* ticket : {&last, &next, &bad})
      CHECK_THROWS_WITH_AS(ticket->get(), doctest::Contains("the gradient is not finite in step 1,"), Error);
    CHECK(hash_weights(*trainer) == before);
    trainer->fill(
        [](int, int, std::int64_t, std::span<float> out) { std::fill(out.begin(), out.end(), 0.5f); });
  }
}

struct Noted final : Recorder {
  void operation(Operation const& what) override { names.emplace_back(what.name); }
  void violation(char const* what) override { violations.emplace_back(what); }
  std::vector<std::string> names, violations;
};

TEST_CASE("a recorded step is the CPU's and holds no violation") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run(2);
  for (std::string_view const offload : {"none", "cpu_optimizer", "nvme"}) {
    Noted gpu, cpu;
    make_trainer(any_model(tiny), on_gpu("bf16", "graph", offload), comm::Comm(), options_of(run))
        ->record(gpu);
    make_trainer(any_model(tiny), recipe("zs0", "bf16", offload), comm::Comm(), options_of(run))->record(cpu);
    CHECK(gpu.violations.empty());
    CHECK(gpu.names.size() > 50);
    CHECK(gpu.names == cpu.names);
  }
}

TEST_CASE("a refused allocation does no harm to the next trainer") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run();
  TrainerOptions huge = options_of(run);
  huge.batch = 1 << 20;
  huge.sequence = tiny.positions;
  huge.memory_limit = std::int64_t{1} << 50;
  CHECK_THROWS_AS(make_trainer(any_model(tiny), on_gpu("fp32"), comm::Comm(), huge), Error);
  auto const trainer = make_trainer(any_model(tiny), on_gpu("fp32"), comm::Comm(), options_of(run));
  CHECK(trainer->step(batch_of(run, 0)).get().step == 1);
}

TEST_CASE("the arenas hold what was planned and a plan that is too big is refused") {
  TESSERA_NEEDS_GPU();
  Run const run = some_run();
  RecipeTable const table = on_gpu("bf16", "graph", "cpu_optimizer");
  auto const trainer = make_trainer(any_model(tiny), table, comm::Comm(), options_of(run));
  StepShape const shape = step_shape(table, options_of(run), 0, 1);  // no GPU is needed to plan a step
  CHECK(make_plan(any_model(tiny).units({shape.batch, shape.sequence}), table, shape).arena_bytes ==
        trainer->plan().arena_bytes);
  for (Tier const tier : {Tier::device, Tier::host})
    CHECK(trainer->peak_bytes(tier) == trainer->plan().arena_bytes[static_cast<std::size_t>(tier)]);
  TrainerOptions huge = options_of(run);
  huge.batch = 1 << 20;
  huge.sequence = tiny.positions;
  CHECK_THROWS_AS(make_trainer(any_model(tiny), on_gpu("fp32"), comm::Comm(), huge), Error);
}

TEST_CASE("on a GPU too, leaving gradients of frozen parameters out is computing and throwing them away") {
  TESSERA_NEEDS_GPU();
  using Weights = std::map<std::string, std::vector<float>>;
  auto const after_a_step = [](RecipeTable const& table, Run const& run) {
    Weights weights;
    run_ranks(table, 1, [&](comm::Comm& comm) {
      auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
      trainer->step(batch_of(run, 0)).get();
      trainer->collect([&](ParameterSpec const& parameter, std::span<float const> values) {
        weights[parameter.name].assign(values.begin(), values.end());
      });
    });
    return weights;
  };
  for (std::string_view const precision : {"fp64", "fp32", "bf16", "fp16"})
    for (std::string_view const part : {"wte", "wpe", "h.0.", "ln_", ".weight", ".bias", "c_fc.weight"}) {
      INFO(std::string(precision), ", ", std::string(part));
      Run run = some_run(2);
      // The norm covers only trained parameters, so clipping would differ between the two runs.
      run.options.clip = 0.0;
      Weights const want = after_a_step(on_gpu(precision), run);
      auto const frozen = [part](std::string_view name) { return name.find(part) != name.npos; };
      run.options.freeze = frozen;
      Weights const got = after_a_step(on_gpu(precision), run);
      for (auto const& [name, values] : want)
        if (!frozen(name)) CHECK_MESSAGE(got.at(name) == values, name);
      CHECK(trained(on_gpu(precision), run) == trained(on_gpu(precision, "eager"), run));
    }
}

TEST_CASE("measured plans of products change no bit, on one GPU and on two, in a graph and in eager steps") {
  TESSERA_NEEDS_GPU();
  std::filesystem::path const folder =
      std::filesystem::temp_directory_path() / ("tessera-run-plans-" + std::to_string(::getpid()));
  for (int const ranks : {1, 2})
    for (std::string_view const capture : {"eager", "graph"}) {
      if (ranks > test::gpu_count()) continue;
      INFO(ranks, " ranks, ", std::string(capture));
      std::filesystem::remove_all(folder);
      Run run = some_run(2);
      run.split.ranks = ranks;
      RecipeTable const table = on_gpu("bf16", capture, "none", "none", ranks > 1 ? "zs3" : "zs0");
      Outcome const want = trained(table, run);
      for (int time = 0; time < 2; ++time) {
        auto const plans = measure_products(Device::cuda, folder.string());
        CHECK(trained(table, run) == want);
        CHECK(plans->take_used() > 5);
        CHECK(plans->failure() == "");
      }
      CHECK(trained(table, run) == want);
    }
  std::filesystem::remove_all(folder);
}

TEST_CASE("trainings with cuDNN's attention stay near those with ours, in a graph and in eager steps") {
  TESSERA_NEEDS_GPU();
  if (!cuda::has_cudnn_attention()) {
    MESSAGE("skipped: this build has no cuDNN (-DTESSERA_CUDNN=ON)");
    return;
  }
  Gpt2Options const model{.layers = 2, .heads = 3, .channels = 48, .positions = 40, .vocabulary = 61};
  for (auto const& [precision, tolerance] : {std::pair{"bf16", 3e-2}, {"fp16", 5e-3}})
    for (std::string_view const capture : {"graph", "eager"})
      for (std::string_view const recompute : {"none", "block"}) {
        INFO(precision, " ", std::string(capture), " ", std::string(recompute));
        Run const run = some_run(2);
        SlotNames names = on_gpu(precision, capture, "none", recompute).names;
        names.reduction = "fast";
        names.attention = "cudnn";
        RecipeTable const table = parse_recipe(names);
        Outcome const got = trained(table, run, model),
                      want = trained(on_gpu(precision, capture, "none", recompute), run, model);
        CHECK(got.losses.back() != got.losses.front());
        CHECK(got.weights != want.weights);
        CHECK(largest_difference(got.losses, want.losses) < tolerance);
        CHECK(largest_difference(got.norms, want.norms) < 10 * tolerance);
        CHECK(std::fabs(got.evaluation - want.evaluation) < 10 * tolerance);
        run_ranks(table, 1, [&](comm::Comm& comm) {
          auto const trainer = make_trainer(any_model(model), table, comm, options_of(run));
          trainer->step(batch_of(run, 0)).get();
          CHECK(trainer->attention_ran() == AttentionKind::cudnn);
          CHECK(trainer->peak_bytes(Tier::device) ==
                trainer->plan().arena_bytes[static_cast<std::size_t>(Tier::device)]);
        });
      }
}
