// SPDX-License-Identifier: Apache-2.0
// Tests that a training step does not read device data on the host, wait for the device on the host, or
// allocate memory. Also checks the number of operations of a step.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/nn/gpt2.hpp"
#include "tessera/nvme.hpp"
#include "tessera/train/trainer.hpp"

#include "support/runs.hpp"
#include "unit/allocation_support.hpp"

namespace {

using namespace support;

using Gpt2Engine = Engine<Cpu, float>;

ErasedModel<Cpu, float> erased(Gpt2Options const& options) {
  return detail::erase<Cpu, float>(std::make_shared<Gpt2 const>(options));
}

struct Notes final : Recorder {
  void operation(Operation const& operation) override {
    flops += operation.flops;
    bytes += operation.bytes;
    ++count[operation.name];
  }
  void violation(char const* what) override { violations.push_back(what); }

  double flops = 0, bytes = 0;
  std::map<std::string, int> count;
  std::vector<std::string> violations;
};

/// Returns the number of memory allocations in each of three steps. The count includes all ranks.
std::vector<std::int64_t> allocations_of_steps(RecipeTable const& table, Run run) {
  std::vector<std::int64_t> counts;
  tessera::run(run.split.ranks, [&](comm::Comm comm) {
    Gpt2Engine engine(erased(tiny), CheckedRecipe(table), options_of(run), comm);
    for (int step = 0; step < 3; ++step) {
      Batch const batch =
          make_batch(step, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary, run.mask_every);
      std::int64_t before = 0;
      comm.transport().barrier();
      if (comm.is_root()) before = allocation_support::count();
      comm.transport().barrier();
      Ticket const ticket = engine.step(batch);
      comm.transport().barrier();
      if (comm.is_root()) counts.push_back(allocation_support::count() - before);
      comm.transport().barrier();
      CHECK(ticket.get().loss > 0.0);
    }
  });
  return counts;
}

}  // namespace

TEST_CASE("a recorded step breaks no rule and its operations add up to the formula") {
  // The model is so large that nearly all floating-point operations (flops) are in matrix products. All other
  // operations have a few percent of the flops.
  Gpt2Options const model{.layers = 4, .heads = 4, .channels = 256, .positions = 128, .vocabulary = 1024};
  Run run;
  run.batch = 4;
  run.sequence = 128;
  comm::Comm comm;
  Gpt2Engine engine(erased(model), CheckedRecipe(recipe("zs0")), options_of(run), comm);
  std::int64_t const attempted = engine.state().scalars().attempted;
  Notes notes;
  engine.record(notes);
  CHECK(notes.violations.empty());
  // A recorded step does not run, so it is not counted as attempted.
  CHECK(engine.state().scalars().attempted == attempted);

  double const tokens = 4.0 * 128;
  double const formula = Gpt2(model).flops_per_token(128) * tokens;
  // flops_per_token() estimates the flops by a formula, which differs from the recorded flops in three ways.
  // It counts the position table as a matrix product, although a step only reads rows of this table. It
  // counts attention as if it were not causal. It leaves out all small operations.
  double const positions = 6.0 * 128 * 256 * tokens;
  CHECK(notes.flops / (formula - positions) > 0.97);
  CHECK(notes.flops / (formula - positions) < 1.06);
  CHECK(notes.count["adamw"] > 0);
  CHECK(notes.count["finish_step"] == 1);
  CHECK(notes.count["cross_entropy"] == 1);
  CHECK(notes.bytes > 4.0 * static_cast<double>(parameter_count(Gpt2(model).units({1, 1}))));

  Notes rebuilt;
  Gpt2Engine again(erased(model), CheckedRecipe(recipe("zs0", "fp32", "none", "block")), options_of(run),
                   comm);
  again.record(rebuilt);
  CHECK(rebuilt.violations.empty());
  // This step recomputes most of forward, which is a third of all flops of a step.
  CHECK(rebuilt.flops / notes.flops > 1.2);
  CHECK(rebuilt.flops / notes.flops < 1.4);
}

TEST_CASE("a recorder hears of synchronisation and of host access") {
  Notes notes;
  Context<Cpu> context(1, {}, &notes);
  std::byte bytes[4] = {std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}};
  std::byte const other[4] = {};
  context.synchronize();
  (void)context.host_view(bytes, sizeof bytes, nullptr);
  (void)context.stage(bytes, sizeof bytes, nullptr);
  context.unstage(bytes, bytes, sizeof bytes);
  context.read(other, bytes, sizeof bytes);
  context.write(bytes, other, sizeof bytes);
  context.clear(bytes, sizeof bytes);
  context.upload(bytes, other, sizeof bytes);
  CHECK(notes.violations == std::vector<std::string>{"synchronize", "host_view", "stage", "unstage", "read",
                                                     "write", "clear", "upload"});
  CHECK(bytes[0] == std::byte{1});  // the write was only recorded, so the byte is unchanged
}

TEST_CASE("a rank's step is recorded with its collectives and meets no other rank") {
  Run run;
  run.split = {3, 2};
  for (std::string_view const sharding : shardings)
    for (std::string_view const offload : {"none", "cpu_optimizer", "nvme"}) {
      INFO(std::string(sharding), " ", std::string(offload));
      Notes notes;
      comm::Traffic before, after;
      tessera::run(3, [&](comm::Comm comm) {
        Gpt2Engine engine(erased(tiny), CheckedRecipe(recipe(sharding, "fp32", offload)), options_of(run),
                          comm, open_state_file<Nvme>);
        if (comm.rank() != 1) return;
        before = comm.transport().traffic();
        engine.record(notes);
        after = comm.transport().traffic();
      });
      CHECK(notes.violations.empty());
      CHECK(notes.count["all_gather"] > 0);
      CHECK((notes.count["disk_read"] > 0) == (offload == "nvme"));
      CHECK((notes.count["disk_write"] > 0) == (offload == "nvme"));
      CHECK(after.collectives == before.collectives);
    }
}

TEST_CASE("a bucket is one call of the communicator") {
  for (std::string_view const sharding : shardings)
    for (std::string_view const reduction : {"ordered", "fast"}) {
      INFO(std::string(sharding), " ", std::string(reduction));
      Run run;
      run.split = {2, 1};
      auto const traffic = [&](std::int64_t bucket) {
        comm::Traffic spent;
        run.options.bucket_bytes = bucket;
        tessera::run(2, [&](comm::Comm comm) {
          RecipeTable const table = recipe(sharding, "fp32", "none", "none", reduction);
          Gpt2Engine engine(erased(tiny), CheckedRecipe(table), options_of(run), comm);
          comm.transport().reset_traffic();
          (void)engine.step(make_batch(0, comm.rank(), run.split, run.batch, run.sequence, run.vocabulary));
          if (comm.is_root()) spent = comm.transport().traffic();
        });
        return spent;
      };
      comm::Traffic const separate = traffic(0), together = traffic(std::int64_t{1} << 40);
      CHECK(separate.calls == separate.collectives);
      CHECK(together.collectives == separate.collectives);
      CHECK(together.bytes_sent == separate.bytes_sent);
      // A bucket is a group of gradients that one call reduces. With buckets, one call instead of four sends
      // the micro-batch gradients of the four units, which saves 3 calls. Some shardings also all-gather the
      // reduced gradients or the updated weights. Buckets save another 3 calls there.
      bool const gathered = sharding == "dp" || sharding == "zs1" || sharding == "zs2";
      bool const twice = gathered || (sharding == "zs0" && reduction == "ordered");
      CHECK(separate.calls - together.calls == (twice ? 6 : 3));
    }
}

TEST_CASE("no product computes the gradient of a frozen parameter") {
  Run run;
  auto const recorded = [&](std::function<bool(std::string_view)> freeze) {
    run.options.freeze = std::move(freeze);
    comm::Comm comm;
    Gpt2Engine engine(erased(tiny), CheckedRecipe(recipe("zs0")), options_of(run), comm);
    Notes notes;
    engine.record(notes);
    CHECK(notes.violations.empty());
    return notes.count;
  };
  auto const starting = [](std::string_view part) {
    return [part](std::string_view name) { return name.starts_with(part); };
  };
  // The model has two blocks, each with four linear layers and two norms. The output head has one more norm
  // and a product with the token table.
  auto all = recorded({});
  CHECK(all["linear_backward_weight"] == 9);
  CHECK(all["linear_backward_input"] == 9);
  CHECK(all["layer_norm_backward_weight"] == 5);
  CHECK(all["layer_norm_backward_input"] == 5);
  CHECK(all["embedding_backward"] == 1);
  auto middle = recorded(starting("h.1."));  // gradients still pass through the frozen block h.1
  CHECK(middle["linear_backward_weight"] == 5);
  CHECK(middle["linear_backward_input"] == 9);
  CHECK(middle["layer_norm_backward_weight"] == 3);
  CHECK(middle["layer_norm_backward_input"] == 5);
  auto table = recorded(starting("wte"));
  CHECK(table["linear_backward_weight"] == 8);
  CHECK(table["embedding_backward"] == 1);  // the call is only for the table of positions
  auto top = recorded([](std::string_view name) { return !name.starts_with("ln_f"); });
  CHECK(top["linear_backward_weight"] == 0);
  CHECK(top["linear_backward_input"] == 1);
  CHECK(top["layer_norm_backward_weight"] == 1);
  CHECK(top["layer_norm_backward_input"] == 1);
  CHECK(top["attention_backward"] == 0);
  CHECK(top["embedding_backward"] == 0);
  CHECK(top["adamw"] == 1);
  CHECK(top["linear"] == all["linear"]);
}

TEST_CASE("no step allocates not even the first") {
  std::vector<std::int64_t> const none(3, 0);
  Run run;
  run.options.clip = 1.0;
  run.split = {1, 2};
  CHECK(allocations_of_steps(recipe("zs0"), run) == none);
  run.options.threads = 2;
  CHECK(allocations_of_steps(recipe("zs0", "fp32", "cpu_optimizer"), run) == none);
  run.split = {4, 2};
  run.options.threads = 1;
  for (std::string_view const sharding : shardings) {
    INFO(std::string(sharding));
    CHECK(allocations_of_steps(recipe(sharding), run) == none);
    CHECK(allocations_of_steps(recipe(sharding, "fp32", "cpu_optimizer", "every", "fast"), run) == none);
  }
  run.options.freeze = [](std::string_view name) { return name.find("ln_1") != name.npos; };
  CHECK(allocations_of_steps(recipe("zs3", "fp32", "cpu_optimizer"), run) == none);
  run.options.threads = 2;
  CHECK(allocations_of_steps(recipe("zs3"), run) == none);
}
