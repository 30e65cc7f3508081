// SPDX-License-Identifier: Apache-2.0
// Tests matrix products of fp32 values in every format and in all forms that layers use. The error of an
// element is its distance from a sum in double, divided by the sum of the magnitudes of its terms.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/products/linear.cuh"

#include "device/device.hpp"
#include "operators/reference.hpp"

using namespace tessera;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

struct Size {
  std::int64_t m, k, n;
};
// Sizes (m, k, n) of products: odd sizes, thin matrices, and one size at which each row has a multiple of 16
// bytes.
constexpr Size sizes[] = {{1, 1, 1},    {1, 37, 5},     {33, 48, 49},   {300, 1, 7},
                          {65, 300, 9}, {17, 300, 129}, {96, 128, 256}, {66, 1031, 50}};

/// A number format of matrix products. The largest error of a product must be between `least` and `most`. In
/// fp32, only the fp32 rounding causes errors. tf32 keeps 10 mantissa bits of each factor; the rest is
/// truncated in the worst case. bf16x6 and bf16x3 split each factor into bf16 parts, leave out the smallest
/// products of parts, and sum on tensor cores.
struct Format {
  DType product;
  double least, most;
};
constexpr Format formats[] = {{DType::f32, 0.0, 1e-6},
                              {DType::tf32, 1e-6, 2.0e-3},
                              {DType::bf16x6, 0.0, 1e-6},
                              {DType::bf16x3, 1e-7, 3 * 0x1p-16 + 1e-6}};

/// The operations that are fused into a product: the product is multiplied by `scale`, a bias and a residual
/// are added, and the result is multiplied by the derivative of GELU at `pre`.
struct Extras {
  bool bias = false, residual = false, pre = false;
  double scale = 1.0;
};
constexpr Extras extras[] = {{},
                             {.bias = true},
                             {.residual = true, .scale = 0.75},
                             {.bias = true, .residual = true},
                             {.pre = true},
                             {.residual = true, .pre = true, .scale = 1.75}};

/// A matrix product that the host computed in double. `value` has the elements. `magnitude` has, for each
/// element, the sum of the magnitudes of its terms.
struct Exact {
  std::vector<double> value, magnitude;
};
Exact exact(reference::Array<float> const& a, bool a_transposed, reference::Array<float> const& b,
            bool b_transposed, Size size) {
  reference::Array<float> a_size = a, b_size = b;
  for (float& value : a_size.values) value = std::fabs(value);
  for (float& value : b_size.values) value = std::fabs(value);
  return {reference::product(a, a_transposed, b, b_transposed, size.m, size.n, size.k),
          reference::product(a_size, a_transposed, b_size, b_transposed, size.m, size.n, size.k)};
}

/// Returns the largest error of the elements of `got`. The error of an element is its distance from the exact
/// value in `want`, divided by the sum of the magnitudes of its terms.
double largest_error(reference::Array<float> const& got, Exact const& want) {
  double worst = 0;
  for (std::size_t i = 0; i < want.value.size(); ++i) {
    double const error = std::fabs(static_cast<double>(got.values[i]) - want.value[i]) / want.magnitude[i];
    worst = std::isfinite(error) ? std::max(worst, error) : 1e300;
  }
  return worst;
}

cuda::Product<float> product_of(Size size, OnGpu<float>& a, bool a_transposed, OnGpu<float>& b,
                                bool b_transposed, OnGpu<float>& y) {
  return {.rows = size.m,
          .columns = size.n,
          .depth = size.k,
          .a = a.cview().data(),
          .a_transposed = a_transposed,
          .b = b.cview().data(),
          .b_transposed = b_transposed,
          .y = y.view().data()};
}

/// The implementation of matrix products to test. `any`: the implementation that the library chooses.
/// `planes`: the library's own kernel, which splits fp32 values into bf16 parts.
enum class Method { any, planes };
bool takes_planes(cuda::Product<float> const& p) {
  return cuda::has_warpgroups() && p.columns % 4 == 0 && !(p.a_transposed && (p.b_transposed || p.pre)) &&
         !(p.pre && (p.bias || p.residual));
}

/// Computes a product twice, with the fused operations `with` and the implementation `method`. Returns the
/// largest error of its elements, or a negative number if `method` does not support the product. Checks that
/// the second result has the bits of the first (if no residual is added), and that the memory after the
/// result does not change.
double error_of(Context<Cuda>& context, Size size, bool a_transposed, bool b_transposed, Extras const& with,
                Method method = Method::any) {
  auto const [m, k, n] = size;
  constexpr std::int64_t guard = 3;
  reference::Array<float> const a = reference::random<float>({m, k}, 1),
                                b = reference::random<float>({k, n}, 2, 0.02),
                                bias = reference::random<float>({n}, 3),
                                residual = reference::random<float>({m + guard, n}, 4),
                                pre = reference::random<float>({m, n}, 5, 3.0);
  Exact want = exact(a, a_transposed, b, b_transposed, size);
  for (std::int64_t i = 0; i < m * n; ++i) {
    double &value = want.value[static_cast<std::size_t>(i)],
           &magnitude = want.magnitude[static_cast<std::size_t>(i)];
    value *= with.scale;
    magnitude *= with.scale;
    if (with.bias) value += bias[i % n], magnitude += std::fabs(bias[i % n]);
    if (with.residual) value += residual[i], magnitude += std::fabs(residual[i]);
    // |gelu'| <= 1.13, so the magnitude is not multiplied by gelu'.
    if (with.pre) value *= reference::gelu_derivative(pre[i]);
  }
  OnGpu<float> ga(a), gb(b), gbias(bias), gresidual(residual), gpre(pre);
  OnGpu<float> first(poison<float>({m + guard, n})), second(residual);
  cuda::Product<float> p = product_of(size, ga, a_transposed, gb, b_transposed, first);
  if (with.bias) p.bias = gbias.cview().data();
  if (with.residual) p.residual = gresidual.cview().data();
  if (with.pre) p.pre = gpre.cview().data();
  p.scale = with.scale;
  int const terms = piece_terms(context.math().product);
  if (method == Method::planes) {
    bool const runs = cuda::run_by_planes(context, p, terms);
    CHECK(runs == takes_planes(p));
    if (!runs) return -1;
  } else {
    cuda::run_product(context, p);
  }
  p.y = second.view().data();
  if (with.residual) p.residual = p.y;  // writes the result over the residual
  if (method == Method::planes)
    CHECK(cuda::run_by_planes(context, p, terms));
  else
    cuda::run_product(context, p);
  context.synchronize();
  context.raise();
  reference::Array<float> const got = first.back(), again = second.back();
  if (!with.residual)
    CHECK(std::memcmp(got.values.data(), again.values.data(),
                      static_cast<std::size_t>(m * n) * sizeof(float)) == 0);
  for (std::int64_t i = m * n; i < (m + guard) * n; ++i) {
    REQUIRE(std::isnan(got[i]));
    REQUIRE(again[i] == residual[i]);
  }
  // The two computations possibly use different algorithms of cuBLASLt.
  return std::max(largest_error(got, want), largest_error(again, want));
}

/// Returns the largest allowed error of a product in the number format `product`. If the product is
/// multiplied by the derivative of GELU, the error of this derivative is added.
double limit_of(DType product, Extras const& with = {}) {
  // The last term is the error of gelu'.
  return (product == DType::bf16x6 ? 1e-6 : 3 * 0x1p-16 + 1e-6) + (with.pre ? 3e-6 : 0.0);
}

}  // namespace

TEST_CASE("on a GPU, products of fp32 values are as exact as their format says") {
  TESSERA_NEEDS_GPU();
  for (Format const& format : formats) {
    Gpu gpu(1 << 16, {.product = format.product});
    for (Size const size : sizes)
      for (auto const& [a_transposed, b_transposed] :
           {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
        for (Extras const& with : extras) {
          INFO(std::string(name_of(format.product)), " ", size.m, " ", size.k, " ", size.n, " ", a_transposed,
               b_transposed, " ", with.bias, with.residual, with.pre);
          double const limit = format.most + (with.pre ? 3e-6 : 0.0);  // 3e-6 for the error of gelu'
          CHECK(error_of(gpu.context, size, a_transposed, b_transposed, with) < limit);
        }
    CHECK(error_of(gpu.context, {96, 128, 256}, false, false, {}) >= format.least);
  }
}

TEST_CASE("on a GPU, products of values that are not aligned are as exact") {
  TESSERA_NEEDS_GPU();
  auto const [m, k, n] = Size{70, 64, 72};
  reference::Array<float> const a = reference::random<float>({m, k}, 1),
                                b = reference::random<float>({k, n}, 2);
  Exact const want = exact(a, false, b, false, {m, k, n});
  for (Format const& format : formats) {
    INFO(std::string(name_of(format.product)));
    Gpu gpu(1 << 16, {.product = format.product});
    for (std::int64_t const offset : {1, 2, 3}) {
      OnGpu<float> ga(a, offset), gb(b, offset), y(poison<float>({m, n}), offset);
      cuda::run_product(gpu.context, cuda::Product<float>{.rows = m,
                                                          .columns = n,
                                                          .depth = k,
                                                          .a = ga.view().data(),
                                                          .a_transposed = false,
                                                          .b = gb.view().data(),
                                                          .b_transposed = false,
                                                          .y = y.view().data()});
      gpu.finish();
      CHECK(largest_error(y.back(), want) < format.most);
    }
  }
}

TEST_CASE("on a GPU, products by pieces are by pieces, of odd extents too") {
  TESSERA_NEEDS_GPU();
  for (DType const format : {DType::bf16x6, DType::bf16x3})
    for (Size const size : {Size{64, 128, 256}, Size{37, 51, 29}}) {
      auto const [m, k, n] = size;
      Gpu gpu(1 << 16, {.product = format});
      OnGpu<float> a(reference::random<float>({m, k}, 1)), b(reference::random<float>({k, n}, 2)),
          y(poison<float>({m, n}));
      cuda::Product<float> const p = product_of(size, a, false, b, false, y);
      CHECK(cuda::run_by_copies(gpu.context, p, piece_terms(format)));
      CHECK(cuda::run_by_planes(gpu.context, p, piece_terms(format)) == takes_planes(p));
      gpu.finish();
    }
}

// fp32 products are split into products of bf16 parts. If this GPU supports them, the test checks two
// implementations: the library's own kernel (by planes), and cuBLASLt with copies of the parts. For the first
// two sizes, the kernel has few tiles with a large depth, so several clusters share a tile. For the last
// size, the kernel has more tiles than clusters.
TEST_CASE("on a GPU, products by planes and by copies are as exact where tiles are shared and where not") {
  TESSERA_NEEDS_GPU();
  for (DType const format : {DType::bf16x6, DType::bf16x3}) {
    int const terms = piece_terms(format);
    Gpu gpu(1 << 16, {.product = format});
    for (Size const size : {Size{130, 1500, 200}, Size{300, 1024, 124}, Size{6000, 8, 580}}) {
      auto const [m, k, n] = size;
      bool const shared = k > 1000;
      CHECK((cuda::work_of_pieces(m, n, k, terms, cuda::blas_bytes).shared() > 0) == shared);
      for (auto const& [a_transposed, b_transposed] :
           {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
        INFO(std::string(name_of(format)), " ", m, " ", k, " ", n, " ", a_transposed, b_transposed);
        reference::Array<float> const a = reference::random<float>({m, k}, 1),
                                      b = reference::random<float>({k, n}, 2);
        Exact const want = exact(a, a_transposed, b, b_transposed, size);
        OnGpu<float> ga(a), gb(b), y(poison<float>({m, n}));
        cuda::Product<float> const p = product_of(size, ga, a_transposed, gb, b_transposed, y);
        double const limit = limit_of(format);
        bool const runs = cuda::run_by_planes(gpu.context, p, terms);
        CHECK(runs == takes_planes(p));
        if (runs) {
          gpu.finish();
          CHECK(largest_error(y.back(), want) < limit);
        }
        REQUIRE(cuda::run_by_copies(gpu.context, p, terms));
        gpu.finish();
        CHECK(largest_error(y.back(), want) < limit);
      }
    }
  }
}

// Tensor cores truncate each addend. A sum of positive terms over this depth would be 1.4e-5 too small if the
// kernels did not correct for the truncation.
TEST_CASE("on a GPU, sums by six pieces are no further from exact ones over a large depth") {
  TESSERA_NEEDS_GPU();
  Gpu gpu(1 << 16, {.product = DType::bf16x6});
  Size const size{40, 20000, 200};
  auto const [m, k, n] = size;
  reference::Array<float> a = reference::random<float>({m, k}, 1), b = reference::random<float>({k, n}, 2);
  for (float& value : a.values) value = std::fabs(value);
  for (float& value : b.values) value = std::fabs(value);
  Exact const want = exact(a, false, b, false, size);
  OnGpu<float> ga(a), gb(b), y(poison<float>({m, n}));
  cuda::Product<float> const p = product_of(size, ga, false, gb, false, y);
  if (cuda::run_by_planes(gpu.context, p, 6)) {
    gpu.finish();
    CHECK(largest_error(y.back(), want) < 2e-6);
  }
  REQUIRE(cuda::run_by_copies(gpu.context, p, 6));
  gpu.finish();
  CHECK(largest_error(y.back(), want) < 2e-6);
}

// The library's kernel (by planes) computes the result in tiles. Some of these sizes are smaller than one
// tile, some are larger, and one has more tiles than the GPU has clusters. All sizes have partial tiles. At
// some depths, the last copy to shared memory is partial. The last size has few tiles of a large depth.
TEST_CASE("on a GPU, products by planes end as they should, whatever that is") {
  TESSERA_NEEDS_GPU();
  for (DType const product : {DType::bf16x6, DType::bf16x3}) {
    Gpu gpu(1 << 16, {.product = product});
    for (Size const size : {Size{1, 1, 4}, Size{77, 72, 192}, Size{129, 37, 200}, Size{300, 72, 396},
                            Size{6000, 8, 580}, Size{40, 1500, 100}})
      for (auto const& [a_transposed, b_transposed] : {std::pair{false, false}, {false, true}, {true, false}})
        for (Extras const& with : extras) {
          INFO(std::string(name_of(product)), " ", size.m, " ", size.k, " ", size.n, " ", a_transposed,
               b_transposed, " ", with.bias, with.residual, with.pre);
          CHECK(error_of(gpu.context, size, a_transposed, b_transposed, with, Method::planes) <
                limit_of(product, with));
        }
  }
}

// The result has 48 tiles, and an H200 has 66 clusters. For each tile, one cluster computes the first three
// quarters of the depth. 16 other clusters compute the last quarter of the depth of all tiles.
TEST_CASE("on a GPU, products by planes whose tiles have clusters of their own and others for the rest") {
  TESSERA_NEEDS_GPU();
  Size const size{5, 3000, 47 * 192 + 4};
  for (DType const product : {DType::bf16x6, DType::bf16x3}) {
    cuda::PieceWork const work =
        cuda::work_of_pieces(size.m, size.n, size.k, piece_terms(product), cuda::blas_bytes);
    CHECK((work.own > 0 || cuda::processors() != 132));
    Gpu gpu(1 << 16, {.product = product});
    for (Extras const& with : {Extras{.bias = true}, Extras{.residual = true}})
      CHECK(error_of(gpu.context, size, true, false, with, Method::planes) < limit_of(product));
  }
}

TEST_CASE("on a GPU, a product by planes times gelu' leaves the sums of its columns") {
  TESSERA_NEEDS_GPU();
  for (DType const product : {DType::bf16x6, DType::bf16x3})
    for (Size const size : {Size{1, 8, 4}, Size{77, 72, 192}, Size{5000, 40, 404}})
      for (bool const b_transposed : {false, true}) {
        auto const [m, k, n] = size;
        Gpu gpu(1 << 16, {.product = product});
        OnGpu<float> a(reference::random<float>({m, k}, 1)), b(reference::random<float>({k, n}, 2)),
            pre(reference::random<float>({m, n}, 5, 3.0)), y(poison<float>({m, n})),
            alone(poison<float>({m, n}));
        std::int64_t const blocks = (m + 127) / 128, guard = 2;
        OnGpu<float> partials(poison<float>({blocks + guard, n}));
        cuda::Product<float> p = product_of(size, a, false, b, b_transposed, y);
        p.pre = pre.cview().data();
        int const terms = piece_terms(product);
        if (!cuda::run_by_planes(gpu.context, p, terms, partials.view().data())) continue;
        p.y = alone.view().data();
        REQUIRE(cuda::run_by_planes(gpu.context, p, terms));
        gpu.finish();
        reference::Array<float> const of = y.back();
        CHECK(reference::same_bits(alone.back().values, of.values));
        std::vector<double> want(static_cast<std::size_t>(blocks * n), 0.0);
        for (std::int64_t i = 0; i < m * n; ++i)
          want[static_cast<std::size_t>(i / n / 128 * n + i % n)] += of[i];
        reference::Array<float> got = partials.back();
        for (std::int64_t i = blocks * n; i < (blocks + guard) * n; ++i) REQUIRE(std::isnan(got[i]));
        got.values.resize(want.size());
        CHECK(reference::error(got, want, std::sqrt(128.0)) < reference::tolerance<float>());
      }
}

TEST_CASE("on a GPU, products by planes are as exact in many blocks, or leave the product to others") {
  TESSERA_NEEDS_GPU();
  for (DType const product : {DType::bf16x6, DType::bf16x3})
    for (std::size_t const capacity : {std::size_t{6} << 10, std::size_t{200} << 10}) {
      test::DeviceBytes memory(cuda::blas_bytes + capacity);
      Context<Cuda> context(1, memory.span(), nullptr, {.product = product});
      for (Size const size : {Size{70, 133, 92}, Size{300, 40, 20}, Size{24, 700, 260}})
        for (auto const& [a_transposed, b_transposed] :
             {std::pair{false, false}, {false, true}, {true, false}})
          for (Extras const& with : {Extras{.bias = true, .residual = true}, Extras{.scale = 0.75}}) {
            INFO(std::string(name_of(product)), " ", capacity, " ", size.m, " ", size.k, " ", size.n, " ",
                 a_transposed, b_transposed);
            CHECK(error_of(context, size, a_transposed, b_transposed, with, Method::planes) <
                  limit_of(product));
          }
    }
}

TEST_CASE("on a GPU, products by pieces are as exact in many blocks") {
  TESSERA_NEEDS_GPU();
  for (DType const product : {DType::bf16x6, DType::bf16x3})
    for (std::size_t const capacity : {std::size_t{6} << 10, std::size_t{200} << 10}) {
      test::DeviceBytes memory(cuda::blas_bytes + capacity);
      Context<Cuda> context(1, memory.span(), nullptr, {.product = product});
      for (Size const size : {Size{70, 133, 91}, Size{300, 40, 17}, Size{24, 700, 260}})
        for (auto const& [a_transposed, b_transposed] :
             {std::pair{false, false}, {false, true}, {true, false}, {true, true}})
          for (Extras const& with : extras) {
            INFO(std::string(name_of(product)), " ", capacity, " ", size.m, " ", size.k, " ", size.n, " ",
                 a_transposed, b_transposed, " ", with.bias, with.residual, with.pre);
            CHECK(error_of(context, size, a_transposed, b_transposed, with) < limit_of(product, with));
          }
    }
}

TEST_CASE("on a GPU, products by pieces of numbers at the ends of the range") {
  TESSERA_NEEDS_GPU();
  float const most = std::numeric_limits<float>::max(), endless = std::numeric_limits<float>::infinity();
  reference::Array<float> a({8, 8}, 0.0f), b({8, 8}, 0.0f);
  a.at(0) = most;          // the factor in b is 1
  a.at(8 + 1) = 0x1p-60f;  // the factor in b is 2^-50
  a.at(16 + 2) = endless;  // the factor in b is 1
  a.at(24 + 3) = std::nanf("");
  for (int k = 0; k < 8; ++k) b.at(k * 8) = 1.0f;
  b.at(8) = 0x1p-50f;
  for (DType const product : {DType::bf16x6, DType::bf16x3}) {
    Gpu gpu(1, {.product = product});
    OnGpu<float> ga(a), gb(b), y(poison<float>({8, 8}));
    cuda::Product<float> const p = product_of({8, 8, 8}, ga, false, gb, false, y);
    for (Method const method : {Method::any, Method::planes}) {
      if (method == Method::any)
        cuda::run_product(gpu.context, p);
      else if (!cuda::run_by_planes(gpu.context, p, piece_terms(product)))
        break;
      gpu.finish();
      reference::Array<float> const got = y.back();
      CHECK(std::fabs(got[0] / static_cast<double>(most) - 1.0) < 1e-4);
      CHECK(got[8] == 0x1p-110);
      CHECK_FALSE(std::isfinite(got[16]));
      CHECK(std::isnan(got[24]));
      CHECK(got[32] == 0.0);
    }
  }
}

TEST_CASE("on a GPU, products by pieces without room for them are refused") {
  TESSERA_NEEDS_GPU();
  test::DeviceBytes memory(Context<Cuda>::workspace_bytes(1, 1));
  Context<Cuda> context(1, memory.span(), nullptr, {.product = DType::bf16x6});
  reference::Array<float> const values = reference::random<float>({8, 8}, 1);
  OnGpu<float> a(values), b(values), y(values);
  cuda::run_product(context, product_of({8, 8, 8}, a, false, b, false, y));
  context.synchronize();
  CHECK_THROWS_WITH_AS(context.raise(), doctest::Contains("the workspace is too small"), Error);
}

TEST_CASE("on a GPU, fp32 asks for fp32 alone") {
  cuda::Product<float> const p{.rows = 8,
                               .columns = 8,
                               .depth = 8,
                               .a = nullptr,
                               .a_transposed = false,
                               .b = nullptr,
                               .b_transposed = false,
                               .y = nullptr};
  CHECK(cuda::key_of(p, DType::f32).compute == CUBLAS_COMPUTE_32F);
  CHECK(cuda::key_of(p, DType::tf32).compute == CUBLAS_COMPUTE_32F_FAST_TF32);
}
