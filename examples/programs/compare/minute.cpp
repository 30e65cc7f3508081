// SPDX-License-Identifier: Apache-2.0
#include "compare/minute.hpp"

#include <algorithm>
#include <array>
#include <type_traits>
#include <utility>

#include "tessera/policy/table.hpp"

namespace programs {
using namespace tessera;
namespace compare {

namespace {

/// The precision of all recipes in `minute_recipes`.
constexpr char minute_precision[] = "bf16";

struct MinuteRecipe {
  char const *sharding, *offload;
};
/// If no flag selects rows or steps, `compare` trains only rows that fit into one minute. These are the
/// recipes of the rows, the most important first. If time is short, the last recipes are left out.
constexpr auto minute_recipes = std::to_array<MinuteRecipe>({{"zs0", "none"},
                                                             {"zs1", "none"},
                                                             {"zs2", "none"},
                                                             {"zs3", "none"},
                                                             {"zs3", "cpu_optimizer"},
                                                             {"zs3", "cpu_full"},
                                                             {"dp", "none"},
                                                             {"zs2", "cpu_optimizer"}});

/// Returns the index of the recipe `names` in `minute_recipes`; the size of `minute_recipes` if it does not
/// have the recipe.
std::size_t place_in_minute(SlotNames const& names) {
  auto const found = std::find_if(minute_recipes.begin(), minute_recipes.end(), [&](MinuteRecipe const& one) {
    return names.precision == minute_precision && names.sharding == one.sharding &&
           names.offload == one.offload;
  });
  return static_cast<std::size_t>(found - minute_recipes.begin());
}

}  // namespace

cli::Names row_flags() {
  cli::Names flags = {"--models",       "--ranks",        "--batch",      "--mesh",    "--sequence",
                      "--accumulation", "--global-batch", "--strategies", "--full",    "--pairs",
                      "--config",       "--defaults",     "--steps",      "--warmup",  "--epochs",
                      "--samples",      "--min-time",     "--repeat",     "--schedule"};
  for_each_slot([&]<class Slot>(Slot) {
    std::string const names = cli::slot_flag<Slot>().several;
    if (!std::is_same_v<Slot, slot::device>) flags.push_back(names.substr(0, names.find(',')));
  });
  return flags;
}

bool says_rows(cli::CommandLine const& line, int argc, char const* const* argv) {
  cli::Names const flags = row_flags();
  auto const says = [&](std::string const& flag) {
    // Under a launcher the command line has --ranks even if the user did not give this flag.
    return line.given(flag) && !(flag == "--ranks" && cli::joined_launch());
  };
  return std::any_of(flags.begin(), flags.end(), says) ||
         std::any_of(argv + 1, argv + argc, [](char const* word) { return *word == '@'; });
}

std::vector<Point> minute_of(std::vector<Point> points, Settings const& settings) {
  int const ranks = std::ranges::max(settings.matrix.ranks);
  auto const place = [](Point const& point) { return place_in_minute(point.recipe.names); };
  std::erase_if(points, [&](Point const& point) {
    return point.world() != ranks || place(point) == minute_recipes.size();
  });
  std::stable_sort(points.begin(), points.end(),
                   [&](Point const& one, Point const& other) { return place(one) < place(other); });
  return points;
}

Settings probe_of(Settings settings) {
  settings.warmup = 1;
  settings.steps = 2;
  return settings;
}

double choose_minute(std::vector<Point>& points, Settings& settings, Measured const& first, double began_s) {
  constexpr double reserve_s = 2.0, rows_differ = 1.25;
  MinuteLength length{points.size(), settings.warmup, settings.steps, 0.0};
  if (first.ok()) {
    Repeat const& ran = first.repeats.front();
    double const step_s = std::ranges::max(ran.timed.seconds);
    double const start_s = std::max(0.05, ran.total_s - 3.0 * step_s);
    length = minute_length(points.size(), rows_differ * start_s, rows_differ * step_s,
                           minute_s - reserve_s - began_s);
  }
  points.resize(length.rows);
  settings.warmup = length.warmup;
  settings.steps = length.steps;
  return length.seconds;
}

std::string left_out_text(Settings const& settings, std::vector<Point> const& requested, std::size_t ran,
                          std::size_t all, cli::Terminal const& terminal) {
  cli::Names parts;
  for (std::size_t at = ran; at < requested.size(); ++at) parts.push_back(requested[at].experiment);
  if (Settings const usual; settings.steps < usual.steps)
    parts.push_back(std::to_string(usual.steps - settings.steps) + " of " + std::to_string(usual.steps) +
                    " timed steps of each row");
  parts.push_back(std::to_string(all - requested.size()) + " of all " + std::to_string(all) + " recipes");
  return cli::wrapped("left out of this minute: " + cli::joined(parts), terminal.width) + "\n";
}

std::string next_text(Settings const& settings, std::filesystem::path const& report,
                      std::string const& program, std::string const& given,
                      std::vector<Measured> const& measured, std::size_t all) {
  std::vector<std::pair<std::string, std::string>> lines;
  double seconds = 0.0;
  std::size_t ran = 0;
  for (Measured const& row : measured)
    if (row.ok()) {
      seconds += row.repeats.front().total_s;
      ++ran;
    }
  double const longer = 25.0 / static_cast<double>(settings.warmup + settings.steps);
  lines.emplace_back(
      program + given + " --full",
      "all " + std::to_string(all) + " recipes" +
          (ran > 0 ? ", about " + cli::duration_text(seconds * longer * static_cast<double>(all) /
                                                     static_cast<double>(ran))
                   : std::string()));
  if (!report.empty())
    lines.emplace_back("xdg-open " + cli::in_shell(report.string()),
                       "this comparison as a page, with figures");
  std::string const published = " --model gpt2 --batch-size 4 --stages 0 1 2 3";
  if (info_of(device_named(settings.matrix.device)).on_cores)
    lines.emplace_back(program + published + " --num-steps 2 --warmup-steps 1",
                       "a published comparison, with its figures and yours; takes minutes on a CPU");
  else
    lines.emplace_back(program + " --device " + settings.matrix.device + published,
                       "a published comparison, with its figures and yours");
  std::size_t widest = 0;
  for (auto const& [command, meaning] : lines) widest = std::max(widest, cli::columns_of(command));
  std::string out = "\nnext:\n";
  for (auto const& [command, meaning] : lines)
    out += "  " + cli::padded(command, widest) + "  " + meaning + "\n";
  return out;
}

}  // namespace compare
}  // namespace programs
