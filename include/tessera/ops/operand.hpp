// SPDX-License-Identifier: Apache-2.0
// Defines the argument types with which operations take tensors, and functions that check shapes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "tessera/backend/operations.hpp"
#include "tessera/config.hpp"
#include "tessera/core/error.hpp"
#include "tessera/core/operation.hpp"
#include "tessera/core/place.hpp"
#include "tessera/core/shape.hpp"
#include "tessera/tensor/tensor.hpp"

namespace tessera {
inline namespace v0 {
namespace ops {

/// The type of a tensor parameter that an operation only reads. It does not take part in template argument
/// deduction: T and the place P are deduced from the parameter of the first result. So callers can pass
/// constant, mutable and empty tensors.
template <class T, class P>
using In = std::type_identity_t<Tensor<T const, P>>;

/// The type of the parameter for a further result. It does not take part in template argument deduction: T
/// and the place P are deduced from the parameter of the first result.
template <class T, class P>
using Out = std::type_identity_t<Tensor<T, P>>;

namespace detail {

inline void expect_known(char const* operation, Activation activation) {
  if (!is_known(activation))
    throw_error(ErrorKind::usage,
                {operation, " got the activation ", static_cast<int>(activation), ", which does not exist"});
}

/// Throws Error(usage) for shapes that do not fit. `rule` says which shapes fit. The function is separate
/// from the check (expect), so that compilers emit this code once and not for each operation.
[[noreturn]] inline void shape_mismatch(char const* operation, char const* rule,
                                        std::initializer_list<Shape const*> shapes) {
  std::string got;
  for (Shape const* const shape : shapes) got += sentence({" ", to_string(*shape)});
  throw_error(ErrorKind::usage, {operation, " got shapes", got, ", which do not fit: it takes ", rule});
}

/// Throws Error(usage) unless `fits` is true. The message has the name of the operation, its rule for shapes
/// and the given shapes.
template <class... Shapes>
void expect(bool fits, char const* operation, char const* rule, Shapes const&... shapes) {
  if (!fits) shape_mismatch(operation, rule, {&shapes...});
}

inline bool is_vector(Shape const& shape, std::int64_t n) { return shape.elements() == n; }

template <class... Tensors>
double bytes_of(Tensors const&... tensors) {
  return static_cast<double>((std::int64_t{0} + ... + tensors.bytes()));
}

inline double multiply_adds(std::int64_t m, std::int64_t n, std::int64_t depth) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(depth);
}

}  // namespace detail

}  // namespace ops
}  // namespace v0
}  // namespace tessera
