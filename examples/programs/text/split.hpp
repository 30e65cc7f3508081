// SPDX-License-Identifier: Apache-2.0
// Splits a text by a regular expression, as the pre-tokenizers of a tokenizer.json do.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace programs {
namespace text {

using Pieces = std::vector<std::string_view>;

/// The treatment of a match of the expression, called the delimiter. The names are from tokenizer.json.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A part of a text, and whether the part matches the expression. The parts of a text are in order, not
/// empty, and cover the whole text.
struct Stretch {
  std::string_view text;
  bool matches;
};
void join_stretches(std::vector<Stretch> const& stretches, Delimiter delimiter, Pieces& out);

/// Scratch memory for matching. Each thread needs one for each expression.
class MatchScratch {
 public:
  MatchScratch() = default;

 private:
  friend class Expression;
  std::shared_ptr<void> data_;
  std::vector<Stretch> stretches_;
};

/// A regular expression in the syntax of tokenizer.json (Oniguruma's), run by PCRE2. Immutable, so threads
/// can share it.
class Expression {
 public:
  /// Throws Error(data), which starts with `name`, if PCRE2 cannot compile the pattern or would interpret it
  /// differently.
  Expression(std::string const& name, std::string_view pattern);

  /// Splits valid UTF-8 text and appends the parts to `out`. With `invert`, the text between matches is the
  /// delimiter. Throws Error(data) if PCRE2 reaches its limits.
  void split(std::string_view text, Delimiter delimiter, bool invert, MatchScratch& scratch,
             Pieces& out) const;

 private:
  std::string name_;
  std::shared_ptr<void> code_;
};

/// Translates an Oniguruma expression to PCRE2 syntax so that \s matches the same characters. Throws
/// Error(data) for syntax whose meaning differs.
std::string pcre_pattern(std::string const& name, std::string_view pattern);

}  // namespace text
}  // namespace programs
