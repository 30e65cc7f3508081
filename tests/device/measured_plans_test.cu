// SPDX-License-Identifier: Apache-2.0
// Tests measured plans of cuBLASLt. A plan is an algorithm for a matrix product. The results must have the
// bits of the algorithm that cuBLASLt's heuristic ranks first, and plans must be saved to a file.
#include <algorithm>
#include <cstdint>
#include <cuda_runtime.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/products/linear.cuh"
#include "tessera/backend/cuda/products/measured_plans.cuh"
#include "tessera/ops/linear.hpp"

#include "device/device.hpp"
#include "operators/reference.hpp"

using namespace tessera;
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

std::size_t lines_of(std::filesystem::path const& path) {
  std::ifstream file(path);
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n'));
}

/// Returns x w + bias with random x, w and bias. x is a (rows, depth) matrix and w a (depth, columns) matrix.
/// The product uses the installed plans (the chosen algorithms of cuBLASLt).
template <class T>
reference::Array<T> product(std::int64_t rows, std::int64_t depth, std::int64_t columns,
                            DType format = DType::f32) {
  Gpu gpu(1 << 16, {.product = format});
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
  reference::Array<T> const want = product<T>(512, 768, 2304), small = product<T>(33, 17, 65);
  std::filesystem::path file;
  std::size_t known = 0;
  {
    cuda::MeasuredPlans plans(folder.path, true);
    plans.install();
    CHECK(reference::same_bits(product<T>(512, 768, 2304).values, want.values));
    CHECK(reference::same_bits(product<T>(33, 17, 65).values, small.values));
    file = plans.file().path();
    known = plans.file().size();
    CHECK(plans.take_used() == known);
    CHECK(plans.take_used() == 0);
    CHECK(plans.failure() == "");
  }
  CHECK(cuda::PlanChoice::installed() == nullptr);
  CHECK(known >= 1);
  CHECK(lines_of(file) == known);
  std::ofstream(file, std::ios::app) << "12 34 torn";
  cuda::MeasuredPlans plans(folder.path, false);
  CHECK(plans.size() == known);
  plans.install();
  CHECK(reference::same_bits(product<T>(512, 768, 2304).values, want.values));
  CHECK(plans.take_used() == 1);
  // The file has no plan for this product. The product then uses the first choice of cuBLASLt's heuristic,
  // and nothing is added to the file.
  product<T>(40, 24, 72);
  CHECK(plans.take_used() == 0);
  CHECK(plans.size() == known);
  CHECK(lines_of(file) == known);
}

TEST_CASE("on a GPU, ranks that want the same products at once keep one plan of each") {
  TESSERA_NEEDS_GPU();
  Folder const folder;
  reference::Array<bfloat16> const want = product<bfloat16>(512, 768, 2304),
                                   small = product<bfloat16>(264, 512, 768);
  int devices = 0;
  cuda::require(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  cuda::MeasuredPlans plans(folder.path, true);
  plans.install();
  std::vector<int> differ(4);
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < 4; ++rank)
      ranks.emplace_back([&, rank] {
        cuda::require(cudaSetDevice(rank % devices), "cudaSetDevice");
        int const same = reference::same_bits(product<bfloat16>(512, 768, 2304).values, want.values) +
                         reference::same_bits(product<bfloat16>(264, 512, 768).values, small.values);
        differ[static_cast<std::size_t>(rank)] = 2 - same;
      });
  }
  CHECK(differ == std::vector<int>(4));
  CHECK(plans.take_used() == 2);
  CHECK(plans.failure() == "");
  CHECK(lines_of(plans.file().path()) == plans.file().size());
}

TEST_CASE("on a GPU, a product is measured while its stream is recorded, and one that cannot be kept holds") {
  TESSERA_NEEDS_GPU();
  Folder const folder;
  reference::Array<float> const want = product<float>(512, 768, 2304);
  cuda::MeasuredPlans plans(folder.path, true);
  plans.install();
  std::filesystem::remove_all(folder.path);
  Gpu gpu;
  OnGpu<float> x(reference::random<float>({512, 768}, 1)), w(reference::random<float>({768, 2304}, 2)),
      bias(reference::random<float>({2304}, 3)), y(poison<float>({512, 2304}));
  for (int run = 0; run < 2; ++run)
    gpu.context.replay(
        0, true, [&] { ops::linear(gpu.context, x.cview(), w.cview(), y.view(), {.bias = bias.cview()}); });
  gpu.finish();
  CHECK(reference::same_bits(y.back().values, want.values));
  CHECK(plans.take_used() == 1);
  CHECK(plans.failure().find(".plans: cannot open") != std::string::npos);
}

TEST_CASE("on a GPU, products by pieces have measured plans too") {
  TESSERA_NEEDS_GPU();
  for (DType const format : {DType::bf16x6, DType::tf32}) {
    Folder const folder;
    // Each product has only 40 rows. For so few rows, the library uses cuBLASLt even on Hopper, not its own
    // kernels. The second product is computed in two blocks of columns, so the rows of each block's result
    // are not contiguous.
    reference::Array<float> const want = product<float>(40, 768, 2304, format),
                                  wide = product<float>(40, 1024, 30008, format);
    cuda::MeasuredPlans plans(folder.path, true);
    plans.install();
    CHECK(reference::same_bits(product<float>(40, 768, 2304, format).values, want.values));
    CHECK(reference::same_bits(product<float>(40, 1024, 30008, format).values, wide.values));
    plans.remove();
    CHECK(plans.take_used() >= 2);
  }
}
