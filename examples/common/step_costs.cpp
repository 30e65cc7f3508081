// SPDX-License-Identifier: Apache-2.0
#include "common/step_costs.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {
inline namespace v0 {
namespace cli {
namespace {

/// Sums what the operations of one entry cost.
struct CostRecorder final : Recorder {
  void operation(Operation const& operation) override {
    std::string const name = operation.name;
    if ((" " + cost.what + " ").find(" " + name + " ") == std::string::npos)
      cost.what += (cost.what.empty() ? "" : " ") + name;
    bool const attention = std::string_view(operation.name).starts_with("attention");
    (attention ? cost.attention_flops : cost.flops) += operation.flops;
    cost.bytes += operation.bytes;
    ++cost.operations;
  }
  void violation(char const*) override {}

  Cost cost;
};

}  // namespace

std::vector<Cost> costs_of(RecordedStep const& record) {
  std::vector<Cost> costs;
  CostRecorder recorder;
  std::int64_t turn = 0;
  record(recorder, [&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const>) {
    Program const& program = plan.train;
    costs.resize(program.schedule.entries.size());
    Cost& cost = costs[static_cast<std::size_t>(program.schedule.turn(turn++).index)];
    cost = recorder.cost;
    recorder.cost = {};
    if (entry.move == Move::none) return;
    cost.is_move = true;
    cost.what = name_of(entry.move);
    if (entry.move == Move::copy) cost.what.append(" ").append(name_of(entry.lane));
    cost.bytes = static_cast<double>(program.bytes_of(entry));
    cost.operations = 1;
  });
  return costs;
}

}  // namespace cli
}  // namespace v0
}  // namespace tessera
