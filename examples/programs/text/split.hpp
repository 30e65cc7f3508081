// SPDX-License-Identifier: Apache-2.0
// A text in pieces by a regular expression, as the pre-tokenizers of a tokenizer.json ask for it.
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

/// What becomes of what matches (the delimiter), in the words of the format.
enum class Delimiter { removed, isolated, merged_with_previous, merged_with_next, contiguous };

/// The pieces of text of which it is known where they match: stretches in the order of the text, none empty,
/// nothing between them left out.
struct Stretch {
  std::string_view text;
  bool matches;
};
void join_stretches(std::vector<Stretch> const& stretches, Delimiter delimiter, Pieces& out);

/// Room for one match; one a thread and expression.
class MatchRoom {
 public:
  MatchRoom() = default;

 private:
  friend class Expression;
  std::shared_ptr<void> data_;
  std::vector<Stretch> stretches_;
};

/// A regular expression in the dialect of tokenizer.json (Oniguruma's), run by PCRE2. Immutable; threads
/// share it.
class Expression {
 public:
  /// Throws Error(data) that starts with `name` for what PCRE2 cannot compile or understands otherwise.
  Expression(std::string const& name, std::string_view pattern);

  /// Appends the pieces of valid UTF-8. With `invert` the delimiter is what does not match. Throws
  /// Error(data) when the expression gives up.
  void split(std::string_view text, Delimiter delimiter, bool invert, MatchRoom& room, Pieces& out) const;

 private:
  std::string name_;
  std::shared_ptr<void> code_;
};

/// An expression of Oniguruma in the words of PCRE2, with the same white space. Throws Error(data).
std::string pcre_pattern(std::string const& name, std::string_view pattern);

}  // namespace text
}  // namespace programs
