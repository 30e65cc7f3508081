// SPDX-License-Identifier: Apache-2.0
#include "tessera/core/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <doctest/doctest.h>

using namespace tessera;

TEST_CASE("a sentence is its words and numbers one after another") {
  std::string const name = "a.bin";
  CHECK(sentence({}).empty());
  CHECK(sentence({name, ": token ", std::int64_t{-7}, " of ", std::size_t{12}, std::string_view{}, ", ",
                  std::string_view("rank 3").substr(0, 4), 5}) == "a.bin: token -7 of 12, rank5");
}

TEST_CASE("an error that is thrown from words has its kind, rank and unit") {
  try {
    throw_error(ErrorKind::data, {"unit ", 4, " is bad"}, 2, "h.4");
  } catch (Error const& error) {
    CHECK(error.what() == std::string("unit 4 is bad"));
    CHECK(error.kind() == ErrorKind::data);
    CHECK(error.rank() == 2);
    CHECK(error.unit() == "h.4");
    return;
  }
  CHECK(false);
}
