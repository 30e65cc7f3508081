// SPDX-License-Identifier: Apache-2.0
// Measured plans of products: the bits of the heuristic's first, kept in a file.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <unistd.h>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/linear.cuh"
#include "tessera/backend/cuda/measured_plans.cuh"
#include "tessera/ops/linear.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

struct Folder {
  std::filesystem::path const path =
      std::filesystem::temp_directory_path() / ("tessera-plans-" + std::to_string(::getpid()));
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
};

/// y = x w + bias and dw = x^T dy, by whatever plans are chosen now.
template <class T>
Array<T> product(std::int64_t rows, std::int64_t depth, std::int64_t columns) {
  Gpu gpu;
  OnGpu<T> x(reference::random<T>({rows, depth}, 1)), w(reference::random<T>({depth, columns}, 2)),
      bias(reference::random<T>({columns}, 3)), y(poison<T>({rows, columns}));
  ops::linear(gpu.context, x.cview(), w.cview(), y.view(), {.bias = bias.cview()});
  gpu.finish();
  return y.back();
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, measured plans give the bits of the first, from their file too", T, float,
                   tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Folder const folder;
  Array<T> const want = product<T>(512, 768, 2304), small = product<T>(33, 17, 65);
  std::filesystem::path file;
  std::size_t known = 0;
  {
    cuda::MeasuredPlans plans(folder.path, true);
    cuda::plan_choice = &plans;
    CHECK(reference::same_bits(product<T>(512, 768, 2304).values, want.values));
    CHECK(reference::same_bits(product<T>(33, 17, 65).values, small.values));
    cuda::plan_choice = nullptr;
    file = plans.path();
    known = plans.size();
  }
  CHECK(known >= 1);
  std::ofstream(file, std::ios::app) << "12 34 torn";
  cuda::MeasuredPlans plans(folder.path, false);
  CHECK(plans.size() == known);
  cuda::plan_choice = &plans;
  CHECK(reference::same_bits(product<T>(512, 768, 2304).values, want.values));
  cuda::plan_choice = nullptr;
  CHECK(plans.size() == known);
}
