// SPDX-License-Identifier: Apache-2.0
// Tests the SIMD packets, the number conversions and the matrix products of the CPU backend. The expected
// results are from scalar code. Many matrix sizes are not multiples of the tile size.
#include "tessera/backend/cpu/gemm.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <tuple>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "operators/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;

namespace {

template <class T>
void stores_match_scalars(std::vector<float> const& inputs) {
  std::vector<T> packed(inputs.size());
  cpu::ThreadPool pool(1);
  cpu::transform<float>(
      pool, static_cast<std::int64_t>(inputs.size()),
      [](cpu::Packet<float> x, cpu::Packet<float>& y) { y = x; }, inputs.data(), packed.data());
  int wrong = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) wrong += packed[i].bits != T(inputs[i]).bits;
  CHECK(wrong == 0);
}

/// Returns inputs for tests of rounding to the 16-bit type T: every value of T as a float, neighboring
/// floats, midpoints between two values of T, and 300,000 random bit patterns.
template <class T>
std::vector<float> hard_floats() {
  std::vector<float> inputs;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
    float const value = static_cast<float>(T(std::bit_cast<T>(static_cast<std::uint16_t>(bits))));
    std::uint32_t const exact = std::bit_cast<std::uint32_t>(value);
    for (std::uint32_t offset : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xfffu, 0x1000u, 0x1001u})
      inputs.push_back(std::bit_cast<float>(exact + offset));
  }
  std::uint32_t state = 1;
  for (int i = 0; i < 300000; ++i) {
    state = state * 1664525u + 1013904223u;
    inputs.push_back(std::bit_cast<float>(state));
  }
  return inputs;
}

template <class T>
void loads_match_scalars() {
  std::vector<T> inputs;
  for (std::uint32_t bits = 0; bits < 0x10000u; ++bits)
    inputs.push_back(std::bit_cast<T>(static_cast<std::uint16_t>(bits)));
  std::vector<float> loaded(inputs.size());
  cpu::ThreadPool pool(1);
  cpu::transform<float>(
      pool, static_cast<std::int64_t>(inputs.size()),
      [](cpu::Packet<float> x, cpu::Packet<float>& y) { y = x; }, inputs.data(), loaded.data());
  int wrong = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    float const want = static_cast<float>(inputs[i]);
    // A conversion instruction may set the quiet bit of a signalling NaN. The comparison ignores this bit.
    std::uint32_t const quiet = std::isnan(want) ? 0x400000u : 0u;
    wrong +=
        (std::bit_cast<std::uint32_t>(loaded[i]) | quiet) != (std::bit_cast<std::uint32_t>(want) | quiet);
  }
  CHECK(wrong == 0);
}

/// Returns the largest error of cpu::product for an (m, depth) matrix a and a (depth, n) matrix b. The error
/// is relative to sqrt(depth) plus the magnitude of the exact result. `at` and `bt` say whether a and b are
/// stored transposed.
template <class T>
double product_error(Machine& machine, std::int64_t m, std::int64_t n, std::int64_t depth, bool at, bool bt) {
  using S = compute_t<T>;
  Array<T> const a = reference::random<T>({m * depth}, 1), b = reference::random<T>({depth * n}, 2);
  Array<S> c({m, n}, S(-1));
  cpu::product<S>(machine.context, cpu::Matrix<T>{a.values.data(), at ? m : depth, at},
                  cpu::Matrix<T>{b.values.data(), bt ? depth : n, bt}, m, n, depth,
                  [&](std::int64_t i, std::int64_t j, S const* values, std::int64_t count) {
                    std::memcpy(c.values.data() + i * n + j, values,
                                static_cast<std::size_t>(count) * sizeof(S));
                  });
  return reference::error(c, reference::product(a, at, b, bt, m, n, depth),
                          std::sqrt(static_cast<double>(depth)));
}

std::vector<float> floats(std::vector<bfloat16> const& values) { return {values.begin(), values.end()}; }

/// Returns `sum` plus the dot product of a and b, in the summation order of the CPU's tile instructions
/// (AMX). In each block of 32 values, AMX sums the products at even and at odd positions separately.
float sum_of_tiles(std::vector<float> const& a, std::vector<float> const& b, float sum) {
  for (std::size_t block = 0; block < a.size(); block += 32) {
    float parts[2] = {};
    for (std::size_t k = block; k < std::min(block + 32, a.size()); ++k)
      parts[k % 2] = std::fma(a[k], b[k], parts[k % 2]);
    sum += parts[0] + parts[1];
  }
  return sum;
}

/// Computes the product of two bfloat16 matrices. Returns how many values of the product differ in bits from
/// the expected values. If the CPU has tile instructions, sum_of_tiles() computes the expected values.
/// Otherwise they are the product of the same matrices converted to float. All matrices are parts of larger
/// matrices, and the values around the result must not change.
int differing_bits(Machine& machine, std::int64_t m, std::int64_t n, std::int64_t depth, bool at, bool bt,
                   bool add) {
  std::int64_t const a_stride = (at ? m : depth) + 3, b_stride = (bt ? depth : n) + 1, stride = n + 2;
  Array<bfloat16> const a = reference::random<bfloat16>({(at ? depth : m) * a_stride}, 1),
                        b = reference::random<bfloat16>({(bt ? n : depth) * b_stride}, 2);
  Array<float> const before = reference::random<float>({m * stride}, 3);
  auto const result = [&](auto const& left, auto const& right) {
    using T = std::remove_cvref_t<decltype(left[0])>;
    std::vector<float> c = before.values;
    cpu::product<float>(machine.context, cpu::Matrix<T>{left.data() + 1, a_stride, at},
                        cpu::Matrix<T>{right.data() + 1, b_stride, bt}, m, n, depth,
                        cpu::InPlace<float>{c.data(), stride, add});
    return c;
  };
  std::vector<float> const got = result(a.values, b.values);
  std::vector<float> want = result(floats(a.values), floats(b.values));
  for (std::int64_t i = 0; cpu::tiles_granted() && i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      std::vector<float> row, column;
      for (std::int64_t k = 0; k < depth; ++k) {
        row.push_back(static_cast<float>(
            a.values[static_cast<std::size_t>(1 + (at ? k * a_stride + i : i * a_stride + k))]));
        column.push_back(static_cast<float>(
            b.values[static_cast<std::size_t>(1 + (bt ? j * b_stride + k : k * b_stride + j))]));
      }
      std::size_t const at_c = static_cast<std::size_t>(i * stride + j);
      want[at_c] = sum_of_tiles(row, column, add ? before.values[at_c] : 0.0f);
    }
  int wrong = 0;
  for (std::size_t i = 0; i < got.size(); ++i)
    wrong += std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]);
  for (std::int64_t row = 0; row < m; ++row)
    for (std::int64_t col = n; col < stride; ++col) {
      std::size_t const outside = static_cast<std::size_t>(row * stride + col);
      wrong += got[outside] != before.values[outside];
    }
  return wrong;
}

}  // namespace

TEST_CASE("16-bit stores match the scalar conversions") {
  stores_match_scalars<half>(hard_floats<half>());
  stores_match_scalars<bfloat16>(hard_floats<bfloat16>());
}

TEST_CASE("16-bit loads match the scalar conversions for every value") {
  loads_match_scalars<half>();
  loads_match_scalars<bfloat16>();
}

TEST_CASE_TEMPLATE("packets round once in fma and sqrt", S, float, double) {
  Array<S> const x = reference::random<S>({4099}, 3, 100.0), y = reference::random<S>({4099}, 4, 100.0),
                 z = reference::random<S>({4099}, 5, 100.0);
  Array<S> sums({4099}), roots({4099}), cut({4099});
  cpu::ThreadPool pool(2);
  cpu::transform<S>(
      pool, 4099,
      [](cpu::Packet<S> a, cpu::Packet<S> b, cpu::Packet<S> c, cpu::Packet<S>& sum, cpu::Packet<S>& root,
         cpu::Packet<S>& zeroed) {
        sum = cpu::fma(a, b, c);
        root = cpu::sqrt(cpu::abs(a));
        zeroed = cpu::zero_below(a, cpu::Packet<S>(S(50)));
      },
      x.values.data(), y.values.data(), z.values.data(), sums.values.data(), roots.values.data(),
      cut.values.data());
  int wrong = 0;
  for (std::size_t i = 0; i < 4099; ++i) {
    wrong += sums.values[i] != std::fma(x.values[i], y.values[i], z.values[i]);
    wrong += roots.values[i] != std::sqrt(std::fabs(x.values[i]));
    wrong += cut.values[i] != (std::fabs(x.values[i]) < S(50) ? S(0) : x.values[i]);
  }
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("packet exp follows std exp and keeps NaN", S, float, double) {
  std::vector<S> x;
  for (double value = -80; value < 80; value += 0.0137) x.push_back(static_cast<S>(value));
  x.push_back(std::numeric_limits<S>::quiet_NaN());
  x.push_back(-std::numeric_limits<S>::infinity());
  std::vector<S> y(x.size());
  cpu::ThreadPool pool(1);
  cpu::transform<S>(
      pool, static_cast<std::int64_t>(x.size()), [](cpu::Packet<S> a, cpu::Packet<S>& b) { b = cpu::exp(a); },
      static_cast<S const*>(x.data()), y.data());
  double worst = 0;
  for (std::size_t i = 0; i + 2 < x.size(); ++i)
    worst = std::max(worst, std::fabs(static_cast<double>(y[i]) / std::exp(static_cast<double>(x[i])) - 1));
  CHECK(worst < 3 * static_cast<double>(std::numeric_limits<S>::epsilon()));
  CHECK(std::isnan(y[x.size() - 2]));
  CHECK(y[x.size() - 1] <= std::numeric_limits<S>::min());
}

TEST_CASE_TEMPLATE("products match three loops", T, float, double, half, bfloat16) {
  Machine machine(2);
  double const limit = reference::tolerance<compute_t<T>>();
  for (std::int64_t m : {1, 7, 49})
    for (std::int64_t n : {1, 17, 48, 129})
      for (std::int64_t depth : {1, 33, 259})
        for (int kind = 0; kind < 4; ++kind) {
          double const error = product_error<T>(machine, m, n, depth, (kind & 1) != 0, (kind & 2) != 0);
          CHECK_MESSAGE(error < limit, m, " ", n, " ", depth, " kind ", kind);
        }
  for (int kind = 0; kind < 4; ++kind)
    CHECK(product_error<T>(machine, 273, 397, 301, (kind & 1) != 0, (kind & 2) != 0) < limit);
}

TEST_CASE_TEMPLATE("products have the same bits for every number of threads and every tile", T, float, half,
                   bfloat16) {
  Array<T> const a = reference::random<T>({300, 700}, 6), b = reference::random<T>({700, 500}, 7);
  auto const run = [&](Machine& machine) {
    std::vector<float> c(300 * 500);
    cpu::product<float>(machine.context, cpu::Matrix<T>{a.values.data(), 700},
                        cpu::Matrix<T>{b.values.data(), 500}, 300, 500, 700,
                        [&](std::int64_t i, std::int64_t j, float const* values, std::int64_t count) {
                          std::memcpy(c.data() + i * 500 + j, values, static_cast<std::size_t>(count) * 4);
                        });
    return c;
  };
  CHECK(reference::same_for_all_threads(run));
  Machine machine(2);
  std::vector<float> const whole = run(machine);
  // Computes 100 x 77 values of the result in a separate call. This call divides the work into other tiles,
  // but the values must have the same bits as in `whole`.
  std::vector<float> part(100 * 77);
  cpu::product<float>(machine.context, cpu::Matrix<T>{a.values.data() + 30 * 700, 700},
                      cpu::Matrix<T>{b.values.data() + 55, 500}, 100, 77, 700,
                      [&](std::int64_t i, std::int64_t j, float const* values, std::int64_t count) {
                        std::memcpy(part.data() + i * 77 + j, values, static_cast<std::size_t>(count) * 4);
                      });
  int wrong = 0;
  for (std::size_t i = 0; i < 100; ++i)
    for (std::size_t j = 0; j < 77; ++j) wrong += part[i * 77 + j] != whole[(i + 30) * 500 + j + 55];
  CHECK(wrong == 0);
}

TEST_CASE_TEMPLATE("a product with a packed operand has the bits of a product that packs it", T, float,
                   double, half) {
  using S = compute_t<T>;
  constexpr std::int64_t rows = 69, depth = 300, cols = 77;
  Array<T> const a = reference::random<T>({rows, depth}, 6), b = reference::random<T>({depth, cols}, 7);
  Machine machine(1);
  std::byte* const scratch = machine.context.worker_scratch(0).data();
  std::vector<S> packed(depth * (cols + 16));
  cpu::pack_right(cpu::Matrix<T>{b.values.data(), cols}, depth, cols, packed.data());
  for (bool const transposed : {false, true})
    for (bool const add : {false, true})
      for (std::int64_t const first : {0, 41})
        for (std::int64_t const n : {77, 64, 48, 5}) {
          std::vector<S> want(rows * cols, S(1)), got = want;
          std::int64_t const m = transposed ? 40 : rows, used = (transposed ? rows : depth) - first;
          cpu::Matrix<T> const left{a.values.data(), depth, transposed};
          cpu::product_serial<S>(scratch, left, cpu::Matrix<T>{b.values.data() + first * cols, cols}, m, n,
                                 used, cpu::InPlace<S>{want.data(), cols, add});
          cpu::product_with_packed(scratch, left, {packed.data(), depth, cols}, first, m, n, used,
                                   cpu::InPlace<S>{got.data(), cols, add});
          CHECK_MESSAGE(reference::same_bits(got, want), transposed, " ", add, " ", first, " ", n);
        }
}

TEST_CASE("products of bfloat16 have the bits of the same values as floats, or those of tiles") {
  Machine machine(2);
  int wrong = 0;
  for (std::int64_t m : {1, 7, 8, 33, 65, 257})
    for (std::int64_t n : {1, 7, 16, 33, 65, 401})
      for (std::int64_t depth : {1, 2, 7, 32, 33, 65, 256, 257, 515})
        for (int kind = 0; kind < 8; ++kind) {
          if (m * n * depth > 1000000 && kind != depth % 8) continue;
          wrong += differing_bits(machine, m, n, depth, (kind & 1) != 0, (kind & 2) != 0, (kind & 4) != 0);
        }
  CHECK(wrong == 0);
}

TEST_CASE("sums of columns computed with a product of bfloat16 have the bits of the same values as floats") {
  Machine machine(2);
  for (std::int64_t depth : {1, 2, 33, 256, 515})
    for (std::int64_t n : {1, 16, 401}) {
      Array<bfloat16> const a = reference::random<bfloat16>({depth, 3}, 1),
                            b = reference::random<bfloat16>({depth, n}, 2);
      auto const sums_of = [&](auto const& left, auto const& right) {
        using T = std::remove_cvref_t<decltype(left[0])>;
        std::vector<float> c(static_cast<std::size_t>(3 * n)), sums(static_cast<std::size_t>(n));
        cpu::product<float>(machine.context, cpu::Matrix<T>{left.data(), 3, true},
                            cpu::Matrix<T>{right.data(), n}, 3, n, depth, cpu::InPlace<float>{c.data(), n},
                            [&](std::int64_t j, float const* values, std::int64_t count) {
                              std::copy_n(values, count, sums.data() + j);
                            });
        return sums;
      };
      CHECK(reference::same_bits(sums_of(a.values, b.values), sums_of(floats(a.values), floats(b.values))));
    }
}

TEST_CASE("bfloat16 that is not finite reaches its row alone, at every depth") {
  Machine machine(2);
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (bool transposed : {false, true})
    for (std::int64_t depth : {1, 2, 5, 31, 32, 33})
      for (std::int64_t k = 0; k < depth; ++k)
        for (float const bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
          std::vector<bfloat16> a(static_cast<std::size_t>(9 * depth), bfloat16(1.0f)),
              b(static_cast<std::size_t>(depth * 19), bfloat16(2.0f));
          a[static_cast<std::size_t>(transposed ? k * 9 + 3 : 3 * depth + k)] = bfloat16(bad);
          b[static_cast<std::size_t>(k * 19 + 11)] = bfloat16(0.0f);  // infinity * 0 gives NaN
          std::vector<float> c(9 * 19);
          cpu::product<float>(
              machine.context, cpu::Matrix<bfloat16>{a.data(), transposed ? 9 : depth, transposed},
              cpu::Matrix<bfloat16>{b.data(), 19}, 9, 19, depth, cpu::InPlace<float>{c.data(), 19});
          int wrong = 0;
          for (std::size_t i = 0; i < 9; ++i)
            for (std::size_t j = 0; j < 19; ++j) {
              float const got = c[i * 19 + j], plain = static_cast<float>(2 * (depth - (j == 11 ? 1 : 0)));
              if (i != 3)
                wrong += got != plain;
              else if (std::isnan(bad) || j == 11)
                wrong += !std::isnan(got);
              else
                wrong += got != bad;
            }
          CHECK_MESSAGE(wrong == 0, depth, " ", k, " ", bad);
        }
}

TEST_CASE("products of bfloat16 take subnormal numbers for zeros where the instruction does") {
  Machine machine(1);
#if defined(TESSERA_AVX512_BF16)
  constexpr bool keeps_denormals = false;
#else
  constexpr bool keeps_denormals = true;
#endif
  constexpr float least = std::numeric_limits<float>::min();
  for (auto const& [x, y, exact] : {std::tuple{least / 4, 1.0f, keeps_denormals},
                                    {1.0f, -least / 4, keeps_denormals},
                                    {least, 0.25f, keeps_denormals},
                                    {least, 1.0f, true}}) {
    bfloat16 const a(x), b(y);
    float c = 9;
    cpu::product<float>(machine.context, cpu::Matrix<bfloat16>{&a, 1}, cpu::Matrix<bfloat16>{&b, 1}, 1, 1, 1,
                        cpu::InPlace<float>{&c, 1});
    CHECK(c == (exact ? x * y : 0.0f));
  }
}

TEST_CASE("a product without depth is zero") {
  Machine machine(2);
  float const nothing = 0;
  std::vector<float> c(6, 1.0f);
  cpu::product<float>(machine.context, cpu::Matrix<float>{&nothing, 0}, cpu::Matrix<float>{&nothing, 3}, 2, 3,
                      0, [&](std::int64_t i, std::int64_t j, float const* values, std::int64_t count) {
                        for (std::int64_t col = 0; col < count; ++col)
                          c[static_cast<std::size_t>(i * 3 + j + col)] = values[col];
                      });
  CHECK(c == std::vector<float>(6, 0.0f));
}

TEST_CASE("a NaN in an operand reaches its row and its column alone") {
  Machine machine(2);
  Array<float> a = reference::random<float>({9, 20}, 8), b = reference::random<float>({20, 50}, 9);
  a.at(3 * 20 + 5) = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> c(9 * 50);
  cpu::product<float>(machine.context, cpu::Matrix<float>{a.values.data(), 20},
                      cpu::Matrix<float>{b.values.data(), 50}, 9, 50, 20,
                      [&](std::int64_t i, std::int64_t j, float const* values, std::int64_t count) {
                        std::memcpy(c.data() + i * 50 + j, values, static_cast<std::size_t>(count) * 4);
                      });
  int wrong = 0;
  for (std::size_t i = 0; i < 9; ++i)
    for (std::size_t j = 0; j < 50; ++j) wrong += std::isnan(c[i * 50 + j]) != (i == 3);
  CHECK(wrong == 0);
}
