// SPDX-License-Identifier: Apache-2.0
// Lets doctest print the elements of vectors and maps in the messages of failed checks. Otherwise doctest
// prints {?} in their place. tests/CMakeLists.txt passes this header to the compiler with -include, so each
// source of a test program includes it.
#pragma once

#include <map>
#include <vector>

#include <doctest/doctest.h>

namespace doctest {

template <class T>
struct StringMaker<std::vector<T>> {
  static String convert(std::vector<T> const& values) {
    String text = "[";
    for (auto const& value : values) text += (text.size() > 1 ? ", " : "") + toString(T(value));
    return text + "]";
  }
};

template <class Key, class Value>
struct StringMaker<std::map<Key, Value>> {
  static String convert(std::map<Key, Value> const& values) {
    String text = "{";
    for (auto const& [key, value] : values)
      text += (text.size() > 1 ? ", " : "") + toString(key) + ": " + toString(value);
    return text + "}";
  }
};

}  // namespace doctest
