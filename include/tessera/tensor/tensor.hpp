// SPDX-License-Identifier: Apache-2.0
// Defines Tensor, a view of memory that it does not own. A tensor has a pointer and a shape. Its type names
// the device of the memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tessera/core/dtype.hpp"
#include "tessera/core/place.hpp"
#include "tessera/core/shape.hpp"

namespace tessera {
inline namespace v0 {

/// A contiguous row-major view of `shape().elements()` values of type T in the memory of Place (Cpu or Cuda).
/// A copy of a tensor is a view of the same values. An empty tensor has a null pointer; operations accept it
/// for optional arguments.
template <class T, class Place = Cpu>
class Tensor {
 public:
  using value_type = T;
  using place_type = Place;

  constexpr Tensor() = default;
  constexpr Tensor(T* data, Shape shape) : data_(data), shape_(shape) {}
  /// Converts a view of mutable values to a view of constant values.
  template <class U>
  requires std::is_same_v<T, U const>
  constexpr Tensor(Tensor<U, Place> other) : data_(other.data()), shape_(other.shape()) {}

  constexpr T* data() const { return data_; }
  constexpr Shape const& shape() const { return shape_; }
  constexpr std::int64_t elements() const { return data_ ? shape_.elements() : 0; }
  constexpr std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(sizeof(T)); }
  constexpr explicit operator bool() const { return data_ != nullptr; }

  /// Returns a view of the same values with another shape, which must have the same number of elements.
  constexpr Tensor reshaped(Shape shape) const { return {data_, shape}; }

 private:
  T* data_ = nullptr;
  Shape shape_;
};

/// A view of constant values, for operands that an operation only reads. A function template with this
/// parameter type can deduce T.
template <class T, class Place = Cpu>
using ConstTensor = Tensor<T const, Place>;

}  // namespace v0
}  // namespace tessera
