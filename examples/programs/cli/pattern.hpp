// SPDX-License-Identifier: Apache-2.0
// Provides regular expressions for command lines. The library PCRE2 matches them: it can limit the time of a
// search, and it refuses patterns that are nested too deeply.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#if !defined(PCRE2_CODE_UNIT_WIDTH)
#define PCRE2_CODE_UNIT_WIDTH 8
#endif
#include <pcre2.h>

#include "cli/values.hpp"

namespace programs {
using namespace tessera;
namespace cli {

/// A compiled regular expression that may match anywhere in a name. Copies share the compiled pattern.
/// Several threads may use a pattern at the same time.
class Pattern {
 public:
  /// Compiles `text`. Throws Error(usage) for an invalid pattern. The message names the flag, the mistake,
  /// and the part of the pattern before the mistake.
  Pattern(std::string const& flag, std::string const& text) {
    int problem = 0;
    std::size_t at = 0;
    code_.reset(pcre2_compile(letters(text), text.size(), 0, &problem, &at, nullptr), &pcre2_code_free);
    if (code_) return;
    PCRE2_UCHAR reason[256] = {};
    pcre2_get_error_message(problem, reason, sizeof reason);
    refuse(flag + ": " + in_quotes(text) + " is not a regular expression (" +
           reinterpret_cast<char const*>(reason) + ", after " + std::to_string(at) +
           " letters); give one over names, such as 'wte|h\\.[0-5]\\.'");
  }

  /// Returns whether the pattern matches somewhere in `name`. Throws Error(usage) if the search takes too
  /// long.
  bool matches(std::string_view name) const {
    std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> const found(
        pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
    std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> const bounds(
        pcre2_match_context_create(nullptr), &pcre2_match_context_free);
    pcre2_set_match_limit(bounds.get(), 1000000);
    int const result = pcre2_match(code_.get(), letters(name), name.size(), 0, 0, found.get(), bounds.get());
    if (result < 0 && result != PCRE2_ERROR_NOMATCH)
      refuse("takes too long on " + in_quotes(name) + "; write it without nested repetitions");
    return result >= 0;
  }

 private:
  static PCRE2_SPTR letters(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

  std::shared_ptr<pcre2_code> code_;
};

}  // namespace cli
}  // namespace programs
