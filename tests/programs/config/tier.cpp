// SPDX-License-Identifier: Apache-2.0
// A program that makes a step plan (the schedule and the buffers of a training step) whose state is on a
// memory tier that this test adds to the library. It prints the names of the offload policies, the schedule,
// which tiers have bytes, the result of the checker, and whether the memory footprint has the bytes of all
// tiers in host memory. tier.cmake checks this output.
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <string_view>

#include "tessera/nn/gpt2.hpp"
#include "tessera/plan/check.hpp"
#include "tessera/plan/listing.hpp"
#include "tessera/plan/program.hpp"
#include "tessera/plan/report.hpp"
#include "tessera/policy/parse.hpp"
#include "tessera/store/step_memory.hpp"

int main(int, char** argv) {
  namespace ts = tessera;
  try {
    for (std::string_view const name : ts::choice_names<ts::slot::offload>()) std::cout << name << " ";
    ts::RecipeTable const recipe =
        ts::parse_recipe({.sharding = "zs3", .precision = "bf16", .offload = argv[1]});
    ts::StepShape shape;
    shape.batch = 1;
    shape.sequence = 8;
    shape.world = 2;
    shape.workspace_bytes = 1000;
    ts::Gpt2 const model({.layers = 2, .heads = 2, .channels = 64, .positions = 8, .vocabulary = 61});
    auto const units = [&](ts::MicroBatch of) { return model.units(of); };
    ts::StepPlan const plan = ts::make_plan(units({1, 8}), recipe, shape);
    std::cout << "\n" << ts::listing(plan, plan.train);
    std::int64_t in_host_memory = 0;
    ts::MemoryReport const report = ts::memory_report(plan);
    for (std::size_t at = 0; at < ts::tier_count; ++at) {
      ts::Tier const tier{static_cast<std::uint8_t>(at)};
      std::cout << ts::name_of(tier) << ": " << (report.total[at] > 0 ? "some" : "no") << " bytes\n";
      if (ts::has_addresses(tier)) in_host_memory += report.total[at];
    }
    bool const all =
        ts::footprint(units, recipe, shape).host == 2 * in_host_memory &&
        ts::bytes_on(ts::Tier::device, plan.arena_bytes) + ts::bytes_on(ts::Tier::host, plan.arena_bytes) ==
            in_host_memory;
    std::cout << "mistake: '" << ts::mistake_in(plan, plan.train)
              << "'\nfootprint: " << (all ? "all" : "not all") << " tiers\n";
    ts::StepMemory<ts::Cpu> const memory(plan);
    for (int buffer = 0; buffer < static_cast<int>(plan.train.buffers.size()); ++buffer)
      if (ts::Buffer const& about = plan.train.at(buffer);
          about.offset >= 0 && ts::has_addresses(about.tier) && memory.train(buffer) == nullptr)
        std::cout << "a buffer has no address\n";
  } catch (std::exception const& error) {
    std::cout << error.what() << "\n";
    return 2;
  }
}
