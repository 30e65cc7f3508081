// SPDX-License-Identifier: Apache-2.0
// Implements verdicts.hpp: the rows that represent programs, the best rows of a figure, verdicts of rows, and
// sentences about precisions and the utilization of GPUs.
#include "results/verdicts.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "tessera/policy/parse.hpp"

#include "cli/slot_flags.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace results {

namespace {

/// Returns the ratio of two numbers as text with two or three significant digits: "3.1", "0.79", "12".
std::string ratio_text(double ratio) { return cli::fixed(ratio, ratio < 1.0 ? 2 : ratio < 10.0 ? 1 : 0); }

bool is_faster(Candidate const& one, Candidate const& other) {
  return is_higher(one.rate, one.spread, other.rate, other.spread);
}

/// The rows between which a user chooses: rows of the same work and precision.
using Group = std::vector<std::size_t>;
std::vector<Group> groups_of(Candidates rows) {
  std::vector<std::pair<std::string, Group>> groups;
  for (std::size_t at = 0; at < rows.size(); ++at) {
    std::string const key = rows[at].work + "\n" + rows[at].precision;
    auto found = std::ranges::find(groups, key, &std::pair<std::string, Group>::first);
    if (found == groups.end()) found = groups.insert(found, {key, {}});
    found->second.push_back(at);
  }
  std::vector<Group> list;
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list;
}

/// Returns the verdict of the row `row`, which is slower than the row `fastest`. `best` is the optimal row.
/// `is_short` says whether device memory is short for these rows; nullopt if this is unknown.
std::optional<std::string> verdict_of_slower(Candidate const& row, Candidate const& fastest,
                                             Candidate const& best, std::optional<bool> is_short) {
  if (!row.peak_mb || !best.peak_mb) return std::nullopt;
  if (*row.peak_mb >= *best.peak_mb) return "unnecessary";
  if (!is_short) return std::nullopt;
  double const loss_pct = *percent_less(row.rate, fastest.rate);
  if (*is_short) return loss_pct > fallback_loss_pct ? "fallback" : "works";
  return loss_pct > overkill_loss_pct ? "overkill" : "unnecessary";
}

/// Writes the verdicts of the rows of one group to `verdicts`.
void judge(Candidates rows, Group const& group, std::vector<std::optional<std::string>>& verdicts) {
  std::vector<std::size_t> programs;  // the representing rows of the programs that may be ranked
  bool any_oom = false;
  for (std::size_t const at : group) {
    Candidate const& row = rows[at];
    any_oom = any_oom || row.status == "oom";
    if (row.status == "oom") verdicts[at] = "oom";
    if (!row.ok()) continue;
    if (std::size_t const other = represented_by(rows, at); other != at)
      verdicts[at] = "same program as " + rows[other].name;
    else if (row.has_rank() && row.spread)
      programs.push_back(at);
  }
  if (programs.empty() || (programs.size() < 2 && !any_oom)) return;
  if (programs.size() == 1) {
    bool const alone = std::ranges::none_of(
        group, [&](std::size_t at) { return rows[at].ok() && represented_by(rows, at) != programs.front(); });
    if (alone) verdicts[programs.front()] = "fallback";
    return;
  }
  std::size_t const first =
      *std::ranges::max_element(programs, {}, [&](std::size_t at) { return *rows[at].rate; });
  auto const is_as_fast = [&](std::size_t at) { return at == first || !is_faster(rows[first], rows[at]); };
  std::vector<std::size_t> fastest;
  std::ranges::copy_if(programs, std::back_inserter(fastest), is_as_fast);
  auto const how_plain = [&](std::size_t at) {
    return std::tuple(rows[at].recipe != rows[at].sharding, plainness(rows[at].sharding), at);
  };
  std::size_t const plainest = *std::ranges::min_element(fastest, {}, how_plain);
  std::optional<bool> is_short;
  if (any_oom)
    is_short = true;
  else if (auto const& peak = rows[plainest].peak_mb, &limit = rows[plainest].limit_mb; peak && limit)
    is_short = 100.0 * *peak > roomy_pct * *limit;
  std::size_t best = plainest;
  if (is_short == true)
    best = *std::ranges::min_element(fastest, {}, [&](std::size_t at) {
      return std::tuple(rows[at].peak_mb.value_or(INFINITY), how_plain(at));
    });
  for (std::size_t const at : programs)
    verdicts[at] = at == best       ? "optimal"
                   : is_as_fast(at) ? "works"
                                    : verdict_of_slower(rows[at], rows[first], rows[best], is_short);
}

/// Two rows with the same work and recipe but different precisions: their recipe, and the ratios of their
/// rates and of their peaks of device memory.
struct Pair {
  std::string recipe;
  double rate = 0.0;
  std::optional<double> memory;
};

/// Returns a sentence about the pairs of the precisions `precision` and `base`.
std::string precision_text(std::string const& precision, std::string const& base,
                           std::vector<Pair> const& pairs) {
  auto const by_rate = [](Pair const& one, Pair const& other) { return one.rate < other.rate; };
  auto const [least, most] = std::minmax_element(pairs.begin(), pairs.end(), by_rate);
  std::string const low = ratio_text(least->rate), high = ratio_text(most->rate);
  std::string text = precision + " is ";
  text += low == high ? high : low + " (" + least->recipe + ") to " + high + " (" + most->recipe + ")";
  text += " times as fast as " + base;
  if (pairs.size() == 1) text += " at " + pairs.front().recipe;
  if (pairs.size() > 1) text += " with equal recipes";
  double smallest = INFINITY, largest = 0.0;
  for (Pair const& pair : pairs) {
    if (!pair.memory) return text;
    smallest = std::min(smallest, *pair.memory);
    largest = std::max(largest, *pair.memory);
  }
  std::string const from = cli::fixed(smallest, 2), to = cli::fixed(largest, 2);
  return text + ", and uses " + (from == to ? from : from + " to " + to) + " of its device memory";
}

/// Adds sentences that compare the precisions of rows with the same work and recipe. The base is fp32 if a
/// row has it, otherwise the precision of the slowest row.
void add_precisions(Candidates rows, std::vector<std::size_t> const& programs, std::string const& ending,
                    std::vector<std::string>& sentences) {
  std::size_t const slowest =
      *std::ranges::min_element(programs, {}, [&](std::size_t at) { return *rows[at].rate; });
  bool const has_fp32 =
      std::ranges::any_of(programs, [&](std::size_t at) { return rows[at].precision == "fp32"; });
  std::string const base = has_fp32 ? "fp32" : rows[slowest].precision;
  std::vector<std::pair<std::string, std::vector<Pair>>> others;
  for (std::size_t const at : programs) {
    Candidate const& row = rows[at];
    auto const other = std::ranges::find_if(programs, [&](std::size_t each) {
      return rows[each].precision == base && rows[each].recipe == row.recipe;
    });
    if (row.precision == base || other == programs.end()) continue;
    if (!is_faster(row, rows[*other]) && !is_faster(rows[*other], row)) continue;
    auto found = std::ranges::find(others, row.precision, &std::pair<std::string, std::vector<Pair>>::first);
    if (found == others.end()) found = others.insert(found, {row.precision, {}});
    auto const &peak = row.peak_mb, &peak_of_base = rows[*other].peak_mb;
    found->second.push_back(
        {row.recipe, *row.rate / *rows[*other].rate,
         peak && peak_of_base && *peak_of_base > 0.0 ? std::optional(*peak / *peak_of_base) : std::nullopt});
  }
  for (auto const& [precision, pairs] : others)
    sentences.push_back(precision_text(precision, base, pairs) + ending);
}

/// Adds a sentence for each precision, if the GPUs are clearly less busy under one recipe than under another.
void add_utilization(Candidates rows, std::vector<std::size_t> const& programs, std::string const& ending,
                     std::vector<std::string>& sentences) {
  std::map<std::string, std::vector<std::size_t>> precisions;
  for (std::size_t const at : programs)
    if (rows[at].utilization_pct && rows[at].utilization_deviation_pct)
      precisions[rows[at].precision].push_back(at);
  for (auto const& [precision, known] : precisions) {
    auto const [low, high] =
        std::ranges::minmax_element(known, {}, [&](std::size_t at) { return *rows[at].utilization_pct; });
    Candidate const &least = rows[*low], &most = rows[*high];
    // The driver averages the utilization over up to a second, so small differences are not reliable.
    constexpr double reliable_pct = 5.0;
    double const deviations = *most.utilization_deviation_pct + *least.utilization_deviation_pct;
    if (*most.utilization_pct - *least.utilization_pct <= std::max(reliable_pct, deviations)) continue;
    sentences.push_back(least.recipe + " lowers the utilization of the GPUs in " + precision + " to " +
                        cli::fixed(*least.utilization_pct, 0) + "%, from " +
                        cli::fixed(*most.utilization_pct, 0) + "% with " + most.recipe + ending);
  }
}

}  // namespace

void describe_recipe(Candidate& row, SlotNames const& names) {
  row.precision = names.precision;
  row.recipe = row.sharding = names.sharding;
  // The default of a slot depends on the device and on the precision. A file may have names that this build
  // does not know.
  auto const device = cli::slot_names<slot::device>(std::string(names.device));
  auto const precision = cli::slot_names<slot::precision>(std::string(names.precision));
  RecipeTable const above =
      parse_recipe({.device = device ? std::string_view(*device) : std::string_view(),
                    .precision = precision ? std::string_view(*precision) : std::string_view()});
  for_each_slot([&]<class Slot>(Slot) {
    std::string_view const name = names.*Slot::field;
    if (std::is_same_v<Slot, slot::device> || std::is_same_v<Slot, slot::precision> ||
        std::is_same_v<Slot, slot::sharding> || name.empty() || name == Slot::standard(above))
      return;
    std::string const text = std::string(Slot::title) + " " + std::string(name);
    if (std::is_same_v<Slot, slot::adapters>)
      row.work += ", " + text;
    else
      row.recipe += " " + text;
  });
}

std::optional<double> rank_memory_mb(std::string_view device, std::string_view offload,
                                     std::optional<double> device_mb, std::optional<double> host_mb) {
  bool const has_host_part = device == Cpu::name && !offload.empty() && offload != "none";
  if (!has_host_part || !device_mb) return device_mb;
  return host_mb ? std::optional(*device_mb + *host_mb) : std::nullopt;
}

std::string memory_name(bool has_host_part) {
  return has_host_part ? "device and host memory" : "device memory";
}

int plainness(std::string_view sharding) {
  return sharding.size() == 3 && sharding.starts_with("zs") && '0' <= sharding[2] && sharding[2] <= '3'
             ? sharding[2] - '0'
             : 4;
}

std::size_t represented_by(Candidates rows, std::size_t at) {
  if (!rows[at].program) return at;
  auto const key = [&](std::size_t row) {
    return std::tuple(!rows[row].ok(), !rows[row].has_rank(), plainness(rows[row].sharding), row);
  };
  std::size_t best = at;
  for (std::size_t row = 0; row < rows.size(); ++row)
    if (rows[row].program == rows[at].program && rows[row].ok() && key(row) < key(best)) best = row;
  return best;
}

std::vector<std::size_t> ranked_programs(Candidates rows) {
  std::vector<std::size_t> programs;
  for (std::size_t at = 0; at < rows.size(); ++at)
    if (rows[at].has_rank() && represented_by(rows, at) == at) programs.push_back(at);
  return programs;
}

std::optional<double> efficiency_of(std::optional<double> rate, std::optional<double> peak_mb) {
  if (!rate || !peak_mb || !(*peak_mb > 0.0)) return std::nullopt;
  return *rate / (*peak_mb / 1024.0);
}

std::optional<double> percent_less(std::optional<double> value, std::optional<double> base) {
  if (!value || !base || !(*base > 0.0)) return std::nullopt;
  return 100.0 * (1.0 - *value / *base);
}

bool is_higher(std::optional<double> one, std::optional<double> spread_of_one, std::optional<double> other,
               std::optional<double> spread_of_other) {
  if (!one || !other || !spread_of_one || !spread_of_other || !(*other > 0.0)) return false;
  double const ratio = *one / *other;
  return ratio - 1.0 > ratio_uncertainty(ratio, *spread_of_one, *spread_of_other);
}

std::optional<double> rate_of(Candidate const& row) { return row.rate; }
std::optional<double> efficiency_of(Candidate const& row) { return efficiency_of(row.rate, row.peak_mb); }

Leaders leaders_of(Candidates rows, Figure const& figure) {
  Leaders leaders;
  for (std::size_t const at : ranked_programs(rows))
    if (figure(rows[at])) leaders.rows.push_back(at);
  leaders.programs = leaders.rows.size();
  if (leaders.rows.empty()) return leaders;
  std::ranges::stable_sort(leaders.rows, std::greater(), [&](std::size_t at) { return *figure(rows[at]); });
  Candidate const& first = rows[leaders.rows.front()];
  leaders.is_known = first.spread.has_value();
  std::erase_if(leaders.rows, [&](std::size_t at) {
    return is_higher(figure(first), first.spread, figure(rows[at]), rows[at].spread);
  });
  return leaders;
}

std::vector<std::optional<std::string>> verdicts(Candidates rows) {
  std::vector<std::optional<std::string>> list(rows.size());
  for (Group const& group : groups_of(rows)) judge(rows, group, list);
  return list;
}

std::vector<std::string> observations(Candidates rows) {
  std::vector<std::pair<std::string, std::vector<std::size_t>>> works;
  for (std::size_t const at : ranked_programs(rows)) {
    auto found = std::ranges::find(works, rows[at].work, [](auto const& entry) { return entry.first; });
    if (found == works.end()) found = works.insert(found, {rows[at].work, {}});
    found->second.push_back(at);
  }
  std::vector<std::string> sentences;
  for (auto const& [work, programs] : works) {
    std::string const ending = works.size() > 1 ? " (" + work + ")" : std::string();
    add_precisions(rows, programs, ending, sentences);
    add_utilization(rows, programs, ending, sentences);
  }
  constexpr std::size_t most = 6;
  sentences.resize(std::min(sentences.size(), most));
  return sentences;
}

std::string disk_text(double gb_per_s) {
  std::string text = "the disk moved " + cli::fixed(gb_per_s, gb_per_s < 0.1 ? 3 : 1) + " GB/s";
  if (gb_per_s < advised_disk_gb_per_s)
    text += "; " + cli::fixed(advised_disk_gb_per_s, 0) + " GB/s or more are advised for state on NVMe";
  return text;
}

std::string slow_disk_text(std::optional<double> gb_per_s) {
  return gb_per_s && *gb_per_s < advised_disk_gb_per_s ? disk_text(*gb_per_s) : std::string();
}

std::optional<std::size_t> fastest_row(std::span<Row const> rows) {
  auto const text_in = [](Row const& row, char const* field) {
    auto const found = row.find(field);
    return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  std::map<std::string, std::size_t> numbers;  // maps the name of a program's first row to a number
  std::vector<Candidate> candidates;
  for (Row const& row : rows) {
    Candidate& candidate = candidates.emplace_back();
    candidate.status = text_in(row, "status");
    candidate.sharding = text_in(row, "sharding");
    auto const rate = row.find("median_tokens_per_sec"), disturbed = row.find("disturbed");
    if (rate != row.end() && rate->is_number()) candidate.rate = rate->get<double>();
    if (candidate.rate && !(*candidate.rate > 0.0)) candidate.status = "failed";
    candidate.ranked = disturbed == row.end() || *disturbed != true;
    std::string const twin = text_in(row, "same_program_as");
    candidate.program =
        numbers.emplace(twin.empty() ? text_in(row, "experiment") : twin, numbers.size()).first->second;
  }
  std::optional<std::size_t> best;
  auto const key = [&](std::size_t at) {
    return std::pair(candidates[at].ranked, candidates[at].rate.value_or(0.0));
  };
  for (std::size_t at = 0; at < rows.size(); ++at)
    if (candidates[at].ok() && represented_by(candidates, at) == at && (!best || key(at) > key(*best)))
      best = at;
  return best;
}

}  // namespace results
}  // namespace programs
