// SPDX-License-Identifier: Apache-2.0
// Tests operators on memory that occurs only with GPUs: pinned host memory, and arrays of more than 2^31
// elements.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <cuda_runtime.h>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/cross_entropy.cuh"
#include "tessera/backend/cuda/kernels/elementwise.cuh"
#include "tessera/ops/convert.hpp"
#include "tessera/ops/cross_entropy.hpp"
#include "tessera/ops/norm.hpp"

#include "device/device.hpp"

using namespace tessera;
using reference::poison;
using test::DeviceBytes;
using test::Gpu;
using test::OnGpu;

namespace {

/// Returns whether the GPU has `bytes` free bytes. If it has less, prints that the test is skipped.
bool has_free(std::size_t bytes) {
  std::size_t unused = 0, total = 0;
  cuda::require(cudaMemGetInfo(&unused, &total), "cudaMemGetInfo");
  if (unused < bytes) MESSAGE("skipped: the GPU has too little free memory");
  return unused >= bytes;
}

}  // namespace

TEST_CASE("GPU: copy reaches pinned host memory in both directions") {
  TESSERA_NEEDS_GPU();
  Gpu gpu;
  std::int64_t const n = 5003;
  reference::Array<float> values = reference::random<float>({n}, 1);
  Arena<cuda::PinnedMemory> pinned(2 * n * static_cast<std::int64_t>(sizeof(float)));
  float* const first = reinterpret_cast<float*>(pinned.base());
  std::memcpy(first, values.values.data(), static_cast<std::size_t>(n) * sizeof(float));
  OnGpu<float> device(poison<float>({n}));
  ops::copy(gpu.context, Tensor<float const, Cuda>{first, {n}}, device.view());
  ops::copy(gpu.context, device.cview(), Tensor<float, Cuda>{first + n, {n}});
  gpu.finish();
  CHECK(reference::same_bits(device.back().values, values.values));
  CHECK(std::memcmp(first + n, first, static_cast<std::size_t>(n) * sizeof(float)) == 0);
}

TEST_CASE("GPU: pinned host memory is zero, aligned to disk_block, and has one address for all GPUs") {
  TESSERA_NEEDS_GPU();
  int devices = 0, current = 0;
  cuda::require(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
  cuda::require(cudaGetDevice(&current), "cudaGetDevice");
  std::int64_t const large = 3 * cuda::part_of_pages + 4096;
  for (std::int64_t const bytes : {std::int64_t{100}, large, large}) {
    CAPTURE(bytes);
    std::byte* base = nullptr;
    std::size_t size = 0;
    {
      Arena<cuda::PinnedMemory> pinned(bytes);
      base = pinned.base();
      size = static_cast<std::size_t>(pinned.bytes());
      CHECK(reinterpret_cast<std::uintptr_t>(base) % disk_block == 0);
      CHECK(std::all_of(base, base + size, [](std::byte value) { return value == std::byte{0}; }));
      for (int device = 0; device < devices; ++device)
        for (std::byte* const at : {base, base + size / 2, base + size - 1}) {
          CAPTURE(device);
          cuda::require(cudaSetDevice(device), "cudaSetDevice");
          cudaPointerAttributes about{};
          cuda::require(cudaPointerGetAttributes(&about, at), "cudaPointerGetAttributes");
          CHECK(about.type == cudaMemoryTypeHost);
          CHECK(about.devicePointer == at);
          cuda::require(cudaMemset(at, 7 + device, 1), "cudaMemset");  // a GPU writes to the memory
          cuda::require(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
          CHECK(*at == static_cast<std::byte>(7 + device));
        }
    }  // another GPU can be current when the memory is freed
    cuda::require(cudaSetDevice(current), "cudaSetDevice");
    cudaPointerAttributes about{};
    cuda::require(cudaPointerGetAttributes(&about, base), "cudaPointerGetAttributes");
    CHECK(about.type == cudaMemoryTypeUnregistered);
    std::vector<unsigned char> pages((size + 4095) / 4096);
    CHECK(::mincore(base, size, pages.data()) == -1);  // the memory is not mapped any more
  }
}

TEST_CASE("GPU: pinned host memory is not in a child process") {
  TESSERA_NEEDS_GPU();
  Arena<cuda::PinnedMemory> pinned(1 << 20);
  pid_t const child = ::fork();
  if (child == 0) {
    std::array<unsigned char, 256> pages{};
    ::_exit(::mincore(pinned.base(), 1 << 20, pages.data()) == -1 && errno == ENOMEM ? 0 : 1);
  }
  REQUIRE(child > 0);
  int status = -1;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("GPU: more pinned host memory than the host has is refused") {
  TESSERA_NEEDS_GPU();
  std::string said;
  try {
    Arena<cuda::PinnedMemory> const pinned(std::int64_t{1} << 50);
  } catch (Error const& error) {
    CHECK(error.kind() == ErrorKind::out_of_memory);
    said = error.what();
  }
  CHECK(said.find("cannot pin 1125899906842624 bytes of host memory, because only ") != said.npos);
}

TEST_CASE("GPU: elementwise operations reach elements beyond the 2^31st") {
  TESSERA_NEEDS_GPU();
  if (!has_free(std::size_t{12} << 30)) return;
  std::int64_t const n = (std::int64_t{1} << 31) + 4096 + 7, blocks = (n + 4095) / 4096;
  Gpu gpu;
  DeviceBytes memory(static_cast<std::size_t>(n) * 2), copy(static_cast<std::size_t>(n) * 2);
  Tensor<tessera::half, Cuda> const values{reinterpret_cast<tessera::half*>(memory.data()), {n}};
  Tensor<bfloat16, Cuda> const converted{reinterpret_cast<bfloat16*>(copy.data()), {n}};
  OnGpu<float> partials(reference::Array<float>({blocks}));
  OnGpu<std::int64_t> index(reference::Array<std::int64_t>({1}, 77));
  ops::fill(gpu.context, values, 1.0f);
  ops::fill(gpu.context, Tensor<tessera::half, Cuda>{values.data() + n - 3, {1}},
            std::numeric_limits<float>::infinity());
  ops::norm_partials(gpu.context, values, partials.view());
  ops::convert(gpu.context, values, converted);
  ops::first_non_finite(gpu.context, converted, index.view().data());
  gpu.finish();
  CHECK(index.back().values[0] == n - 3);
  reference::Array<float> const sums = partials.back();
  CHECK(sums[0] == 4096.0);
  CHECK(sums[blocks - 2] == 4096.0);
  CHECK(std::isinf(sums[blocks - 1]));
}

TEST_CASE("GPU: cross entropy reaches logits beyond the 2^31st") {
  TESSERA_NEEDS_GPU();
  if (!has_free(std::size_t{8} << 30)) return;
  std::int64_t const n = 50257, rows = (std::int64_t{1} << 31) / n + 3;
  Gpu gpu;
  DeviceBytes memory(static_cast<std::size_t>(rows * n) * sizeof(bfloat16));
  cuda::require(cudaMemset(memory.data(), 0, memory.span().size()), "cudaMemset");
  bfloat16* const logits = reinterpret_cast<bfloat16*>(memory.data());
  OnGpu<std::int32_t> targets(reference::Array<std::int32_t>({rows}, 50256));
  OnGpu<float> losses(poison<float>({rows})), scale(reference::Array<float>({1}, 64.0f));
  ops::cross_entropy(gpu.context, Tensor<bfloat16, Cuda>{logits, {rows, n}}, targets.cview(), losses.view(),
                     true, scale.cview().data());
  gpu.finish();
  reference::Array<float> const got = losses.back();
  double worst = 0;
  for (std::int64_t row = 0; row < rows; ++row)
    worst = std::max(worst, std::fabs(got[row] - std::log(static_cast<double>(n))));
  CHECK(worst < 1e-4);
  bfloat16 last[2];
  cuda::require(cudaMemcpy(last, logits + rows * n - 2, sizeof last, cudaMemcpyDeviceToHost), "cudaMemcpy");
  CHECK(static_cast<float>(last[0]) == doctest::Approx(64.0 / 50257).epsilon(0.01));
  CHECK(static_cast<float>(last[1]) == -64.0f);
}
