// SPDX-License-Identifier: Apache-2.0
// Tests Array, OwningContext, and the transfers of values between the host and the device.
#include "tessera/tensor/array.hpp"

#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/ops/axpy.hpp"
#include "tessera/ops/context.hpp"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/linear.hpp"
#include "tessera/ops/sum.hpp"
#include "tessera/ops/transfer.hpp"

#include "operators/place.hpp"

namespace ts = tessera;
using test::Place;

namespace {

template <class T>
using Owned = ts::Array<T, Place>;
using Context = ts::OwningContext<Place>;

static_assert(std::movable<Owned<float>> && !std::copyable<Owned<float>>);
static_assert(std::is_convertible_v<Owned<float>&, ts::Tensor<float, Place>>);
static_assert(std::is_convertible_v<Owned<float> const&, ts::Tensor<float const, Place>>);
// A constant array does not convert to a view of mutable values, and a temporary array does not convert to a
// view.
static_assert(!std::is_convertible_v<Owned<float> const&, ts::Tensor<float, Place>>);
static_assert(!std::is_convertible_v<Owned<float>, ts::Tensor<float, Place>>);

/// Returns the values 0, 1, 2 and so on.
std::vector<float> counting(std::int64_t n) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i));
  return values;
}

}  // namespace

TEST_CASE("an array owns zeros, moves, and is empty after a move") {
  TESSERA_NEEDS_PLACE();
  Context context({.threads = 2});
  Owned<float> first({3, 5});
  CHECK(first.shape() == ts::Shape{3, 5});
  CHECK(first.elements() == 15);
  CHECK(first.bytes() == 60);
  CHECK(ts::ops::download(context, first) == std::vector<float>(15, 0.0f));
  ts::ops::upload(context, counting(15), first);
  float const* const address = first.data();
  Owned<float> second(std::move(first));
  CHECK(second.data() == address);
  CHECK(first.data() == nullptr);
  CHECK(first.elements() == 0);
  CHECK(first.shape() == ts::Shape{0});
  CHECK(Owned<float>().shape() == ts::Shape{0});
  CHECK(!first.view());
  Owned<float> one({1});
  CHECK_THROWS_AS(ts::ops::axpy(context, 2.0f, first, one.view()), ts::Error);
  Owned<float> third({2});
  third = std::move(second);
  CHECK(third.shape() == ts::Shape{3, 5});
  CHECK(ts::ops::download(context, third) == counting(15));
  Owned<float>& self = third;
  third = std::move(self);
  CHECK(ts::ops::download(context, third) == counting(15));
  CHECK(Owned<float>({0, 4}).data() == nullptr);
  CHECK(ts::ops::download(context, Owned<double>({0})).empty());
  Owned<std::int32_t> integers({4});
  ts::ops::upload(context, std::vector<std::int32_t>{1, 2, 3, 4}, integers);
  CHECK(ts::ops::download(context, integers) == std::vector<std::int32_t>{1, 2, 3, 4});
}

TEST_CASE("arrays are the arguments of operations") {
  TESSERA_NEEDS_PLACE();
  Context context({.threads = 2});
  Owned<float> x({2, 3}), w({3, 4}), bias({4}), y({2, 4}), partials({1});
  Owned<double> result({1});
  ts::ops::upload(context, counting(6), x);
  ts::ops::fill(context, w.view(), 1.0f);
  ts::ops::fill(context, bias.view(), 0.5f);
  ts::ops::linear(context, x, w, y.view(), {.bias = bias});
  CHECK(ts::ops::download(context, y) ==
        std::vector<float>{3.5f, 3.5f, 3.5f, 3.5f, 12.5f, 12.5f, 12.5f, 12.5f});
  Owned<float> const& constant = y;
  ts::ops::sum(context, constant.view(), partials, result);
  CHECK(ts::ops::download(context, result).front() == 64.0);
  ts::ops::axpy(context, -1.0f, constant, y.view());
  ts::ops::norm(context, y.view(), partials, result);
  CHECK(ts::ops::download(context, result).front() == 0.0);
  context.wait();
}

TEST_CASE("uploads of any size come in the order of the operations") {
  TESSERA_NEEDS_PLACE();
  Context context({.threads = 2});
  // The last size is above direct_upload_bytes.
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{5000}, ts::ops::direct_upload_bytes / 4 + 7}) {
    CAPTURE(n);
    Owned<float> values({n}), before({n});
    std::vector<float> host = counting(n);
    for (int round = 0; round < 12; ++round) {  // more rounds than uploads that can be pending
      ts::ops::upload(context, host, values);
      for (float& value : host) value += 1.0f;  // the upload has already read the old values
      ts::ops::copy(context, values, before.view());
    }
    std::vector<float> want = counting(n);
    for (float& value : want) value += 11.0f;
    CHECK(ts::ops::download(context, before) == want);
    std::vector<float> back(static_cast<std::size_t>(n));
    ts::ops::download(context, ts::Tensor<float const, Place>(values), back);
    CHECK(back == want);
  }
}

TEST_CASE("wrong shapes, options and sizes are refused with numbers") {
  TESSERA_NEEDS_PLACE();
  CHECK_THROWS_WITH_AS(Owned<float>({3, -1}),
                       "an Array cannot have the shape [3, -1]: no extent may be negative, and the number of "
                       "bytes must be below 2^62",
                       ts::Error);
  std::int64_t const huge = std::int64_t{1} << 31;
  CHECK_THROWS_AS(Owned<float>({huge, huge}), ts::Error);
  CHECK_THROWS_AS(Owned<float>({std::numeric_limits<std::int64_t>::max()}), ts::Error);
  CHECK_THROWS_WITH_AS((ts::Shape{1, 2, 3, 4, 5}), "a shape got 5 extents; a tensor has at most 4",
                       ts::Error);
  try {
    Owned<float>({std::int64_t{1} << 55});
    FAIL("an array of 2^57 bytes was allocated");
  } catch (ts::Error const& error) {
    CHECK(error.kind() == ts::ErrorKind::out_of_memory);
  }
  CHECK_THROWS_WITH_AS(Context({.threads = -3}),
                       "a context got -3 threads; choose 1 to 1024, or 0 for one thread per core", ts::Error);
  CHECK_THROWS_AS(Context({.device = -1}), ts::Error);
  CHECK_THROWS_AS(Context({.math = {.product = ts::DType::bf16}}), ts::Error);
  if constexpr (!test::on_gpu) {
    CHECK_THROWS_WITH_AS(Context({.device = 1}), "a context on cpu got the device 1; the CPU is device 0",
                         ts::Error);
    CHECK_THROWS_WITH_AS(Context({.math = {.product = ts::DType::tf32}}),
                         "a context on cpu cannot multiply in tf32, which needs a GPU; choose DType::f32",
                         ts::Error);
  }
  Context context({.threads = 1});
  Owned<float> four({4}), none;
  CHECK_THROWS_WITH_AS(
      ts::ops::upload(context, counting(3), four),
      "upload got 3 values of the host for a tensor of the shape [4]; give as many values as "
      "elements",
      ts::Error);
  std::vector<float> five(5);
  CHECK_THROWS_WITH_AS(ts::ops::download(context, four, five),
                       "download got 5 values of the host for a tensor of the shape [4]; give as many values "
                       "as elements",
                       ts::Error);
  CHECK_THROWS_AS(ts::ops::upload(context, five, none), ts::Error);
  ts::ops::upload(context, std::vector<float>{}, none);
}
