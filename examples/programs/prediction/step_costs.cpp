// SPDX-License-Identifier: Apache-2.0
// Implements step_costs.hpp: computes the operations, FLOPs and bytes of each schedule entry of a training
// step.
#include "prediction/step_costs.hpp"

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <utility>

namespace programs {
using namespace tessera;
namespace cli {
namespace {

/// Adds the names in `names` to the names in `list`, without duplicates. Both strings are names separated by
/// spaces.
void add_names(std::string& list, std::string const& names) {
  std::istringstream words(names);
  for (std::string name; words >> name;)
    if ((" " + list + " ").find(" " + name + " ") == std::string::npos)
      list += (list.empty() ? "" : " ") + name;
}

/// Records the operations of one entry and adds up their costs.
struct CostRecorder final : Recorder {
  void operation(Operation const& operation) override {
    add_names(cost.what, operation.name);
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
  std::int64_t instance = 0;
  record(recorder, [&](StepPlan const& plan, Entry const& entry, std::span<std::byte* const>) {
    Program const& program = plan.train;
    costs.resize(program.schedule.entries.size());
    Cost& cost = costs[static_cast<std::size_t>(program.schedule.instance(instance++).index)];
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

std::vector<std::size_t> completed_by(Schedule const& schedule) {
  auto const& entries = schedule.entries;
  std::vector<std::size_t> leaders(entries.size());
  for (std::size_t at = 0; at < entries.size(); ++at) {
    leaders[at] = at;
    Verb const verb = entries[at].verb;
    if (verb != Verb::sum_losses && verb != Verb::add_tied && verb != Verb::clear_gaps) continue;
    Verb const source_verb = verb == Verb::sum_losses ? Verb::forward : Verb::backward_weight;
    std::size_t& leader = leaders[at];
    while (leader > 0 && (entries[leader].verb != source_verb || entries[leader].unit != entries[at].unit))
      --leader;
  }
  return leaders;
}

std::vector<Cost> joined(Schedule const& schedule, std::vector<Cost> costs) {
  std::vector<std::size_t> const leaders = completed_by(schedule);
  for (std::size_t at = 0; at < costs.size(); ++at) {
    if (leaders[at] == at) continue;
    Cost const own = std::exchange(costs[at], Cost{});
    Cost& whole = costs[leaders[at]];
    add_names(whole.what, own.what);
    whole.flops += own.flops;
    whole.attention_flops += own.attention_flops;
    whole.bytes += own.bytes;
    whole.operations += own.operations;
  }
  return costs;
}

}  // namespace cli
}  // namespace programs
