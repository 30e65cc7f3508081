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

/// The handling of a match (the delimiter), in the terms of tokenizer.json.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// A piece of a text with a flag that says whether it matches. Pieces are in text order, not empty, and cover
/// the whole text.
struct Stretch {
  std::string_view text;
  bool matches;
};
void join_stretches(std::vector<Stretch> const& stretches, Delimiter delimiter, Pieces& out);

/// Scratch memory for one match, one per thread and expression.
class MatchRoom {
 public:
  MatchRoom() = default;

 private:
  friend class Expression;
  std::shared_ptr<void> data_;
  std::vector<Stretch> stretches_;
};

/// A regular expression in the dialect of tokenizer.json (Oniguruma's), run by PCRE2. Immutable, so threads
/// can share it.
class Expression {
 public:
  /// Throws Error(data), which starts with `name`, if PCRE2 cannot compile the pattern or would interpret it
  /// differently.
  Expression(std::string const& name, std::string_view pattern);

  /// Appends the pieces of valid UTF-8 text. With `invert`, the delimiter is the text between matches. Throws
  /// Error(data) if PCRE2 gives up.
  void split(std::string_view text, Delimiter delimiter, bool invert, MatchRoom& room, Pieces& out) const;

 private:
  std::string name_;
  std::shared_ptr<void> code_;
};

/// Translates an Oniguruma expression to PCRE2 syntax with the same white space. Throws Error(data).
std::string pcre_pattern(std::string const& name, std::string_view pattern);

}  // namespace text
}  // namespace programs
