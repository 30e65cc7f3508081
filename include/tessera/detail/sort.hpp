// SPDX-License-Identifier: Apache-2.0
// Provides sorting and searching as plain loops. Every program compiles this header, and each instance of a
// standard algorithm would add 10 ms or more of compile time.
#pragma once

#include <cstddef>
#include <vector>

#include "tessera/config.hpp"
#include "tessera/detail/function_ref.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Sorts `indices`, which are positions in a list of the caller. `before(a, b)` returns whether the element
/// at index a must come before the element at index b. Equal elements keep their order.
inline void sort_indices(std::vector<std::size_t>& indices,
                         FunctionRef<bool(std::size_t a, std::size_t b)> before) {
  std::size_t const count = indices.size();
  std::vector<std::size_t> merged(count);
  for (std::size_t run = 1; run < count; run *= 2) {
    for (std::size_t at = 0, left = 0, right = 0; at < count; ++at) {
      std::size_t const begin = at / (2 * run) * 2 * run;
      std::size_t const middle = begin + run < count ? begin + run : count;
      std::size_t const end = middle + run < count ? middle + run : count;
      if (at == begin) {
        left = begin;
        right = middle;
      }
      bool const from_right = left == middle || (right < end && before(indices[right], indices[left]));
      merged[at] = indices[from_right ? right++ : left++];
    }
    indices.swap(merged);
  }
}
/// Returns the indices 0 to count - 1, sorted by `before` as in sort_indices.
inline std::vector<std::size_t> sorted_indices(std::size_t count,
                                               FunctionRef<bool(std::size_t a, std::size_t b)> before) {
  std::vector<std::size_t> indices(count);
  for (std::size_t index = 0; index < count; ++index) indices[index] = index;
  sort_indices(indices, before);
  return indices;
}

/// Whether a list contains a value.
template <class List, class Value>
bool contains(List const& list, Value const& value) {
  for (auto const& element : list)
    if (element == value) return true;
  return false;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
