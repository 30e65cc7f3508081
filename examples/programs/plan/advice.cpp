// SPDX-License-Identifier: Apache-2.0
#include "plan/advice.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "tessera/core/place.hpp"

#include "cli/terminal.hpp"
#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace planning {

namespace {

/// Returns the bytes that a rank needs in device memory. On the CPU the device uses host memory, so the bytes
/// of state that is offloaded to host memory are included.
std::int64_t memory_of(Planned const& row) {
  bool const shared = !info_of(row.point.recipe.device).own_memory;
  return row.on(Tier::device) + (shared ? row.on(Tier::host) : 0);
}

/// Returns a score that says how well a row meets the preference; higher is better. A row without the
/// prediction that the preference needs has the score 0.
double worth(Planned const& row, Preference preferred) {
  double const bytes = std::max(1.0, static_cast<double>(memory_of(row)));
  double const rate = row.predicted.tokens_per_second().value_or(0.0);
  switch (preferred) {
    case Preference::speed:
      return rate;
    case Preference::memory:
      return 1.0 / bytes;
    case Preference::efficiency:
      return rate / bytes;
    case Preference::simple:
      return 1.0;
  }
  return 0.0;
}

/// Returns a predicted rate as text: "12,345 tok/s predicted, +-50% (link times from its data sheet, 40% of
/// the step guessed)". The words about the link are left out if no time was computed from the data sheet of
/// the link between GPUs. The guessed part is the share of the step without measured times. The text leaves
/// the guessed part out if it is at most a tenth.
std::string rate_text(cli::Prediction const& predicted) {
  auto const rate = predicted.tokens_per_second();
  if (!rate) return "its speed is not known";
  cli::Names notes;
  if (predicted.from_link_data) notes.emplace_back("link times from its data sheet");
  if (predicted.guesses_much())
    notes.push_back(cli::fixed(100.0 * predicted.guessed, 0) + "% of the step guessed");
  return cli::grouped(std::llround(*rate)) + " tok/s " + predicted_text(predicted) +
         (notes.empty() ? "" : " (" + cli::joined(notes) + ")");
}

/// Returns the memory that one rank needs as text.
std::string taken_text(Planned const& row) {
  bool const shared = !info_of(row.point.recipe.device).own_memory;
  return bytes_text(memory_of(row)) + (shared ? " of memory a rank" : " a rank");
}

/// Returns the name, rate and memory of a row as text: "zs2_... (12,345 tok/s predicted, 17.2 MiB a rank)".
std::string figures_text(Planned const& row) {
  bool const predicted = row.predicted.step_s.has_value() || !row.predicted.reason.empty();
  return row.point.experiment + row.unnamed() + " (" +
         (predicted ? rate_text(row.predicted) + ", " : std::string()) + taken_text(row) + ")";
}

/// Appends a line to `out` that compares the recommended row `picked` with the row `named`. A published rule
/// of thumb, whose text is `rule`, would choose `named`.
void add_pattern(std::string& out, std::string const& rule, Planned const* named, Planned const& picked) {
  if (!named) return;
  if (named == &picked)
    out += "  a published rule of thumb picks the same row: " + rule + "\n";
  else if (memory_of(*named) == memory_of(picked))
    out += "  a published rule of thumb picks " + named->point.experiment +
           ", which needs as much memory: " + rule + "\n";
  else
    out += "  a published rule of thumb picks " + figures_text(*named) + ": " + rule + "\n";
}

/// Returns a line if another row of the family has a better prediction than the row `picked`, which is picked
/// because both count as equal. Returns "" otherwise.
std::string equal_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred) {
  if (preferred != Preference::speed && preferred != Preference::efficiency) return {};
  std::string const of = family(picked.point);
  Planned const* best = &picked;
  for (Planned const& row : rows)
    if (row.fits() && family(row.point) == of && worth(row, preferred) > worth(*best, preferred)) best = &row;
  if (worth(*best, preferred) <= 0.0) return {};
  double const lost = 1.0 - worth(picked, preferred) / worth(*best, preferred);
  if (lost < 0.0005) return {};  // rounds to 0.0%
  return "  " + best->point.experiment + best->unnamed() + " is predicted to " +
         (preferred == Preference::speed ? "need " + cli::fixed(100.0 * lost, 1) + "% less time"
                                         : "be " + cli::fixed(100.0 * lost, 1) + "% more efficient") +
         "; predictions within " + cli::fixed(100.0 * equal_share, 0) +
         "% of the best one count as equal, so the simplest of these recipes is picked\n";
}

/// Returns a line about the recommended row `picked` if no row that fits has a predicted time: the reason,
/// the rule by which `pick_by_what_is_known` chose the row, and the command that measures the times.
std::string unknown_speed_text(Planned const& picked, Preference preferred) {
  return "  no recipe that fits has a predicted time: " + picked.predicted.reason + "; so the pick is the " +
         (preferred == Preference::efficiency ? "recipe with the least memory" : "simplest recipe") +
         ", whose speed is not known; to get times, " + measuring_text({&picked}) + "\n";
}

/// Returns a line with the reason for which the row `picked` is recommended, which has a prediction if the
/// preference needs one. Names only the comparisons that
/// decided: a property that all fitting rows of the family share is left out.
std::string reason_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred) {
  std::string const of = family(picked.point);
  std::vector<Planned const*> others;  // rows with other figures
  for (Planned const& row : rows)
    if (&row != &picked && row.fits() && family(row.point) == of && row.same_program_as.empty())
      others.push_back(&row);
  if (others.empty()) return "  reason: the only row that fits\n";
  if (preferred == Preference::memory) return "  reason: no row that fits needs less memory a rank\n";
  if (preferred != Preference::simple)
    return "  reason: the simplest row within " + cli::fixed(100.0 * equal_share, 0) + "% of the " +
           (preferred == Preference::speed ? "highest predicted speed\n"
                                           : "highest predicted speed per GiB of memory\n");
  Sacrifices const its = sacrifices_of(picked);
  // Keeps the rows that equal the pick in a number, and returns whether some rows did not.
  auto const decides = [&](auto const number) {
    return std::erase_if(others, [&](Planned const* row) {
             return std::invoke(number, sacrifices_of(*row)) != std::invoke(number, its);
           }) > 0;
  };
  cli::Names reasons;
  bool const by_place = decides(&Sacrifices::on_nvme) | decides(&Sacrifices::off_device);
  if (its.off_device == 0)
    reasons.emplace_back("fits without offload");
  else if (by_place)
    reasons.emplace_back("offloads least of the rows that fit");
  if (decides(&Sacrifices::copied)) reasons.emplace_back("divides the offloaded state among the ranks");
  if (decides(&Sacrifices::recompute)) reasons.emplace_back("recomputes least");
  if (decides(&Sacrifices::stage)) reasons.emplace_back("has the lowest stage");
  return reasons.empty() ? "" : "  reason: it " + cli::joined(reasons, ", and of such rows ") + "\n";
}

}  // namespace

std::string measuring_text(std::vector<Planned const*> const& rows) {
  cli::Names precisions, ranks;
  bool on_nvme = false;
  for (Planned const* row : rows) {
    precisions.emplace_back(row->point.recipe.names.precision);
    ranks.push_back(std::to_string(row->predicted.ranks_of_host));
    on_nvme |= row->on(Tier::nvme) > 0;
  }
  return "run info --measure FILE --device " + std::string(rows.front()->point.recipe.names.device) +
         " --precisions " + cli::joined(cli::distinct(precisions), ",") + " --ranks " +
         cli::joined(cli::distinct(ranks), ",") + (on_nvme ? " --nvme-path FOLDER" : "") +
         " on such a machine, then plan --machine FILE";
}

std::string predicted_text(cli::Prediction const& predicted) {
  std::string const error = "+-" + cli::fixed(predicted.error_pct, 0) + "%";
  return "predicted, " + (predicted.is_mostly_guessed() ? "error possibly above " + error : error);
}

std::string against_text(Planned const& other, Planned const& picked) {
  if (!other.predicted.step_s) return {};
  double const then = *other.predicted.step_s, now = picked.predicted.step_s.value_or(0.0);
  std::string out = " (" + cli::fixed(then * 1e3, 1) + " ms a step predicted";
  if (now > 0.0) {
    bool const equal = std::min(now, then) >= (1.0 - equal_share) * std::max(now, then);
    out +=
        equal ? ", equal within " + cli::fixed(100.0 * equal_share, 0) + "%"
              : ", " + cli::fixed(100.0 * std::abs(then / now - 1.0), 0) + (then < now ? "% less" : "% more");
  }
  return out + ")";
}

std::optional<double> efficiency(Planned const& row) {
  auto const rate = row.predicted.tokens_per_second();
  if (!rate || memory_of(row) <= 0) return std::nullopt;
  return *rate / (static_cast<double>(memory_of(row)) / (1 << 30));
}

Planned const* pick(std::vector<Planned> const& rows, std::string const& of, Preference preferred) {
  std::vector<Planned const*> fitting;
  double most = 0.0;
  for (Planned const& row : rows)
    if (row.fits() && family(row.point) == of) {
      fitting.push_back(&row);
      most = std::max(most, worth(row, preferred));
    }
  bool const exact = preferred == Preference::memory;  // planned bytes are exact, predicted times are not
  auto const simpler = [&](Planned const& one, Planned const& other) {
    std::int64_t const a = one.footprint.total, b = other.footprint.total;
    if (exact && a != b) return a < b;
    return given_up(one) < given_up(other);
  };
  Planned const* best = nullptr;
  for (Planned const* row : fitting)
    if (double const its = worth(*row, preferred);
        its > 0.0 && its >= (exact ? most : (1.0 - equal_share) * most) && (!best || simpler(*row, *best)))
      best = row;
  return best;
}

Planned const* pick_by_what_is_known(std::vector<Planned> const& rows, std::string const& of,
                                     Preference preferred) {
  if (Planned const* best = pick(rows, of, preferred)) return best;
  return pick(rows, of, preferred == Preference::efficiency ? Preference::memory : Preference::simple);
}

std::string picked_text(Planned const& row) {
  auto const there = [&](Tier tier, char const* where) {
    return row.on(tier) > 0 ? " and " + bytes_text(row.on(tier)) + where : std::string();
  };
  auto const each = efficiency(row);
  return row.point.experiment + row.unnamed() + ", " + bytes_text(row.on(Tier::device)) + " a rank" +
         there(Tier::host, " of host memory") + there(Tier::nvme, " on NVMe") +
         (each ? ", " + cli::fixed(*row.predicted.step_s * 1e3, 1) + " ms a step, " +
                     rate_text(row.predicted) + ", " + cli::grouped(std::llround(*each)) +
                     " tok/s per GiB of a rank's memory"
               : std::string());
}

std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred) {
  bool const is_rated = picked.predicted.tokens_per_second().has_value();
  std::string out = compares_rates(preferred) && !is_rated ? unknown_speed_text(picked, preferred)
                                                           : reason_text(rows, picked, preferred);
  if (preferred == Preference::simple) return out;
  std::string const of = family(picked.point);
  std::set<int> stages;
  Planned const *lowest = nullptr, *offloaded = nullptr;
  for (Planned const& row : rows) {
    RecipeTable const& recipe = row.point.recipe;
    if (!row.fits() || family(row.point) != of || recipe.stage < 0) continue;
    stages.insert(recipe.stage);
    if (!lowest || simplicity(row) < simplicity(*lowest)) lowest = &row;
    if (recipe.stage == 3 && recipe.names.offload != "none" &&
        (!offloaded || memory_of(row) < memory_of(*offloaded) ||
         (&row == &picked && memory_of(row) == memory_of(*offloaded))))
      offloaded = &row;
  }
  out += equal_text(rows, picked, preferred);
  if (preferred == Preference::speed && stages.size() > 1)
    add_pattern(out, "'if speed is critical, take the lowest stage that fits'", lowest, picked);
  if (preferred == Preference::memory)
    add_pattern(out, "'if memory is critical, take ZeRO-3 with offload'", offloaded, picked);
  if (preferred == Preference::efficiency && is_rated)
    out +=
        "  a published rule of thumb picks the same row: 'the most tokens per second for each GB of peak "
        "memory'\n";
  if (Planned const* fastest = pick(rows, of, Preference::speed); fastest && fastest != &picked) {
    if (!picked.predicted.step_s) {
      out += "  fastest: " + figures_text(*fastest) +
             "; the speed of the pick is not known: " + picked.predicted.reason + "\n";
    } else {
      double const lost =
          1.0 - *picked.predicted.tokens_per_second() / *fastest->predicted.tokens_per_second();
      if (lost >= equal_share)
        out += "  fastest: " + figures_text(*fastest) + "; the pick has " + cli::fixed(100.0 * lost, 0) +
               "% fewer tok/s\n";
    }
  }
  if (Planned const* least = pick(rows, of, Preference::memory); least && least != &picked)
    if (std::int64_t const more = memory_of(picked) - memory_of(*least); more > 0)
      out += "  least memory: " + figures_text(*least) + ", " + bytes_text(more) + " less than the pick\n";
  return out;
}

}  // namespace planning
}  // namespace programs
