// SPDX-License-Identifier: Apache-2.0
// Tests how a regular expression splits a text. The expected pieces are the results of the PyPI package
// tokenizers 0.23.3, for every behavior of its pre-tokenizer Split.
#include <string_view>

#include <doctest/doctest.h>

#include "text/split.hpp"

namespace text = programs::text;
using text::Delimiter;
using text::Pieces;

namespace {

Pieces split(std::string_view pattern, std::string_view bytes, Delimiter delimiter = Delimiter::isolated,
             bool invert = false) {
  text::MatchScratch scratch;
  Pieces out;
  text::Expression("test", pattern).split(bytes, delimiter, invert, scratch, out);
  return out;
}

}  // namespace

TEST_CASE("text: every behaviour of a split") {
  auto const dashes = [](Delimiter delimiter, bool invert) {
    return split("-", "-a--b-c--", delimiter, invert);
  };
  CHECK(dashes(Delimiter::removed, false) == Pieces{"a", "b", "c"});
  CHECK(dashes(Delimiter::removed, true) == Pieces(6, "-"));
  CHECK(dashes(Delimiter::isolated, false) == Pieces{"-", "a", "-", "-", "b", "-", "c", "-", "-"});
  CHECK(dashes(Delimiter::merged_with_previous, false) == Pieces{"-", "a-", "-", "b-", "c-", "-"});
  CHECK(dashes(Delimiter::merged_with_previous, true) == Pieces{"-a", "-", "-b", "-c", "-", "-"});
  CHECK(dashes(Delimiter::merged_with_next, false) == Pieces{"-a", "-", "-b", "-c", "-", "-"});
  CHECK(dashes(Delimiter::merged_with_next, true) == Pieces{"-", "a-", "-", "b-", "c-", "-"});
  CHECK(dashes(Delimiter::contiguous, false) == Pieces{"-", "a", "--", "b", "-", "c", "--"});
  CHECK(split("(?=b)", "abxxcb") == Pieces{"a", "bxxc", "b"});  // an empty match splits too
}

TEST_CASE("text: expressions know Unicode 16 and Oniguruma's white space") {
  // U+2EBF0 is new in Unicode 15.1, and U+10D40 in Unicode 16.0. U+180E is white space in PCRE2 but not in
  // Oniguruma.
  CHECK(split("\\p{L}+", "a\xf0\xae\xaf\xb0") == Pieces{"a\xf0\xae\xaf\xb0"});
  CHECK(split("[^\\p{L}]+", "a\xf0\xae\xaf\xb0", Delimiter::removed) == Pieces{"a\xf0\xae\xaf\xb0"});
  CHECK(split("\\P{L}+", "a\xf0\xae\xaf\xb0", Delimiter::removed) == Pieces{"a\xf0\xae\xaf\xb0"});
  CHECK(split("\\p{N}{1,2}", "1\xf0\x90\xb5\x80") == Pieces{"1\xf0\x90\xb5\x80"});
  CHECK(split("\\s", "a\xe1\xa0\x8e", Delimiter::removed) == Pieces{"a\xe1\xa0\x8e"});
  CHECK(split("[^\\s]+", "a\xe1\xa0\x8e") == Pieces{"a\xe1\xa0\x8e"});
  CHECK(split("\\S+", "a\xe1\xa0\x8e") == Pieces{"a\xe1\xa0\x8e"});
  CHECK(split("\\s", "a\xc2\x85\xe3\x80\x80", Delimiter::removed) == Pieces{"a"});
}
