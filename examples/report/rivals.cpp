// SPDX-License-Identifier: Apache-2.0
// What rows of other programs may say.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "common/values.hpp"
#include "report/reading.hpp"

namespace tessera {
inline namespace v0 {
namespace reporting {

namespace {

/// What the CSV calls the programs of rows of ours.
constexpr std::string_view own_programs[] = {"compare", "train", "plan",    "report",
                                             "monitor", "info",  "prepare", "step logs"};
constexpr std::string_view stage_names[] = {"dp", "zs0", "zs1", "zs2", "zs3"};

bool is_date(std::string const& text) {
  constexpr std::string_view form = "0000-00-00";
  bool const formed = text.size() == form.size() &&
                      std::equal(text.begin(), text.end(), form.begin(),
                                 [](char c, char of) { return of == '-' ? c == '-' : c >= '0' && c <= '9'; });
  if (!formed) return false;
  std::string const month = text.substr(5, 2), day = text.substr(8);
  return month >= "01" && month <= "12" && day >= "01" && day <= "31";
}

/// No white space at its ends and nothing that is not seen: names that look alike are alike. The text is
/// UTF-8.
bool is_plain_name(std::string_view text) {
  if (text.starts_with(' ') || text.ends_with(' ')) return false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    auto const byte = [&](std::size_t ahead) {
      return at + ahead < text.size() ? static_cast<unsigned char>(text[at + ahead]) : 0u;
    };
    unsigned const first = byte(0), second = byte(1), third = byte(2);
    bool const unseen =
        first < 0x20 || first == 0x7f ||
        (first == 0xc2 && (second <= 0xa0 || second == 0xad)) ||  // to U+00A0
        (first == 0xe2 && second == 0x80 && (third <= 0x8f || (third >= 0xa8 && third <= 0xaf))) ||  // U+2000
        (first == 0xe2 && second == 0x81 && third >= 0x9f && third <= 0xaf) ||                       // U+205F
        (first == 0xe3 && second == 0x80 && third == 0x80) ||                                        // U+3000
        (first == 0xef && second == 0xbb && third == 0xbf);                                          // U+FEFF
    if (unseen) return false;
  }
  return true;
}

}  // namespace

std::string fault_of(Rival const& rival) {
  Row const& row = rival.row;
  for (Number const number :
       {Number::params, Number::batch, Number::sequence, Number::world, Number::accumulation})
    if (auto const& value = row[number];
        value && (*value < 1.0 || *value > whole_at_most || *value != std::floor(*value)))
      return cli::in_quotes(field(number).key) + " is no whole number from 1 on, up to 2^53 - 1";
  if (*row[Number::tokens_per_sec] <= 0.0)
    return cli::in_quotes(field(Number::tokens_per_sec).key) + " is 0; leave out what did not run";
  if (!rival.date.empty() && !is_date(rival.date))
    return "'date' is " + cli::in_quotes(rival.date) + "; write it as 2026-01-31, or leave it out";
  std::string const& stage = row[Word::sharding];
  if (!stage.empty() &&
      std::find(std::begin(stage_names), std::end(stage_names), stage) == std::end(stage_names))
    return "'sharding' is " + cli::in_quotes(stage) + "; write dp or zs0 to zs3, or leave it out";
  if (!is_plain_name(rival.program))
    return "'program' is " + cli::in_quotes(rival.program) +
           ", with white space at an end or a character that is not seen; remove that";
  std::string const lower = cli::lower(rival.program);
  if (lower.starts_with("tessera"))
    return "is named " + cli::in_quotes(rival.program) +
           "; rows of Tessera are those that compare wrote, give them";
  if (std::find(std::begin(own_programs), std::end(own_programs), lower) != std::end(own_programs))
    return "is named " + cli::in_quotes(rival.program) + ", as a program of Tessera; give it another name";
  return {};
}

}  // namespace reporting
}  // namespace v0
}  // namespace tessera
