// SPDX-License-Identifier: Apache-2.0
// Tests every recipe (combination of policies) that the library registers, with trainers of the type
// AnyTrainer. The bytes in use must equal the planned bytes. Unsupported options must be refused before
// memory is allocated. Divergence must end a training run with an error.
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/runtime/budget.hpp"
#include "tessera/train/any_trainer.hpp"
#include "tessera/train/gpt2_family.hpp"
#include "tessera/train/planning.hpp"

#include "support/runs.hpp"

namespace {

using namespace support;

template <class F>
std::string refusal(ErrorKind kind, F const& call) {
  try {
    call();
  } catch (Error const& error) {
    CHECK(error.kind() == kind);
    return error.what();
  }
  return "no error";
}

bool says(std::string const& text, std::string const& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a plan for a GPU counts the room for pieces of products, and other formats take none") {
  TrainerOptions options;
  options.batch = 2;
  options.sequence = 16;
  auto const plan_of = [&](std::string_view precision) {
    RecipeTable const table = parse_recipe({.device = "cuda", .precision = precision});
    StepShape const shape = step_shape(table, options, 0, 1);
    return make_plan(any_model(tiny).units({shape.batch, shape.sequence}), table, shape);
  };
  auto const device_bytes = [&](std::string_view precision) {
    return plan_of(precision).arena_bytes[static_cast<std::size_t>(Tier::device)];
  };
  std::int64_t const plain = device_bytes("fp32");
  CHECK(device_bytes("tf32") == plain);
  CHECK(device_bytes("bf16x6") == plain + static_cast<std::int64_t>(cuda::piece_bytes));
  CHECK(device_bytes("bf16x3") == device_bytes("bf16x6"));
  // The two precisions must have different hashes. Ranks compare these hashes at the start, so that ranks
  // with different precisions do not train together.
  CHECK(detail::hash_of_numbers(options, plan_of("bf16x3")) !=
        detail::hash_of_numbers(options, plan_of("bf16x6")));
}

TEST_CASE("every registered recipe uses exactly the bytes it planned") {
  std::set<std::string> names;
  for (RecipeTable const& table : registered_recipes()) {
    INFO(to_string(table));
    CHECK(names.insert(to_string(table)).second);
    CHECK(parse_recipe(table.names) == table);
    Run run;
    run.split = {3, 2};
    run.steps = 1;
    tessera::run(3, [&](comm::Comm comm) {
      TrainerOptions const options = options_of(run);
      auto const trainer = make_trainer(any_model(tiny), table, comm, options);
      (void)trainer->step(make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary))
          .get();
      StepShape const shape = step_shape(table, options, comm.rank(), comm.world());
      StepPlan const plan = make_plan(any_model(tiny).units({shape.batch, shape.sequence}), table, shape);
      for (Tier const tier : {Tier::device, Tier::host, Tier::nvme}) {
        CHECK(trainer->peak_bytes(tier) == plan.arena_bytes[static_cast<std::size_t>(tier)]);
        CHECK(trainer->plan().arena_bytes[static_cast<std::size_t>(tier)] == trainer->peak_bytes(tier));
      }
    });
  }
  CHECK(names.size() >= 8);  // the library registers 30 recipes; a build with a sanitizer registers fewer
}

TEST_CASE("the recipe's attention reaches the operations, and a trainer says what ran") {
  for (auto const& [requested, ran] : {std::pair("auto", AttentionKind::fused),
                                       {"fused", AttentionKind::fused},
                                       {"reference", AttentionKind::reference}}) {
    SlotNames names = registered_recipes().front().names;
    names.attention = requested;
    INFO(names.attention);
    Run run;
    run.split = {1, 1};
    auto const trainer = make_trainer(any_model(tiny), parse_recipe(names), comm::Comm(), options_of(run));
    CHECK(trainer->attention_ran() == AttentionKind::automatic);
    (void)trainer->step(make_batch(0, 0, run.split, run.batch, run.sequence, run.vocabulary)).get();
    CHECK(trainer->attention_ran() == ran);
  }
}

TEST_CASE("a recipe that breaks a rule or is not in this build is refused in words") {
  TrainerOptions options;
  options.batch = 1;
  options.sequence = 8;
  auto const made = [&](RecipeTable const& table) {
    return make_trainer(any_model(tiny), table, comm::Comm(), options);
  };
  CHECK(says(
      refusal(ErrorKind::config, [&] { made(recipe("zs0", "fp16", "none", "none", "ordered", "none")); }),
      "Precision<half> without a loss scale"));
  CHECK(says(refusal(ErrorKind::unsupported, [&] { made(parse_recipe({.parallel = "data+tensor"})); }),
             "parallel data+tensor is not part of this build"));
  CHECK(says(
      refusal(ErrorKind::config, [&] { made(recipe("zs0", "fp32", "nvme_optimizer")); }),
      "offload nvme_optimizer keeps state in a file and nvme_directory is empty; name an existing folder "
      "on the disk for it (programs: --nvme-path FOLDER)"));
  options.nvme_directory = "/absent/folder";
  CHECK(says(refusal(ErrorKind::failed, [&] { made(recipe("zs0", "fp32", "nvme_optimizer")); }),
             "/absent/folder: cannot open the folder"));
  options.sequence = 41;
  CHECK(says(refusal(ErrorKind::config, [&] { made(recipe("zs0")); }),
             "the sequence 41 is beyond the model's 40 positions"));
}

TEST_CASE("a huge model is refused at once and its advice trains") {
  Gpt2Options const xl{.layers = 48, .heads = 25, .channels = 1600};
  TrainerOptions options;
  options.batch = 4;
  options.sequence = 1024;
  options.threads = 1;
  options.memory_limit = std::int64_t{8} << 30;
  std::string const text = refusal(ErrorKind::out_of_memory, [&] {
    tessera::run(8,
                 [&](comm::Comm comm) { (void)make_trainer(any_model(xl), recipe("zs0"), comm, options); });
  });
  CHECK(says(text, "8 ranks plan "));
  CHECK(says(text, "no batch fits at this sequence"));

  // The error suggests the largest batch that fits into memory. Training with this batch must then fit into
  // the same memory limit.
  options.batch = 64;
  options.sequence = 40;
  options.memory_limit = std::int64_t{12} << 20;
  std::string const tight = refusal(ErrorKind::out_of_memory, [&] {
    (void)make_trainer(any_model(tiny), recipe("zs0"), comm::Comm(), options);
  });
  std::string const words = "largest batch that fits: ";
  REQUIRE(says(tight, words));
  options.batch = std::stoll(tight.substr(tight.find(words) + words.size()));
  CHECK(options.batch < 64);
  auto const trainer = make_trainer(any_model(tiny), recipe("zs0"), comm::Comm(), options);
  CHECK(trainer->peak_bytes(Tier::device) <= options.memory_limit);
  CHECK(trainer->step(make_batch(0, 0, {}, static_cast<int>(options.batch), 40, tiny.vocabulary)).get().loss >
        0.0);
}

TEST_CASE("too many overflows in a row end the run on every rank with the tensor's name") {
  std::vector<std::string> texts(2);
  std::string const thrown = refusal(ErrorKind::diverged, [&] {
    tessera::run(2, [&](comm::Comm comm) {
      Run run;
      run.split = {2, 1};
      run.options.loss_scale.initial = 0x1p24;
      run.options.loss_scale.minimum = 0x1p24;
      run.options.skips_allowed = 2;
      auto const trainer = make_trainer(any_model(tiny), recipe("zs1", "fp16"), comm, options_of(run));
      auto const batch = make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary);
      for (int step = 0; step < 2; ++step) CHECK(trainer->step(batch).get().skipped);
      Ticket const last = trainer->step(batch);
      texts[static_cast<std::size_t>(comm.rank())] = refusal(ErrorKind::diverged, [&] { (void)last.get(); });
      CHECK_THROWS_AS(trainer->step(batch).get(), Error);
      CHECK_THROWS_AS(trainer->evaluate(batch), Error);
      (void)last.get();
    });
  });
  CHECK(says(thrown, "the gradient overflowed 3 steps in a row"));
  CHECK(says(texts[0], ".weight"));
  CHECK(texts[0] == texts[1]);
}

TEST_CASE("a rank with a bad token is named and the others lose it") {
  std::string const text = refusal(ErrorKind::data, [&] {
    tessera::run(3, [&](comm::Comm comm) {
      Run run;
      run.split = {3, 1};
      auto const trainer = make_trainer(any_model(tiny), recipe("zs2"), comm, options_of(run));
      Batch batch = make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary);
      if (comm.rank() == 2) batch.tokens[5] = 61;
      try {
        (void)trainer->step(batch).get();
      } catch (PeerLost const& error) {
        CHECK(comm.rank() != 2);
        CHECK(error.rank() == 2);
        throw;
      }
    });
  });
  CHECK(says(text, "token 5 is 61, but the model's vocabulary is 61"));
}

TEST_CASE("a rank's wish to stop is in the report of that step on every rank, and changes nothing else") {
  for (std::string_view const sharding : {"dp", "zero1", "zero3"})
    for (int const world : {1, 3})
      for (int const asking : {0, world - 1}) {
        RecipeTable const table = parse_recipe({.sharding = sharding, .precision = "fp32"});
        Run run;
        run.split = {world, 1};
        std::array<double, 2> losses{};
        for (bool const asks : {false, true})
          tessera::run(world, [&](comm::Comm comm) {
            auto const trainer = make_trainer(any_model(tiny), table, comm, options_of(run));
            for (int step = 0; step < 4; ++step) {
              Batch const batch =
                  make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary);
              bool const stop = asks && step == 1 && comm.rank() == asking;
              StepReport const report = trainer->step(batch, stop).get();
              CHECK(report.stop == (asks && step == 1));
              if (comm.is_root()) losses[asks] = report.loss;
            }
          });
        CHECK(losses[0] == losses[1]);
      }
}
