// SPDX-License-Identifier: Apache-2.0
#include "info/fitness.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "tessera/io/file.hpp"
#include "tessera/plan/support.hpp"

#include "cli/command_line.hpp"
#include "cli/outputs.hpp"
#include "cli/terminal.hpp"
#include "cli/values.hpp"
#include "machine/machine.hpp"
#include "machine/nvme_folder.hpp"
#include "plan/limits.hpp"
#include "plan/planning.hpp"
#include "results/verdicts.hpp"
#include "workload/matrix.hpp"

namespace programs {
using namespace tessera;
namespace info {

namespace {

using planning::Limits;
using planning::Planned;

enum class Class : std::uint8_t { excellent, good, fair, poor, unfit };

constexpr std::array<char const*, 5> class_names = {"EXCELLENT", "GOOD", "FAIR", "POOR", "UNFIT"};
char const* name_of(Class fitness) { return class_names[static_cast<std::size_t>(fitness)]; }

/// A row of the report is a strategy (sharding and offload) for a model. A row gets a grade according to its
/// planned memory in percent of the memory limit. These constants are the largest percentages for each grade.
/// They come from a published rule that chooses the ZeRO stage by how full the GPU is.
constexpr double max_excellent = results::roomy_pct, max_good = 80.0, max_fair = 95.0;
/// The grade of a row, with one reason for each check. Each check gives a grade. The worst of these grades is
/// the grade of the row.
struct Verdict {
  Class fitness = Class::excellent;
  cli::Names reasons;
  std::optional<double> device_pct, host_pct, nvme_pct, behind_link_pct;

  void count(Class at_best, std::string reason) {
    fitness = std::max(fitness, at_best);
    reasons.push_back((at_best == Class::excellent ? "" : std::string(name_of(at_best)) + ": ") +
                      std::move(reason));
  }
};

std::string percent(double value) { return cli::fixed(value, value < 10.0 ? 1 : 0) + "%"; }

double percent_of(std::int64_t part, std::int64_t total) {
  return total <= 0 ? (part > 0 ? 1e9 : 0.0) : 100.0 * static_cast<double>(part) / static_cast<double>(total);
}

/// Grades how full a memory would be, and adds the grade to `verdict`. `place` is the name of the memory, and
/// `bytes` are the planned bytes. Returns `bytes` in percent of `limit`; nullopt without a limit.
std::optional<double> filled(Verdict& verdict, char const* place, std::int64_t bytes, std::int64_t limit) {
  if (limit == MemoryLimit::none) return std::nullopt;
  double const share = percent_of(bytes, limit);
  Class const at_best = share <= max_excellent ? Class::excellent
                        : share <= max_good    ? Class::good
                        : share <= max_fair    ? Class::fair
                                               : Class::poor;
  verdict.count(at_best, std::string(place) + " " + percent(share) + " full, " + bytes_text(bytes) + " of " +
                             bytes_text(limit));
  return share;
}

/// Grades the memory in which parameters, gradients and optimizer state are stored: on the device, in host
/// memory or on NVMe. Adds the grade to `verdict`.
void judge_state(Verdict& verdict, Planned const& row) {
  std::int64_t all = 0, disk = 0, memory = 0, weights = 0;
  for (MemoryCategory const& category : row.memory.categories) {
    if (category.name != "parameters" && category.name != "gradients" && category.name != "optimizer")
      continue;
    all = std::accumulate(category.bytes.begin(), category.bytes.end(), all);
    disk += bytes_on(Tier::nvme, category.bytes);
    memory += bytes_on(Tier::host, category.bytes);
    if (category.name == "parameters") weights = bytes_on(Tier::host, category.bytes);
  }
  if (!info_of(row.point.recipe.device).own_memory)
    memory = weights = 0;  // on the CPU the devices use host memory, so this state is not offloaded
  verdict.behind_link_pct = percent_of(disk + memory, all);
  if (disk > 0) verdict.count(Class::poor, percent(percent_of(disk, all)) + " of the state is on NVMe");
  if (memory > 0)
    verdict.count(weights > 0 ? Class::fair : Class::good,
                  percent(percent_of(memory, all)) + " of the state is in host memory, behind the link" +
                      (weights > 0 ? ", including weights" : ""));
  if (disk + memory == 0)
    verdict.count(Class::excellent, info_of(row.point.recipe.device).own_memory
                                        ? "all state is on the device"
                                        : "all state is in host memory, which is the memory of the devices");
}

/// Grades the extra work of a step and adds the grade to `verdict`. A step without extra work holds all
/// weights on every rank and recomputes nothing.
void judge_step(Verdict& verdict, Planned const& row) {
  RecipeTable const& recipe = row.point.recipe;
  int const shards = static_cast<int>(row.point.split.ranks / row.point.mesh.replicas);
  if (recipe.stage < 0 && row.point.world() > 1)
    verdict.count(Class::good, "only rank 0 updates, and sends the weights to the others");
  if (recipe.placement.parameters.over == Sharding::sharded && shards > 1)
    verdict.count(Class::good, "a rank gathers the " + percent(percent_of(shards - 1, shards)) +
                                   " of the weights that it does not hold, in forward and again in backward");
  if (recipe.recompute != RecomputeKind::none && recipe.recompute != RecomputeKind::gelu)
    verdict.count(Class::good, "backward recomputes forward");
}

Verdict judge(Planned const& row, MemoryLimit const& limit) {
  Verdict verdict;
  if (!row.fits()) {
    verdict.fitness = Class::unfit;
    verdict.reasons.push_back(row.status == "oom" ? "does not fit: " + row.reason
                                                  : row.status + ": " + row.reason);
  }
  if (!row.is_planned()) return verdict;
  Verdict fitting;
  fitting.device_pct = filled(fitting, "device", row.footprint.device, limit.device);
  if (row.footprint.host > 0)
    fitting.host_pct = filled(fitting, "host memory", row.footprint.host, limit.host);
  if (row.footprint.nvme > 0 && limit.nvme != MemoryLimit::none)
    fitting.nvme_pct = percent_of(row.footprint.nvme, limit.nvme);
  judge_state(fitting, row);
  judge_step(fitting, row);
  if (row.fits()) return fitting;
  fitting.fitness = verdict.fitness;
  fitting.reasons = std::move(verdict.reasons);
  return fitting;
}

struct Judged {
  Planned row;
  Verdict verdict;

  /// Returns a key that sorts rows: first by grade, then by how much simplicity and speed they give up to
  /// save memory (planning::given_up), and last by the share of state outside the device.
  auto rank() const {
    return std::tuple{verdict.fitness, planning::given_up(row), verdict.behind_link_pct.value_or(0.0)};
  }
};

/// Returns the row of the group `group` with the best grade.
Judged const* best_of(std::vector<Judged> const& rows, std::string const& group) {
  Judged const* best = nullptr;
  for (Judged const& judged : rows)
    if (judged.row.point.group() == group && (!best || judged.rank() < best->rank())) best = &judged;
  return best;
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size() + 1), ' ');
  return text;
}

std::string report(std::vector<Judged> const& rows, cli::Terminal const& terminal) {
  std::string out, group;
  for (Judged const& judged : rows) {
    Planned const& row = judged.row;
    if (row.point.group() != group) {
      group = row.point.group();
      out += "\n" + terminal.bold(group) + "\n";
      Judged const& best = *best_of(rows, group);
      out += std::string("  ") + name_of(best.verdict.fitness);
      if (best.verdict.fitness != Class::unfit)
        out += " with " + std::string(best.row.point.recipe.names.sharding) + ", offload " +
               std::string(best.row.point.recipe.names.offload);
      out += "\n";
    }
    out += "  " + padded(std::string(row.point.recipe.names.sharding), 5) +
           padded(std::string(row.point.recipe.names.offload), 16) +
           padded(name_of(judged.verdict.fitness), 10) + cli::joined(judged.verdict.reasons, "; ") + "\n";
  }
  return out;
}

cli::Json json_of(std::vector<Judged> const& rows, MemoryLimit const& limit, std::string const& command) {
  using cli::Json;
  auto const bytes = [](std::int64_t value) {
    return value == MemoryLimit::none ? Json(nullptr) : Json(value);
  };
  Json document = Json::object();
  document["schema_version"] = 1;
  document["command"] = command;
  document["environment"] = cli::environment(device_facts(rows.front().row.point.recipe.device));
  document["limit_device_bytes"] = bytes(limit.device);
  document["limit_host_bytes"] = bytes(limit.host);
  document["limit_nvme_bytes"] = bytes(limit.nvme);
  document["rows"] = Json::array();
  for (Judged const& judged : rows) {
    Json row = Json::object();
    cli::describe_point(row, judged.row.point);
    row["params"] = judged.row.params;
    row["fitness"] = name_of(judged.verdict.fitness);
    row["best"] =
        best_of(rows, judged.row.point.group()) == &judged && judged.verdict.fitness != Class::unfit;
    row["reasons"] = judged.verdict.reasons;
    bool const planned = judged.row.is_planned();
    row["device_bytes"] = planned ? Json(judged.row.footprint.device) : Json(nullptr);
    row["host_bytes"] = planned ? Json(judged.row.footprint.host) : Json(nullptr);
    row["nvme_bytes"] = planned ? Json(judged.row.footprint.nvme) : Json(nullptr);
    row["device_pct"] = cli::or_null(judged.verdict.device_pct);
    row["host_pct"] = cli::or_null(judged.verdict.host_pct);
    row["nvme_pct"] = cli::or_null(judged.verdict.nvme_pct);
    row["behind_link_pct"] = cli::or_null(judged.verdict.behind_link_pct);
    document["rows"].push_back(std::move(row));
  }
  return document;
}

constexpr char fitness_examples[] = R"(Examples:
  info --fitness --model gpt2-xl                    this machine
  info --fitness --model gpt2-xl --device cuda --memory 80GiB --ranks 4 --sequence 1024
  info --fitness --model meta-llama/Llama-2-13b-hf --device cuda --memory 80GiB --host-memory 512GiB --ranks 1 --json -

Every figure is planned; nothing is measured or allocated. docs/programs.md has the bounds of each class.
The exit code is 0 if some strategy fits, 5 if none does, and 3 if every one was refused.
)";

}  // namespace

int fitness(int argc, char const* const* argv) {
  cli::CommandLine line(
      "info",
      "Reports how well this machine, or a device with --memory, can train a model, for each strategy.",
      fitness_examples);
  bool said = false;
  line.toggle("--fitness", said, "this report");
  std::filesystem::path json;
  line.path("--json", "[FILE]", json,
            "JSON instead of the report; without FILE or with -, on standard output");
  cli::MatrixFlags matrix;
  matrix.slots.of<slot::precision>() = {"bf16"};
  planning::LimitFlags given;
  cli::add_matrix_flags(line, matrix);
  planning::add_limit_flags(line, given);
  if (!line.parse(argc, argv)) return 0;
  matrix.batch_names = cli::BatchNames::of(line);
  if (!line.given("--models"))
    cli::refuse("--fitness needs a model; give --model gpt2, or sizes such as --model " +
                std::string("layers=12,heads=12,channels=768"));
  cli::ProgramFiles(line, cli::folders_of(matrix.models)).check();
  std::vector<cli::Point> const points = cli::make_matrix(matrix, 0, 256, &unsupported_reason);
  cli::check_nvme_path(given.nvme_path);
  if (!json.empty() && json != "-") check_writable(json);
  Limits const limits = planning::limits_of(device_named(matrix.device), given);

  std::vector<Judged> rows;
  for (cli::Point const& point : points) {
    Planned row = planning::plan_point(point, TrainerOptions{}, limits.bytes);
    Verdict verdict = judge(row, limits.bytes);
    rows.push_back({std::move(row), std::move(verdict)});
  }
  if (json.empty()) {
    std::cout << "limits: " << limits.text << "\n" << report(rows, cli::Terminal::of(1));
  } else {
    std::string const text = json_of(rows, limits.bytes, cli::command_text(argc, argv))
                                 .dump(2, ' ', false, cli::Json::error_handler_t::replace) +
                             "\n";
    if (json == "-")
      std::cout << text;
    else
      write_file(json, text);
  }
  std::cout << std::flush;
  auto const any = [&](char const* status) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](Judged const& judged) { return judged.row.status == status; });
  };
  if (any("fits")) return 0;
  if (any("oom")) throw Error(ErrorKind::out_of_memory, "no strategy fits " + limits.text);
  throw Error(ErrorKind::unsupported, "every strategy was refused: " + rows.front().row.reason);
}

}  // namespace info
}  // namespace programs
