// SPDX-License-Identifier: Apache-2.0
// Defines Array, which owns the memory of one tensor in the memory of a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include "tessera/core/error.hpp"
#include "tessera/core/place.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/tensor/arena.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace detail {

/// Returns the number of bytes of an array. Throws Error(usage) if an extent is negative, or if the number of
/// bytes is not below 2^62.
inline std::int64_t bytes_of_array(Shape const& shape, std::size_t element) {
  std::int64_t bytes = static_cast<std::int64_t>(element);
  bool fits = true;
  for (int dim = 0; dim < shape.dims() && fits; ++dim) {
    fits = shape[dim] >= 0 &&
           (shape[dim] == 0 || bytes <= std::numeric_limits<std::int64_t>::max() / 2 / shape[dim]);
    if (fits) bytes *= shape[dim];
  }
  if (!fits)
    throw_error(ErrorKind::usage,
                {"an Array cannot have the shape ", to_string(shape),
                 ": no extent may be negative, and the number of bytes must be below 2^62"});
  return bytes;
}

template <class Place>
concept HasMemory = requires {
  typename memory_of<Place>::device;
};

}  // namespace detail

/// Owns `shape.elements()` values of type T in the memory of Place (Cpu or Cuda), row-major and contiguous.
/// The values are zero at first. An array can be moved but not copied; ops::copy, upload and download copy
/// values. An array of no elements and a moved-from array have a null pointer. Operations treat such an
/// argument as absent.
///
/// An array converts to a Tensor, the view that operations take. The compiler deduces the types of an
/// operation from its first result, so pass that argument as `array.view()`. A view must not outlive its
/// array.
///
/// Cost: each array is one allocation. On a GPU the constructor allocates from the GPU that is current in the
/// calling thread, and waits for it. The destructor waits for work that still uses the memory, because
/// cudaFree does. So make arrays before a loop and not inside the loop. Throws Error(usage) for a shape that
/// no array can have, and Error(out_of_memory) if the allocation fails.
template <class T, class Place = Cpu>
class Array {
  static_assert(std::is_trivially_copyable_v<T> && !std::is_const_v<T>,
                "tessera: Array<T, Place> holds values that are copied as bytes, such as float, half or "
                "std::int32_t. See docs/tensor.md.");
  static_assert(detail::HasMemory<Place>,
                "tessera: Array<T, Place> does not know the memory of this place. Write Cpu or Cuda. For "
                "Cuda, include <tessera/cuda.cuh> and compile the file with nvcc. See docs/tensor.md.");

 public:
  using value_type = T;
  using place_type = Place;

  Array() = default;
  explicit Array(Shape const& shape)
      : bytes_(round_up(detail::bytes_of_array(shape, sizeof(T)), arena_alignment)), shape_(shape) {
    if constexpr (detail::HasMemory<Place>)
      if (bytes_ > 0) data_ = reinterpret_cast<T*>(detail::memory_of<Place>::device::map(bytes_));
  }
  Array(Array&& other) noexcept { swap(other); }
  Array& operator=(Array&& other) noexcept {
    Array(std::move(other)).swap(*this);
    return *this;
  }
  ~Array() {
    if constexpr (detail::HasMemory<Place>)
      if (data_) detail::memory_of<Place>::device::unmap(reinterpret_cast<std::byte*>(data_), bytes_);
  }

  T* data() { return data_; }
  T const* data() const { return data_; }
  Shape const& shape() const { return shape_; }
  std::int64_t elements() const { return view().elements(); }
  /// Returns the bytes of the values, without the padding of the allocation.
  std::int64_t bytes() const { return view().bytes(); }

  Tensor<T, Place> view() & { return {data_, shape_}; }
  Tensor<T const, Place> view() const& { return {data_, shape_}; }
  void view() && = delete;  // the view would outlive its array
  operator Tensor<T, Place>() & { return view(); }
  operator Tensor<T const, Place>() const& { return view(); }

  /// Returns the values of an array in host memory. Operations on the CPU have ended when they return, so the
  /// host may read and write the values at any time. For arrays on a GPU see upload and download.
  std::span<T> values() requires(!info_of(Place::device).own_memory) {
    return {data_, static_cast<std::size_t>(elements())};
  }
  std::span<T const> values() const requires(!info_of(Place::device).own_memory) {
    return {data_, static_cast<std::size_t>(elements())};
  }

 private:
  void swap(Array& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(shape_, other.shape_);
  }

  T* data_ = nullptr;
  std::int64_t bytes_ = 0;  // of the allocation
  Shape shape_{0};          // no elements; an empty list of extents would be one element
};

}  // namespace v0
}  // namespace tessera
