// SPDX-License-Identifier: Apache-2.0
// plan: the bytes of every recipe before anything is allocated, what fits, and what to pick.
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "tessera/io/file.hpp"

#include "common/command_line.hpp"
#include "common/machine.hpp"
#include "common/matrix.hpp"
#include "common/program.hpp"
#include "common/run_flags.hpp"
#include "common/terminal.hpp"
#include "plan/planning.hpp"

namespace tessera::inline v0 {
namespace planning {

namespace {

using cli::Json;

constexpr char examples[] = R"(Examples:
  plan                                              what compare's default rows need
  plan --model gpt2-xl --ranks 8 --batch 8 --sequence 1024 --memory 512GiB
  plan --model gpt2 --stages 3 --recompute none,gelu,block --memory-per-rank 8GiB
  plan --model gpt2-medium --precisions bf16 --json plan.json

Nothing is allocated and no device is needed. Without a limit it is what this machine has available:
of the host for all ranks, of a GPU for each.
A + behind the largest batch or sequence: more may fit; ?: a search that took too long.
Exit codes: 0 when some recipe fits, 5 when none does, 1 when a row could not be planned, 2 usage,
3 settings or no recipe of this build.
)";

struct Settings {
  cli::MatrixFlags matrix;
  TrainerOptions trainer;
  std::int64_t vocabulary = 0;
  std::int64_t memory = 0, memory_per_rank = 0;  ///< 0: not given
  std::filesystem::path json;
  bool no_search = false;
};

void declare(cli::CommandLine& line, Settings& settings) {
  cli::add_matrix_flags(line, settings.matrix);
  line.custom("--vocabulary", "N", "", "tokens of the vocabulary; else 256, or a named model's own",
              [&](std::string const& flag, std::string const& value) {
                settings.vocabulary = cli::whole_number(flag, value, 1, (std::int64_t{1} << 31) - 1);
              });
  line.group("Limits");
  line.bytes("--memory", settings.memory, "what all ranks together may take, such as 64GiB");
  line.bytes("--memory-per-rank", settings.memory_per_rank,
             "what each rank may take; of its GPU, where it has one");
  line.whole("--threads", settings.trainer.threads, "threads of a rank; 0 shares the cores", 0, 1024);
  line.group("Output");
  line.path("--json", "FILE", settings.json, "write the plans here; - is stdout");
  line.toggle("--no-search", settings.no_search,
              "leave out the largest batch and sequence, which take most of the time");
}

char const* const place_names[] = {"device", "host", "nvme"};

Json to_json(Planned const& row, Limit const& limit, Planned const* picked) {
  Json json = Json::object();
  cli::describe_point(json, row.point);
  json["params"] = row.params;
  json["status"] = row.status;
  json["reason"] = cli::or_null(row.reason);
  json["limit_bytes"] = limit.bytes;
  json["limit_per_rank"] = limit.per_rank;
  json["picked"] = picked == &row;
  if (!row.is_planned()) return json;
  json["planned_gpu_mem_mb"] = cli::mebibytes(row.on(Tier::device));
  json["planned_host_mem_mb"] = cli::mebibytes(row.on(Tier::host));
  json["all_ranks_bytes"] = row.all_ranks;
  Json places = Json::object();
  for (std::size_t tier = 0; tier < 3; ++tier) {
    Json place = Json::object();
    for (auto const& category : row.memory.categories) place[category.name] = category.bytes[tier];
    place["total"] = row.memory.total[tier];
    places[place_names[tier]] = std::move(place);
  }
  json["bytes"] = std::move(places);
  auto const found = [&](std::string const& name, Largest const& largest) {
    json[name] = largest.value > 0 ? Json(largest.value) : Json(nullptr);
    json[name + "_exact"] = largest.exact;  // else more may fit
  };
  found("largest_batch", row.largest_batch);
  found("longest_sequence", row.longest_sequence);
  json["schedule_hash"] = row.schedule_hash;
  return json;
}

/// "1.50 GiB", "12.3 MiB", "7.8 KiB", "640 B".
std::string size_text(std::int64_t bytes) {
  if (bytes >= 1024 * 1024 || bytes < 1024) return bytes_text(bytes);
  return cli::fixed(static_cast<double>(bytes) / 1024.0, 1) + " KiB";
}

/// "37", "none"; "37+" when more may fit.
std::string count_text(Largest const& found) {
  if (found.value == 0) return found.exact ? "none" : "?";
  return std::to_string(found.value) + (found.exact ? "" : "+");
}

/// The lines of one row, under its group's heading where it is the first. Rows are shown as they come, so the
/// widths do not depend on the others.
std::string row_text(Planned const& row, bool first, Settings const& settings,
                     cli::Terminal const& terminal) {
  constexpr std::size_t size = 11;  // "1023.5 MiB "
  std::vector<cli::Table::Column> columns = {
      {"stage", false, 100}, {"offload", false, 100, 13}, {"place", false, 9, 6}};
  for (char const* name : {"parameters", "gradients", "optimizer", "activations"})
    columns.push_back({name, true, 5, size});
  columns.push_back({"workspace", true, 2, size});
  columns.push_back({"bookkeeping", true, 1, size});
  columns.push_back({"a rank", true, 90, size});
  columns.push_back({"all ranks", true, 8, size});
  columns.push_back({"fits", false, 100});
  if (!settings.no_search) {
    columns.push_back({"batch up to", true, 7});
    columns.push_back({"sequence up to", true, 6});
  }
  cli::Table table(std::move(columns));
  if (first) table.heading(row.point.group());
  cli::Names const head = {std::string(row.point.recipe.names.sharding),
                           std::string(row.point.recipe.names.offload)};
  if (!row.is_planned()) table.text_row(head, row.status + ": " + row.reason);
  for (std::size_t tier = 0; tier < 3 && row.is_planned(); ++tier) {
    if (tier > 0 && row.memory.total[tier] == 0) continue;
    cli::Names cells = tier == 0 ? head : cli::Names{"", ""};
    cells.emplace_back(place_names[tier]);
    for (auto const& category : row.memory.categories)
      cells.push_back(category.bytes[tier] == 0 ? "-" : size_text(category.bytes[tier]));
    cells.push_back(size_text(row.memory.total[tier]));
    cells.push_back(tier == 0 ? size_text(row.all_ranks) : "");
    cells.push_back(tier == 0 ? (row.fits() ? "yes" : "no") : "");
    if (!settings.no_search) {
      cells.push_back(tier == 0 ? count_text(row.largest_batch) : "");
      cells.push_back(tier == 0 ? count_text(row.longest_sequence) : "");
    }
    table.row(std::move(cells));
  }
  return table.text(terminal, first);
}

/// What a row that fits at no batch and no sequence does not use yet.
std::string untried_text(Point const& point, Limit const& limit) {
  cli::Names ways;
  if (point.recipe.recompute != RecomputeKind::block) ways.push_back("--recompute block");
  bool const more_ranks = limit.per_rank && point.world() < 64;  // all together more ranks take more
  if (point.recipe.stage < 3 && point.world() > 1)
    ways.push_back("--stages 3");
  else if (more_ranks)
    ways.push_back(point.recipe.stage < 3 ? "more --ranks with --stages 3" : "more --ranks");
  return ways.empty() ? "" : "; try " + cli::joined(ways, " or ");
}

std::string picks_text(std::vector<Planned> const& rows, Limit const& limit) {
  std::string out;
  cli::Names seen;
  for (Planned const& row : rows) {
    std::string const name = family(row.point);
    if (!row.is_planned() || std::find(seen.begin(), seen.end(), name) != seen.end()) continue;
    seen.push_back(name);
    std::string const label = row.point.model.name + ", " + std::string(row.point.recipe.names.precision) +
                              ", " + std::to_string(row.point.split.ranks) +
                              (row.point.split.ranks == 1 ? " rank" : " ranks") + ", batch " +
                              std::to_string(row.point.split.batch) + ", sequence " +
                              std::to_string(row.point.sequence);
    if (Planned const* best = pick(rows, name)) {
      out += "pick for " + label + ": " + best->point.experiment + ", " + size_text(best->on(Tier::device)) +
             " a rank" +
             (best->on(Tier::host) > 0 ? " and " + size_text(best->on(Tier::host)) + " of host memory" : "") +
             "\n";
      continue;
    }
    Planned const* nearest = nullptr;
    for (Planned const& other : rows)
      if (other.status == "oom" && family(other.point) == name &&
          (!nearest || other.all_ranks < nearest->all_ranks))
        nearest = &other;
    out +=
        "nothing fits " + label + ": the smallest is " + nearest->point.experiment + ", " + nearest->reason;
    Largest const &batch = nearest->largest_batch, &sequence = nearest->longest_sequence;
    out += batch.value > 0 ? "; largest batch that fits it: " + batch.text() : "";
    out += sequence.value > 0 ? "; longest sequence: " + sequence.text() : "";
    out += batch.value + sequence.value == 0 ? untried_text(nearest->point, limit) : "";
    out += "\n";
  }
  return out;
}

/// Sharding more can need more: exchanges have buffers of their own. Rows where it does, against the stage
/// before.
std::string warnings_text(std::vector<Planned> const& rows) {
  std::string out;
  for (Planned const& row : rows)
    for (Planned const& before : rows) {
      bool const next =
          row.point.recipe.stage == before.point.recipe.stage + 1 && before.point.recipe.stage >= 0;
      if (!row.is_planned() || !before.is_planned() || !next || row.point.group() != before.point.group() ||
          row.point.recipe.names.offload != before.point.recipe.names.offload ||
          row.all_ranks <= before.all_ranks)
        continue;
      out += "note: " + row.point.experiment + " needs " + size_text(row.all_ranks - before.all_ranks) +
             " more than " + before.point.experiment + ": buffers of its exchanges outweigh what it shards\n";
    }
  return out;
}

/// What the device of the recipes has free: each rank's GPU, or the host for all.
Limit free_now(std::string_view device) {
  MemoryLimit const free = memory_limit(device, 0);
  if (device == Cpu::name) return {free.host, false};
  if (free.device > 0) return {free.device, true};
  throw Error(ErrorKind::usage, "this machine has no device " + std::string(device) +
                                    " whose memory could be the limit; give --memory-per-rank or --memory");
}

int run(int argc, char const* const* argv) {
  Settings settings;
  cli::CommandLine line("plan", "Says how many bytes every recipe needs, which fit, and which to pick.",
                        examples);
  declare(line, settings);
  if (!line.parse(argc, argv)) return 0;
  if (settings.memory > 0 && settings.memory_per_rank > 0)
    throw Error(ErrorKind::usage, "--memory and --memory-per-rank are both given; give one of them");
  std::vector<Point> const points = cli::make_matrix(settings.matrix, settings.vocabulary);
  bool const stdout_is_data = settings.json == "-";
  if (!settings.json.empty() && !stdout_is_data) check_writable(settings.json);
  Limit limit{settings.memory_per_rank > 0 ? settings.memory_per_rank : settings.memory,
              settings.memory_per_rank > 0};
  bool const available = limit.bytes == 0;
  if (available) limit = free_now(points.front().recipe.device);

  std::ostream& log = stdout_is_data ? std::cerr : std::cout;
  cli::Terminal const terminal = cli::Terminal::of(stdout_is_data ? 2 : 1);
  log << "limit: " << bytes_text(limit.bytes) << (limit.per_rank ? " for each rank" : " for all ranks")
      << (available ? ", what this machine has available" : "") << "; bytes are of one rank, the largest\n";
  std::vector<Planned> rows;
  for (Point const& point : points) {
    bool const first = rows.empty() || rows.back().point.group() != point.group();
    rows.push_back(plan_point(point, settings.trainer, limit, !settings.no_search));
    log << (first ? "\n" : "") << row_text(rows.back(), first, settings, terminal) << std::flush;
  }
  log << "\n" << picks_text(rows, limit) << warnings_text(rows);
  if (!settings.json.empty()) {
    Json document = Json::object();
    document["schema_version"] = results::schema_version;
    document["command"] = cli::command_text(argc, argv);
    document["environment"] = cli::environment(device_facts(points.front().recipe.device));
    Json list = Json::array();
    for (Planned const& row : rows) list.push_back(to_json(row, limit, pick(rows, family(row.point))));
    document["rows"] = std::move(list);
    std::string const text = document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
    if (stdout_is_data) {
      std::cout << text;
    } else {
      write_file(settings.json, text);
      log << "wrote " << v0::detail::path_text(settings.json) << "\n";
    }
  }
  auto const any = [&](char const* status) {
    return std::any_of(rows.begin(), rows.end(), [&](Planned const& row) { return row.status == status; });
  };
  if (any("failed")) return exit_code(ErrorKind::failed);
  if (any("fits")) return 0;
  if (any("oom"))
    throw Error(ErrorKind::out_of_memory,
                "no recipe fits " + bytes_text(limit.bytes) + "; see the table for what would");
  throw Error(ErrorKind::unsupported, "every recipe was refused: " + rows.front().reason);
}

}  // namespace

}  // namespace planning
}  // namespace tessera::inline v0

int main(int argc, char** argv) {
  return tessera::cli::guarded([&] { return tessera::planning::run(argc, argv); });
}
