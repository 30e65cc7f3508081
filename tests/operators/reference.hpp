// SPDX-License-Identifier: Apache-2.0
// Provides what all operator tests compare with: scalar implementations of the operations in double, and the
// only table of tolerances of the tests.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "tessera/backend/cpu/context.hpp"
#include "tessera/core/dtype.hpp"
#include "tessera/tensor/tensor.hpp"

namespace reference {

using namespace tessera;

/// Returns the largest error that a result in the format T may have, relative to its scale. This limit allows
/// for a few roundings of stored values and for the rounding of sums.
template <class T>
constexpr double tolerance() {
  if (std::is_same_v<T, double>) return 1e-13;
  if (std::is_same_v<T, float>) return 5e-6;
  if (std::is_same_v<T, tessera::half>) return 1.5e-3;
  return 1.2e-2;  // bfloat16
}

/// A CPU context for tests of operations, together with the workspace memory that the context uses.
struct Machine {
  explicit Machine(int threads)
      : workspace(Context<Cpu>::workspace_bytes(threads)), context(threads, workspace) {}
  std::vector<std::byte> workspace;
  Context<Cpu> context;
};

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  if (a.size() != b.size()) return false;
  return a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/// An array of values with a shape. Two arrays are equal if their values have the same bits. view() returns
/// the tensor that is passed to an operation.
template <class T>
struct Array {
  Array(Shape const& array_shape, T value = T{})
      : shape(array_shape), values(static_cast<std::size_t>(array_shape.elements()), value) {}
  Tensor<T> view() { return {values.data(), shape}; }
  double operator[](std::int64_t i) const { return static_cast<double>(values[static_cast<std::size_t>(i)]); }
  T& at(std::int64_t i) { return values[static_cast<std::size_t>(i)]; }
  bool operator==(Array const& other) const { return same_bits(values, other.values); }

  Shape shape;
  std::vector<T> values;
};

/// Returns pseudo-random values in (-range, range), rounded to T.
template <class T>
Array<T> random(Shape const& shape, std::uint32_t seed, double range = 1.0) {
  Array<T> result(shape);
  std::uint32_t state = seed * 2654435761u + 12345u;
  for (T& value : result.values) {
    state = state * 1664525u + 1013904223u;
    value = static_cast<T>((static_cast<double>(state >> 8) / 8388608.0 - 1.0) * range);
  }
  return result;
}

/// Returns the largest error |got - want| / (floor + |want|) of all values. `floors` has the floor of each
/// value. The overload below has one floor for all values. Returns NaN if a value of `got` is NaN, and
/// infinity if `got` and `want` have different sizes.
template <class T, class U>
double error(Array<T> const& got, std::vector<U> const& want, std::vector<double> const& floors) {
  if (got.values.size() != want.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    double const exact = static_cast<double>(want[i]);
    double const difference =
        std::fabs(static_cast<double>(got.values[i]) - exact) / (floors[i] + std::fabs(exact));
    if (!(difference <= worst)) worst = difference;
    // A comparison of NaN with a limit is false, so the caller's check fails.
    if (std::isnan(worst)) return worst;
  }
  return worst;
}
template <class T, class U>
double error(Array<T> const& got, std::vector<U> const& want, double floor = 1.0) {
  return error(got, want, std::vector<double>(want.size(), floor));
}

/// Returns an array of NaN. A test uses it as the output of an operation that must overwrite every element.
template <class T>
Array<T> poison(Shape const& shape) {
  return Array<T>(shape, T(std::numeric_limits<float>::quiet_NaN()));
}

/// Returns the sum of the values [begin, end), which are one block, or the sum of their squares. Adds in the
/// order that the library documents: value begin + i is added to running sum i % 16. The 16 running sums are
/// then added in pairs, 8 + 8, 4 + 4, 2 + 2 and 1 + 1.
template <class T>
compute_t<T> block_sum(Array<T> const& values, std::int64_t begin, std::int64_t end, bool squares) {
  using S = compute_t<T>;
  S sums[16] = {};
  for (std::int64_t i = begin; i < end; ++i) {
    S const value = static_cast<S>(values.values[static_cast<std::size_t>(i)]);
    S& sum = sums[(i - begin) % 16];
    sum = squares ? std::fma(value, value, sum) : sum + value;
  }
  for (int half_sums = 8; half_sums > 0; half_sums /= 2)
    for (int i = 0; i < half_sums; ++i) sums[i] += sums[i + half_sums];
  return sums[0];
}

/// Returns the (m, n) product of the matrices a and b, computed in double by three loops. `a_transposed` and
/// `b_transposed` say whether a matrix is stored transposed.
template <class A, class B>
std::vector<double> product(Array<A> const& a, bool a_transposed, Array<B> const& b, bool b_transposed,
                            std::int64_t m, std::int64_t n, std::int64_t depth) {
  std::vector<double> c(static_cast<std::size_t>(m * n), 0.0);
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t k = 0; k < depth; ++k) {
      double const left = a_transposed ? a[k * m + i] : a[i * depth + k];
      for (std::int64_t j = 0; j < n; ++j)
        c[static_cast<std::size_t>(i * n + j)] += left * (b_transposed ? b[j * depth + k] : b[k * n + j]);
    }
  return c;
}

/// Compares the column sums of `partials` (blocks, N) with the column sums of `of` (..., N). Returns the
/// largest error of a column, in units of the epsilon of S. The error of a column is relative to 1 plus the
/// sum of the absolute values of the column.
template <class S, class T>
double sum_error(Array<S> const& partials, Array<T> const& of) {
  auto const columns = static_cast<std::size_t>(of.shape.columns());
  std::vector<long double> sums(columns, 0.0L), sizes(columns, 1.0L);
  for (std::size_t i = 0; i < of.values.size(); ++i) {
    long double const value = static_cast<long double>(of[static_cast<std::int64_t>(i)]);
    sums[i % columns] += value;
    sizes[i % columns] += std::fabs(value);
  }
  for (std::size_t i = 0; i < partials.values.size(); ++i)
    sums[i % columns] -= static_cast<long double>(partials.values[i]);
  double worst = 0;
  for (std::size_t i = 0; i < columns; ++i) {
    double const error = static_cast<double>(std::fabs(sums[i]) / sizes[i]);
    if (!(error <= worst)) worst = error;
    // A comparison of NaN with a limit is false, so the caller's check fails.
    if (std::isnan(worst)) return worst;
  }
  return worst / static_cast<double>(std::numeric_limits<S>::epsilon());
}

inline double gelu(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

inline double gelu_derivative(double x) {
  double const root = std::sqrt(2.0 / M_PI), t = std::tanh(root * (x + 0.044715 * x * x * x));
  return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * root * (1.0 + 3.0 * 0.044715 * x * x);
}

/// Returns the derivative of loss() with respect to each value of `parameter`, approximated by central
/// differences.
template <class F>
std::vector<double> central_differences(Array<double>& parameter, F const& loss, double step = 1e-5) {
  std::vector<double> slopes;
  for (double& value : parameter.values) {
    double const original = value;
    value = original + step;
    double const above = loss();
    value = original - step;
    double const below = loss();
    value = original;
    slopes.push_back((above - below) / (2 * step));
  }
  return slopes;
}

/// Returns the sum of weights * values, which serves as a scalar loss of any operation. Its gradient with
/// respect to `values` is `weights`.
inline double weighted(Array<double> const& weights, Array<double> const& values) {
  double sum = 0;
  for (std::size_t i = 0; i < values.values.size(); ++i) sum += weights.values[i] * values.values[i];
  return sum;
}

/// Calls work(machine) with a machine of 1 thread, of 2 threads and of 3 threads. Returns whether all three
/// results have the same bits.
template <class F>
bool same_for_all_threads(F const& work) {
  Machine one(1), two(2), three(3);
  auto const first = work(one);
  return same_bits(first, work(two)) && same_bits(first, work(three)) && same_bits(first, work(three));
}

}  // namespace reference
