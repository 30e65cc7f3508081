// SPDX-License-Identifier: Apache-2.0
// Tests embeddings on a GPU: bits equal the CPU's in both directions, for any tokens.
#include <cstdint>
#include <type_traits>
#include <vector>

#include <doctest/doctest.h>

#include "tessera/backend/cuda/kernels/embedding.cuh"
#include "tessera/ops/embedding.hpp"

#include "device/device.hpp"
#include "unit/reference.hpp"

using namespace tessera;
using reference::Array;
using reference::Machine;
using reference::same_bits;
using test::Gpu;
using test::OnGpu;
using test::poison;

namespace {

/// Tokens below `vocabulary`. `percent` percent of them are the same token.
Array<std::int32_t> some_tokens(Shape const& shape, std::int32_t vocabulary, std::uint32_t percent,
                                std::uint32_t seed) {
  Array<std::int32_t> tokens(shape, 0);
  std::uint32_t state = seed * 2654435761u;
  for (std::int32_t& token : tokens.values) {
    state = state * 1664525u + 1013904223u;
    std::uint32_t const draw = state >> 8;
    state = state * 1664525u + 1013904223u;
    token = draw % 100 < percent
                ? vocabulary / 2
                : static_cast<std::int32_t>((state >> 8) % static_cast<std::uint32_t>(vocabulary));
  }
  return tokens;
}

struct Size {
  std::int64_t samples, sequence, channels, vocabulary, positions;
  std::uint32_t percent;  // share of tokens that are equal
};

constexpr Size sizes[] = {
    {1, 1, 1, 1, 1, 0},           {3, 5, 7, 11, 8, 0},          {2, 33, 33, 300, 40, 20},
    {4, 100, 64, 20, 100, 0},     {5, 200, 130, 700, 256, 70},  {7, 129, 128, 2, 129, 0},
    {3, 1000, 768, 400, 1024, 5}, {20, 321, 12, 50257, 321, 1}, {2, 321, 5, 100000, 321, 100},
};

template <class T>
void forward_has_the_cpu_bits(Machine& machine, Gpu& gpu, Size size, std::int64_t offset) {
  auto const [b, t, c, v, p, percent] = size;
  Array<std::int32_t> tokens = some_tokens({b, t}, static_cast<std::int32_t>(v), percent, 1);
  Array<T> wte = reference::random<T>({v * c + 1}, 2), wpe = reference::random<T>({p, c}, 3);
  OnGpu<std::int32_t> device_tokens(tokens);
  OnGpu<T> device_wte(wte), device_wpe(wpe);
  for (bool positions : {true, false}) {
    Array<T> want = poison<T>({b, t, c});
    OnGpu<T> got(want);
    ops::embedding_forward(machine.context, tokens.view(), Tensor<T>{wte.values.data() + offset, {v, c}},
                           positions ? wpe.view() : Tensor<T>(), want.view());
    ops::embedding_forward(gpu.context, device_tokens.cview(),
                           Tensor<T, Cuda>{device_wte.view().data() + offset, {v, c}},
                           positions ? device_wpe.view() : Tensor<T, Cuda>(), got.view());
    gpu.finish();
    CHECK(same_bits(got.back().values, want.values));
  }
}

template <class T>
void backward_has_the_cpu_bits(Machine& machine, Gpu& gpu, Size size, bool fresh, bool positions,
                               std::int64_t offset) {
  using S = compute_t<T>;
  auto const [b, t, c, v, p, percent] = size;
  Array<std::int32_t> tokens = some_tokens({b, t}, static_cast<std::int32_t>(v), percent, 4);
  Array<T> dy = reference::random<T>({b * t * c + 1}, 5);
  for (std::size_t i = 0; i < dy.values.size(); i += 11) dy.values[i] = T(-0.0f);
  Array<S> partial = fresh ? poison<S>({v, c}) : reference::random<S>({v, c}, 6);
  Array<T> dwte = poison<T>({v, c}), dwpe = poison<T>({p, c});
  OnGpu<std::int32_t> device_tokens(tokens);
  OnGpu<T> device_dy(dy), got_dwte(dwte), got_dwpe(dwpe);
  OnGpu<S> got_partial(partial), in_place(partial);
  ops::embedding_backward(gpu.context, device_tokens.cview(),
                          Tensor<T, Cuda>{device_dy.view().data() + offset, {b, t, c}}, got_partial.view(),
                          fresh, got_dwte.view(), positions ? got_dwpe.view() : Tensor<T, Cuda>());
  ops::embedding_backward(machine.context, tokens.view(), Tensor<T>{dy.values.data() + offset, {b, t, c}},
                          partial.view(), fresh, dwte.view(), positions ? dwpe.view() : Tensor<T>());
  gpu.finish();
  CHECK(same_bits(got_partial.back().values, partial.values));
  CHECK(same_bits(got_dwte.back().values, dwte.values));
  CHECK(same_bits(got_dwpe.back().values, dwpe.values));
  if constexpr (std::is_same_v<S, T>) {
    ops::embedding_backward(gpu.context, device_tokens.cview(),
                            Tensor<T, Cuda>{device_dy.view().data() + offset, {b, t, c}}, in_place.view(),
                            fresh, in_place.view(), {});
    gpu.finish();
    CHECK(same_bits(in_place.back().values, dwte.values));
  }
}

}  // namespace

TEST_CASE_TEMPLATE("GPU: embedding has the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (Size const& size : sizes)
    for (std::int64_t offset : {0, 1}) {
      CAPTURE(size.channels);
      CAPTURE(size.vocabulary);
      CAPTURE(offset);
      forward_has_the_cpu_bits<T>(machine, gpu, size, offset);
    }
}

TEST_CASE_TEMPLATE("GPU: embedding gradient has the CPU's bits", T, float, double, tessera::half, bfloat16) {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  for (Size const& size : sizes)
    for (bool fresh : {true, false}) {
      CAPTURE(size.channels);
      CAPTURE(size.vocabulary);
      CAPTURE(fresh);
      backward_has_the_cpu_bits<T>(machine, gpu, size, fresh, true, 0);
      backward_has_the_cpu_bits<T>(machine, gpu, size, fresh, false, 1);
    }
}

TEST_CASE("GPU: embedding gradient of more tokens than are sorted at once") {
  TESSERA_NEEDS_GPU();
  Machine machine(2);
  Gpu gpu;
  Size const many{3, cuda::sorted_tokens / 2 - 7, 2, 1000, cuda::sorted_tokens / 2, 0};
  backward_has_the_cpu_bits<float>(machine, gpu, many, true, true, 0);
  backward_has_the_cpu_bits<bfloat16>(machine, gpu, many, false, true, 0);
}

TEST_CASE("the workspace of the embedding gradient is bounded") {
  CHECK(cuda::embedding_workspace_bytes(1) >= 16);
  CHECK(cuda::embedding_workspace_bytes(1 << 16) >= (std::size_t{16} << 16));
  CHECK(cuda::embedding_workspace_bytes(std::int64_t{1} << 40) <= Context<Cuda>::workspace_bytes(1, 1));
}
