// SPDX-License-Identifier: Apache-2.0
// Recommends one row of the result table of the program `plan`. A row is a recipe with a model, a batch and a
// sequence. The advice also says how much memory or speed the recommended row costs in comparison with other
// rows.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/planning.hpp"

namespace programs {
using namespace tessera;
namespace planning {

/// The criterion by which a row is recommended.
enum class Preference {
  simple,     ///< least offload, and the further comparisons of `given_up`
  speed,      ///< most predicted tokens per second
  memory,     ///< fewest bytes per rank in device memory; on the CPU this includes offloaded state
  efficiency  ///< most predicted tokens per second for each byte of device memory
};

/// Returns whether a preference compares predicted rates.
constexpr bool compares_rates(Preference preferred) {
  return preferred == Preference::speed || preferred == Preference::efficiency;
}

/// If the predictions of two rows differ by less than this fraction, they count as equal. The expected error
/// of one prediction is larger (Prediction::error_pct), but rows on the same machine have similar errors, so
/// these largely cancel when two rows are compared.
inline constexpr double equal_share = 0.1;

/// Returns the row that fits and best meets the preference, out of one family. A family is all rows with the
/// same model, precision, adapters, ranks, batch and sequence; `family` is the text that the function
/// `family(point)` returns for these rows. For speed and efficiency, all rows within `equal_share` of the
/// best prediction count as equal; the one with the simplest policies is returned. For memory, the row with
/// the fewest bytes per rank is returned; among equal rows, the row with the fewest bytes in total. Returns
/// null if no row fits, or if a prediction is needed and no row has one.
Planned const* pick(std::vector<Planned> const& rows, std::string const& family, Preference preferred);

/// Returns the row that `pick` returns. If the preference needs predictions and no fitting row has one,
/// returns for speed the simplest row that fits, and for efficiency the row with the fewest bytes.
Planned const* pick_by_what_is_known(std::vector<Planned> const& rows, std::string const& family,
                                     Preference preferred);

/// Returns a recommended row as text: "zs2_bf16_ranks2_bs4_sl128, 23.1 MiB a rank and ..., 12,345 tok/s
/// predicted".
std::string picked_text(Planned const& row);

/// Returns lines that explain why the row `picked` is recommended: the reason, and except for
/// Preference::simple, comparisons with the row that a published rule of thumb would choose, and with the
/// rows that other preferences would choose.
std::string advice_text(std::vector<Planned> const& rows, Planned const& picked, Preference preferred);

/// Returns the commands that measure the times of the steps of `rows` on one host, and that plan with them:
/// "run info --measure FILE --device cuda --precisions bf16 --ranks 1 on such a machine, then plan --machine
/// FILE".
std::string measuring_text(std::vector<Planned const*> const& rows);

/// Returns the text "predicted, +-N%" with the expected error of a prediction. If more than half of the step
/// is guessed, it is "predicted, error possibly above +-N%".
std::string predicted_text(cli::Prediction const& predicted);

/// Returns the predicted time of the row `other` and how it differs from that of the row `picked`: " (12.3 ms
/// a step predicted, 22% less)", or "equal within 10%" in place of the difference. Both rows must have the
/// same number of tokens in a step. Returns "" without a prediction.
std::string against_text(Planned const& other, Planned const& picked);

/// Returns the predicted tokens per second of all ranks, divided by the GiB that one rank needs; nullopt
/// without a prediction.
std::optional<double> efficiency(Planned const& row);

}  // namespace planning
}  // namespace programs
