// SPDX-License-Identifier: Apache-2.0
// Provides helpers for the tests of text and tokenizers.
#pragma once

#include <string>

#include <doctest/doctest.h>

#include "tessera/core/error.hpp"

namespace text_support {

inline std::string const fixtures = TESSERA_TEXT_FIXTURES;

/// Returns the message of the error that call() throws, or "nothing was refused" if it throws none.
template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (tessera::Error const& error) {
    CHECK(error.kind() == tessera::ErrorKind::data);
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace text_support
