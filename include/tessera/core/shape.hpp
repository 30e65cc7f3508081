// SPDX-License-Identifier: Apache-2.0
// Defines Shape: the extents of up to four dimensions (dims) of a tensor. Tensors are row-major, so the last
// dim is contiguous.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "tessera/config.hpp"
#include "tessera/core/error.hpp"

namespace tessera {
inline namespace v0 {

/// The extents of a tensor, outermost first. A default shape has no dims and one element.
class Shape {
 public:
  static constexpr int max_dims = 4;

  constexpr Shape() = default;
  /// Throws Error(usage) for more than four extents.
  constexpr Shape(std::initializer_list<std::int64_t> extents) : dims_(static_cast<int>(extents.size())) {
    if (extents.size() > max_dims) refuse(extents.size());
    for (int dim = 0; dim < dims_; ++dim) extents_[place(dim)] = extents.begin()[dim];
  }

  constexpr int dims() const { return dims_; }
  constexpr std::int64_t operator[](int dim) const { return extents_[place(dim)]; }
  constexpr std::int64_t elements() const { return rows() * columns(); }
  /// Returns the last extent, or 1 if the shape has no dims.
  constexpr std::int64_t columns() const { return extents_[max_dims - 1]; }
  /// Returns the product of all extents except the last.
  constexpr std::int64_t rows() const { return extents_[0] * extents_[1] * extents_[2]; }

  /// Returns a copy of the shape in which dimension `dim` has the extent `extent`.
  constexpr Shape with(int dim, std::int64_t extent) const {
    Shape other = *this;
    other.extents_[place(dim)] = extent;
    return other;
  }

  friend constexpr bool operator==(Shape const&, Shape const&) = default;

 private:
  [[noreturn]] static void refuse(std::size_t extents) {
    throw_error(ErrorKind::usage, {"a shape got ", extents, " extents; a tensor has at most ", max_dims});
  }
  constexpr std::size_t place(int dim) const { return static_cast<std::size_t>(max_dims - dims_ + dim); }

  // The last dim is at index 3. The unused entries before the first dim are 1.
  std::array<std::int64_t, max_dims> extents_{1, 1, 1, 1};
  int dims_ = 0;
};

/// Returns text such as "[50257, 768]".
inline std::string to_string(Shape const& shape) {
  std::string text = "[";
  for (int dim = 0; dim < shape.dims(); ++dim) text += sentence({dim ? ", " : "", shape[dim]});
  text += ']';
  return text;
}

}  // namespace v0
}  // namespace tessera
