// SPDX-License-Identifier: Apache-2.0
// One instance of std::sort for all of the library, and a search that is no more than its loop: each
// algorithm costs a reader of the headers 10 ms.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tessera {
inline namespace v0 {
namespace detail {

/// An order of indices, without its type.
struct IndexOrder {
  void const* order;
  bool (*before)(void const* order, std::size_t a, std::size_t b);

  bool operator()(std::size_t a, std::size_t b) const { return before(order, a, b); }
};

/// Sorts indices by what they stand for: `before(a, b)` as in std::sort.
template <class Before>
void sort_indices(std::vector<std::size_t>& indices, Before const& before) {
  IndexOrder const order{&before, [](void const* of, std::size_t a, std::size_t b) {
                           return (*static_cast<Before const*>(of))(a, b);
                         }};
  std::sort(indices.begin(), indices.end(), order);
}
/// 0 to count - 1 in such an order.
template <class Before>
std::vector<std::size_t> sorted_indices(std::size_t count, Before const& before) {
  std::vector<std::size_t> indices(count);
  for (std::size_t index = 0; index < count; ++index) indices[index] = index;
  sort_indices(indices, before);
  return indices;
}

/// Whether one of the elements is equal to a value.
template <class List, class Value>
bool contains(List const& list, Value const& value) {
  for (auto const& element : list)
    if (element == value) return true;
  return false;
}

}  // namespace detail
}  // namespace v0
}  // namespace tessera
