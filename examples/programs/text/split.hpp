// SPDX-License-Identifier: Apache-2.0
// Splits a text by a regular expression in the way of the pre-tokenizers of a tokenizer.json.
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

/// The use of a match (the delimiter) when a text is split into pieces. The match is dropped (`removed`), is
/// a piece of its own (`isolated`), or belongs to the piece before or after it (`merged_...`). With
/// `contiguous`, adjacent matches form one piece. The names are from tokenizer.json.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A part of a text, and whether this part matches the expression. All parts of a text together are in order,
/// are not empty, and cover the whole text.
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

/// A regular expression in the syntax of tokenizer.json (Oniguruma's), executed by PCRE2. It does not change
/// after construction, so threads can share it.
class Expression {
 public:
  /// Throws Error(data), which starts with `name`, if PCRE2 cannot compile the pattern or would give it
  /// another meaning.
  Expression(std::string const& name, std::string_view pattern);

  /// Splits valid UTF-8 text and appends the pieces to `out`. If `invert` is true, the matches and the text
  /// between them exchange their roles: the text between matches is the delimiter. Throws Error(data) if
  /// PCRE2 reaches its limits.
  void split(std::string_view text, Delimiter delimiter, bool invert, MatchScratch& scratch,
             Pieces& out) const;

 private:
  std::string name_;
  std::shared_ptr<void> code_;
};

/// Returns an Oniguruma expression in the syntax of PCRE2, in which \s matches the same characters as in
/// Oniguruma. Throws Error(data) for syntax that has another meaning in PCRE2.
std::string pcre_pattern(std::string const& name, std::string_view pattern);

}  // namespace text
}  // namespace programs
