// SPDX-License-Identifier: Apache-2.0
// Tests the sums of arrays that several ranks have sent: the order of the summands, and the rounding.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/rank_sums.cuh"
#include "tessera/comm/sum.hpp"

#include "device/device.hpp"

using namespace tessera;
using test::Gpu;
using test::OnGpu;

namespace {

/// Compares the sum of `count` arrays with the sum on the CPU. Each array begins `offset` elements after an
/// aligned address. The sum replaces the array `into`.
template <class T>
void compare_sum(int count, std::int64_t elements, std::int64_t offset, int into) {
  CAPTURE(count);
  CAPTURE(elements);
  CAPTURE(offset);
  Gpu gpu;
  std::vector<reference::Array<T>> values;
  std::vector<std::unique_ptr<OnGpu<T>>> arrays;
  cuda::Summands summands;
  summands.count = count;
  for (int which = 0; which < count; ++which) {
    // Large values with different signs: a sum in another order has other bits.
    values.push_back(reference::random<T>({elements}, static_cast<std::uint32_t>(which + 1), 1000.0));
    arrays.push_back(std::make_unique<OnGpu<T>>(values.back(), offset));
    summands.at[which] = reinterpret_cast<std::byte const*>(arrays.back()->cview().data());
  }
  reference::Array<T> want({elements});
  comm::detail::sum_in_rank_order<T>(
      count, [&](int rank) { return values[static_cast<std::size_t>(rank)].values.data(); },
      want.values.data(), elements);
  OnGpu<T>& result = *arrays[static_cast<std::size_t>(into)];
  cuda::run_rank_sum(gpu.context.stream(), dtype_of<T>, elements * static_cast<std::int64_t>(sizeof(T)),
                     summands, reinterpret_cast<std::byte*>(result.view().data()));
  gpu.finish();
  CHECK(result.back() == want);
}

template <class T>
void compare_sums() {
  for (int const count : {2, 3, 5, cuda::Summands::max_count})
    for (std::int64_t const elements : {1, 7, 1000, 100'003})
      for (std::int64_t const offset : {0, 1}) compare_sum<T>(count, elements, offset, count / 2);
}

}  // namespace

TEST_CASE("GPU: a sum of the arrays of several ranks is in rank order and rounded once") {
  TESSERA_NEEDS_GPU();
  SUBCASE("fp32") { compare_sums<float>(); }
  SUBCASE("fp64") { compare_sums<double>(); }
  SUBCASE("fp16") { compare_sums<tessera::half>(); }
  SUBCASE("bf16") { compare_sums<bfloat16>(); }
}
