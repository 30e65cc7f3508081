// SPDX-License-Identifier: Apache-2.0
// Tests cuDNN's attention on a GPU against a scalar implementation, if the build has cuDNN.
#include <cstddef>
#include <cstdint>

#include <doctest/doctest.h>

#include "operators/attention.hpp"

using namespace tessera;
using test::attention;
using test::AttentionInput;
using test::AttentionSize;
using test::Gpu;

#define TESSERA_NEEDS_CUDNN()                                         \
  TESSERA_NEEDS_GPU();                                                \
  if (!cuda::has_cudnn_attention()) {                                 \
    MESSAGE("skipped: this build has no cuDNN (-DTESSERA_CUDNN=ON)"); \
    return;                                                           \
  }

namespace {

constexpr Math by_cudnn{.attention = AttentionKind::cudnn};

/// Compares the results of cuDNN's attention, forward and backward, with the results of the definition of
/// attention. The inputs are random values in (-range, range). The error of a value is |got - want| / (floor
/// + |want|). The results of two calls are not compared, because the bits of cuDNN's results can differ from
/// call to call.
template <class T>
void check_cudnn(Context<Cuda>& cudnn, AttentionSize const& size, double range = 1.5, double floor = 1.0) {
  CAPTURE(text(size));
  AttentionInput<T> const in(size, range);
  test::check_near(attention(cudnn, in), test::attention_definition(in), reference::tolerance<T>(), floor);
  CHECK(cudnn.attention_ran() == AttentionKind::cudnn);
}

}  // namespace

TEST_CASE_TEMPLATE("on a GPU, attention by cuDNN matches its definition", T, tessera::half, bfloat16) {
  TESSERA_NEEDS_CUDNN();
  Gpu gpu(1 << 16, by_cudnn);
  std::int64_t iteration = 0;
  for (std::int64_t sequence : {2, 7, 64, 65, 129, 300})
    for (std::int64_t head : {8, 32, 40, 64, 80, 128}) {
      std::int64_t const samples = iteration % 3 + 1;
      int const heads = static_cast<int>(iteration % 5 + 1);
      check_cudnn<T>(gpu.context, {samples, sequence, heads, head});
      ++iteration;
    }
  check_cudnn<T>(gpu.context, {1, 1100, 2, 64});
  check_cudnn<T>(gpu.context, {2, 200, 3, 64}, 7.0, 50.0);
}

TEST_CASE_TEMPLATE("on a GPU, heads of cuDNN's queries may share heads of keys", T, tessera::half, bfloat16) {
  TESSERA_NEEDS_CUDNN();
  Gpu gpu(1 << 16, by_cudnn);
  for (std::int64_t head : {64, 128})
    for (std::int64_t sequence : {65, 300}) check_cudnn<T>(gpu.context, {2, sequence, 6, head, 3});
  check_cudnn<T>(gpu.context, {1, 257, 8, 64, 8});
}

TEST_CASE("on a GPU, cuDNN takes samples and heads in pieces that a small workspace holds") {
  TESSERA_NEEDS_CUDNN();
  Gpu gpu;
  // The input has 5 samples with 7 heads each. cuDNN's sums need 129 * 65 floats in the workspace for each
  // head. The first workspace has space for 15 heads, so the 5 samples are computed in batches of 2, 2 and 1
  // samples. The second workspace has space for 4 heads, so the 7 heads of each sample are computed in
  // batches of 4 and 3 heads.
  for (std::size_t const heads : {15, 4}) {
    CAPTURE(heads);
    Context<Cuda> small(1, gpu.workspace.span().first(heads * 129 * 65 * sizeof(float)), nullptr, by_cudnn);
    check_cudnn<bfloat16>(small, {5, 129, 7, 64});
  }
  Context<Cuda> shared(1, gpu.workspace.span().first(20 * 129 * 65 * sizeof(float)), nullptr, by_cudnn);
  check_cudnn<bfloat16>(shared, {5, 129, 6, 64, 3});
  Context<Cuda> tiny(1, gpu.workspace.span().first(129 * 64), nullptr, by_cudnn);
  CHECK_THROWS_WITH_AS(check_cudnn<bfloat16>(tiny, {5, 129, 6, 64}), doctest::Contains("one key head needs"),
                       Error);
}

TEST_CASE("on a GPU, cuDNN refuses what it does not support and says why") {
  TESSERA_NEEDS_CUDNN();
  auto const check_refused = []<class T>(AttentionInput<T> const& in, char const* reason) {
    Gpu gpu(1 << 16, by_cudnn);
    CHECK_THROWS_WITH_AS(attention(gpu.context, in), doctest::Contains(reason), Error);
  };
  using Input = AttentionInput<bfloat16>;
  check_refused(AttentionInput<float>({1, 64, 2, 64}), "cuDNN's attention supports only 16-bit values");
  check_refused(
      Input({2, 64, 3, 20}),
      "cuDNN does not support bf16 attention with 2 x 64 positions, 3 heads of 20 channels, 3 key heads "
      "(the channels of a head and the row strides must be multiples of 8); use attention auto or fused");
  check_refused(
      Input({1, 64, 2, 1024}),
      "cuDNN does not support bf16 attention with 1 x 64 positions, 2 heads of 1024 channels, 2 key "
      "heads (");
  check_refused(Input({1, 70, 4, 64, 2, 61, 131}), "these queries are a part of the positions");
  // No kernel passes another type to cuDNN, so this case calls the interface.
  CHECK(
      cuda::CudnnAttention::maker()()->forward(
          {.type = DType::f32, .samples = 1, .sequence = 64, .heads = 2, .head = 64}, {}, nullptr, {}) ==
      "cuDNN does not support fp32 attention with 1 x 64 positions, 2 heads of 64 channels, 2 key heads (the "
      "operands must be fp16 or bf16); use attention auto or fused");
}
